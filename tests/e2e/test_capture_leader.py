"""A partition whose leader is killed is read on from the next one, each record once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka.admin
import pytest

from headrace.local.kafka import kafka_program, new_id
from headrace.local.packages import kafka_jars
from headrace.local.ports import HOST, free_port
from headrace.local.properties import properties
from headrace.local.server import Server
from tests.e2e.test_capture_kafka import produce, put, rows, shown
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from headrace.local import Servers


def _settings(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return {name.strip(): value.replace("\\", "").strip() for name, _, value in (one.partition("=") for one in lines)}


@pytest.fixture
def second(local_servers: Servers, tmp_path: Path) -> Iterator[Server]:
    """One more broker of the same cluster."""
    first = local_servers.folder / "kafka"
    cluster = _settings(first / "data" / "meta.properties")["cluster.id"]
    controller = int(_settings(first / "server.properties")["controller.quorum.voters"].rpartition(":")[2])
    (tmp_path / "data").mkdir()
    told = {"version": "1", "cluster.id": cluster, "node.id": "2", "directory.id": new_id()}
    (tmp_path / "data" / "meta.properties").write_text(properties(told))
    port = free_port()
    given = {"process.roles": "broker", "node.id": "2", "listeners": f"PLAINTEXT://{HOST}:{port}"}
    server = Server(kafka_program(tmp_path, kafka_jars(), port, controller, given), tmp_path / "second.log")
    server.start()
    yield server
    server.discard()


@pytest.mark.slow
def test_records_are_taken_once_though_the_leader_of_their_partition_is_lost(
    home: Any, local_servers: Servers, second: Server
) -> None:
    kafka: Any = confluent_kafka.admin
    admin = kafka.AdminClient({"bootstrap.servers": local_servers.bootstrap})
    until(lambda: {1, 2} <= set(admin.list_topics(timeout=PATIENCE).brokers))
    topic = kafka.NewTopic("led", num_partitions=1, replica_assignment=[[2, 1]])
    admin.create_topics([topic])["led"].result(PATIENCE)

    def leader() -> int:
        return admin.list_topics("led", timeout=PATIENCE).topics["led"].partitions[0].leader

    until(lambda: leader() == 2)
    home.execute("CREATE TABLE bag (id INT, n INT); CREATE VIEW total AS SELECT count(*) AS n FROM bag")
    home.execute(f"CREATE SOURCE s INTO bag FROM KAFKA '{local_servers.bootstrap}/led'")
    produce(local_servers, "led", [(None, put(number)) for number in range(100)])
    until(lambda: shown(home)["applied"] == 100)
    second.kill()
    until(lambda: leader() == 1)
    produce(local_servers, "led", [(None, put(number)) for number in range(100, 200)])
    until(lambda: shown(home)["applied"] == 200)
    assert rows(home, "SELECT count(*), count(DISTINCT id) FROM bag") == [(200, 200)]
    assert (shown(home)["state"], shown(home)["dead"]) == ("Running", 0)
    assert home.verify().ok
