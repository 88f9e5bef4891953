"""GET /v1/data/{relation} and GET /v1/data/{relation}/{key}: rows of a table or view, as applications ask for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from headrace.json_forms import json_rows
from headrace.reading.following import Newest
from headrace.serving.data.answers import (
    MEDIA_TYPE,
    Freshness,
    entity_tag,
    fitting,
    headers_of,
    is_known,
    page_body,
    unchanged,
)
from headrace.serving.data.cursors import question_of, read_cursor, written_cursor
from headrace.serving.data.direct import Direct
from headrace.serving.data.parameters import access_of, bad_parameter, key_conditions, read_parameters
from headrace.serving.data.rates import Rates
from headrace.serving.data.shown import Shown, ShownRelations
from headrace.serving.problems import Refusal
from headrace.serving.rights import caller_of, may_read
from headrace.serving.service import Service, service_of
from headrace.settings import Settings

# Described by data/openapi.py, with the columns of each relation.
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class DataApi:
    """What the data API of one server keeps."""

    shown: ShownRelations
    direct: Direct
    rates: Rates


def data_api(settings: Settings) -> DataApi:
    """The data API of a server with these settings."""
    return DataApi(ShownRelations(settings), Direct(), Rates(settings.data_rate, settings.data_burst))


async def data_of(request: Request) -> DataApi:
    """The data API of the server that got the request."""
    return request.app.state.data


@router.get("/v1/data/{relation}")
async def rows(
    relation: str,
    request: Request,
    service: Annotated[Service, Depends(service_of)],
    data: Annotated[DataApi, Depends(data_of)],
) -> Response:
    """A page of a relation's rows."""
    limits = data.rates.take(caller_of(request))
    newest, shown = _relation(request, service, data, relation)
    asked = read_parameters(shown, request.query_params.multi_items(), service.settings)
    assert newest.content is not None
    access = access_of(shown, asked, newest.content.size <= service.settings.data_scan_rows)
    freshness = Freshness(newest.epoch, newest.changed_at)
    tag = entity_tag(shown, asked, freshness, "state", "page")
    headers = headers_of(freshness, tag, limits)
    if is_known(request.headers.get("if-none-match"), tag):
        return unchanged(headers)
    question = question_of(shown, asked, access, "state")
    after = read_cursor(asked.cursor, shown, access, question) if asked.cursor else None
    page = await data.direct.page(newest.content, shown, asked, access, after)
    text, count = fitting(json_rows(page.rows), service.settings.data_page_bytes)
    more = page.more or count < page.rows.num_rows
    cursor = written_cursor(page.positions[count - 1], question) if more else None
    return Response(page_body(text, cursor, freshness.epoch), headers=headers, media_type=MEDIA_TYPE)


@router.get("/v1/data/{relation}/{key:path}")
async def row(
    relation: str,
    key: str,
    request: Request,
    service: Annotated[Service, Depends(service_of)],
    data: Annotated[DataApi, Depends(data_of)],
) -> Response:
    """The row of a key."""
    limits = data.rates.take(caller_of(request))
    newest, shown = _relation(request, service, data, relation)
    given = request.query_params.multi_items()
    for name, _ in given:
        if name != "select":
            raise bad_parameter(name, "A row is asked for by its key", "only select may stand beside it")
    asked = replace(read_parameters(shown, given, service.settings), conditions=key_conditions(shown, key), limit=1)
    assert newest.content is not None
    access = access_of(shown, asked, is_small=False)
    freshness = Freshness(newest.epoch, newest.changed_at)
    tag = entity_tag(shown, asked, freshness, "state", "row")
    headers = headers_of(freshness, tag, limits)
    if is_known(request.headers.get("if-none-match"), tag):
        return unchanged(headers)
    page = await data.direct.page(newest.content, shown, asked, access, None)
    if not page.rows.num_rows:
        raise Refusal(
            404,
            "no_such_row",
            f"{shown.name} has no row of this key",
            detail=f"The key is ({', '.join(shown.key)}).",
            hint="it may come later: Headrace-Epoch names the epoch that was read",
            headers={"Headrace-Epoch": str(freshness.epoch)},
        )
    if page.more:
        raise Refusal(
            409,
            "key_not_unique",
            f"{shown.name} has several rows of this key",
            detail=f"HEADRACE_DATA_KEYS says that {', '.join(shown.key)} tells its rows apart.",
            hint="ask with conditions for all of them, or name another key",
        )
    text, _ = fitting(json_rows(page.rows), service.settings.data_page_bytes)
    body = b'{"data":' + text[1:-1] + b',"epoch":' + orjson.dumps(freshness.epoch) + b"}"
    return Response(body, headers=headers, media_type=MEDIA_TYPE)


def _relation(request: Request, service: Service, data: DataApi, name: str) -> tuple[Newest, Shown]:
    """What is known of a relation at the newest epoch; 404 if it is not shown, 403 if not to this sender."""
    catalog = service.readings.catalog
    shown = data.shown.get(catalog, name)
    if not may_read(request, shown.name):
        raise Refusal(
            403,
            "forbidden",
            f"this key may not read {shown.name}",
            hint="ask who runs the server for a key with the right to read it",
        )
    newest = service.readings.newest_of(shown.name)
    if newest.relation is None or newest.relation is not catalog.relations.get(shown.name):
        # It was defined anew in this very moment.
        shown = data.shown.get(service.readings.catalog, name)
        newest = service.readings.newest_of(shown.name)
        if newest.relation is None or newest.relation.schema != shown.schema:
            raise Refusal(503, "redefined", f"{name} is being defined anew", headers={"Retry-After": "1"})
    return newest, shown
