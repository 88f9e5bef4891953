"""/v0/pipelines/{name}/query: ad-hoc queries, and statements that change tables."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from headrace.engine.receipt import Receipt
from headrace.home import Headrace
from headrace.serving.feldera.pipelines import OfService, OfStanding
from headrace.serving.feldera.results import Format, respond
from headrace.serving.feldera.wording import WordedRoute

router = APIRouter(prefix="/v0/pipelines", tags=["feldera"], route_class=WordedRoute)


@router.get("/{name}/query")
async def query(
    service: OfService,
    standing: OfStanding,
    sql: Annotated[str, Query()],
    format: Annotated[Format, Query()] = "text",  # noqa: A002 - the name that the client sends
) -> Response:
    """The rows of a SELECT over the newest epoch; of an INSERT, UPDATE or DELETE how many rows it changed."""
    standing.refuse_stopped()
    result = await run_in_threadpool(_run, service.hr, sql)
    if isinstance(result, Receipt):
        changed = sum(result.applied.values())
        standing.count_done(changed)
        result = pa.table({"count": pa.array([changed], pa.int64())})
    return await run_in_threadpool(respond, result, format)


def _run(hr: Headrace, sql: str) -> pa.Table | Receipt:
    result = hr.execute(sql)
    assert result is not None
    return result
