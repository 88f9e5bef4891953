"""Readings of the log: a relation's changes between two epochs, and its state at an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.catalog.catalog import Relation, Table
from headrace.catalog.columns import ColumnHistory, Columns, converted
from headrace.errors import EpochExpired, ResultTooLarge
from headrace.intake.arrow import table_schema
from headrace.ledger.ledger import Entry, Ledger, summed
from headrace.ledger.names import cut_content_name
from headrace.state.change_images import change_images
from headrace.state.delta import Delta, negate
from headrace.state.repeat import repeated_bytes
from headrace.state.snapshot import holding
from headrace.state.state import State

# What the rows of an epoch may need beyond what they are held in, because they come again and again; and what each
# change needs beside its row.
_REPEATED_BYTES = 256 * 1024 * 1024
_CHANGE_BYTES = 40
# Called while much is read; raises when that is not wanted any more.
GoOn = Callable[[], None]


def always() -> None:
    """Go on in any case."""


def state_at(
    ledger: Ledger,
    history: ColumnHistory,
    relation: Relation,
    newest: State,
    now: int,
    epoch: int,
    go_on: GoOn = always,
) -> tuple[State, StructType]:
    """What a relation held at the end of an epoch, under the columns of that epoch.

    It is what the relation holds now, or what it held when its columns were last cut, without what the log brought in
    between; where neither is known, what its log came to since it began.
    """
    refuse_expired(ledger, epoch)
    then, start = history.at(relation.name, epoch), history.at(relation.name, now)
    if then is None or start is None:
        return holding(newest.schema), relation.schema
    schema = then.schema or relation.schema
    cut = next(
        (one for one in history.between(relation.name, epoch, now) if one.has_cut_content or one.born > epoch), None
    )
    if cut is not None and not cut.has_cut_content:
        return _since_birth(ledger, history, relation.name, newest, then, epoch, go_on), schema
    held = newest
    if cut is not None:
        now = cut.since - 1
        start = history.at(relation.name, now) or then
        entries = list(ledger.entries(cut_content_name(relation.name), now, cut.since))
        held = _summed(relation.name, epoch, start.arrow or newest.schema, entries)
    since = summed(held.schema, history.under(_log(ledger, relation.name, epoch, now, go_on), start))
    held = held.plus(negate(since))
    if then.alike(start):
        return held, schema
    # Values that a narrower type cannot hold came later and have cancelled each other by now.
    whole = held.all()
    return _snapshot(converted(whole.rows, whole.weights, start, then)), schema


class RelationsAt(Mapping[str, tuple[State, StructType]]):
    """Relations at an earlier epoch, worked out one by one when asked for: a query names few."""

    def __init__(
        self,
        ledger: Ledger,
        history: ColumnHistory,
        newest: Mapping[str, tuple[Relation, State]],
        now: int,
        epoch: int,
        go_on: GoOn = always,
    ) -> None:
        self._newest = newest
        self._read = lambda relation, held: state_at(ledger, history, relation, held, now, epoch, go_on)
        self._go_on = go_on

    def __getitem__(self, name: str) -> tuple[State, StructType]:
        self._go_on()
        return self._read(*self._newest[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)


def _since_birth(
    ledger: Ledger, history: ColumnHistory, name: str, newest: State, then: Columns, epoch: int, go_on: GoOn
) -> State:
    """What the log of a relation that was replaced since came to."""
    entries = history.under(_log(ledger, name, then.born - 1, epoch, go_on), then)
    return _summed(name, epoch, then.arrow or newest.schema, entries)


def _log(
    ledger: Ledger, name: str, since: int, until: int, go_on: GoOn = always, most_bytes: int | None = None
) -> list[Entry]:
    """What a relation's log has after an epoch, with no gap: an epoch that expires while it is read is refused."""
    refuse_expired(ledger, since)
    entries: list[Entry] = []
    size = 0
    try:
        for entry in ledger.entries(name, since, until):
            go_on()
            entries.append(entry)
            size += entry.rows.nbytes
            if most_bytes is not None and size > most_bytes:
                raise ResultTooLarge(f"the changes of {name} have more than {most_bytes} bytes")
        return entries
    finally:
        refuse_expired(ledger, since)


def _summed(name: str, epoch: int, schema: pa.Schema, entries: list[Entry]) -> State:
    if entries and not entries[0].rows.schema.equals(schema):
        raise EpochExpired(
            f"{name} had other columns at epoch {epoch}",
            detail="The release that wrote that epoch did not note what they were.",
            hint="read a later epoch",
        )
    return _snapshot(summed(schema, entries))


def _snapshot(content: Delta) -> State:
    return holding(content.rows.schema, content)


def refuse_expired(ledger: Ledger, epoch: int) -> None:
    """Only an epoch whose log is still whole can be read."""
    if epoch < ledger.oldest:
        raise EpochExpired(
            f"epoch {epoch} has expired",
            detail=f"The oldest epoch that can be read is {ledger.oldest}.",
            hint=f"name epoch {ledger.oldest} or a later one; keep_time and keep_epochs set how long epochs are kept",
        )


def refuse_unreadable(ledger: Ledger, epoch: int, newest: int) -> None:
    """Changes are told since an epoch that has been, and whose log is still whole."""
    refuse_expired(ledger, epoch)
    if epoch > newest:
        raise EpochExpired(
            f"epoch {epoch} has not been yet",
            detail=f"The newest epoch is {newest}.",
            hint=f"name an epoch from {ledger.oldest} to {newest}",
        )


@dataclass(frozen=True, eq=False)
class EpochChanges:
    """What one epoch changed in a relation: rows under its columns, and what became of each."""

    epoch: int
    committed_at: datetime
    kinds: pa.Array
    rows: pa.Table

    @property
    def table(self) -> pa.Table:
        """The rows with Spark's change columns."""
        count = self.rows.num_rows
        columns = {
            "_change_type": self.kinds,
            "_commit_version": pa.array(np.full(count, self.epoch, dtype=np.int64)),
            "_commit_timestamp": pa.array([self.committed_at] * count, type=pa.timestamp("us", "UTC")),
        }
        schema = _with_change_columns(self.rows.schema)
        return pa.table([*self.rows.columns, *(pa.chunked_array([one]) for one in columns.values())], schema=schema)


def changes_table(
    ledger: Ledger,
    history: ColumnHistory,
    relation: Relation,
    since: int,
    until: int,
    now: int,
    most_bytes: int | None = None,
) -> pa.Table:
    """The columns that the relation has now with _change_type, _commit_version and _commit_timestamp, in order.

    Rows of a table that was altered since are read under its present columns. What a relation of this name held before
    it was replaced, or dropped and made again, was never taken back row by row, so changes are not told across that.
    """
    if since < 0:
        raise EpochExpired(f"epoch {since} cannot be read", hint="epochs start at 0: the empty home")
    refuse_unreadable(ledger, since, now)
    present, then = history.at(relation.name, now), history.at(relation.name, since)
    schema = _with_change_columns(table_schema(relation.schema))
    if present is None:
        return schema.empty_table()
    if then is not None and then.born != present.born:
        raise EpochExpired(
            f"{relation.name} was replaced at epoch {present.born}",
            detail=f"What it held at epoch {since} has no part in its present columns and changes.",
            hint=f"read it whole, VERSION AS OF {present.born} or later, and its changes since then",
        )
    entries = _log(ledger, relation.name, max(since, present.born - 1), until, most_bytes=most_bytes)
    parts = [epoch_changes(entry, relation).table for entry in history.under(entries, present)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def epoch_changes(entry: Entry, relation: Relation) -> EpochChanges:
    """An entry of a relation's log, under its present columns, as changes: an update where a key pairs two rows.

    Rows come as often as their weights say, but for those that would need far more memory than they are held in.
    """
    _refuse_repeated(entry, relation.name)
    key = relation.contract.key if isinstance(relation, Table) else relation.key
    indexes = [relation.schema.names.index(name) for name in key]
    positions, kinds = change_images(entry.rows, np.asarray(entry.weights), indexes)
    rows = pa.table(entry.rows.take(pa.array(positions)).columns, schema=table_schema(relation.schema))
    return EpochChanges(entry.epoch, entry.committed_at, kinds, rows)


def _refuse_repeated(entry: Entry, name: str) -> None:
    further = np.abs(np.asarray(entry.weights)) - 1
    count = int(further.sum())
    if count and repeated_bytes(entry.rows, further) + count * _CHANGE_BYTES > _REPEATED_BYTES:
        raise ResultTooLarge(
            f"epoch {entry.epoch} of {name} repeats its rows too often to be read change by change",
            detail=f"It changed {len(further)} different rows, but {count + len(further)} with their repetitions.",
            hint=f"read it whole, VERSION AS OF {entry.epoch}, and its changes since then",
        )


def _with_change_columns(columns: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            *columns,
            pa.field("_change_type", pa.string()),
            pa.field("_commit_version", pa.int64()),
            pa.field("_commit_timestamp", pa.timestamp("us", "UTC")),
        ]
    )
