"""GET /v1/data/{relation} and GET /v1/data/{relation}/{key}: rows of a table or view, as applications ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from headrace.reading.following import Newest
from headrace.serving.access import access_in, readable
from headrace.serving.data.answers import MEDIA_TYPE, fitting, page_body, row_body, unchanged
from headrace.serving.data.direct import Direct
from headrace.serving.data.parameters import Asked, bad_parameter, key_conditions, read_parameters
from headrace.serving.data.postgres import Tables, tables_of
from headrace.serving.data.rates import Rates
from headrace.serving.data.reading import Answer, Question, from_state, from_table
from headrace.serving.data.shown import Shown, ShownRelations
from headrace.serving.problems import Refusal
from headrace.serving.rights import caller_of
from headrace.serving.service import Service
from headrace.serving.text_paths import register_text_paths
from headrace.settings import Settings


@dataclass(frozen=True)
class DataApi:
    """What the data API of one server keeps."""

    shown: ShownRelations
    direct: Direct
    tables: Tables | None
    rates: Rates

    async def close(self) -> None:
        """Let go of what was opened."""
        if self.tables is not None:
            await self.tables.close()


def data_api(settings: Settings) -> DataApi:
    """The data API of a server with these settings."""
    rates = Rates(settings.data_rate, settings.data_burst)
    return DataApi(ShownRelations(settings), Direct(), tables_of(settings), rates)


async def data_of(request: Request) -> DataApi:
    """The data API of the server that got the request."""
    return request.app.state.data


class _FirstRoute(Route):
    """A route without dependencies, and named to who counts requests."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        if match is not Match.NONE:
            found["route"] = self
        return match, found


def install(app: FastAPI) -> None:
    """Add the routes, before all others: where thousands ask in a second, the way to the rows is most of the time.

    They are described by data/openapi.py, with the columns of each relation.
    """
    register_text_paths()
    app.router.routes[:0] = [
        _FirstRoute("/v1/data/{relation}", rows),
        _FirstRoute("/v1/data/{relation}/{key:text}", row),
    ]


async def rows(request: Request) -> Response:
    """A page of a relation's rows."""
    return await page_of(request, request.path_params["relation"], _given(request))


async def page_of(request: Request, relation: str, parameters: Iterable[tuple[str, str]]) -> Response:
    """A page of a relation's rows for these parameters; for routes of one's own, too."""
    service: Service = request.app.state.service
    data: DataApi = request.app.state.data
    limits = data.rates.take(caller_of(request))
    newest, shown = _relation(request, service, data, relation)
    asked = read_parameters(shown, parameters, service.settings)
    answer = await _answer(request, service, data, newest, shown, asked, "page")
    if answer.unchanged:
        return unchanged(answer.headers | limits)
    text, count = fitting(answer.rows, service.settings.data_page_bytes)
    more = answer.more or count < len(answer.rows)
    body = page_body(text, answer.cursor(count - 1) if more else None, answer.epoch)
    return Response(body, headers=answer.headers | limits, media_type=MEDIA_TYPE)


def _given(request: Request) -> list[tuple[str, str]]:
    """The parameters of a request, each as often as it is given."""
    return parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)


async def row(request: Request) -> Response:
    """The row of a key."""
    relation, key = request.path_params["relation"], request.path_params["key"]
    service: Service = request.app.state.service
    data: DataApi = request.app.state.data
    limits = data.rates.take(caller_of(request))
    newest, shown = _relation(request, service, data, relation)
    given = _given(request)
    for name, _ in given:
        if name != "select":
            raise bad_parameter(name, "A row is asked for by its key", "only select may stand beside it")
    asked = replace(read_parameters(shown, given, service.settings), conditions=key_conditions(shown, key), limit=1)
    answer = await _answer(request, service, data, newest, shown, asked, "row")
    if answer.unchanged:
        return unchanged(answer.headers | limits)
    if not answer.rows:
        raise Refusal(
            404,
            "no_such_row",
            f"{shown.name} has no row of this key",
            detail=f"The key is ({', '.join(shown.key)}).",
            hint="it may come later: Headrace-Epoch names the epoch that was read",
            headers={"Headrace-Epoch": str(answer.epoch)},
        )
    if answer.more:
        raise Refusal(
            409,
            "key_not_unique",
            f"{shown.name} has several rows of this key",
            detail=f"HEADRACE_DATA_KEYS says that {', '.join(shown.key)} tells its rows apart.",
            hint="ask with conditions for all of them, or name another key",
        )
    text, _ = fitting(answer.rows, service.settings.data_page_bytes)
    return Response(row_body(text, answer.epoch), headers=answer.headers | limits, media_type=MEDIA_TYPE)


async def _answer(
    request: Request, service: Service, data: DataApi, newest: Newest, shown: Shown, asked: Asked, form: str
) -> Answer:
    """The rows from a table of PostgreSQL if there is one that can answer, else from the home's state."""
    question = Question(shown, asked, newest, form, request.headers.get("if-none-match"))
    if data.tables is not None and not data.tables.rests:
        table = data.shown.table(service.readings.catalog, shown.name, data.tables.database)
        found = None if table is None else await from_table(data.tables, table, question, service.readings)
        if found is not None:
            return found
    return await from_state(data.direct, question, service.settings.data_scan_rows)


def _relation(request: Request, service: Service, data: DataApi, name: str) -> tuple[Newest, Shown]:
    """What is known of a relation at the newest epoch; 403 if it is not for this sender, 404 if it is not shown."""
    catalog = service.readings.catalog
    name = readable(access_in(request.scope), catalog, name)
    shown = data.shown.get(catalog, name)
    newest = service.readings.newest_of(shown.name)
    if newest.relation is None or newest.relation is not catalog.relations.get(shown.name):
        # It was defined anew in this very moment.
        shown = data.shown.get(service.readings.catalog, name)
        newest = service.readings.newest_of(shown.name)
        if newest.relation is None or newest.relation.schema != shown.schema:
            raise Refusal(503, "redefined", f"{name} is being defined anew", headers={"Retry-After": "1"})
    return newest, shown
