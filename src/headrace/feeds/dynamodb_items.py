"""Rows as items of DynamoDB, and the pieces in which they go into transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any

import pyarrow as pa

from headrace.feeds.batch import Batch
from headrace.json_forms import json_column

# The attribute by which items are found.
KEY = "_key"
ITEM_BYTES = 400_000
# One of the hundred items of a transaction is the state of the feed.
_ITEMS = 99
_PIECE_BYTES = 3_500_000
# Between these a number is one of DynamoDB's.
_LEAST, _MOST = 1e-130, 1e125

Item = dict[str, Any]


class Items:
    """The items of a batch's events, made when they are asked for; none for a row that is gone."""

    def __init__(self, batch: Batch, keys: Sequence[str], feed_id: str, chosen: Collection[int]) -> None:
        self._batch = batch
        self._keys = keys
        self._feed_id = feed_id
        self._made: dict[int, Item | None] = {}
        self._make(list(chosen))

    def __getitem__(self, index: int) -> Item | None:
        if index not in self._made:
            self._make([index])
        return self._made[index]

    def size(self, index: int) -> int:
        """Return about how many bytes the item of an event has."""
        item = self[index]
        return 0 if item is None else len(json.dumps(item, ensure_ascii=False, default=str).encode("utf-8", "replace"))

    def _make(self, indexes: Sequence[int]) -> None:
        batch = self._batch
        rows = batch.rows.take(pa.array(indexes, pa.int64()))
        columns = [
            [_value(value, pa.types.is_decimal(column.type)) for value in json_column(column)]
            for column in rows.columns
        ]
        for row, index in enumerate(indexes):
            item = {name: column[row] for name, column in zip(rows.column_names, columns, strict=True)}
            item |= {KEY: {"S": self._keys[index]}, "_feed": {"S": self._feed_id}}
            item["_sequence"] = {"N": str(batch.sequences[index])}
            self._made[index] = None if batch.operations[index] == "DELETE" else item


def pieces(keys: Collection[str], weight: Callable[[str], tuple[int, int]]) -> Generator[list[str], None, None]:
    """Yield keys that go in one transaction; the weight of a key is how many items it writes, and their bytes."""
    piece: list[str] = []
    items = size = 0
    for key in keys:
        more, more_size = weight(key)
        if piece and (items + more > _ITEMS or size + more_size > _PIECE_BYTES):
            yield piece
            piece, items, size = [], 0, 0
        piece.append(key)
        items += more
        size += more_size
    if piece:
        yield piece


def _value(value: Any, is_decimal: bool = False) -> dict[str, Any]:
    """Return a value in DynamoDB's form; a number that it cannot hold is text."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if (
        is_decimal
        or isinstance(value, int)
        or (isinstance(value, float) and (not value or _LEAST < abs(value) < _MOST))
    ):
        return {"N": str(value)}
    if isinstance(value, list):
        parts: list[Any] = value
        return {"L": [_value(part) for part in parts]}
    if isinstance(value, dict):
        entries: dict[str, Any] = value
        return {"M": {name: _value(part) for name, part in entries.items()}}
    return {"S": str(value)}
