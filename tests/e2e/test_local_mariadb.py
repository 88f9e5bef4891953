"""The machine's own MariaDB as a local server, where it has one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.local import Servers
from headrace.local.debezium import mariadb_config
from headrace.local.ports import is_free
from tests.e2e.test_local_postgres import port_of, processes_in
from tests.kafka_topics import payloads, read
from tests.mysql_server import connected

pytestmark = pytest.mark.skipif(
    shutil.which("mariadbd", path=f"{os.defpath}:/usr/sbin") is None,
    reason="needs mariadbd (apt-get install mariadb-server)",
)


@pytest.fixture
def mariadb() -> Iterator[Servers]:
    with headrace.local.start(kafka=False, connect=False, postgres=False, mariadb=True) as servers:
        yield servers


def run(servers: Servers, *statements: str) -> tuple[tuple[object, ...], ...]:
    with connected(servers.mariadb_dsn) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.slow
def test_it_keeps_its_data_when_it_is_killed_and_leaves_nothing() -> None:
    with headrace.local.start(kafka=False, connect=False, postgres=False, mariadb=True) as servers:
        folder, port = servers.folder, port_of(servers.mariadb_dsn)
        run(servers, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        servers.restart_mariadb()
        assert run(servers, "SELECT id FROM t") == ((1,),)
        assert run(servers, "SELECT @@log_bin, @@binlog_format, @@bind_address") == ((1, "ROW", "127.0.0.1"),)
        assert run(
            servers, "SELECT user FROM mysql.global_priv WHERE user NOT LIKE 'mariadb.%%' AND user <> 'PUBLIC'"
        ) == (("headrace",),), "nobody else comes in"
        if os.geteuid() == 0:
            assert Path(f"/proc/{servers.mariadb.pid}").stat().st_uid != 0
    assert processes_in(folder) == {}
    assert is_free(port)
    assert not folder.exists()


def test_snapshot_and_stream(local_servers: Servers, mariadb: Servers) -> None:
    run(mariadb, "CREATE TABLE words (id INT PRIMARY KEY, word TEXT)", "INSERT INTO words VALUES (1, 'before')")
    local_servers.create_connector(
        mariadb_config(mariadb.mariadb_dsn, local_servers.bootstrap, "maria", ["headrace.words"], {})
    )
    topic = "maria.headrace.words"
    assert payloads(read(local_servers.bootstrap, topic, lambda found: len(found) == 1))[0]["op"] == "r"
    run(
        mariadb,
        "INSERT INTO words VALUES (2, 'a')",
        "UPDATE words SET word = 'b' WHERE id = 2",
        "DELETE FROM words WHERE id = 1",
    )
    found = payloads(read(local_servers.bootstrap, topic, lambda found: len(payloads(found)) == 4))
    local_servers.delete_connector("maria")
    assert [(one["op"], (one["after"] or one["before"])["id"]) for one in found] == [
        ("r", 1),
        ("c", 2),
        ("u", 2),
        ("d", 1),
    ]
    assert (found[2]["before"]["word"], found[2]["after"]["word"]) == ("a", "b")
