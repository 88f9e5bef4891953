"""Keys that an UPDATE gives its rows: none may belong to another row, which would be gone without a word."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.catalog.catalog import Table
from headrace.errors import ChangesRejected, Rejection
from headrace.state.hashing import key_hashes
from headrace.state.state import State


def refuse_taken_keys(table: Table, content: State, before: pa.Table, after: pa.Table) -> None:
    """Nothing, or ChangesRejected that names every row that would come to lie on another's key.

    A key with NULL is the contract's to refuse.
    """
    indices = [table.schema.names.index(name) for name in table.contract.key]
    old, new = _keys(table, before, indices), _keys(table, after, indices)
    given = Counter(new)
    arriving = set(new).difference(old)
    taken = _held(table, content, after, indices) & arriving
    rejections = [
        Rejection(table.name, index, f"the key {_shown(after, indices, index)} {why}")
        for index, key in enumerate(new)
        if key is not None
        and (why := "belongs to another row" if key in taken else "is given to two rows" if given[key] > 1 else "")
    ]
    if rejections:
        raise ChangesRejected(
            rejections, hint="give each row a key of its own, or delete the other row first; nothing was updated"
        )


def _keys(table: Table, rows: pa.Table, indices: list[int]) -> list[Any]:
    columns = [rows.column(index).to_pylist() for index in indices]
    return [None if None in key else table.contract.key_identity(key) for key in zip(*columns, strict=True)]


def _held(table: Table, content: State, rows: pa.Table, indices: list[int]) -> set[Any]:
    """The keys, of those that the rows shall have, that the table holds."""
    hashes = np.unique(key_hashes(rows, tuple(indices)))
    return set(_keys(table, content.lookup(tuple(indices), hashes).rows, indices))


def _shown(rows: pa.Table, indices: list[int], row: int) -> str:
    return "(" + ", ".join(repr(rows.column(index)[row].as_py()) for index in indices) + ")"
