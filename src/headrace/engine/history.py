"""Readings of the log: a relation's changes between two epochs, and its state at an earlier one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.catalog import Relation, Table
from headrace.errors import EpochExpired
from headrace.intake.arrow import arrow_schema
from headrace.ledger.ledger import Entry, Ledger, summed
from headrace.state.delta import negate
from headrace.state.hashing import identity
from headrace.state.store import Run, Snapshot


def state_at(ledger: Ledger, name: str, newest: Snapshot, now: int, epoch: int) -> Snapshot:
    """What a relation held at the end of an epoch: what it holds now, without what the log brought since."""
    refuse_expired(ledger, epoch)
    resets = [head.epoch for head in ledger.heads() if name in head.content.get("reset", ())]
    started = max((reset for reset in resets if reset <= epoch), default=None)
    if started is None:
        return Snapshot(newest.schema, ())
    if started == max(resets):
        undone = negate(summed(newest.schema, list(ledger.entries(name, epoch, now))))
        return Snapshot(newest.schema, (*newest.runs, Run(undone)) if len(undone) else newest.runs)
    refuse_expired(ledger, started - 1)
    entries = list(ledger.entries(name, started - 1, epoch))
    if entries and not entries[0].rows.schema.equals(newest.schema):
        raise EpochExpired(
            f"{name} had other columns at epoch {epoch}",
            detail=f"It was replaced at epoch {min(reset for reset in resets if reset > epoch)}.",
            hint="read it at that epoch or a later one",
        )
    state = summed(newest.schema, entries)
    return Snapshot(newest.schema, (Run(state),) if len(state) else ())


def refuse_expired(ledger: Ledger, epoch: int) -> None:
    """Only an epoch whose log is still whole can be read."""
    if epoch < ledger.oldest:
        raise EpochExpired(
            f"epoch {epoch} has expired",
            detail=f"The oldest epoch that can be read is {ledger.oldest}.",
            hint=f"name epoch {ledger.oldest} or a later one; keep_time and keep_epochs set how long epochs are kept",
        )


def _current(ledger: Ledger, name: str, entries: list[Entry]) -> list[Entry]:
    """Only the deltas of the relation as it is defined now."""
    resets = [head.epoch for head in ledger.heads() if name in head.content.get("reset", ())]
    first = max(resets, default=0)
    return [entry for entry in entries if entry.epoch >= first]


def changes_table(ledger: Ledger, relation: Relation, since: int, until: int) -> pa.Table:
    """The relation's columns with _change_type, _commit_version and _commit_timestamp, in commit order."""
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
    parts = [
        _entry_changes(entry, places, schema)
        for entry in _current(ledger, relation.name, list(ledger.entries(relation.name, since, until)))
    ]
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
