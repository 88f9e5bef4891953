"""Taking a view into a home: it is filled, and those that depend on it are filled anew, in one epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.catalog import Catalog, Relation, View
from headrace.engine.fill import refill
from headrace.engine.recover import view_definition
from headrace.engine.work import Work, evaluation_error, follow
from headrace.errors import HeadraceError, RelationNameError
from headrace.ledger.ledger import closed_name
from headrace.sql.resolve import forget, register
from headrace.state.delta import Delta

if TYPE_CHECKING:
    from headrace.home import Headrace


@dataclass(frozen=True)
class Settled:
    """What becomes of the logs of views made again: those that start anew, and what some held before they do."""

    resets: list[str]
    closed: dict[str, Delta]


def adopt_view(home: Headrace, view: View, existing: View | None) -> None:
    """Fill a view, and refill those that depend on it, in one epoch; only then does the home know it."""
    dependents = home.catalog.dependents(view.name) if existing is not None else []
    made = [view]
    before = dict(home.catalog.relations)
    try:
        home.catalog.relations[view.name] = view
        register(home.catalyst, view.name, view.schema)
        for dependent in dependents:
            remade = remake(home, home.catalog, dependent, view.name)
            home.catalog.relations[dependent.name] = remade
            register(home.catalyst, dependent.name, remade.schema)
            made.append(remade)
        settled = settle_stores(made, before)
        now = home.tick()
        work = home.begin(now)
        # The clock has moved for all who read it, not only for the views made here.
        follow(work, home.catalog, home.frames, but={one.name for one in made})
        fill_views(home, home.catalog, work, made)
        for name, content in settled.closed.items():
            work.leave(closed_name(name), content)
        head = {
            "define": [view_definition(one) for one in made],
            "reset": settled.resets,
            "closed": list(settled.closed),
        }
        home.commit(work, now, head)
    except BaseException:
        home.catalog.relations.clear()
        home.catalog.relations.update(before)
        restore_names(home, made, before)
        raise


def remake(home: Headrace, catalog: Catalog, dependent: View, changed: str) -> View:
    """A view made again from its definition, since something that it reads is another now."""
    try:
        return home.make_view(dependent.definition, catalog)
    except HeadraceError as error:
        raise RelationNameError(
            f"view {dependent.name} no longer works with the new {changed}",
            detail=f"{error.message}. {error.detail}",
            hint=f"keep the columns that {dependent.name} reads, or drop it first",
        ) from None


def settle_stores(made: Sequence[View], before: Mapping[str, Relation]) -> Settled:
    """A replaced view of the same columns keeps its log; all other stores of the views start anew."""
    settled = Settled([], {})
    for view in made:
        old = before.get(view.name)
        if isinstance(old, View) and old.store.schema.equals(view.store.schema):
            view.store = old.store
        else:
            settled.resets.append(view.name)
            if old is not None:
                settled.closed[view.name] = old.store.snapshot().all()
        settled.resets.extend(view.hidden)
    return settled


def fill_views(home: Headrace, catalog: Catalog, work: Work, made: Sequence[View]) -> None:
    """Leave what views made again must hold, each after what it reads."""
    for one in made:
        try:
            refill(work, catalog, home.frames, one)
        except HeadraceError:
            raise
        except Exception as error:
            raise evaluation_error(one.name, error) from None


def restore_names(home: Headrace, made: Sequence[Relation], before: Mapping[str, Relation]) -> None:
    """The analyzer knows again what it knew before."""
    for one in made:
        old = before.get(one.name)
        if old is None:
            forget(home.catalyst, one.name)
        else:
            register(home.catalyst, one.name, old.schema)
