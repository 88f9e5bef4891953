"""Taking definitions into a home: tables, views, and the rows of sources, all in one epoch."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.catalog import (
    Catalog,
    Feed,
    Relation,
    Source,
    Table,
    View,
    ViewDefinition,
    feed_definition,
    source_definition,
)
from headrace.definitions.recover import table_definition, view_definition
from headrace.definitions.sources import read_sources
from headrace.epoch.calls import Stopwatch
from headrace.epoch.core import Core
from headrace.epoch.fill import refill
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work, evaluation_error, follow
from headrace.errors import HeadraceError, RelationNameError
from headrace.ledger.names import cut_content_name
from headrace.plans.failures import FAILURES
from headrace.sql.resolve import forget, register
from headrace.sql.syntax import CreateSource
from headrace.state.delta import Delta

_log = logging.getLogger("headrace.definitions")


@dataclass(frozen=True)
class LogDecisions:
    """What becomes of the logs of views made again: those that start anew, and what some held before they do."""

    resets: list[str]
    cut_content: dict[str, Delta]


def adopt(
    core: Core,
    tables: Sequence[Table] = (),
    views: Sequence[ViewDefinition] = (),
    sources: Sequence[CreateSource] = (),
    following: Sequence[Source] = (),
    feeds: Sequence[Feed] = (),
) -> Receipt:
    """Take all of this into a home in one epoch, the views in this order; only then does the home know any of it.

    Sources that are read once are read into it; those that are followed are only defined.

    Views may be new or replace others, whose dependents are filled anew.
    """
    watch = Stopwatch()
    before = core.catalog
    epoch = core.epoch
    catalog = before.having(*tables)
    made: list[View] = []
    try:
        for table in tables:
            register(core.sessions.catalyst, table.name, table.schema)
        for definition in _with_dependents(catalog, views):
            view = _made(core, catalog, definition, views)
            made.append(view)
            catalog = catalog.having(view)
            register(core.sessions.catalyst, view.name, view.schema)
        logs = decide_logs(made, before.relations)
        now = core.tick()
        work = core.begin(now, catalog)
        watch.lap("definitions")
        readings = read_sources(core, catalog, work, now, sources)
        watch.lap("intake")
        # The clock has moved for all who read it, not only for the views made here.
        follow(work, catalog, core.sessions.frames, core.threads, but={one.name for one in made})
        fill_views(core, catalog, work, made)
        watch.lap("views")
        for name, content in logs.cut_content.items():
            work.record(cut_content_name(name), content)
        head = {
            "define": [*(table_definition(one) for one in tables), *(view_definition(one) for one in made)],
            "reset": [*(name for one in tables for name in one.store_names), *logs.resets],
            "closed": list(logs.cut_content),
            "sources": [source_definition(one) for one in (*readings.sources, *following)],
            "feeds": [feed_definition(one) for one in feeds],
        }
        core.commit(work, now, {word: content for word, content in head.items() if content}, catalog)
        watch.lap("ledger")
    finally:
        leave_names(core, [*tables, *made], before, adopted=core.epoch > epoch)
    dead = dict.fromkeys(readings.applied, 0)
    return Receipt(core.epoch, readings.applied, readings.stale, dead, watch.seconds, watch.stages)


def _with_dependents(catalog: Catalog, views: Sequence[ViewDefinition]) -> list[ViewDefinition]:
    """The views, and after the last that they read those that depend on a replaced one."""
    named = {view.name for view in views}
    replaced = [view.name for view in views if view.name in catalog]
    affected = {one.name: one for name in replaced for one in catalog.dependents(name) if one.name not in named}
    waiting = [view for view in catalog.views() if view.name in affected]
    ordered: list[ViewDefinition] = []
    for index, view in enumerate(views):
        ordered.append(view)
        later = {one.name for one in views[index + 1 :]} | {one.name for one in waiting}
        for one in list(waiting):
            later.discard(one.name)
            if not later.intersection(one.resolved.reads):
                ordered.append(one.definition)
                waiting.remove(one)
            else:
                later.add(one.name)
    return ordered


def _made(core: Core, catalog: Catalog, definition: ViewDefinition, views: Sequence[ViewDefinition]) -> View:
    if definition in views:
        try:
            return core.make_view(definition, catalog)
        except HeadraceError as error:
            error.about = definition.name
            raise
    dependent = catalog.view(definition.name)
    replaced = [one.name for one in views if dependent in catalog.dependents(one.name)]
    return remake(core, catalog, dependent, " and ".join(replaced))


def remake(core: Core, catalog: Catalog, dependent: View, changed: str) -> View:
    """A view made again from its definition, since something that it reads is another now."""
    try:
        return core.make_view(dependent.definition, catalog)
    except HeadraceError as error:
        if error.transient:
            raise
        raise RelationNameError(
            f"view {dependent.name} no longer works with the new {changed}",
            detail=f"Its query, {_shortened(dependent.definition.sql)!r}: {error.message}. {error.detail}".rstrip(),
            hint=f"keep the columns that {dependent.name} reads, or drop it first",
        ) from None


def _shortened(sql: str, longest: int = 200) -> str:
    """A query on one line, as far as it serves to know it by."""
    line = " ".join(sql.split())
    return line if len(line) <= longest else f"{line[:longest]}..."


def decide_logs(made: Sequence[View], before: Mapping[str, Relation]) -> LogDecisions:
    """A replaced view of the same columns keeps its log; all other stores of the views start anew."""
    logs = LogDecisions([], {})
    for view in made:
        old = before.get(view.name)
        if isinstance(old, View) and old.store.schema.equals(view.store.schema):
            view.store = old.store
        else:
            logs.resets.append(view.name)
            if old is not None:
                logs.cut_content[view.name] = old.store.snapshot().all()
        logs.resets.extend(view.hidden)
    return logs


def fill_views(core: Core, catalog: Catalog, work: Work, made: Sequence[View]) -> None:
    """Record what views made again must hold, each after what it reads."""
    for one in made:
        try:
            refill(work, catalog, core.sessions.frames, one)
        except FAILURES as error:
            raise evaluation_error(one.name, error, defining=True) from None


def leave_names(core: Core, made: Sequence[Relation], before: Catalog, adopted: bool) -> None:
    """Clear away what is no longer followed: the views that were replaced, or, where nothing came of it, the new ones.

    In that case the analyzer knows again what it knew before.
    """
    views = [before.relations.get(one.name) for one in made] if adopted else made
    for one in views:
        if isinstance(one, View):
            one.context.clear()
    if not adopted:
        restore_names(core, made, before.relations)


def restore_names(core: Core, made: Sequence[Relation], known: Mapping[str, Relation]) -> None:
    """The analyzer knows these names as the known relations have them; where it is out of reach, nothing else fails."""
    for one in made:
        old = known.get(one.name)
        try:
            if old is None:
                forget(core.sessions.catalyst, one.name)
            else:
                register(core.sessions.catalyst, one.name, old.schema)
        except Exception as error:
            _log.warning("the analyzer was not told of %s: %s", one.name, error, extra={"relation": one.name})
