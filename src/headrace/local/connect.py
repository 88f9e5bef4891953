"""Kafka Connect with Debezium: a cluster of one worker, whose connectors and positions are kept by the broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.local.kafka import java_command
from headrace.local.packages import KafkaJars
from headrace.local.ports import HOST
from headrace.local.properties import properties
from headrace.local.server import Program

_ANSWER_SECONDS = 5.0


def connect_program(
    folder: Path, jars: KafkaJars, port: int, bootstrap: str, given: Mapping[str, str], memory: str = "512m"
) -> Program:
    """The worker; what is given goes into its properties."""
    url = f"http://{HOST}:{port}"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "headrace-connect",
        "listeners": url,
        "rest.advertised.host.name": HOST,
        "rest.advertised.port": str(port),
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.partitions": "1" for kind in ("offset", "status")},
        "plugin.path": str(folder / "plugins"),
        # Debezium's jars name what they offer, and need not be searched.
        "plugin.discovery": "service_load",
        # By default a worker that was killed is waited for, for five minutes, before its tasks are run again.
        "scheduled.rebalance.max.delay.ms": "0",
        # By default ten seconds, for which a worker that was killed is a member of its group.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "2000",
        # By default a minute: what was sent since is sent again after a kill.
        "offset.flush.interval.ms": "1000",
        **given,
    }

    def prepare() -> None:
        plugin = folder / "plugins" / "debezium"
        plugin.mkdir(parents=True, exist_ok=True)
        for old in plugin.iterdir():
            old.unlink()
        for jar in jars.debezium:
            (plugin / jar.name).symlink_to(jar)
        (folder / "worker.properties").write_text(properties(settings))

    return Program(
        name="connect",
        address=url,
        port=port,
        command=java_command(
            folder,
            jars,
            memory,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            folder / "worker.properties",
        ),
        prepare=prepare,
        answers=lambda: worker_answers(url),
        held=("Address already in use",),
    )


def worker_answers(url: str) -> bool:
    """Whether a worker says that it can take connectors: its port is open long before."""
    # Imported late, so that whoever starts no servers does not pay for it.
    import httpx

    try:
        return httpx.get(f"{url}/health", timeout=_ANSWER_SECONDS, trust_env=False).is_success
    except httpx.HTTPError:
        return False
