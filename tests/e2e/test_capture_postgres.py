"""A PostgreSQL followed without Kafka: what it holds is what our tables hold, whatever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest

from headrace.capture.connector import Arrival, Description
from headrace.capture.debezium.postgres import POSTGRES
from headrace.capture.messages import Truncation
from headrace.errors import SourceError, SourceUnavailable
from tests.e2e.test_capture_kafka import rows, shown
from tests.waiting import until

if TYPE_CHECKING:
    from headrace.local import Servers


class Database:
    """A database of a test's own, as its people and as a source see it."""

    def __init__(self, servers: Servers, name: str) -> None:
        url = urlsplit(servers.postgres_dsn)
        with psycopg.connect(servers.postgres_dsn, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}".encode())
        self.name = name
        self.location = f"postgresql://{url.username}@{url.hostname}:{url.port}/{name}"
        self.password = str(url.password)
        self.connection = psycopg.connect(servers.postgres_dsn, dbname=name, autocommit=True)

    def run(self, *statements: str) -> list[Any]:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.encode())
            return sorted(cursor.fetchall()) if cursor.description else []

    def confirmed(self, slot: str) -> int:
        ((place,),) = self.run(
            f"SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
        )
        return int(place)

    def description(self, name: str, **options: Any) -> Description:
        return Description(name, self.location, {"password": self.password, "tables": "orders", **options})


@pytest.fixture
def database(
    request: pytest.FixtureRequest, local_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    made = Database(local_servers, f"d{abs(hash(request.node.name)) % 10**9}")
    monkeypatch.setenv("SHOP_PASSWORD", made.password)
    made.run("CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount NUMERIC(10, 2), at TIMESTAMPTZ)")
    yield made
    for (slot,) in made.run(f"SELECT slot_name FROM pg_replication_slots WHERE database = '{made.name}'"):
        until(lambda slot=slot: not made.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name='{slot}' AND active"))
        made.run(f"SELECT pg_drop_replication_slot('{slot}')")
    made.connection.close()


def engines() -> list[int]:
    """The processes of connectors that this process has started."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if b"Engine.java" in command and parent == os.getpid():
            found.append(int(folder.name))
    return found


def polled(reading: Any, enough: Callable[[list[Arrival]], bool]) -> list[Arrival]:
    found: list[Arrival] = []

    def is_enough() -> bool:
        if not enough(found):
            found.extend(reading.poll(1000, 0.2))
        return enough(found)

    until(is_enough)
    return found


def position_after(arrivals: list[Arrival]) -> dict[str, Any]:
    position: dict[str, Any] = {}
    for arrival in arrivals:
        position.update(arrival.advance)
    return position


def data(arrivals: list[Arrival]) -> list[Arrival]:
    return [one for one in arrivals if one.message is None]


def test_a_database_is_followed_row_by_row(home: Any, database: Database) -> None:
    database.run("INSERT INTO orders SELECT n, 'c' || n % 7, n * 1.25, now() FROM generate_series(1, 500) n")
    home.execute(
        """
        CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount DECIMAL(10, 2), at TIMESTAMP);
        CREATE VIEW spent AS SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer
        """
    )
    home.execute(
        f"CREATE SOURCE shop FROM POSTGRES '{database.location}' "
        "WITH (tables = 'public.orders', password = 'env:SHOP_PASSWORD', heartbeat_seconds = 2)"
    )

    def agree() -> bool:
        mine = rows(home, "SELECT id, customer, amount FROM orders")
        return mine == database.run("SELECT id, customer, amount FROM orders")

    until(agree)
    database.run(
        "UPDATE orders SET amount = amount + 1 WHERE id <= 50",
        "DELETE FROM orders WHERE id % 7 = 0",
        "UPDATE orders SET id = id + 1000 WHERE id BETWEEN 100 AND 110",
    )
    until(agree)
    (engine,) = engines()
    os.kill(engine, signal.SIGKILL)
    for number in range(2000, 2050):
        database.run(f"INSERT INTO orders VALUES ({number}, 'late', 1, now())")
    until(agree)
    assert rows(home, "SELECT * FROM spent") == database.run(
        "SELECT customer, sum(amount), count(*) FROM orders GROUP BY 1"
    )
    told = shown(home, "shop")
    assert (told["state"], told["dead"], told["stale"]) == ("Running", 0, 0)
    assert told["received"] == told["applied"]
    raw = rows(home, "SELECT count(*), count(DISTINCT event_id) FROM shop_raw")
    assert raw[0][0] == raw[0][1]
    # What the slot may forget follows what is durable, also while nothing comes.
    until(lambda: database.confirmed("headrace_shop") >= int(offset(home)["lsn_commit"]) > 0)
    before = database.confirmed("headrace_shop")
    until(lambda: database.confirmed("headrace_shop") > before)
    home.execute("DROP SOURCE shop")
    assert database.run("SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'headrace_shop'") == []
    assert database.run("SELECT pubname FROM pg_publication") == []
    assert engines() == []


def offset(home: Any) -> dict[str, Any]:
    import json

    ((position,),) = rows(home, "SELECT position FROM source_progress")
    return json.loads(position)["offset"]


def test_a_slot_is_confirmed_only_when_it_is_told_so(database: Database) -> None:
    reading = POSTGRES.open(database.description("told", **{"debezium.status.update.interval.ms": 100}), {})
    try:
        database.run("INSERT INTO orders VALUES (1, 'a', 1, now())")
        active = "SELECT 1 FROM pg_replication_slots WHERE slot_name='headrace_told' AND active"
        first = polled(reading, lambda _: bool(database.run(active)))
        before = database.confirmed("headrace_told")
        for number in range(2, 20):
            database.run(f"INSERT INTO orders VALUES ({number}, 'a', 1, now())")
        found = first + polled(reading, lambda found: len(data(first + found)) == 19 and found[-1].whole)
        # By several of its reports to the server, it has confirmed no more than before.
        report = (
            "SELECT reply_time FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid "
            "WHERE slot_name = 'headrace_told'"
        )
        for _ in range(3):
            last = database.run(report)
            until(lambda last=last: database.run(report) not in ([], last))
        assert database.confirmed("headrace_told") == before
        position = position_after(found)
        reading.confirm(position)
        until(lambda: database.confirmed("headrace_told") >= position["offset"]["lsn_commit"])
    finally:
        reading.close()


@pytest.mark.slow
def test_whoever_goes_on_gets_what_was_not_kept_once_more_and_nothing_else(database: Database) -> None:
    reading = POSTGRES.open(database.description("again"), {})
    try:
        database.run("INSERT INTO orders VALUES (0, 'a', 1, now())")
        first = polled(reading, lambda found: len(data(found)) == 1 and found[-1].whole)
        with database.connection.transaction():
            for number in range(1, 6):
                database.run(f"INSERT INTO orders VALUES ({number}, 'a', 1, now())")
        found = polled(reading, lambda found: len(data(found)) == 5 and found[-1].whole)
        assert [one.whole for one in data(found)] == [False] * 5, "a transaction is not split"
    finally:
        (engine,) = engines()
        os.kill(engine, signal.SIGKILL)
        reading.close()
    for kept in (0, 3):
        # Nothing of the transaction was kept; or, of one that is too large to be held, a part of it.
        inside = data(found)[:kept]
        reading = POSTGRES.open(database.description("again"), position_after([*first, *inside]))
        try:
            again = polled(reading, lambda seen, kept=kept: len(data(seen)) == 5 - kept and seen[-1].whole)
            assert [one.record.event_id for one in data(again)] == [one.record.event_id for one in data(found)[kept:]]
        finally:
            reading.close()


@pytest.mark.slow
def test_a_first_reading_that_was_cut_off_begins_anew_from_empty_tables(database: Database) -> None:
    database.run("INSERT INTO orders SELECT n, 'a', 1, now() FROM generate_series(1, 3000) n")
    reading = POSTGRES.open(database.description("cut", **{"debezium.max.batch.size": 100}), {})
    try:
        found = polled(reading, lambda found: len(data(found)) > 0)[:50]
    finally:
        reading.close()
    database.run("DELETE FROM orders WHERE id <= 10")
    reading = POSTGRES.open(database.description("cut"), position_after(found))
    try:
        database.run("INSERT INTO orders VALUES (5000, 'a', 1, now())")
        again = polled(reading, lambda found: len(data(found)) == 2991)
    finally:
        reading.close()
    assert isinstance(again[0].message, Truncation)
    assert again[0].record.topic == "cut.public.orders"


def test_a_wrong_password_is_told_and_not_tried_again(database: Database) -> None:
    reading = POSTGRES.open(database.description("bad", password="wrong"), {})
    try:
        with pytest.raises(SourceError) as raised:
            polled(reading, lambda _: False)
        assert "password" in raised.value.detail
        assert not isinstance(raised.value, SourceUnavailable)
    finally:
        reading.close()


@pytest.mark.slow
def test_a_log_that_lost_what_comes_next_is_told_and_mended_by_one_statement(home: Any, database: Database) -> None:
    database.run("INSERT INTO orders SELECT n, 'a', 1, now() FROM generate_series(1, 100) n")
    home.execute("CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount DECIMAL(10, 2), at TIMESTAMP)")
    home.execute(
        f"CREATE SOURCE lost INTO orders FROM POSTGRES '{database.location}' WITH (password = 'env:SHOP_PASSWORD')"
    )
    mine, theirs = "SELECT id, customer FROM orders", "SELECT id, customer FROM orders"
    until(lambda: rows(home, mine) == database.run(theirs))
    home.execute("PAUSE SOURCE lost")
    database.run(
        "SELECT pg_drop_replication_slot('headrace_lost')",
        "DELETE FROM orders WHERE id <= 10",
        "UPDATE orders SET customer = 'b' WHERE id > 90",
    )
    home.execute("RESUME SOURCE lost")
    until(lambda: shown(home, "lost")["state"] == "Error")
    assert "no longer has what comes next" in shown(home, "lost")["error"]
    home.execute("RESUME SOURCE lost WITH SNAPSHOT")
    until(lambda: rows(home, mine) == database.run(theirs))
    database.run("UPDATE orders SET customer = 'c' WHERE id = 50")
    until(lambda: rows(home, mine) == database.run(theirs))
    assert shown(home, "lost")["state"] == "Running"

    # A table that was changed here behind the source's back is brought once more, between its changes.
    home.execute("PAUSE SOURCE lost")
    home.execute("UPDATE orders SET customer = 'wrong' WHERE id BETWEEN 20 AND 40")
    home.execute("RESUME SOURCE lost")
    home.execute("SNAPSHOT SOURCE lost TABLE orders")
    database.run("UPDATE orders SET customer = 'd' WHERE id = 51")
    until(lambda: rows(home, mine) == database.run(theirs))
    home.execute("DROP SOURCE lost")
