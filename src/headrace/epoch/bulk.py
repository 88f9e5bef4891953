"""Changes that Spark has worked out already, as whole columns: statements and backfills."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.catalog.catalog import Table
from headrace.errors import ChangesRejected, Rejection
from headrace.json_forms import has_text, is_readable
from headrace.state.delta import Delta, all_differ, concat, consolidate, found_among, gather, negate, number_identities
from headrace.state.hashing import identity, key_hashes
from headrace.state.state import State

_SHOWN_KEYS = 1000


@dataclass(frozen=True, eq=False)
class Bulk:
    """Rows to take away and rows to bring, in the table's own types.

    Where there is a key, the last row of it wins, unless each may come only `once`.
    """

    removed: pa.Table
    added: pa.Table
    once: bool = False

    def __len__(self) -> int:
        return max(self.removed.num_rows, self.added.num_rows)


def bulk_delta(table: Table, before: State, bulk: Bulk) -> Delta:
    """The net change of a table that holds this, or ChangesRejected."""
    _refuse_nulls(table, bulk.added)
    refuse_broken_text(table, bulk.added)
    schema = table.store.schema
    removed = consolidate(bulk.removed, np.full(bulk.removed.num_rows, -1, dtype=np.int64))
    key = table.contract.key_indexes
    if not key:
        added = consolidate(bulk.added, np.ones(bulk.added.num_rows, dtype=np.int64))
        return concat(schema, [removed, added])
    keys = identity([bulk.added.column(i) for i in key], bulk.added.num_rows)
    rows = bulk.added
    if not all_differ(keys[0]):
        _, numbers = number_identities(*keys)
        if bulk.once:
            _refuse_repeated(table, rows, numbers)
        last = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
        last[numbers] = np.arange(len(numbers))
        kept = np.sort(last)
        if len(kept) < len(numbers):
            rows, keys = rows.take(pa.array(kept)), (keys[0][kept], keys[1][kept])
    # Rows of different keys are different rows, so that nothing needs to be summed.
    added = Delta(rows, np.ones(rows.num_rows, dtype=np.int64), *identity(rows.columns, rows.num_rows))
    if before.is_empty:
        return added
    wanted = np.unique(np.concatenate([key_hashes(rows, key), key_hashes(bulk.removed, key)]))
    known = before.lookup(key, wanted)
    # A hash may be shared: only rows whose key is truly touched are replaced.
    gone_keys = identity([bulk.removed.column(i) for i in key], bulk.removed.num_rows)
    touched_low, touched_high = (np.concatenate(pair) for pair in zip(keys, gone_keys, strict=True))
    order = np.lexsort((touched_high, touched_low))
    known_keys = identity([known.rows.column(i) for i in key], len(known))
    _, replaced = found_among(*known_keys, touched_low[order], touched_high[order])
    gone = negate(gather(known, np.flatnonzero(replaced)))
    return concat(schema, [gone, added])


def _refuse_repeated(table: Table, rows: pa.Table, numbers: npt.NDArray[np.int64]) -> None:
    """Name the keys that come more than once."""
    counts = np.bincount(numbers)
    repeated = np.flatnonzero(counts > 1)
    if not len(repeated):
        return
    _, firsts = np.unique(numbers, return_index=True)
    shown = repeated[:_SHOWN_KEYS]
    positions = firsts[shown]
    keys = (
        rows.select(list(table.contract.key_indexes)).take(pa.array(positions)).rename_columns(list(table.contract.key))
    )
    rejections = [
        Rejection(table.name, position, f"key {key} comes {count} times", key)
        for position, key, count in zip(positions.tolist(), keys.to_pylist(), counts[shown].tolist(), strict=True)
    ]
    raise ChangesRejected(
        rejections,
        hint=f"{len(repeated)} keys come more than once: mend the source, so that each comes once; nothing was applied",
    )


def refuse_broken_text(table: Table, rows: pa.Table) -> None:
    """Refuse text that is not UTF-8, which Spark computes without a word: nobody could read it as it is."""
    rejections: list[Rejection] = []
    for field, column in zip(table.schema.fields, rows.columns, strict=True):
        if has_text(column.type) and not is_readable(column):
            broken = (position for position in range(len(column)) if not is_readable(column.slice(position, 1)))
            rejections.extend(
                Rejection(table.name, position, f"column {field.name} is not UTF-8")
                for position in islice(broken, _SHOWN_KEYS)
            )
    if rejections:
        raise ChangesRejected(rejections)


def _refuse_nulls(table: Table, rows: pa.Table) -> None:
    rejections: list[Rejection] = []
    for field, column in zip(table.schema.fields, rows.columns, strict=True):
        required = not field.nullable or field.name in table.contract.key
        if required and column.null_count:
            for position in np.flatnonzero(np.asarray(column.is_null()))[:1000].tolist():
                rejections.append(
                    Rejection(table.name, int(position), f"column {field.name} is NULL, but it is NOT NULL")
                )
    if rejections:
        raise ChangesRejected(rejections)
