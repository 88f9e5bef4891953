"""What a request may do, as every route asks it, and the home as somebody with fewer rights sees it.

Routes that are not named here are for administrators: one that is added is closed until it judges for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, TypeVar, cast

import pyarrow as pa
from fastapi import Depends, Request
from pyspark.sql.types import StructType
from starlette.types import Scope

from headrace.access.grants import Access
from headrace.catalog.catalog import Catalog, Relation, Table, View
from headrace.errors import RelationNameError
from headrace.reading.following import Following, Newest
from headrace.reading.history import GoOn, always
from headrace.reading.queries import Relations
from headrace.reading.readings import Readings
from headrace.serving.problems import Refusal
from headrace.sources.system_tables import DEAD_LETTERS
from headrace.sql.statements import (
    Delete,
    Describe,
    Explain,
    ExplainQuery,
    Insert,
    Query,
    Show,
    Statement,
    Update,
)
from headrace.state.state import State
from headrace.statements.changes import ChangeQuery, ReadRows

T = TypeVar("T")
ACCESS = "headrace.access"
# A function that tells whether the sender of a request may still do what it could when the request came.
STILL = "headrace.still"

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
Judge = Callable[[Access], bool]


def _anybody(_: Access) -> bool:
    return True


# By path, the methods, and who may use them; what no line covers is for administrators. Where anybody may, the route
# itself judges by the relations that are named, or tells nothing of any.
_RULES: Sequence[tuple[re.Pattern[str], frozenset[str], Judge]] = [
    (re.compile(path, re.DOTALL), frozenset(methods), judge)
    for path, methods, judge in (
        (r"/(healthz|readyz|openapi\.json)", _READING, _anybody),
        (r"/(v1/session|auth/(login|callback|logout))", {"GET", "POST", "DELETE"}, _anybody),
        (r"/(console/.*)?", _READING, _anybody),
        (r"/console/session", {"POST", "DELETE"}, _anybody),
        (r"/v1/(graph|live|epochs)", _READING, _anybody),
        (r"/v1/relations/[^/]+(/difference)?", _READING, _anybody),
        (r"/v1/(runtime|jobs)", _READING, Access.may_observe),
        (r"/v1/(query|epochs)", {"POST"}, _anybody),
        (r"/v1/completion", _READING, _anybody),
        (r"/v1/ingress/[^/]+", {"POST"}, _anybody),
        (r"/v1/changes/[^/]+", _READING, _anybody),
        (r"/v1/data/[^/]+(/.*)?", _READING, _anybody),
        (r"/v1/(events(/[^/]+/[^/]+(/state)?)?|commands)", _READING, _anybody),
        (r"/v1/(events/[^/]+|commands)/[^/]+", {"POST"}, _anybody),
        (r"/(metrics|v0/pipelines/[^/]+/metrics)", _READING, Access.may_observe),
        (r"/v1/(sources|changefeeds)(/[^/]+)?", _READING, Access.may_observe),
        (r"/v1/dead-letters(/.*)?", _READING, lambda access: access.may_read(DEAD_LETTERS, system=True)),
        (
            r"/v0/(openapi\.json|config|cluster_healthz|pipelines|pipelines/[^/]+|pipelines/[^/]+/stats)",
            _READING,
            _anybody,
        ),
        (r"/v0/pipelines/[^/]+/(query|completion_status)", _READING, _anybody),
        (r"/v0/pipelines/[^/]+/(ingress|egress)/[^/]+", {"POST"}, _anybody),
    )
]


def access_in(scope: Scope) -> Access:
    """What the sender of a request may do; nothing, if nobody has judged it."""
    return scope.get(ACCESS) or Access("nobody")


def asker_of(request: Request) -> str:
    """Return the name that tells senders of requests apart: their key and their address."""
    return f"{access_in(request.scope).who} {'' if request.client is None else request.client.host}"


def still_holds(scope: Scope) -> bool:
    """Whether what a request was let in for holds now: its key may have been revoked, or may do other things."""
    still: Callable[[], bool] | None = scope.get(STILL)
    return still is None or still()


async def access_of(request: Request) -> Access:
    """What the sender of a request may do; a dependency of routes."""
    return access_in(request.scope)


OfAccess = Annotated[Access, Depends(access_of)]


def refusal_of_path(access: Access, method: str, path: str) -> Refusal | None:
    """Why a path is not answered to somebody, if it is not."""
    if access.is_unlimited:
        return None
    for pattern, methods, judge in _RULES:
        if pattern.fullmatch(path) and method in methods:
            return None if judge(access) else forbidden(f"{method} {path[:60]}")
    return forbidden("administer this home")


def forbidden(what: str, detail: str = "") -> Refusal:
    """The refusal of what a key may not do; the same whether or not there is what it names."""
    return Refusal(
        403,
        "forbidden",
        f"this key may not {what}",
        detail=detail,
        hint="ask an administrator of the home for a key that may: headrace key create",
    )


def refuse_unwritten(access: Access, *tables: str) -> None:
    """Refuse tables to who may not change them: before a body is read, or where there is none."""
    for table in tables:
        if not access.may_write(table):
            raise forbidden(f"write to {table[:60]}")


def readable(access: Access, catalog: Catalog, relation: str) -> str:
    """The name of what is read where a relation is named, or a refusal that does not tell whether there is one."""
    if access.is_unlimited:
        return catalog.get(relation).name
    found = catalog.relations.get(relation.lower())
    if not access.may_read(relation, system=_is_system(found)):
        raise forbidden(f"read {relation[:60]}")
    stand_in = access.reads_in_place_of(relation)
    if stand_in != relation.lower() and stand_in not in catalog:
        # Never the relation itself: what was to be hidden stays hidden.
        raise forbidden(f"read {relation[:60]}", "The view that stands in for it is not there.")
    return catalog.get(stand_in if stand_in != relation.lower() else relation).name


def named_to(access: Access, catalog: Catalog) -> Mapping[str, Relation]:
    """The relations whose names and counts somebody is told: all to who may observe, to others what they may read."""
    if access.may_observe():
        return catalog.relations
    return {name: one for name, one in catalog.relations.items() if access.may_read(name, system=_is_system(one))}


def counted_as(access: Access, catalog: Catalog) -> dict[str, str]:
    """By each relation that somebody is told of, the one whose figures are told: what is read in its place.

    Figures of the relation itself would tell of rows that are hidden. What stands in for it may not be there.
    """
    return {name: access.reads_in_place_of(name) for name in named_to(access, catalog)}


@dataclass(frozen=True)
class Seen:
    """The readings of a home as somebody sees them: other relations are not there, some are views that stand in."""

    whole: Readings
    access: Access

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self.whole.epoch

    @property
    def following(self) -> Following:
        """The one way to follow a relation; who follows one asks `readable` first."""
        return self.whole.following

    @property
    def catalog(self) -> Catalog:
        """The relations that may be read, each under the name that it is asked for by."""
        catalog = self.whole.catalog
        return replace(catalog, relations=self._seen(catalog.relations, catalog.relations))

    def newest(self) -> tuple[int, dict[str, tuple[State, StructType]]]:
        """The newest epoch, and all relations that may be read at it."""
        epoch, relations = self.whole.newest()
        return epoch, self._seen(relations, self.whole.catalog.relations)

    def newest_of(self, name: str) -> Newest:
        """One relation as it is now, or what stands in for it; who asks has asked `readable` first."""
        return self.whole.newest_of(self.access.reads_in_place_of(name))

    def relations_at(self, epoch: int, go_on: GoOn = always) -> Relations:
        """The relations that may be read at an earlier epoch; one whose stand-in was not there yet is not."""
        return self._seen(self.whole.relations_at(epoch, go_on), self.whole.catalog.relations)

    def epoch_at(self, moment: datetime) -> int:
        """The newest epoch that was committed at or before a moment."""
        return self.whole.epoch_at(moment)

    def _seen(self, held: Mapping[str, T], known: Mapping[str, Relation]) -> dict[str, T]:
        # One that is no more may have been one of Headrace's own.
        kept = [name for name in held if name not in known or _is_system(known[name])]
        allowed = [name for name in held if self.access.may_read(name, system=name in kept)]
        in_place = {name: self.access.reads_in_place_of(name) for name in allowed}
        return {name: held[other] for name, other in in_place.items() if other in held}


def seen(readings: Readings, access: Access) -> Readings:
    """The readings of a home, as far as somebody may see them."""
    return readings if access.is_unlimited else Seen(readings, access)


def judged(statement: Statement, access: Access, catalog: Catalog) -> Statement:
    """A statement that somebody may run, naming what is read in place of what it names; a refusal of any other."""
    if access.is_unlimited or isinstance(statement, Query | ExplainQuery):
        # A query is judged by what it finds: relations that may not be read are not there for it.
        return statement
    if isinstance(statement, Describe):
        return replace(statement, name=readable(access, catalog, statement.name))
    if isinstance(statement, Explain) and isinstance(statement.target, str):
        found = readable(access, catalog, statement.target)
        _refuse_explained(found, access, catalog)
        return replace(statement, target=found)
    if isinstance(statement, Show):
        if statement.what not in ("tables", "views") and not access.may_observe():
            raise forbidden(f"SHOW {statement.what.upper()}", "It takes the role observe, or admin over everything.")
        return statement
    if isinstance(statement, Insert | Update | Delete):
        refuse_unwritten(access, statement.table)
        if not isinstance(statement, Insert) and access.reads_in_place_of(statement.table) != statement.table.lower():
            # Which rows it finds, and what it makes of them, would tell what is hidden.
            raise forbidden(f"UPDATE or DELETE rows of {statement.table[:60]}", "A view stands in for it.")
        return statement
    raise forbidden("administer this home")


def refuse_changes(access: Access, changes: Mapping[str, object]) -> None:
    """Refuse changes by table that somebody may not make; every route that takes some asks this before it submits them.

    Parts of rows that are not seen as they are may not be changed either: the rest of them could come to light.
    """
    refuse_unwritten(access, *changes)
    for table, listed in changes.items():
        if access.reads_in_place_of(table) != table.lower() and _has_parts(listed):
            raise forbidden(f"update rows of {table[:60]}", "A view stands in for it. Send whole rows as inserts.")


def _has_parts(listed: object) -> bool:
    # What is no list of changes is refused by who reads it.
    changes = cast("Sequence[object]", listed) if isinstance(listed, Sequence) else ()
    return any(isinstance(one, Mapping) and "update" in one for one in changes)


def names_read(access: Access, catalog: Catalog) -> Callable[[str], str | None]:
    """By the name of a relation in a statement that changes rows, what is read there; None where nothing is to be."""

    def read(name: str) -> str | None:
        return access.reads_in_place_of(name) if _may_read(name, access, catalog) else None

    return read


def told_as_unknown(read: ReadRows, access: Access) -> ReadRows:
    """Reads the rows that a change needs; of what it may not read it hears the same as of what is not there."""

    def rows(query: ChangeQuery, relations: Relations) -> pa.Table:
        try:
            return read(query, relations)
        except RelationNameError as error:
            raise told_unknown(error, access) from None

    return rows


def _refuse_explained(name: str, access: Access, catalog: Catalog) -> None:
    """Refuse to explain a view over what somebody may not read: the plan has its name and columns."""
    view = catalog.relations.get(name)
    if isinstance(view, View) and not explained_to(access, catalog, view):
        raise forbidden(
            f"EXPLAIN {name[:60]}", "The view reads relations that are not for this key, and a plan names them."
        )


def explained_to(access: Access, catalog: Catalog, view: View) -> bool:
    """Whether somebody may see how a view is made: its text and its plan name what it reads, with columns."""
    return access.is_unlimited or all(_reads_itself(one, access, catalog) for one in view.resolved.reads)


def shown(rows: pa.Table, access: Access, readings: Readings) -> pa.Table:
    """Those rows of SHOW TABLES and SHOW VIEWS whose relation somebody may read; they tell of no other."""
    catalog = readings.catalog
    if access.is_unlimited or "name" not in rows.column_names:
        return rows
    keep = [_may_read(name, access, catalog) for name in rows.column("name").to_pylist()]
    rows = rows.filter(pa.array(keep, pa.bool_()))
    if "rows" in rows.column_names:
        held = seen(readings, access).newest()[1]
        counts = [held[name][0].count if name in held else 0 for name in rows.column("name").to_pylist()]
        rows = rows.set_column(rows.column_names.index("rows"), "rows", pa.array(counts, pa.int64()))
    if "reads" not in rows.column_names:
        return rows
    reads = [
        ", ".join(name for name in told.split(", ") if _may_read(name, access, catalog))
        for told in rows.column("reads").to_pylist()
    ]
    return rows.set_column(rows.column_names.index("reads"), "reads", pa.array(reads, pa.string()))


def _reads_itself(name: str, access: Access, catalog: Catalog) -> bool:
    return _may_read(name, access, catalog) and access.reads_in_place_of(name) == name


def _may_read(name: str, access: Access, catalog: Catalog) -> bool:
    return access.may_read(name, system=_is_system(catalog.relations.get(name)))


def told_unknown(error: RelationNameError, access: Access) -> Exception:
    """What somebody hears of a relation that a query could not find: the same whether or not there is one."""
    return error if access.is_unlimited else forbidden("read all that the query names", error.detail)


def _is_system(relation: Relation | None) -> bool:
    return isinstance(relation, Table) and relation.system
