"""Streams of Debezium as a broker would have kept them: a small database, its log, and what a connector makes of it.

Rows of two tables come, change, go, move to other keys and come again. A connector that is restarted sends the last
records again under new offsets; a database that is restored counts its log from the start, and is read anew.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from headrace.capture.record import Record
from tests.debezium_events import envelope

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = ("orders", "lines")
PARTITIONS = 2

# What happens next: a statement by table and key, a transaction's end, a restart that sends so many again, a restore.
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(TABLES), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.sampled_from(TABLES), st.integers(1, 3)),
    st.tuples(st.just("move"), st.sampled_from(TABLES), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("restart"), st.integers(1, 8)),
)
RESTORE = st.tuples(st.just("restore"))
TRUNCATE = st.tuples(st.just("truncate"), st.sampled_from(TABLES))


@dataclass
class Database:
    """What is in the tables, and the records that a connector has written of it so far."""

    rows: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in TABLES})
    records: list[Record] = field(default_factory=list[Record])
    at: int = 0
    lsn: int = 1000
    last_commit: int | None = None
    number: int = 0
    # What each record told of its key when it was first written: the table, the key, its value, and the offset.
    told: list[tuple[str, int, int | None, int]] = field(default_factory=list[tuple[str, int, int | None, int]])
    _offsets: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    _logged: list[tuple[str, int | None, Any]] = field(default_factory=list[tuple[str, int | None, Any]])

    def snapshot(self) -> None:
        """Read all rows as they are."""
        self._logged.clear()
        self.last_commit = None
        for table, rows in self.rows.items():
            for key, value in rows.items():
                self.at += 1
                offset = self._write(table, key, self._envelope(table, "r", None, (key, value), "true"), logged=False)
                self.told.append((table, key, value, offset))

    def run(self, step: tuple[Any, ...]) -> None:
        """Let one thing happen."""
        match step:
            case ("put", table, key):
                self.number += 1
                before = self.rows[table].get(key)
                self.rows[table][key] = self.number
                self._change(table, key, before, self.number)
            case ("delete", table, key) if key in self.rows[table]:
                self._change(table, key, self.rows[table].pop(key), None)
            case ("move", table, key, to) if key in self.rows[table] and to not in self.rows[table]:
                value = self.rows[table].pop(key)
                self.rows[table][to] = value
                self._change(table, key, value, None)
                # The new row of a key that was changed has the position of the change too.
                self.lsn -= 8
                self._change(table, to, None, value)
            case ("truncate", table):
                self.lsn += 8
                self.rows[table].clear()
                self._write(table, None, self._envelope(table, "t", None, None))
            case ("commit",):
                self.lsn += 8
                self.last_commit, self.at = self.lsn, self.at + 1
            case ("restart", count):
                # A tombstone and the delete before it are one event of the log: a connector begins with both.
                begin = max(len(self._logged) - count, 0)
                begin -= begin < len(self._logged) and self._logged[begin][2] is None
                for table, key, payload in self._logged[begin:]:
                    self._write(table, key, payload, logged=False)
            case ("restore",):
                self.lsn, self.at = 500, self.at + 60
                self.snapshot()
            case _:
                pass

    def _change(self, table: str, key: int, before: int | None, after: int | None) -> None:
        self.lsn += 8
        op = "c" if before is None else "d" if after is None else "u"
        images = [None if value is None else (key, value) for value in (before, after)]
        self.told.append((table, key, after, self._write(table, key, self._envelope(table, op, *images))))
        if after is None:
            self._write(table, key, None)

    def _envelope(self, table: str, op: str, before: Any, after: Any, snapshot: str = "false") -> Any:
        images = [None if one is None else {"id": one[0], "n": one[1]} for one in (before, after)]
        commit = None if self.last_commit is None else str(self.last_commit)
        moment = int((BEGIN + timedelta(seconds=self.at)).timestamp() * 1000)
        source = {
            "table": table,
            "snapshot": snapshot,
            "lsn": self.lsn,
            "sequence": json.dumps([commit, str(self.lsn)]),
            "ts_ms": moment,
            "ts_us": moment * 1000,
            "ts_ns": moment * 1_000_000,
        }
        return envelope(op, *images, source=source)

    def _write(self, table: str, key: int | None, payload: Any, logged: bool = True) -> int:
        if logged:
            self._logged.append((table, key, payload))
        where = f"shop.public.{table}", (key or 0) % PARTITIONS
        offset = self._offsets[where] = self._offsets.get(where, -1) + 1
        value = None if payload is None else json.dumps(payload).encode()
        name = None if key is None else json.dumps({"id": key}).encode()
        self.records.append(Record(value, name, (), *where, offset))
        return offset

    def history(self, table: str) -> set[tuple[int, int, int, int | None]]:
        """Every row that a table had: its key, its value, and the offsets at which it began and ended."""
        rows: set[tuple[int, int, int, int | None]] = set()
        current: dict[int, tuple[int, int]] = {}
        for name, key, value, offset in self.told:
            if name != table or (key in current and current[key][0] == value):
                continue
            if key in current:
                rows.add((key, *current.pop(key), offset))
            if value is not None:
                current[key] = value, offset
        return rows | {(key, *begun, None) for key, begun in current.items()}


def recorded(steps: list[tuple[Any, ...]]) -> Database:
    """A database that had rows when its connector began, after some steps."""
    database = Database()
    database.rows["orders"].update({1: -1, 2: -2})
    database.snapshot()
    for step in steps:
        database.run(step)
    return database


def batches(records: list[Record], seed: int) -> list[list[Record]]:
    """The records in any order, some of them twice, in batches of any size."""
    chance = random.Random(seed)
    shuffled = records + [one for one in records if chance.random() < 0.3]
    chance.shuffle(shuffled)
    found: list[list[Record]] = []
    while shuffled:
        count = chance.randint(1, 6)
        found.append(shuffled[:count])
        del shuffled[:count]
    return found
