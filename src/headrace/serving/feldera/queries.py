"""/v0/pipelines/{name}/query: ad-hoc queries, and statements that change tables."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from headrace.epoch.receipt import Receipt
from headrace.serving.auth import carries_credentials
from headrace.serving.feldera.errors import ClientRoute
from headrace.serving.feldera.pipelines import OfPipeline, OfService
from headrace.serving.feldera.results import Format, respond
from headrace.serving.problems import Refusal
from headrace.serving.query import READS, answer, too_large
from headrace.serving.statement_runner import ClientGone
from headrace.sql.statements import Statement

router = APIRouter(prefix="/v0/pipelines", tags=["feldera"], route_class=ClientRoute)

# How the client calls itself. No page can have a browser say so in a request that it may send elsewhere.
_CLIENT = "feldera-python-sdk"


@router.get("/{name}/query")
async def query(
    request: Request,
    service: OfService,
    pipeline: OfPipeline,
    sql: Annotated[str, Query()],
    format: Annotated[Format, Query()] = "text",  # noqa: A002 - the name that the client sends
) -> Response:
    """The rows of a SELECT over the newest epoch; of an INSERT, UPDATE or DELETE how many rows it changed."""
    pipeline.refuse_stopped()
    known = carries_credentials(request) or request.headers.get("user-agent", "").startswith(_CLIENT)
    refuse = None if known else _refuse_change
    most, seconds = service.settings.serve_query_rows, service.settings.serve_query_time.total_seconds()
    try:
        content, _ = await answer(request, service, sql, most + 1, seconds, refuse=refuse)
    except ClientGone:
        return Response(status_code=499)
    if isinstance(content, Receipt):
        changed = sum(content.applied.values())
        pipeline.count_done(changed)
        content = pa.table({"count": pa.array([changed], pa.int64())})
    table = pa.table({}) if content is None else content
    if table.num_rows > most:
        raise too_large(most)
    return await run_in_threadpool(respond, table, format)


def _refuse_change(statement: Statement) -> None:
    """Without a key, a link or a picture must not change anything: those are fetched by GET."""
    if not isinstance(statement, READS):
        raise Refusal(
            403,
            "change_by_get",
            "without an API key a GET changes nothing",
            hint="send the statement with POST /v1/query or through the feldera client, or start the server with a key",
        )
