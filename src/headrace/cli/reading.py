"""Read a home for one verb: by asking the process that has it open, which takes milliseconds, else by opening it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import headrace
from headrace.cli.homes import ChosenHome
from headrace.cli.opening import opened
from headrace.home_elsewhere import ask_to_read, rows_of


@dataclass(frozen=True)
class Relations:
    """What a home holds at its newest epoch, and whether the process told it that has it open."""

    epoch: int
    tables: pa.Table
    views: pa.Table
    sources: pa.Table
    feeds: pa.Table
    from_owner: bool = False


class Reading:
    """The verbs that change nothing; what no other process answers is read here."""

    def __init__(self, home: ChosenHome, stack: ExitStack) -> None:
        self._home = home
        self._stack = stack

    def query(self, sql: str, epoch: int | None) -> pa.Table:
        """The rows of a query."""
        answer = self._asked("query", sql=sql, epoch=epoch)
        return self._opened().query(sql, epoch=epoch) if answer is None else rows_of(answer["rows"])

    def changes(self, name: str, since: int, until: int | None) -> pa.Table:
        """A relation's changes."""
        answer = self._asked("changes", name=name, since=since, until=until)
        if answer is None:
            return self._opened().changes(name, since=since, until=until)
        return rows_of(answer["rows"])

    def explain(self, name: str) -> headrace.Explanation:
        """How a view is kept current."""
        answer = self._asked("explain", name=name)
        return self._opened().explain(name) if answer is None else headrace.Explanation(**answer)

    def relations(self) -> Relations:
        """All tables, views, sources and changefeeds."""
        kinds = ("tables", "views", "sources", "changefeeds")
        answer = self._asked("relations")
        if answer is not None:
            # An owner of an older release tells of no sources.
            tables = (rows_of(answer[kind]) if kind in answer else pa.table({}) for kind in kinds)
            return Relations(answer["epoch"], *tables, from_owner=True)
        hr = self._opened()
        return Relations(hr.epoch, *(_listed(hr, f"SHOW {kind.upper()}") for kind in kinds))

    def _asked(self, verb: str, **arguments: Any) -> Mapping[str, Any] | None:
        return ask_to_read(self._home.location, verb, arguments, self._home.settings)

    def _opened(self) -> headrace.Headrace:
        return self._stack.enter_context(opened(self._home))


@contextmanager
def reading(home: ChosenHome) -> Generator[Reading, None, None]:
    """Inside, a home is read."""
    with ExitStack() as stack:
        yield Reading(home, stack)


def _listed(hr: headrace.Headrace, statement: str) -> pa.Table:
    result = hr.execute(statement)
    assert isinstance(result, pa.Table)
    return result
