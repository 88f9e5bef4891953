"""Changes that Spark has worked out already, as whole columns: statements and backfills."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine.catalog import Table
from headrace.errors import ChangesRejected, Rejection
from headrace.state.delta import Delta, concat, consolidate, found_among, group, negate
from headrace.state.hashing import identity
from headrace.state.store import Snapshot, key_hashes, take


@dataclass(frozen=True, eq=False)
class Bulk:
    """Rows to take away and rows to bring, in the table's own types; where there is a key, the last row of it wins."""

    removed: pa.Table
    added: pa.Table

    def __len__(self) -> int:
        return max(self.removed.num_rows, self.added.num_rows)


def bulk_delta(table: Table, before: Snapshot, bulk: Bulk) -> Delta:
    """The net change of a table that holds this, or ChangesRejected."""
    _refuse_nulls(table, bulk.added)
    schema = table.store.schema
    removed = consolidate(bulk.removed, np.full(bulk.removed.num_rows, -1, dtype=np.int64))
    places = tuple(table.schema.names.index(name) for name in table.contract.key)
    if not places:
        added = consolidate(bulk.added, np.ones(bulk.added.num_rows, dtype=np.int64))
        return concat(schema, [removed, added])
    keys = [bulk.added.column(i) for i in places]
    low, high = identity(keys, bulk.added.num_rows)
    _, numbers = group(low, high)
    last = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, dtype=np.int64)
    last[numbers] = np.arange(len(numbers))
    rows = bulk.added if len(last) == len(numbers) else bulk.added.take(pa.array(np.sort(last)))
    added = consolidate(rows, np.ones(rows.num_rows, dtype=np.int64))
    wanted = np.unique(np.concatenate([key_hashes(rows, places), key_hashes(bulk.removed, places)]))
    known = before.lookup(places, wanted) if before.runs else concat(schema, [])
    # A hash may be shared: only rows whose key is truly touched are replaced.
    touched = [identity([source.column(i) for i in places], source.num_rows) for source in (rows, bulk.removed)]
    touched_low = np.concatenate([low for low, _ in touched])
    touched_high = np.concatenate([high for _, high in touched])
    order = np.lexsort((touched_high, touched_low))
    known_keys = identity([known.rows.column(i) for i in places], len(known))
    _, replaced = found_among(*known_keys, touched_low[order], touched_high[order])
    gone = negate(take(known, np.flatnonzero(replaced)))
    return concat(schema, [gone, added])


def _refuse_nulls(table: Table, rows: pa.Table) -> None:
    rejections: list[Rejection] = []
    for field, column in zip(table.schema.fields, rows.columns, strict=True):
        required = not field.nullable or field.name in table.contract.key
        if required and column.null_count:
            for place in np.flatnonzero(np.asarray(column.is_null()))[:1000].tolist():
                rejections.append(Rejection(table.name, int(place), f"column {field.name} is NULL, but it is NOT NULL"))
    if rejections:
        raise ChangesRejected(rejections)
