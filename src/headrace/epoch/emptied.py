"""The end of all rows of a table, as a source tells it: of rows that changed later in the source it is not true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.catalog.catalog import Table
from headrace.intake.positions import SourcePosition, is_stale
from headrace.state.delta import Delta, consolidate, gather, negate
from headrace.state.hashing import key_hashes
from headrace.state.state import State


def emptied_deltas(
    table: Table, rows: State, positions: State | None, position: SourcePosition | None
) -> dict[str, Delta]:
    """The net change of a table and of the positions of its keys.

    A change that comes later and is older is stale, whichever key it has: the position is remembered for all of them.
    """
    gone = rows.all()
    if position is None or positions is None or table.positions is None:
        return {table.name: negate(gone)}
    width = len(table.contract.key)
    remembered = positions.all()
    columns = [column.to_pylist() for column in remembered.rows.columns]
    newer: set[Any] = set()
    replaced: list[int] = []
    for index, parts in enumerate(zip(*columns, strict=True)):
        key, known = parts[:width], SourcePosition(*parts[width:])
        if all(one is None for one in key):
            replaced.append(index)
            if is_stale(position, known):
                return {}
        elif is_stale(position, known):
            newer.add(table.contract.key_identity(key))
    if newer:
        keys = zip(*(gone.rows.column(i).to_pylist() for i in table.contract.key_indexes), strict=True)
        older = [index for index, key in enumerate(keys) if table.contract.key_identity(key) not in newer]
        gone = gather(gone, np.array(older, dtype=np.int64))
    before = remembered.rows.take(pa.array(replaced, pa.int64()))
    values = [*[None] * width, *position]
    floor = pa.table(
        [pa.array([one], f.type) for one, f in zip(values, positions.schema, strict=True)], schema=positions.schema
    )
    both = pa.concat_tables([before, floor]).combine_chunks()
    weights = np.array([-1] * len(replaced) + [1], dtype=np.int64)
    return {table.name: negate(gone), table.positions.name: consolidate(both, weights)}


def end_of_all(table: Table, positions: State | None) -> SourcePosition | None:
    """Where in its source all rows of a table last ended, as far as that is remembered."""
    if positions is None or positions.is_empty:
        return None
    width = len(table.contract.key)
    nothing = pa.table(
        [pa.nulls(1, field.type) for field in list(positions.schema)[:width]],
        schema=pa.schema(list(positions.schema)[:width]),
    )
    found = positions.lookup(tuple(range(width)), key_hashes(nothing, tuple(range(width)))).rows
    columns = [column.to_pylist() for column in found.columns]
    ends = [row[width:] for row in zip(*columns, strict=True) if all(one is None for one in row[:width])]
    return SourcePosition(*ends[0]) if ends else None
