"""Where a home has drifted from the project that made it, though no definition has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.catalog.make import columns_held, columns_today
from headrace.errors import HeadraceError
from headrace.project.definitions import Definition, Definitions

if TYPE_CHECKING:
    from headrace.catalog.catalog import Catalog
    from headrace.epoch.core import Core


@dataclass(frozen=True)
class Drift:
    """Whether a view's text gives other columns today, and what is worth knowing."""

    columns: bool = False
    notes: tuple[str, ...] = ()


def find_drift(core: Core, definition: Definition) -> Drift:
    """What an unchanged view would be otherwise in a new home.

    A view goes on with the columns that it was made with when its tables are altered, so SELECT * may have come to
    mean more, and a name may have come to mean two columns.
    """
    view = core.catalog.view(definition.name)
    try:
        if columns_today(core.sessions.catalyst, view.definition) == columns_held(view):
            return Drift()
    except HeadraceError as error:
        if error.transient:
            raise
        problem = definition.problem(error)
        why = f"{problem}{f': {problem.detail}' if problem.detail else ''}"
        return Drift(notes=(f"view {view.name} goes on as it was made, but could not be made anew: {why}",))
    return Drift(True, (f"view {view.name} is replaced: its text gives other columns than when it was made",))


def _is_system(catalog: Catalog, name: str) -> bool:
    """Whether sources keep a table themselves."""
    return bool(getattr(catalog.relations[name], "system", False))


def _with_feeds(catalog: Catalog, name: str) -> str:
    """Return what the DROP of a relation needs where changefeeds deliver it."""
    feeds = [one.name for one in catalog.feeds.values() if one.table == name]
    if not feeds:
        return ""
    return f" CASCADE, which drops changefeed{'s' if len(feeds) > 1 else ''} {', '.join(feeds)} too"


def left_over(catalog: Catalog, definitions: Definitions) -> list[str]:
    """What a home holds and the project does not define, such as a view under its former name."""
    defined = {one.name for one in (*definitions.tables, *definitions.views)}
    views = {one.name for one in catalog.views()}
    notes = [
        f"{kind} {name} is not in the project; it is kept, and kept current, until DROP {kind.upper()} {name}"
        + _with_feeds(catalog, name)
        for name in catalog.relations
        if name not in defined and not _is_system(catalog, name)
        for kind in ("view" if name in views else "table",)
    ]
    known = {one.name for one in definitions.sources}
    stores = {one.name for one in definitions.stores}
    return (
        notes
        + [
            f"event store {one.name} is not in the project; DROP EVENT STORE {one.name} drops it with all of its events"
            for one in catalog.tables()
            if one.events is not None and one.name not in stores
        ]
        + [
            f"source {name} is not in the project; DROP SOURCE {name} forgets it and keeps its rows"
            for name in catalog.sources
            if name not in known
        ]
        + [
            f"changefeed {name} is not in the project; DROP CHANGEFEED {name} ends it"
            for name in catalog.feeds
            if name not in {one.name for one in definitions.feeds}
        ]
    )
