"""Which changes of a batch it was that a view fails on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.epoch.core import Core
from headrace.epoch.guilty_rows import GuiltyRows
from headrace.epoch.loop import Loop
from headrace.epoch.work import Work
from headrace.errors import ViewEvaluationError
from headrace.sources.intake import Decoded
from headrace.state.delta import Delta


def guilty_changes(
    loop: Loop, decoded: Decoded, failed: Work, error: ViewEvaluationError, goes_on: Callable[[], bool]
) -> list[tuple[str, int, ViewEvaluationError]]:
    """All changes that make a view fail by themselves, with what it says; each try is a short turn among others."""
    core, views = loop.core, _others(loop.core.catalog, error.view)
    found: list[tuple[str, int, ViewEvaluationError]] = []
    for name in decoded.changes:
        change = failed.delta_of(name)
        if not 0 < len(change) <= failed.bound or not goes_on():
            continue

        def fails(part: Delta, table: str = name) -> ViewEvaluationError | None:
            return loop.between_others(lambda: _raised(core, table, part, views)) if goes_on() else None

        rows = GuiltyRows(core.catalog.table(name).schema.names, change, fails).find()
        places = _Places(decoded.changes[name], core.catalog.table(name).contract.key)
        for row, told in rows:
            place = places.of(row)
            if place is not None:
                found.append((name, place, told))
    return found if goes_on() else []


def _raised(core: Core, table: str, part: Delta, but: frozenset[str]) -> ViewEvaluationError | None:
    try:
        core.try_change(table, part, but)
    except ViewEvaluationError as error:
        return error
    return None


def _others(catalog: Catalog, view: str) -> frozenset[str]:
    """The views that a view does not stand on: whether they fail is another question."""
    reads = {one.name: one.resolved.reads for one in catalog.views()}
    needed, waiting = {view}, [view]
    while waiting:
        fresh = [one for one in reads.get(waiting.pop(), ()) if one in reads and one not in needed]
        needed.update(fresh)
        waiting += fresh
    return frozenset(reads).difference(needed)


class _Places:
    """Where the changes of a table are, by the texts of their keys."""

    def __init__(self, changes: list[object], key: tuple[str, ...]) -> None:
        self._changes = changes
        self._key = [name.lower() for name in key]
        self._by_key: dict[tuple[str, ...], list[int]] = {}
        for index, change in enumerate(changes) if key else ():
            given = {name.lower(): value for name, value in values_of(change).items()}
            self._by_key.setdefault(tuple(str(given.get(name)) for name in self._key), []).append(index)

    def of(self, row: Mapping[str, Any]) -> int | None:
        """The last change that brings a row."""
        wanted = {name.lower(): str(value) for name, value in row.items()}
        places = (
            self._by_key.get(tuple(wanted[name] for name in self._key), []) if self._key else range(len(self._changes))
        )
        return next((index for index in reversed(places) if _is_of(self._changes[index], wanted)), None)


def guilty_change(decoded: Decoded, error: ViewEvaluationError) -> tuple[str, int] | None:
    """Which change brought the row that a view fails on, if it was found."""
    if not isinstance(error.row, Mapping):
        return None
    row: Mapping[str, Any] = error.row
    wanted = {name.lower(): str(value) for name, value in row.items()}
    for table, changes in decoded.changes.items():
        for index in range(len(changes) - 1, -1, -1):
            if _is_of(changes[index], wanted):
                return table, index
    return None


def values_of(change: object) -> Mapping[str, Any]:
    """The values that a change gives, none where it is of another form."""
    given: Mapping[str, Any] = next(iter(change.values()), {}) if isinstance(change, Mapping) else {}
    return given if hasattr(given, "items") else {}


def _is_of(change: object, wanted: Mapping[str, str]) -> bool:
    """Whether a change brings a row, as far as both tell: by the text of values, for their types may differ."""
    given = values_of(change)
    names = [name for name in given if name.lower() in wanted]
    return bool(names) and len(names) == len(given) and all(str(given[n]) == wanted[n.lower()] for n in names)
