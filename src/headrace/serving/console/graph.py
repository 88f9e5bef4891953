"""GET /v1/graph and /v1/relations: what there is, who reads whom, and how each view is kept current."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.access.grants import Access
from headrace.catalog.catalog import Relation, Table
from headrace.epoch.core import Core
from headrace.errors import EpochExpired
from headrace.feeds.running import shown as shown_feeds
from headrace.json_forms import json_rows
from headrace.reading.explain import explain_view
from headrace.serving.access import OfAccess, counted_as, explained_to, named_to, readable
from headrace.serving.console.history import History
from headrace.serving.definition_routes import OfService, answered
from headrace.serving.openapi import RelationName, refusals
from headrace.serving.problems import Refusal
from headrace.serving.service import Service
from headrace.sources.running import shown
from headrace.state.store import Store

router = APIRouter(tags=["console"])

_DIFFERENCE_BYTES = 32 * 1024 * 1024
_VERIFYING = threading.Lock()


class GraphBody(BaseModel):
    """The newest epoch, the relations with their rows and rates, the sources and the feeds."""

    model_config = ConfigDict(extra="allow")

    epoch: int
    committed_at: str
    relations: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    feeds: list[dict[str, Any]]


class RelationBody(BaseModel):
    """One relation: its definition, its columns, its rules and its state."""

    model_config = ConfigDict(extra="allow")

    name: str
    kind: str
    epoch: int
    rows: int
    columns: list[dict[str, Any]]


class VerdictBody(BaseModel):
    """Whether a view equals its full recompute; if not, the rows that only one of both has."""

    ok: bool
    epoch: int
    text: str


class DifferenceBody(BaseModel):
    """What a relation has at one epoch and not at another: each row once, with how often it comes or goes."""

    model_config = ConfigDict(populate_by_name=True)

    begin: int = Field(alias="from")
    to: int
    columns: list[str]
    rows: list[dict[str, Any]]
    truncated: bool


@router.get("/v1/graph", response_model=GraphBody, responses=refusals(503))
async def graph(request: Request, service: OfService, access: OfAccess) -> Response:
    """All relations, sources and feeds, with rows, rate and when each changed last.

    Who may not observe is told of the relations that may be read, and of nothing else.
    """
    history: History = request.app.state.history
    return JSONResponse(await run_in_threadpool(_graph, service, history, access))


@router.get("/v1/relations/{relation}", response_model=RelationBody, responses=refusals(404, 422, 503))
async def relation(relation: RelationName, request: Request, service: OfService, access: OfAccess) -> Response:
    """One relation: definition, columns, the rule of every operator, state, and the epochs that changed it."""
    history: History = request.app.state.history
    return JSONResponse(await run_in_threadpool(_details, service, history, relation, access))


@router.post("/v1/relations/{relation}/verify", response_model=VerdictBody, responses=refusals(400, 404, 422, 429, 503))
async def verify(relation: RelationName, request: Request, service: OfService) -> Response:
    """Have Spark recompute a view in full and compare it with what is served; one at a time."""
    name = service.readings.catalog.view(relation).name

    def run() -> dict[str, Any]:
        if not _VERIFYING.acquire(blocking=False):
            raise Refusal(
                429,
                "too_busy",
                "a view is being verified already",
                hint="send the request again after the seconds that Retry-After names",
                headers={"Retry-After": "5"},
            )
        try:
            epoch = service.readings.epoch
            verdict = service.home.verify(name)
            return {"ok": verdict.ok, "epoch": epoch, "text": str(verdict)}
        finally:
            _VERIFYING.release()

    return await answered(request, service, run)


@router.get(
    "/v1/relations/{relation}/difference",
    response_model=DifferenceBody,
    responses=refusals(400, 404, 410, 422, 503),
)
async def difference(
    relation: RelationName,
    service: OfService,
    access: OfAccess,
    begin: Annotated[int, Query(alias="from", ge=0, le=2**62, description="The epoch that is compared with.")],
    to: Annotated[int, Query(ge=0, le=2**62, description="The epoch that is looked at.")],
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> Response:
    """What a relation has at one epoch and not at another, from its log."""
    name = readable(access, service.readings.catalog, relation)
    return JSONResponse(await run_in_threadpool(_difference, service, name, begin, to, limit))


def _graph(service: Service, history: History, access: Access) -> dict[str, Any]:
    core = service.engine.core
    epoch, held = core.newest()
    catalog = core.catalog
    named = named_to(access, catalog)
    rates = history.rates()
    places = counted_as(access, catalog)
    relations = [
        {
            **_head(one, named),
            "rows": held[places[name]][0].count if places[name] in held else 0,
            "rate": round(rates.get(places[name], 0.0), 3),
            "columns": catalog.get(places[name]).schema.names,
            **_changed(core, places[name]),
        }
        for name, one in named.items()
        if places[name] in catalog
    ]
    if not access.may_observe():
        told = {"epoch": epoch, "committed_at": core.committed_at.isoformat(), "oldest": core.ledger.oldest}
        return {**told, "relations": relations, "sources": [], "feeds": []}
    sources = json_rows(shown(core, service.engine.sources))
    kept = {"epoch": epoch, "committed_at": core.committed_at.isoformat(), "oldest": core.ledger.oldest}
    feeds = json_rows(shown_feeds(core, service.engine.feeds))
    return {**kept, "relations": relations, "sources": sources, "feeds": feeds}


def _head(one: Relation, named: Mapping[str, Relation]) -> dict[str, Any]:
    if isinstance(one, Table):
        store = one.events is not None
        kind = {"kind": "table", "system": one.system and not store, "event_store": store}
        return {"name": one.name, **kind, "reads": [], "incremental": True}
    return {
        "name": one.name,
        "kind": "view",
        "system": False,
        "event_store": False,
        "reads": [name for name in one.resolved.reads if name in named],
        "incremental": one.incremental,
    }


def _changed(core: Core, name: str) -> dict[str, Any]:
    """In which epoch a relation last changed, and when that was, as far back as epochs are kept."""
    epoch = core.changed_at.get(name)
    if epoch is None:
        return {"changed_epoch": None, "changed_at": None}
    heads = core.ledger.heads()
    at = bisect_left(heads, epoch, key=lambda one: one.epoch)
    found = heads[at : at + 1]
    known = bool(found) and found[0].epoch == epoch
    return {"changed_epoch": epoch, "changed_at": found[0].committed_at.isoformat() if known else None}


def _details(service: Service, history: History, name: str, access: Access) -> dict[str, Any]:
    core = service.engine.core
    catalog = core.catalog
    named = named_to(access, catalog)
    one = catalog.get(readable(access, catalog, name))
    epochs = [
        {"epoch": past.epoch, "committed_at": past.committed_at.isoformat(), "changes": past.changes[one.name]}
        | {"seconds": round(sum(past.stages.values()), 6), "views": round(past.stages.get("views", 0.0), 6)}
        for past in history.epochs()
        if one.name in past.changes
    ][-200:]
    key = one.contract.key if isinstance(one, Table) else one.key
    columns = [
        {"name": field.name, "type": field.dataType.simpleString(), "key": field.name in key}
        for field in one.schema.fields
    ]
    explained = isinstance(one, Table) or explained_to(access, catalog, one)
    if isinstance(one, Table):
        stores = one.stores
    elif explained or access.may_observe():
        stores = [one.store, *one.hidden.values()]
    else:
        # What a view remembers is as many rows as it was made of, and they may be hidden.
        stores = [one.store]
    told = {
        **_head(one, named),
        "epoch": core.epoch,
        "rows": one.store.snapshot().count,
        "columns": columns,
        "key": list(key),
        "read_by": [view.name for view in catalog.users(one.name) if view.name in named],
        "state": [_state(store) for store in stores],
        "epochs": epochs,
        **_changed(core, one.name),
    }
    if isinstance(one, Table):
        return told
    if not explained:
        return {**told, "sql": None, "materialized": one.definition.materialized, "explain": [], "reasons": []}
    return {
        **told,
        "sql": one.definition.sql,
        "materialized": one.definition.materialized,
        "explain": str(explain_view(one)).splitlines(),
        "reasons": list(one.reasons),
    }


def _state(store: Store) -> dict[str, Any]:
    held = store.snapshot()
    return {"name": store.name, "rows": held.count, "signed_rows": held.size, "runs": store.run_count}


def _difference(service: Service, name: str, begin: int, to: int, limit: int) -> dict[str, Any]:
    """The net of all changes between two epochs; backwards they are taken back."""
    low, high, sign = (begin, to, 1) if begin <= to else (to, begin, -1)
    newest = service.readings.epoch
    if high > newest:
        raise EpochExpired(
            f"epoch {high} cannot be read",
            detail=f"The newest epoch is {newest}.",
            hint=f"name an epoch from 0 to {newest}",
        )
    table = service.home.changes(name, low, high, _DIFFERENCE_BYTES)
    columns = [one for one in table.column_names if not one.startswith("_change") and not one.startswith("_commit")]
    kinds = table.column("_change_type").to_pylist()
    rows = json_rows(table.select(columns))
    counted: Counter[str] = Counter()
    first: dict[str, dict[str, Any]] = {}
    for kind, row in zip(kinds, rows, strict=True):
        text = repr(row)
        first.setdefault(text, row)
        counted[text] += sign if kind in ("insert", "update_postimage") else -sign
    moved = [{"weight": weight, "row": first[text]} for text, weight in counted.items() if weight]
    return {"from": begin, "to": to, "columns": columns, "rows": moved[:limit], "truncated": len(moved) > limit}
