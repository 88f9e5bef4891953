"""The tables and views of a home as they must be, followed in plain Python without any of Headrace's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tests.changes import Change

Values: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Shape:
    """A table's columns; a multiset where it has no key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    sequence: str | None = None


@dataclass(frozen=True)
class Apply:
    """Changes of one call."""

    changes: Mapping[str, Sequence[Change]]


@dataclass(frozen=True)
class Statement:
    """A statement that defines or drops: a view or a source that is there afterwards or not, or a table's new column.

    A source that is there afterwards has brought changes of a table.
    """

    sql: str
    view: str | None = None
    query: str | None = None
    column: tuple[str, str] | None = None
    source: str | None = None
    brought: tuple[str, Sequence[Change]] | None = None


@dataclass(frozen=True)
class Crowd:
    """Calls of as many callers at the same time; no two touch the same row, so their order makes no difference."""

    calls: tuple[Apply, ...]


Action: TypeAlias = Apply | Statement | Crowd


def calls_of(action: Action) -> tuple[Apply, ...]:
    """The calls of an action; a statement is none."""
    if isinstance(action, Crowd):
        return action.calls
    return (action,) if isinstance(action, Apply) else ()


@dataclass
class Table:
    """The rows of one table, and the keys that a sequence must not bring back."""

    shape: Shape
    by_key: dict[Values, Values] = field(default_factory=dict[Values, Values])
    bag: Counter[Values] = field(default_factory=Counter[Values])
    tombstones: dict[Values, Any] = field(default_factory=dict[Values, Any])

    def rows(self) -> Counter[Values]:
        return Counter(self.by_key.values()) if self.shape.key else Counter(self.bag)

    def follow(self, change: Change) -> None:
        ((kind, row),) = change.items()
        values = tuple(row.get(name) for name in self.shape.columns)
        if not self.shape.key:
            self.bag[values] += 1 if kind == "insert" else -1
            assert self.bag[values] >= 0, "the check deleted a row that is not there"
            self.bag = +self.bag
            return
        key = tuple(row[name] for name in self.shape.key)
        if self.shape.sequence is not None and not self._is_news(key, row[self.shape.sequence], kind):
            return
        if kind == "insert":
            self.by_key[key] = values
        else:
            self.by_key.pop(key, None)

    def widen(self, column: str) -> None:
        self.shape = replace(self.shape, columns=(*self.shape.columns, column))
        self.by_key = {key: (*values, None) for key, values in self.by_key.items()}

    def _is_news(self, key: Values, sequence: Any, kind: str) -> bool:
        """Whether a change is younger than all that is known of its key; the checks never send the same age twice."""
        assert self.shape.sequence is not None
        held = self.by_key.get(key)
        known = [self.tombstones[key]] if key in self.tombstones else []
        if held is not None:
            known.append(held[self.shape.columns.index(self.shape.sequence)])
        if any(sequence < one for one in known):
            return False
        self.tombstones.pop(key, None)
        if kind == "delete":
            self.tombstones[key] = sequence
        return True


@dataclass
class Model:
    """All that a home must hold."""

    tables: dict[str, Table]
    views: dict[str, str] = field(default_factory=dict[str, str])
    sources: set[str] = field(default_factory=set[str])

    def follow(self, action: Action) -> None:
        if not isinstance(action, Statement):
            for call in calls_of(action):
                for name, changes in call.changes.items():
                    for change in changes:
                        self.tables[name].follow(change)
        elif action.source is not None:
            self.sources.discard(action.source)
            if action.brought is not None:
                self.sources.add(action.source)
                for change in action.brought[1]:
                    self.tables[action.brought[0]].follow(change)
        elif action.column is not None:
            table, column = action.column
            self.tables[table].widen(column)
        elif action.view is not None:
            self.views.pop(action.view, None)
            if action.query is not None:
                self.views[action.view] = action.query

    def created(self, action: Action) -> str | None:
        """The table that a statement of `initialize` makes."""
        if isinstance(action, Statement) and action.sql.startswith("CREATE TABLE "):
            return action.sql.split()[2]
        return None
