"""A further snapshot of a table while its changes go on: it is held to a rate, and goes on where it was when killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from tests.capture_child import Owner
from tests.e2e.test_capture_postgres import Database
from tests.waiting import until

if TYPE_CHECKING:
    from headrace.local import Servers

# Without other changes a chunk comes each second: faster than the rate lets it.
ROWS, CHUNK, POLL, RATE = 4500, 500, 100, 200
COLUMNS = StructType([StructField("id", IntegerType(), False), StructField("name", StringType())])


@pytest.fixture
def database(postgres_server: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    made = Database(postgres_server, "resumed")
    monkeypatch.setenv("SHOP_PASSWORD", made.password)
    made.run("CREATE TABLE items (id INT PRIMARY KEY, name TEXT)")
    yield made
    for (slot,) in made.run("SELECT slot_name FROM pg_replication_slots"):
        made.run(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{slot}'")
        until(lambda slot=slot: not made.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name='{slot}' AND active"))
        made.run(f"SELECT pg_drop_replication_slot('{slot}')")
    made.connection.close()


def items(owner: Owner) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["name"]) for row in owner.query("SELECT * FROM items"))


def position(owner: Owner) -> dict[str, Any]:
    told = owner.query("SELECT * FROM source_progress")
    return json.loads(told[0]["position"] or "{}") if told else {}


def is_within(told: dict[str, Any]) -> bool:
    return any(name.startswith("incremental_snapshot") for name in told.get("offset") or {})


def reads(owner: Owner, since: int = 0) -> list[dict[str, Any]]:
    """The rows that were read in the further snapshot, in their order."""
    raw = sorted(owner.query("SELECT * FROM shop_raw"), key=lambda row: int(row["event_id"].rpartition("-")[2]))
    return [row for row in raw[since:] if row["operation"] == "read"]


class Pace:
    """Rows of the further snapshot, counted from now on."""

    def __init__(self, owner: Owner, first: int) -> None:
        self._owner, self._first = owner, first
        self._began = time.monotonic()
        self._seen = len(reads(owner, first))

    def check(self) -> None:
        """Raise if more rows came than the rate allows for the time that this process has seen pass."""
        count = len(reads(self._owner, self._first)) - self._seen
        seconds = time.monotonic() - self._began
        print(f"{count} rows in {seconds:.2f} s: {count / seconds:.0f}/s of {RATE}/s")
        # Of one poll the rows were on their way at the beginning, and those of the last have not had their time.
        assert count - 2 * POLL <= RATE * seconds


@pytest.mark.slow
def test_a_further_snapshot_is_held_to_a_rate_and_goes_on_after_kill_9(database: Database, tmp_path: Path) -> None:
    database.run(f"INSERT INTO items SELECT n, 'a' FROM generate_series(1, {ROWS}) n")
    owner = Owner(tmp_path / "home", "items", COLUMNS, tmp_path / "owner.log")
    owner.execute(
        f"CREATE SOURCE shop INTO items FROM POSTGRES '{database.location}' WITH (password = 'env:SHOP_PASSWORD', "
        f"'debezium.incremental.snapshot.chunk.size' = {CHUNK}, max_records = {POLL})"
    )
    theirs = "SELECT id, name FROM items"
    until(lambda: items(owner) == database.run(theirs))
    first = len(owner.query("SELECT * FROM shop_raw"))
    owner.execute(f"ALTER SOURCE shop SET (max_records_per_second = {RATE})")
    owner.execute("SNAPSHOT SOURCE shop TABLE items")
    until(lambda: reads(owner, first))
    pace = Pace(owner, first)
    until(lambda: len(reads(owner, first)) >= ROWS // 3)
    pace.check()
    assert is_within(position(owner)), "it must be killed inside, or nothing is shown"
    database.run("UPDATE items SET name = 'b' WHERE id % 30 = 0", "DELETE FROM items WHERE id % 70 = 0")
    owner.kill()
    database.run(f"INSERT INTO items SELECT n, 'c' FROM generate_series({ROWS + 1}, {ROWS + 200}) n")

    owner = Owner(tmp_path / "home", "items", COLUMNS, tmp_path / "owner.log")
    try:
        pace = Pace(owner, first)
        before = len(reads(owner, first))
        assert ROWS // 3 <= before < ROWS - CHUNK
        until(lambda: items(owner) == database.run(theirs) and not is_within(position(owner)))
        (told,) = owner.execute("SHOW SOURCES")
        assert (told["state"], told["dead"]) == ("Running", 0)
        assert told["received"] == told["applied"] + told["stale"]
        raw = owner.query("SELECT * FROM shop_raw")
        assert len({row["event_id"] for row in raw}) == len(raw)
        found = reads(owner, first)
        pace.check()
        # It went on: of what was read before the kill no more than what was on its way comes again.
        keys = [json.loads(row["after"])["id"] for row in found]
        assert min(keys[before:]) > keys[before - 1] - 2 * CHUNK, "it began anew"
        assert len(found) <= ROWS + 200 + 2 * CHUNK
    finally:
        owner.kill()
