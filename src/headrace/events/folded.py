"""Projections that SQL cannot say: a pure function folds the events of each aggregate into a row of a table.

Live, each step folds the new events of the aggregates that they touch, from the state that their rows keep, and
commits rows and position in one epoch. A rebuild folds all events on Spark, by aggregate, while the old rows serve, and
puts the new ones in their place in one epoch. Both run the same function over the same events in the same order.

What was encrypted is None for the function, as it is for everybody once its key is forgotten, unless it asks for it: so
what it makes of the events is the same before and after, and holds nothing that should be gone.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from headrace.capture.exact_json import Digits, json_text, read_json, read_kept
from headrace.catalog.catalog import Table
from headrace.catalog.make import make_table, table_contract
from headrace.definitions.adopt import adopt
from headrace.epoch.bulk import Bulk
from headrace.epoch.loop import Loop
from headrace.errors import RelationNameError, StatementError
from headrace.events.append import rows_by
from headrace.events.define import drop_tables
from headrace.events.event import SEALED
from headrace.events.fingerprints import fingerprint
from headrace.events.followers import Follower, Opened
from headrace.events.reading import read_events
from headrace.events.states import Fold, as_event
from headrace.events.subscriptions import forget_subscription
from headrace.intake.arrow import to_arrow
from headrace.json_forms import json_form
from headrace.sql.statements import parse
from headrace.sql.syntax import CreateTable
from headrace.state.arrow_types import conform
from headrace.state.state import State

PREFIX = "projection:"
_LAST = ("version", "position", "updated_at", "state")


class FoldedProjection:
    """A table that a Python function keeps: a row for each aggregate of a type."""

    def __init__(
        self,
        loop: Loop,
        store: str,
        name: str,
        aggregate_type: str,
        columns: str,
        fold: Fold,
        opened: Opened,
        here: Callable[[], bool],
        version: str = "",
    ) -> None:
        self._loop = loop
        self._store = store
        self._aggregate_type = aggregate_type
        self._fold = fold
        self._opened = opened
        # Whether what the function is given needs keys or upcasters, which stay in this process.
        self._here = here
        self.name = name.lower()
        self._table = self._made(columns)
        self._columns = [one for one in self._table.schema.names if one not in (*_LAST, "aggregate_id")]
        told = fingerprint(fold)
        # Code that cannot be told from other code, and has no version, counts as changed each time.
        code = f"{told or ''}{version}" if told or version else f"once {uuid.uuid4()}"
        self.follower = _FoldedFollower(self, loop, store, code)

    def _made(self, columns: str) -> Table:
        """The table, made if it is not there."""
        core = self._loop.core
        (statement,) = parse(
            f"CREATE TABLE {self.name} (aggregate_id STRING PRIMARY KEY, {columns}, version BIGINT NOT NULL, "
            "position BIGINT NOT NULL, updated_at TIMESTAMP NOT NULL, state STRING NOT NULL)"
        )
        if not isinstance(statement, CreateTable):
            raise StatementError(f"{columns[:60]!r} are no columns", hint="write such as balance DECIMAL(12,2), n INT")
        with core.sessions.catalyst.active():
            contract = table_contract(core.sessions.catalyst, statement)
            table = make_table(contract, system=True, kept_for=self._store)
            held = core.catalog.relations.get(self.name)
            if held is None:
                self._loop.define(lambda: adopt(core, [table]))
                return core.catalog.table(self.name)
        if not isinstance(held, Table) or held.kept_for != self._store or held.contract != contract:
            raise RelationNameError(
                f"{self.name} exists already, and is not this projection", hint="choose another name, or drop it"
            )
        return held

    @property
    def position(self) -> int:
        """How far it is."""
        return self.follower.position

    def has_rows(self) -> bool:
        """Whether there is a row."""
        return self._loop.core.newest_of_names([self.name])[self.name][0].count > 0

    def take(
        self, rows: Sequence[dict[str, Any]], stopped: threading.Event
    ) -> tuple[Mapping[str, Sequence[object]], int]:
        """Fold some more events; the rows that they change."""
        mine = [self._opened(one) for one in rows if one["aggregate_type"] == self._aggregate_type]
        names = {one["aggregate_id"] for one in mine}
        state, _ = self._loop.core.newest_of_names([self.name])[self.name]
        kept = {row[0]: read_kept(row[-1]) for row in rows_by(state, (0,), [(one,) for one in sorted(names)])}
        changes: list[object] = []
        by_name: dict[str, list[dict[str, Any]]] = {}
        for one in mine:
            by_name.setdefault(one["aggregate_id"], []).append(one)
        for name, listed in by_name.items():
            row = folded_row(self._fold, self._columns, name, kept.get(name), listed)
            if row is not None:
                changes.append({"insert": row})
            elif name in kept:
                changes.append({"delete": {"aggregate_id": name}})
        return {self.name: changes} if changes else {}, int(rows[-1]["position"])

    def rebuild(self) -> int:
        """Fold all events anew, on Spark, while the old rows serve; then take their place. How many rows there are."""
        with self.follower._turn:  # pyright: ignore[reportPrivateUsage]
            return self.fold_anew()

    def fold_anew(self) -> int:
        """The same, for whoever has the turn."""
        core, before = self._loop.core, self.follower.kept() or self.follower.nothing
        found = core.newest_of_names([self._store, self.name])
        events, columns = found[self._store]
        last = events.count
        rows = self._folded_here(events, columns) if self._here() else self._folded_on_spark(events, columns)
        schema = self._table.schema
        types = [field.dataType for field in schema.fields]
        decoded, reasons = self._table.contract.decode_all([{"insert": one} for one in rows])
        if reasons:
            raise ValueError(f"the fold of {self.name} gives what its columns do not hold: {reasons}")
        fresh = conform(
            to_arrow([one.row for one in decoded if one is not None and one.row is not None], schema), types
        )
        old = conform(found[self.name][0].all().rows, types)
        self.follower.submit({self.name: Bulk(old, fresh)}, before, last)
        return fresh.num_rows

    def drop(self) -> None:
        """Follow no more, and drop the table, which no view may read."""
        self.follower.stop()
        core = self._loop.core
        with core.sessions.catalyst.active():
            self._loop.define(lambda: drop_tables(core, [core.catalog.table(self.name)]))
        forget_subscription(self._loop, self._store, self.follower.name)

    def _folded_here(self, events: State, columns: StructType) -> list[dict[str, Any]]:
        by_name: dict[str, list[dict[str, Any]]] = {}
        listed = read_events(events, columns, self._aggregate_type, None, 0, None)
        for row in listed.to_pylist(maps_as_pydicts="strict"):
            by_name.setdefault(row["aggregate_id"], []).append(self._opened(row))
        found = (folded_row(self._fold, self._columns, name, None, of_name) for name, of_name in by_name.items())
        return [row for row in found if row is not None]

    def _folded_on_spark(self, events: State, columns: StructType) -> list[dict[str, Any]]:
        core = self._loop.core
        module = sys.modules.get(self._fold.__module__)
        if module is not None and module.__name__ != "__main__":
            # Spark's workers need not have the module of the function.
            cloudpickle.register_pickle_by_value(module)
        try:
            with core.spark.working(), core.sessions.catalyst.active():
                frame = core.sessions.frames.frame(events, columns)
                context = frame.sparkSession.sparkContext
                python = context.pythonExec
                if core.sessions.catalyst.is_local:
                    # The Python that runs this has all that the fold may import.
                    context.pythonExec = sys.executable
                chosen = frame.filter(frame["aggregate_type"] == self._aggregate_type)
                kept = (
                    chosen.repartition(chosen["aggregate_id"])
                    .sortWithinPartitions("aggregate_id", "position")
                    .mapInArrow(_folding(self._fold, self._columns), "row string")
                )
                context.pythonExec = python
                return [read_json(one["row"]) for one in kept.toArrow().to_pylist()]
        finally:
            if module is not None and module.__name__ != "__main__":
                cloudpickle.unregister_pickle_by_value(module)


class _FoldedFollower(Follower):
    """Follows a store for a projection; where its rows are of other code, all events are folded anew."""

    def __init__(self, projection: FoldedProjection, loop: Loop, store: str, code: str) -> None:
        super().__init__(loop, store, f"{PREFIX}{projection.name}", projection.take, code=code)
        self._projection = projection

    def step(self) -> int:
        """Take the next events, or begin again from nothing."""
        with self._turn:
            kept = self.kept()
            # Rows of which nobody says how far they are could be of any code.
            if self._projection.has_rows() if kept is None else kept[1] != self._code:
                self._projection.fold_anew()
                return 1
        return super().step()


def withheld(row: Mapping[str, Any]) -> dict[str, Any]:
    """An event with None for whatever of it is encrypted."""
    event = as_event(row)
    if SEALED in str(row["event_data"]):
        data = event["event_data"]
        event["event_data"] = {
            name: None if isinstance(value, dict) and SEALED in value else value for name, value in data.items()
        }
    return event


def folded_row(
    fold: Fold,
    columns: Collection[str],
    name: str,
    state: dict[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """The row of an aggregate after some more events; None where it has none. What is no column is in its state."""
    for event in events:
        state = fold(state, event)
        # As it is kept, so that a step here and a step after a restart go on from the same.
        state = None if state is None else read_kept(json_text(json_form(state)))
    if state is None:
        return None
    last = events[-1]
    about = {"version": last["event_version"], "position": last["position"], "updated_at": last["created_at"]}
    # A column that holds decimals has all digits.
    fields = {
        column: Decimal(value.text) if isinstance(value, Digits) else value
        for column, value in state.items()
        if column in columns
    }
    return {"aggregate_id": name, **fields, **about, "state": json_text(state)}


def _folding(fold: Fold, columns: Collection[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The fold of sorted batches of events, as Spark's workers run it."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
        name: str | None = None
        gathered: list[dict[str, Any]] = []
        for batch in batches:
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                if row["aggregate_id"] != name:
                    if gathered and (made := folded_row(fold, columns, name or "", None, gathered)) is not None:
                        yield made
                    name, gathered = row["aggregate_id"], []
                gathered.append(withheld(row))
        if gathered and (made := folded_row(fold, columns, name or "", None, gathered)) is not None:
            yield made

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [json_text(one) for one in rows(batches)]
        yield pa.RecordBatch.from_arrays([pa.array(found, pa.string())], names=["row"])

    return run
