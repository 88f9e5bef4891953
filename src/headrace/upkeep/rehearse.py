"""An epoch that is worked out and thrown away: what it plans and compiles, no caller of the next one waits for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.catalog.catalog import View
from headrace.epoch.work import Work
from headrace.errors import HeadraceError
from headrace.plans.failures import FAILURES
from headrace.reading.queries import Queries, Relations
from headrace.rules.base import NeedsFill
from headrace.sql.names import quoted
from headrace.state.delta import Delta, gather
from headrace.state.state import State


def rehearse_epoch(work: Work, tables: Sequence[str], views: Sequence[View], seconds: float) -> None:
    """Have views follow a change of one row in each table, for about so long; nothing is changed by it.

    What is only followed by a fill is left out, and so is what fails: that is for the real change to say.
    """
    until = time.monotonic() + seconds
    for name in tables:
        change = _small_change(work.before(name))
        if change is not None:
            work.record(name, change)
    for view in views:
        if time.monotonic() >= until:
            return
        if view.rule is None or not any(work.changed(name) for name in view.resolved.reads):
            continue
        try:
            work.record(view.name, view.rule.delta(work))
        except (NeedsFill, HeadraceError, *FAILURES):
            for name in view.hidden:
                work.deltas.pop(name, None)


def rehearse_query(queries: Queries, relations: Relations) -> None:
    """Ask for a relation with few rows."""
    if relations:
        name = min(relations, key=lambda one: relations[one][0].size)
        queries.run(f"SELECT count(*) FROM {quoted(name)}", relations)


def _small_change(held: State) -> Delta | None:
    """A row of the newest part, undone: one that it brought, which is there, or else one that it took, which is not."""
    newest = next((part for part in reversed(list(held.parts())) if len(part)), None)
    if newest is None:
        return None
    brought = np.flatnonzero(newest.weights > 0)
    row = gather(newest, (brought if len(brought) else np.arange(len(newest)))[:1])
    return replace(row, weights=-np.sign(row.weights))
