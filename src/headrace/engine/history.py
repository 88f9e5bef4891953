"""Readings of the log: a relation's changes between two epochs, and its state at an earlier one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.engine.catalog import Relation, Table
from headrace.engine.columns import ColumnHistory, Columns, converted
from headrace.errors import EpochExpired
from headrace.intake.arrow import arrow_schema
from headrace.ledger.ledger import Entry, Ledger, summed
from headrace.ledger.names import closed_name
from headrace.state.delta import Delta, negate
from headrace.state.hashing import identity
from headrace.state.store import Run, Snapshot


def state_at(
    ledger: Ledger, history: ColumnHistory, relation: Relation, newest: Snapshot, now: int, epoch: int
) -> tuple[Snapshot, StructType]:
    """What a relation held at the end of an epoch, under the columns of that epoch.

    It is what the relation holds now, or what it held when its columns were last cut, without what the log brought in
    between; where neither is known, what its log came to since it began.
    """
    refuse_expired(ledger, epoch)
    then, start = history.at(relation.name, epoch), history.at(relation.name, now)
    if then is None or start is None:
        return Snapshot(newest.schema, ()), relation.schema
    schema = then.schema or relation.schema
    cut = next((one for one in history.between(relation.name, epoch, now) if one.closed or one.born > epoch), None)
    if cut is not None and not cut.closed:
        return _since_birth(ledger, history, relation.name, newest, then, epoch), schema
    held = newest
    if cut is not None:
        now = cut.since - 1
        start = history.at(relation.name, now) or then
        entries = list(ledger.entries(closed_name(relation.name), now, cut.since))
        held = _summed(relation.name, epoch, start.arrow or newest.schema, entries)
    since = summed(held.schema, history.under(_log(ledger, relation.name, epoch, now), start))
    if len(since):
        held = Snapshot(held.schema, (*held.runs, Run(negate(since))))
    if then.alike(start):
        return held, schema
    # Values that a narrower type cannot hold came later and have cancelled each other by now.
    whole = held.all()
    return _snapshot(converted(whole.rows, whole.weights, start, then)), schema


class RelationsAt(Mapping[str, tuple[Snapshot, StructType]]):
    """Relations at an earlier epoch, worked out one by one when asked for: a query names few."""

    def __init__(
        self,
        ledger: Ledger,
        history: ColumnHistory,
        newest: Mapping[str, tuple[Relation, Snapshot]],
        now: int,
        epoch: int,
    ) -> None:
        self._newest = newest
        self._read = lambda relation, held: state_at(ledger, history, relation, held, now, epoch)

    def __getitem__(self, name: str) -> tuple[Snapshot, StructType]:
        return self._read(*self._newest[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)


def _since_birth(
    ledger: Ledger, history: ColumnHistory, name: str, newest: Snapshot, then: Columns, epoch: int
) -> Snapshot:
    """What the log of a relation that was replaced since came to."""
    entries = history.under(_log(ledger, name, then.born - 1, epoch), then)
    return _summed(name, epoch, then.arrow or newest.schema, entries)


def _log(ledger: Ledger, name: str, since: int, until: int) -> list[Entry]:
    """What a relation's log has after an epoch, with no gap: an epoch that expires while it is read is refused."""
    refuse_expired(ledger, since)
    try:
        return list(ledger.entries(name, since, until))
    finally:
        refuse_expired(ledger, since)


def _summed(name: str, epoch: int, schema: pa.Schema, entries: list[Entry]) -> Snapshot:
    if entries and not entries[0].rows.schema.equals(schema):
        raise EpochExpired(
            f"{name} had other columns at epoch {epoch}",
            detail="The release that wrote that epoch did not note what they were.",
            hint="read a later epoch",
        )
    return _snapshot(summed(schema, entries))


def _snapshot(content: Delta) -> Snapshot:
    return Snapshot(content.rows.schema, (Run(content),) if len(content) else ())


def refuse_expired(ledger: Ledger, epoch: int) -> None:
    """Only an epoch whose log is still whole can be read."""
    if epoch < ledger.oldest:
        raise EpochExpired(
            f"epoch {epoch} has expired",
            detail=f"The oldest epoch that can be read is {ledger.oldest}.",
            hint=f"name epoch {ledger.oldest} or a later one; keep_time and keep_epochs set how long epochs are kept",
        )


def changes_table(
    ledger: Ledger, history: ColumnHistory, relation: Relation, since: int, until: int, now: int
) -> pa.Table:
    """The columns that the relation has now with _change_type, _commit_version and _commit_timestamp, in order."""
    if since < 0:
        raise EpochExpired(f"epoch {since} cannot be read", hint="epochs start at 0: the empty home")
    refuse_expired(ledger, since)
    columns = arrow_schema(relation.schema)
    schema = pa.schema(
        [
            *columns,
            pa.field("_change_type", pa.string()),
            pa.field("_commit_version", pa.int64()),
            pa.field("_commit_timestamp", pa.timestamp("us", "UTC")),
        ]
    )
    key = relation.contract.key if isinstance(relation, Table) else relation.key
    places = [relation.schema.names.index(name) for name in key]
    present = history.at(relation.name, now)
    if present is None:
        return schema.empty_table()
    entries = history.under(_log(ledger, relation.name, max(since, present.born - 1), until), present)
    parts = [_entry_changes(entry, places, schema) for entry in entries]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _entry_changes(entry: Entry, key: list[int], schema: pa.Schema) -> pa.Table:
    weights = np.asarray(entry.weights)
    places = np.repeat(np.arange(len(weights)), np.abs(weights))
    deleted = weights[places] < 0
    kinds = np.where(deleted, "delete", "insert").astype(object)
    order = np.argsort(~deleted, kind="stable")
    if key:
        columns = [entry.rows.column(i).take(pa.array(places)) for i in key]
        low, high = identity(columns, len(places))
        pairs: dict[Any, list[int]] = {}
        for i, identified in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            pairs.setdefault(identified, []).append(i)
        ordered: list[int] = []
        for group in pairs.values():
            ordered_group = sorted(group, key=lambda i: not deleted[i])
            if len(group) == 2 and deleted[ordered_group[0]] and not deleted[ordered_group[1]]:
                kinds[ordered_group[0]], kinds[ordered_group[1]] = "update_preimage", "update_postimage"
            ordered.extend(ordered_group)
        order = np.array(ordered, dtype=np.int64)
    rows = entry.rows.take(pa.array(places[order]))
    count = len(order)
    extra = [
        pa.array(kinds[order].tolist(), type=pa.string()),
        pa.array(np.full(count, entry.epoch)),
        pa.array([entry.committed_at] * count, type=pa.timestamp("us", "UTC")),
    ]
    return pa.table([*rows.columns, *(pa.chunked_array([one]) for one in extra)], schema=schema)
