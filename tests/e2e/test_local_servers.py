"""Real servers: what goes in comes out, is captured, survives their death, and they end with whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

import headrace
from headrace.errors import SetupError, SourceError
from headrace.local import Servers
from headrace.local.ports import is_free
from tests.e2e.test_local_postgres import processes_in, wait_for_end
from tests.ending_with_us import ending_with_us
from tests.kafka_topics import payloads, produce, read
from tests.waiting import until


@pytest.fixture
def captured(local_servers: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    """A table with one row and a connector that captures it; both have the name that is given."""
    name = request.node.name.removeprefix("test_")[:20]
    with psycopg.connect(local_servers.postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, word TEXT)")
        connection.execute(f"INSERT INTO {name} VALUES (1, 'before')")
    local_servers.capture(name, [f"public.{name}"])
    yield name
    local_servers.delete_connector(name)
    assert local_servers.connector_status(name) is None
    with psycopg.connect(local_servers.postgres_dsn, autocommit=True) as connection:
        drop_slot(connection, name)
        connection.execute(f"DROP PUBLICATION {name}_publication; DROP TABLE {name}")


def drop_slot(connection: psycopg.Connection, name: str) -> None:
    """A slot outlives its connector by a moment, and what it holds back outlives it for ever if it stays."""

    def dropped() -> bool:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [f"{name}_slot"])
        except psycopg.errors.ObjectInUse:
            return False
        return True

    until(dropped)


def insert(servers: Servers, table: str, *ids: int) -> None:
    with psycopg.connect(servers.postgres_dsn, autocommit=True) as connection:
        for number in ids:
            connection.execute(f"INSERT INTO {table} VALUES ({number}, 'later')")


def captured_ids(servers: Servers, name: str, wanted: set[int]) -> list[tuple[str, int]]:
    """The operations on a table and their keys, read until each wanted key is among them."""
    topic = f"{name}.public.{name}"
    messages = read(
        servers.bootstrap,
        topic,
        lambda found: wanted <= {one["after"]["id"] for one in payloads(found) if one["after"]},
    )
    return [(one["op"], (one["after"] or one["before"])["id"]) for one in payloads(messages)]


def wait_until_acknowledged(servers: Servers, name: str) -> None:
    """Until then, a connector that is killed begins its snapshot again."""
    newest = payloads(read(servers.bootstrap, f"{name}.public.{name}", lambda found: len(found) >= 2))[-1]["source"][
        "lsn"
    ]

    def acknowledged() -> bool:
        offsets = httpx.get(f"{servers.connect_url}/connectors/{name}/offsets", timeout=60).json()["offsets"]
        return bool(offsets) and offsets[0]["offset"]["lsn"] >= newest

    until(acknowledged)


def test_all_answer_and_say_where_their_logs_are(local_servers: Servers) -> None:
    told = {one["name"]: one for one in local_servers.status()}
    assert set(told) == {"kafka", "connect", "postgres"}
    assert all(one["running"] and one["answers"] for one in told.values())
    assert all(
        Path(str(one["log"])).parent == local_servers.logs and Path(str(one["log"])).exists() for one in told.values()
    )
    assert local_servers.bootstrap.startswith("127.0.0.1:")
    plugins = httpx.get(f"{local_servers.connect_url}/connector-plugins", timeout=60).json()
    assert {plugin["class"].rpartition(".")[2] for plugin in plugins} == {"PostgresConnector", "MariaDbConnector"}
    assert {plugin["version"] for plugin in plugins} == {"3.5.0.Final"}


def test_what_is_produced_is_consumed(local_servers: Servers) -> None:
    local_servers.create_topic("round-trip", partitions=1, config={"retention.ms": "-1"})
    produce(local_servers.bootstrap, "round-trip", map(str, range(1000)))
    found = read(local_servers.bootstrap, "round-trip", lambda found: len(found) == 1000)
    assert [int(message.value()) for message in found] == list(range(1000))


def test_a_topic_that_is_there_is_told(local_servers: Servers) -> None:
    local_servers.create_topic("twice")
    with pytest.raises(SetupError, match="topic twice could not be created") as told:
        local_servers.create_topic("twice")
    assert "already exists" in told.value.detail


def test_snapshot_and_stream(local_servers: Servers, captured: str) -> None:
    assert captured in local_servers.connectors()
    status = local_servers.connector_status(captured)
    assert status is not None
    assert [task["state"] for task in status["tasks"]] == ["RUNNING"]
    assert captured_ids(local_servers, captured, {1}) == [("r", 1)]
    with psycopg.connect(local_servers.postgres_dsn, autocommit=True) as connection:
        connection.execute(f"INSERT INTO {captured} VALUES (2, 'a')")
        connection.execute(f"UPDATE {captured} SET word = 'b' WHERE id = 2")
        connection.execute(f"DELETE FROM {captured} WHERE id = 1")
        connection.execute(f"INSERT INTO {captured} VALUES (3, 'end')")
    assert captured_ids(local_servers, captured, {3}) == [("r", 1), ("c", 2), ("u", 2), ("d", 1), ("c", 3)]


@pytest.mark.slow
def test_broker_killed(local_servers: Servers, captured: str) -> None:
    assert captured_ids(local_servers, captured, {1}) == [("r", 1)]
    bootstrap, pid = local_servers.bootstrap, local_servers.kafka.pid
    local_servers.kill_broker()
    assert [server.name for server in local_servers.ended()] == ["kafka"]
    insert(local_servers, captured, 2)
    local_servers.kafka.start()
    assert (local_servers.bootstrap, local_servers.kafka.pid != pid) == (bootstrap, True)
    assert captured_ids(local_servers, captured, {1, 2})[0] == ("r", 1)
    produce(bootstrap, "after-the-broker", ["x"])
    local_servers.restart_broker()
    assert [one.value() for one in read(bootstrap, "after-the-broker", lambda found: len(found) == 1)] == [b"x"]


@pytest.mark.slow
def test_connect_killed(local_servers: Servers, captured: str) -> None:
    insert(local_servers, captured, 2)
    before = captured_ids(local_servers, captured, {1, 2})
    wait_until_acknowledged(local_servers, captured)
    url = local_servers.connect_url
    local_servers.kill_connect()
    insert(local_servers, captured, 3)
    with pytest.raises(SourceError, match="does not answer"):
        local_servers.connectors()
    local_servers.restart_connect()
    assert local_servers.connect_url == url
    local_servers.wait_for_connector(captured)
    insert(local_servers, captured, 4)
    found = captured_ids(local_servers, captured, {3, 4})
    # At least once: the last that was acknowledged may come again, but nothing is out of order.
    assert list(dict.fromkeys(found)) == [*before, ("c", 3), ("c", 4)]


@pytest.mark.slow
def test_postgres_killed(local_servers: Servers, captured: str) -> None:
    assert captured_ids(local_servers, captured, {1}) == [("r", 1)]
    local_servers.restart_postgres()
    insert(local_servers, captured, 2)
    # The connector reconnects by itself, after the ten seconds that Debezium waits by default.
    assert list(dict.fromkeys(captured_ids(local_servers, captured, {2}))) == [("r", 1), ("c", 2)]
    local_servers.wait_for_connector(captured)


def test_a_connector_that_cannot_be_is_told(local_servers: Servers) -> None:
    with pytest.raises(SourceError, match="Kafka Connect refused") as told:
        local_servers.capture("nobody", config={"database.password": "guessed"})
    assert "password authentication failed" in told.value.detail
    assert "nobody" not in local_servers.connectors()


PROGRAM = """
import signal, sys, time, headrace.local
signal.signal(signal.SIGINT, signal.default_int_handler)
with headrace.local.start() as servers:
    print(servers.folder, servers.bootstrap, servers.connect_url, servers.postgres_dsn, flush=True)
    time.sleep(300)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGINT])
def test_all_end_with_the_process_that_started_them(way: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        ending_with_us([sys.executable, "-c", PROGRAM]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    assert parent.stdout is not None
    folder, *addresses = parent.stdout.readline().split()
    ports = [int(urlsplit(address if "/" in address else f"kafka://{address}").port or 0) for address in addresses]
    assert len(processes_in(Path(folder))) >= 3
    os.kill(parent.pid, way)
    parent.communicate(timeout=300)
    if way == signal.SIGINT:
        assert not Path(folder).exists()
        assert all(map(is_free, ports)), "a stop in good order returns when all is over"
    wait_for_end(Path(folder), ports)


@pytest.mark.slow
def test_a_start_that_is_interrupted_leaves_nothing() -> None:
    """PostgreSQL is ready first; the broker has begun and does not answer yet."""
    seen: list[Path] = []

    def interrupt(server: headrace.local.Server) -> None:
        seen.append(server.log.parents[1])
        assert len(processes_in(seen[0])) >= 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        headrace.local.start(connect=False, on_ready=interrupt)
    (folder,) = seen
    assert processes_in(folder) == {}
    assert not folder.exists()


def test_settings_of_a_server_in_its_own_words_and_a_start_that_fails(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="kafka ended while it was started") as told:
        headrace.local.start({"num.partitions": "many"}, connect=False, postgres=False, folder=tmp_path / "servers")
    assert "num.partitions" in told.value.detail
    assert processes_in(tmp_path) == {}
