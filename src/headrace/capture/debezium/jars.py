"""The jars that one of Debezium's connectors needs to run by itself: a part of those of Kafka Connect."""

from __future__ import annotations

import importlib.util
from importlib.resources import files
from pathlib import Path

from headrace.errors import SetupError
from headrace.spark.jars import parse_lock, paths

# Of Kafka only what a connector is written against, and what writes its records as JSON.
_KAFKA = (
    "connect-api",
    "connect-json",
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "jackson-datatype-jdk8",
    "jackson-module-blackbird",
    "kafka-clients",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j-impl",
    "slf4j-api",
)
_COMMON = (
    "debezium-api",
    "debezium-config",
    "debezium-connect-plugins",
    "debezium-connector-common",
    "debezium-openlineage-api",
    "debezium-util",
)
_BINLOG = (
    "antlr4-runtime",
    "debezium-connector-binlog",
    "debezium-ddl-parser",
    "debezium-storage-file",
    "mysql-binlog-connector-java",
    # Events of a binlog may be compressed.
    "zstd-jni",
)
CONNECTORS = {
    "postgresql": ("debezium-connector-postgres", "postgresql", "protobuf-java"),
    "mariadb": (*_BINLOG, "debezium-connector-mariadb", "mariadb-java-client"),
    "mysql": (*_BINLOG, "debezium-connector-mysql", "mysql-connector-j"),
}
_LOCKS = ("kafka.lock", "debezium.lock", "mysql.lock")


def class_path(connector: str) -> list[Path]:
    """The jars for a connector, downloaded the first time and checked every time, with what compiles our own part."""
    return [*paths(lock=lock_of(connector)), *_compiler()]


def lock_of(connector: str) -> str:
    """The lines of the locks of Kafka and Debezium that a connector needs."""
    wanted = {*_KAFKA, *_COMMON, *CONNECTORS[connector]}
    texts = [files("headrace.local").joinpath(name).read_text() for name in _LOCKS]
    lines = [line for text in texts for line in text.splitlines()]
    return "\n".join(line for line in lines if any(jar.artifact in wanted for jar in parse_lock(line)))


def _compiler() -> list[Path]:
    # Spark compiles its plans by it: so every machine that has Spark can compile Java, with or without a JDK.
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else Path()
    found = [one for name in ("janino", "commons-compiler") for one in sorted(folder.glob(f"{name}-[0-9]*.jar"))]
    if len(found) != 2:
        raise SetupError("pyspark brings no Java compiler", hint="install pyspark from PyPI: pip install headrace")
    return found
