"""A Kafka broker in one process, with its own controller (KRaft)."""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import SetupError
from headrace.local.packages import KafkaJars, client
from headrace.local.ports import HOST, listens
from headrace.local.properties import properties
from headrace.local.server import Program
from headrace.spark.java import quick_start_command

_ANSWER_SECONDS = 2.0
_TOPIC_SECONDS = 30.0
_log = logging.getLogger("headrace.local.kafka")

_LOGGING = {
    "rootLogger.level": "info",
    "rootLogger.appenderRef.out.ref": "out",
    "appender.out.type": "Console",
    "appender.out.name": "out",
    "appender.out.layout.type": "PatternLayout",
    "appender.out.layout.pattern": "%d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n",
}


def kafka_program(
    folder: Path, jars: KafkaJars, port: int, controller_port: int, given: Mapping[str, str], memory: str = "512m"
) -> Program:
    """The broker, whose data lie in the folder; what is given goes into its server.properties."""
    bootstrap = f"{HOST}:{port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{bootstrap}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(folder / "data"),
        # One broker has no others to copy to, and few of the fifty partitions would ever be used.
        **{
            f"{topic}.{name}": "1"
            for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
            for name in ("replication.factor", "num.partitions")
        },
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A broker that was killed is waited for so long when it comes back, by default nine seconds.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Groups of a single machine are complete at once.
        "group.initial.rebalance.delay.ms": "0",
        **given,
    }

    def prepare() -> None:
        _format(folder / "data")
        (folder / "server.properties").write_text(properties(settings))

    return Program(
        name="kafka",
        address=bootstrap,
        port=port,
        command=java_command(folder, jars, memory, "kafka.Kafka", folder / "server.properties"),
        prepare=prepare,
        answers=lambda: listens(port) and broker_answers(bootstrap),
        held=("Failed to acquire lock", "Address already in use"),
    )


def java_command(folder: Path, jars: KafkaJars, memory: str, main: str, settings: Path) -> list[str]:
    """The command that runs one of Kafka's programs with its settings."""
    logging_settings = folder / "log4j2.properties"
    logging_settings.parent.mkdir(parents=True, exist_ok=True)
    logging_settings.write_text(properties(_LOGGING))
    return quick_start_command(memory, logging_settings, jars.class_path, main, str(settings))


def broker_answers(bootstrap: str) -> bool:
    """Whether a broker tells of itself: it does so once it can be written to."""
    kafka = client("confluent_kafka")
    try:
        return bool(admin_of(bootstrap).list_topics(timeout=_ANSWER_SECONDS).brokers)
    except kafka.KafkaException:
        return False


def create_topic(bootstrap: str, name: str, partitions: int, given: Mapping[str, str]) -> None:
    """Create a topic; return when it is there."""
    kafka, admin = client("confluent_kafka"), client("confluent_kafka.admin")
    topic = admin.NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(given))
    # Held until the end: what a client was asked for is given up when it is collected.
    asked = admin_of(bootstrap)
    try:
        for made in asked.create_topics([topic], operation_timeout=_TOPIC_SECONDS).values():
            made.result(_TOPIC_SECONDS)
    except kafka.KafkaException as error:
        raise SetupError(
            f"topic {name} could not be created",
            detail=f"{error.args[0].str()}.",
            hint="`headrace local logs kafka` shows what the broker says",
        ) from error


def admin_of(bootstrap: str) -> Any:
    """A client for the broker's own affairs, which says what it meets to Python's log and not to the terminal."""
    return client("confluent_kafka.admin").AdminClient({"bootstrap.servers": bootstrap}, logger=_log)


def new_id() -> str:
    """An id as Kafka writes them: 16 bytes as text, which never begins with a dash."""
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not found.startswith("-"):
            return found


def _format(data: Path) -> None:
    """Make a folder one in which a broker may begin.

    Kafka's own tool does that too, and takes as long as the broker's start.
    """
    meta = data / "meta.properties"
    if meta.exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    draft = meta.with_suffix(".draft")
    draft.write_text(
        properties({"version": "1", "cluster.id": new_id(), "node.id": "1", "directory.id": new_id()}), encoding="ascii"
    )
    draft.rename(meta)
