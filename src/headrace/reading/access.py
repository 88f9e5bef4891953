"""How rows are found that were asked for by values, ranges and an order: by the key, along an index, or by a scan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

Operator = Literal["eq", "gt", "gte", "lt", "lte"]


@dataclass(frozen=True)
class IndexColumn:
    """A column of an index or of an order; NULL is larger than every value, as in PostgreSQL."""

    name: str
    descending: bool = False

    def turned(self) -> IndexColumn:
        """The same the other way round."""
        return replace(self, descending=not self.descending)


Index = tuple[IndexColumn, ...]


@dataclass(frozen=True)
class Condition:
    """What a value of a column must be, compared with one that is not NULL and of the column's own type."""

    column: str
    operator: Operator
    value: Any


@dataclass(frozen=True)
class Access:
    """A way to the rows: by values that are looked up, in an order that leaves no two keys equal.

    Along an index the conditions on other columns than `equal` are all on the first one of the order.
    """

    kind: Literal["key", "index", "scan"]
    equal: tuple[str, ...]
    order: Index


def find_access(
    key: Sequence[str], indexes: Sequence[Index], conditions: Sequence[Condition], order: Sequence[IndexColumn]
) -> Access | None:
    """The best way by the key and the indexes that there are; None if only a scan would do."""
    compared = tuple((one.column, one.operator) for one in conditions)
    return _found(tuple(key), tuple(indexes), compared, tuple(order))


# Applications ask the same few questions with other values.
@lru_cache(1_000)
def _found(
    key: tuple[str, ...], indexes: tuple[Index, ...], compared: tuple[tuple[str, Operator], ...], order: Index
) -> Access | None:
    equal = {column for column, operator in compared if operator == "eq"}
    ranged = {column for column, operator in compared if operator != "eq"}
    wanted = tuple(one for one in order if one.name not in equal)
    if key and equal.issuperset(key):
        return Access("key", tuple(key), total(wanted, key))
    by_key = tuple(IndexColumn(name) for name in key)
    for index in (by_key, *indexes):
        first, rest = index[: len(equal)], index[len(equal) :]
        if not index or {one.name for one in first} != equal or not ranged.issubset({one.name for one in rest[:1]}):
            continue
        along = total(rest, key)
        for way in (along, tuple(one.turned() for one in along)):
            if way[: len(wanted)] == wanted:
                return Access("index", tuple(one.name for one in first), way)
    return None


def total(order: Sequence[IndexColumn], key: Collection[str]) -> Index:
    """An order with the columns of the key behind it, so that no two rows of different keys are equal in it."""
    named = {one.name for one in order}
    return (*order, *(IndexColumn(name) for name in key if name not in named))
