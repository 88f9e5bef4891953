"""REPLAY SOURCE: what a source brought is applied again, to the same tables or to another one.

The changes of <source>_raw are taken in the order of their arrival, without those that were late then: they are told by
their positions, as they were when they came. What the source brings meanwhile is replayed too, so that the tables end
where the source is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.capture.messages import Change, Origin, Undecodable
from headrace.capture.options import UNAVAILABLE_VALUE
from headrace.capture.row_changes import created, deleted, updated
from headrace.capture.rows import Image
from headrace.catalog.catalog import Table
from headrace.catalog.make import make_table
from headrace.definitions.adopt import adopt
from headrace.epoch.batch import Verdicts
from headrace.epoch.calls import Basis, Call, Outdated
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import SourceError, StatementError
from headrace.intake.positions import SourcePosition, is_stale, numbered
from headrace.intake.table import TableContract
from headrace.progress import Step
from headrace.sources.connectors import CONNECTORS, positions_of
from headrace.sources.system_tables import raw_name
from headrace.sql.syntax import ReplaySource
from headrace.state.delta import consolidate
from headrace.state.hashing import hash_columns
from headrace.state.repeat import repeat
from headrace.state.state import BEGIN, At, State

_AT_ONCE = 5_000
_DIGITS = re.compile(r"(\d+)")
_EVENT = re.compile(r"(.*)-(\d+)-(\d+)", re.DOTALL)
# By arrival, then by the numbers and words of the event id: records of a partition by their offsets.
Place = tuple[datetime, tuple[str | int, ...]]


@dataclass(frozen=True)
class _Event:
    """One change as it came."""

    id: str
    place: Place


class Replay:
    """One replay under way: what it has applied so far, and the last position of each key."""

    def __init__(self, loop: Loop, statement: ReplaySource) -> None:
        self._loop = loop
        self._core = loop.core
        self._statement = statement
        self._source = self._core.catalog.source(statement.name)
        self._raw = raw_name(self._source.name)
        if self._raw not in self._core.catalog:
            raise SourceError(
                f"nothing was kept of what source {self._source.name} brought",
                hint="replay from the source itself: DROP SOURCE and CREATE SOURCE with start = 'earliest'",
            )
        connector = CONNECTORS.get(self._source.connector)
        # Where changes were taken as they arrived, none was late.
        self._ordered = connector is not None and positions_of(self._source, connector) is not None
        self._last: dict[tuple[str, tuple[Any, ...]], SourcePosition] = {}
        self._receipt = Receipt(self._core.epoch)

    def run(self) -> Receipt:
        """Replay to the end; the receipt tells how many changes were applied, stale or refused, by table."""
        target = self._target()
        done: Place | None = None
        while True:
            epoch, definitions = self._core.epoch, self._core.definitions
            state, schema = self._core.relations()[self._raw]
            events = [one for one in self._chosen(_events(state, schema)) if done is None or one.place > done]
            if not events:
                return self._receipt
            pieces = [events[start : start + _AT_ONCE] for start in range(0, len(events), _AT_ONCE)]
            for number, piece in enumerate(pieces):
                # What came last must still be the last: else the source has overtaken us.
                is_last = number + 1 == len(pieces) and not self._statement.until
                basis = Basis(epoch, definitions, frozenset({self._raw})) if is_last else None
                known = dict(self._last) if is_last else {}
                try:
                    self._apply(target, piece, _rows_of(state, schema, piece), basis)
                except Outdated:
                    self._last = known
                    break
                done = piece[-1].place
                self._core.progress.tell(
                    Step("table", target or self._raw, min((number + 1) * _AT_ONCE, len(events)), len(events))
                )

    def _target(self) -> str:
        """The table that takes all changes, or nothing where each has its own; one that is not there is made."""
        into, own = self._statement.into, self._source.table
        if into and not own:
            raise SourceError(
                f"source {self._source.name} brings several tables, which do not fit into one",
                hint=f"write REPLAY SOURCE {self._source.name} without INTO",
            )
        if into and into not in self._core.catalog:
            contract = self._core.catalog.table(own).contract
            made = TableContract(into, contract.schema, contract.key, contract.sequence)
            self._loop.define(lambda: None if into in self._core.catalog else adopt(self._core, [make_table(made)]))
        target = into or own
        if target in ("", own):
            for name in [target] if target else self._tables():
                self._refuse_same(self._core.catalog.open_table(name))
        return self._core.catalog.open_table(target).name if target else ""

    def _tables(self) -> list[str]:
        """The tables that what was kept is for, as far as they are there."""
        state, schema = self._core.relations()[self._raw]
        names = {self._table_of(one.id) for one in _events(state, schema)}
        return sorted(name for name in names if name in self._core.catalog)

    def _refuse_same(self, table: Table) -> None:
        """Into the table that the changes were for, they must come to the same end again."""
        if not table.contract.key:
            raise SourceError(
                f"table {table.name} has no key: what was applied already would be there twice",
                hint=f"write REPLAY SOURCE {self._source.name} INTO a new table"
                if self._source.table
                else f"create a source INTO a new table that brings the records of {table.name} alone",
            )
        if self._statement.until:
            raise SourceError(
                "a replay that ends early would leave older rows in the table",
                hint=f"write REPLAY SOURCE {self._source.name} ... INTO a new table",
            )

    def _chosen(self, events: Sequence[_Event]) -> list[_Event]:
        ordered = sorted(events, key=lambda one: one.place)
        since, until = self._statement.since, self._statement.until
        begin = 0 if not since else self._found(ordered, since, after=False)
        return ordered[begin : self._found(ordered, until, after=True) if until else None]

    def _found(self, events: Sequence[_Event], where: str, after: bool) -> int:
        """The index of an event, or of the first that arrived at a time or later."""
        for index, event in enumerate(events):
            if event.id == where:
                return index + after
        try:
            moment = datetime.fromisoformat(where)
        except ValueError:
            raise StatementError(
                f"{self._raw} has no event {where}",
                hint=f"name an event_id of {self._raw}, or a time such as '2026-01-31 12:00:00'",
                line=self._statement.line,
                column=self._statement.column,
            ) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return sum(event.place[0] < moment or (after and event.place[0] == moment) for event in events)

    def _apply(
        self, target: str, events: Sequence[_Event], rows: Mapping[str, Mapping[str, Any]], basis: Basis | None
    ) -> None:
        changes: dict[str, list[object]] = {}
        refused = 0
        for event in events:
            row = rows.get(event.id)
            name = target or self._table_of(event.id)
            if row is None or name not in self._core.catalog:
                refused += 1
                continue
            table = self._core.catalog.table(name)
            try:
                found = _changes(table.contract, row)
            except Undecodable:
                refused += 1
                continue
            position = _position(row) if self._ordered else None
            for number, change in enumerate(found):
                if not self._is_late(table.contract, change, position, number):
                    changes.setdefault(table.name, []).append(change)
        key = None
        if target and not self._core.catalog.table(target).contract.key:
            # Begun again after a crash, it takes what it has taken already no second time.
            born = self._core.catalog.history.at(target, self._core.epoch)
            key = f"replay:{self._source.name}:{target}:{born.born if born else 0}:{events[0].id}:{len(events)}"
        call = Call(changes, key, "", not changes, basis, after=_nothing_more)
        receipt = self._loop.receipt_of(self._loop.enter(call))
        self._receipt = _added(self._receipt, receipt, {self._raw: refused} if refused else {})

    def _table_of(self, event_id: str) -> str:
        parts = _EVENT.fullmatch(event_id)
        return (parts[1] if parts else event_id).rpartition(".")[2].lower()

    def _is_late(self, table: TableContract, change: Change, position: SourcePosition | None, number: int) -> bool:
        """Whether a change was older than one of its key that came before it; so it changed nothing then."""
        if position is None or not table.key:
            return False
        ((_, row),) = change.items()
        key = table.name, tuple(str(row.get(name)) for name in table.key)
        position, known = position._replace(number=number), self._last.get(key)
        if known is not None and is_stale(position, known):
            return True
        self._last[key] = position
        return False


def replay_source(loop: Loop, statement: ReplaySource) -> Receipt:
    """Apply again what a source brought."""
    return Replay(loop, statement).run()


def _events(state: State, schema: StructType) -> list[_Event]:
    """All changes that are kept, by their ids and arrival only: their rows are looked up when they are needed."""
    columns = [schema.names.index(name) for name in ("event_id", "arrived_at")]
    found: list[_Event] = []
    for part in _pieces(state):
        ids, times = (part.column(index).to_pylist() for index in columns)
        found.extend(_Event(one, (at.replace(tzinfo=UTC), _natural(one))) for one, at in zip(ids, times, strict=True))
    return found


def _pieces(state: State) -> Iterator[pa.Table]:
    at: At | None = BEGIN
    while at is not None:
        piece = state.piece(at, 50_000)
        if piece.rows.num_rows:
            yield piece.rows
        at = piece.after


def _natural(event_id: str) -> tuple[str | int, ...]:
    """Its words and its numbers, so that 10 comes after 9."""
    return tuple(int(part) if index % 2 else part for index, part in enumerate(_DIGITS.split(event_id)))


def _rows_of(state: State, schema: StructType, events: Sequence[_Event]) -> dict[str, dict[str, Any]]:
    """The kept rows of changes by their ids."""
    ids = pa.chunked_array([pa.array([one.id for one in events], state.schema.field(0).type)])
    found = state.lookup((0,), np.unique(hash_columns([ids], len(events))))
    summed = consolidate(found.rows, found.weights)
    rows = repeat(summed.rows, summed.weights).rename_columns(schema.names).to_pylist()
    return {row["event_id"]: row for row in rows}


def _changes(table: TableContract, row: Mapping[str, Any]) -> tuple[Change, ...]:
    """What a kept row changes in a table."""
    before, after = (_image(table, row[name]) for name in ("before", "after"))
    origin = Origin()
    if row["operation"] == "delete":
        return deleted(before or Image({}, frozenset()), origin, table).changes
    if after is None:
        raise Undecodable("it has no image of the row")
    if row["operation"] == "update":
        return updated(before, after, origin, table).changes
    return created(after, origin, table).changes


def _image(table: TableContract, text: str | None) -> Image | None:
    """An image of a row, in the columns that the table has now."""
    if text is None:
        return None
    declared = {name.lower(): name for name in table.schema.names}
    named = {declared[name.lower()]: value for name, value in json.loads(text).items() if name.lower() in declared}
    kept = frozenset(name for name, value in named.items() if value == UNAVAILABLE_VALUE)
    return Image({name: value for name, value in named.items() if name not in kept}, kept)


def _position(row: Mapping[str, Any]) -> SourcePosition | None:
    """The position that a kept row came with; none where its id does not tell."""
    parts = _EVENT.fullmatch(row["event_id"])
    if parts is None or (parts[3] == "0" and not row.get("log_order")):
        return None
    log, _, order = (row.get("log_order") or "").partition(" ")
    at = row["source_at"].replace(tzinfo=UTC) if row["source_at"] is not None and order else None
    partition = numbered(f"{parts[1]}:{parts[2]}")
    return SourcePosition(
        numbered(log) if order else 0, order, partition, int(parts[3]), 0, at, row["operation"] == "read"
    )


def _nothing_more(_: Verdicts) -> dict[str, Sequence[object]]:
    return {}


def _added(one: Receipt, other: Receipt, dead: Mapping[str, int]) -> Receipt:
    def sums(*counts: Mapping[str, int]) -> dict[str, int]:
        names = dict.fromkeys(name for part in counts for name in part)
        return {name: sum(part.get(name, 0) for part in counts) for name in names}

    return Receipt(
        other.epoch,
        sums(one.applied, other.applied),
        sums(one.stale, other.stale),
        sums(one.dead, other.dead, dead),
        one.seconds + other.seconds,
    )
