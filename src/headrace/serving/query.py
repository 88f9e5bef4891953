"""POST /v1/query: one statement of SQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headrace.access.audit import acting
from headrace.access.grants import Access
from headrace.epoch.digest import digest
from headrace.epoch.receipt import Receipt
from headrace.errors import RelationNameError, ResultTooLarge
from headrace.query_processes.pool import Stop
from headrace.serving.access import access_in, asker_of, judged, names_read, seen, shown, told_as_unknown, told_unknown
from headrace.serving.bodies import read_small_body
from headrace.serving.ingress import KEY_LENGTH
from headrace.serving.openapi import DefinedBody, ReceiptBody, body, refusals
from headrace.serving.problems import Refusal, invalid
from headrace.serving.rows import ARROW, CSV, JSON, NDJSON, Result, chosen, written
from headrace.serving.service import Service, service_of
from headrace.serving.source_limits import refuse_unlisted
from headrace.serving.sources import refuse_functions
from headrace.serving.statement_runner import ClientGone, PreparedStatement
from headrace.sql.statements import (
    AlterFeed,
    AlterSource,
    CreateFeed,
    CreateSource,
    Delete,
    Describe,
    Explain,
    ExplainQuery,
    Insert,
    Query,
    Show,
    Statement,
    Update,
    parse,
)
from headrace.statements.run import run_change, run_statement, told_where

router = APIRouter(tags=["reading"])

# Longer ones are read one at a time: each takes the interpreter from the epochs for as long as it is read.
_LONG = 8 * 1024
_LONG_TURN = threading.Lock()
_CHANGES = (Insert, Update, Delete)
READS = (Query, Show, Describe, Explain, ExplainQuery)


_ROWS: dict[str, Any] = {
    "type": "object",
    "required": ["epoch", "truncated", "columns", "rows"],
    "properties": {
        "epoch": {"type": "integer"},
        "truncated": {"type": "boolean", "description": "Whether the asked limit cut the rows off."},
        "columns": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "type": {"type": "string"}}},
        },
        "rows": {"type": "array", "items": {"type": "object"}},
    },
}


class QueryRequest(BaseModel):
    """One statement, and how much of it is wanted."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"sql": "SELECT 1 AS one"}]})

    sql: str = Field(description="One statement: a query, or INSERT, UPDATE or DELETE.")
    epoch: int | None = Field(default=None, ge=0, le=2**62, description="Read as of this epoch instead of the newest.")
    limit: int | None = Field(
        default=None, ge=0, le=2**31 - 2, description="Answer with the first so many rows only, and say so."
    )
    timeout_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Stop after so long; at most what the server allows."
    )


@router.post(
    "/v1/query",
    responses={
        200: {
            "description": "Rows, or the receipt of INSERT, UPDATE and DELETE. Headrace-Epoch names their epoch.",
            "content": {
                JSON: {"schema": {"anyOf": [one.model_json_schema() for one in (ReceiptBody, DefinedBody)] + [_ROWS]}},
                NDJSON: {"schema": {"type": "string"}},
                CSV: {"schema": {"type": "string"}},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    }
    | refusals(400, 404, 406, 408, 409, 410, 413, 422, 429, 503),
    openapi_extra=body(
        QueryRequest.model_json_schema(), JSON, description="A statement, and how much of it is wanted."
    ),
)
async def query(
    request: Request,
    service: Annotated[Service, Depends(service_of)],
    accept: Annotated[str, Header()] = "",
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=KEY_LENGTH)] = None,
) -> Response:
    """Run a statement: rows for SELECT, SHOW, DESCRIBE and EXPLAIN, a receipt for INSERT, UPDATE and DELETE.

    The same INSERT, UPDATE or DELETE under the same Idempotency-Key is run once, and has the same receipt again.

    A SELECT reads the relations of one epoch and nothing else: no files, no programs, no variables. Decimals, times and
    bytes are strings in JSON, as they are taken on the way in. CREATE, ALTER and DROP are refused unless the setting
    serve_definitions allows them.
    """
    sent = await read_small_body(request)
    try:
        asked = QueryRequest.model_validate_json(sent)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False, include_context=False)) from None
    media = chosen(accept)
    seconds = service.settings.serve_query_time.total_seconds()
    seconds = min(seconds, asked.timeout_seconds or seconds)
    most = service.settings.serve_query_rows
    wanted = min(most, asked.limit if asked.limit is not None else most)
    try:
        # One row more than wanted tells whether there are more.
        refuse = None if idempotency_key is None else _refuse_key
        content, epoch = await answer(
            request, service, asked.sql, wanted + 1, seconds, asked.epoch, refuse, idempotency_key
        )
    except ClientGone:
        return Response(status_code=499)
    if isinstance(content, Receipt):
        return JSONResponse(content.to_json())
    if content is None:
        return JSONResponse({"epoch": epoch})
    return _rows(content, epoch, wanted, asked.limit is not None and asked.limit <= most, media)


async def answer(
    request: Request,
    service: Service,
    sql: str,
    rows: int,
    seconds: float,
    epoch: int | None = None,
    refuse: Callable[[Statement], None] | None = None,
    key: str | None = None,
) -> tuple[pa.Table | Receipt | None, int]:
    """What one statement comes to, at most so many rows of it within so many seconds, and the epoch of that.

    `refuse` may refuse the statement once it is read. Changes are made once under a key, if they have one.
    """
    refuse_long(sql, service.settings.serve_sql_characters)
    access = access_in(request.scope)
    stop = Stop(asker_of(request))

    def read() -> PreparedStatement[tuple[pa.Table | Receipt | None, int]]:
        with _LONG_TURN if len(sql) > _LONG else nullcontext():
            statement = _only(sql)
        if refuse is not None:
            refuse(statement)
        statement = judged(statement, access, service.readings.catalog)
        refuse_statement(statement, service)
        if isinstance(statement, _CHANGES):
            what = digest(b"query", sql.encode("utf-8", "surrogatepass"))
            return PreparedStatement(partial(_change, service, statement, stop, key, what, access), changes=True)
        run = partial(_run, service, statement, rows, stop, epoch, access)
        return PreparedStatement(run, changes=not isinstance(statement, READS))

    return await service.statements.answer(request, seconds, stop, read)


def _change(
    service: Service, statement: Insert | Update | Delete, stop: Stop, key: str | None, what: str, access: Access
) -> tuple[Receipt, int]:
    """Run a statement that changes rows; one that was run before under its key is not, and is counted once."""
    names = None if access.is_unlimited else names_read(access, service.readings.catalog)
    read = told_as_unknown(service.queries.rows_to_change(stop, names), access)
    receipt, repeats = run_change(service.engine, statement, read, key, what)
    if not repeats:
        service.metrics.count(receipt)
    return receipt, receipt.epoch


def _run(
    service: Service, statement: Statement, rows: int, stop: Stop, epoch: int | None, access: Access
) -> tuple[pa.Table | Receipt | None, int]:
    """Run a statement; what Spark computes for it is computed where it hurts no epoch."""
    readings = seen(service.readings, access)
    try:
        with told_where(statement):
            if isinstance(statement, ExplainQuery):
                return service.queries.plan(statement.query, stop, readings)
            if isinstance(statement, Query):
                return service.queries.run(statement, epoch, rows, stop, readings)
    except RelationNameError as error:
        raise told_unknown(error, access) from None
    with acting(access.who):
        found = run_statement(service.engine, statement)
    told = shown(found, access, service.readings) if isinstance(statement, Show) else found
    return told, service.readings.epoch


def too_large(rows: int) -> ResultTooLarge:
    """The refusal of a result that has more rows than the server answers with."""
    return ResultTooLarge(
        f"the query has more than {rows} rows",
        detail="The server answers with no more than that.",
        hint='add a LIMIT or a WHERE, or ask for the first rows with "limit"; HEADRACE_SERVE_QUERY_ROWS sets the bound',
    )


def _rows(table: pa.Table, epoch: int, wanted: int, cut: bool, media: str) -> Response:
    truncated = table.num_rows > wanted
    if truncated and not cut:
        raise too_large(wanted)
    result = Result(table.slice(0, wanted) if truncated else table, epoch, truncated)
    headers = {"Headrace-Epoch": str(epoch), "Headrace-Truncated": "true" if truncated else "false"}
    return StreamingResponse(written(result, media), media_type=media, headers=headers)


def refuse_long(sql: str, most: int) -> None:
    """Refuse a text of more characters than the server reads."""
    if len(sql) > most:
        raise Refusal(
            413,
            "too_large",
            "the statement is too long",
            detail=f"It has {len(sql)} characters, and {most} are the limit.",
            hint="push rows instead of inserting them, or ask for less; HEADRACE_SERVE_SQL_CHARACTERS sets the bound",
        )


def _only(sql: str) -> Statement:
    """The one statement of a text."""
    statements = parse(sql)
    if len(statements) != 1:
        raise Refusal(
            400,
            "one_statement",
            "a request takes one statement" if statements else "there is no statement",
            detail=f"The text has {len(statements)}.",
            hint="send each statement in a request of its own",
        )
    return statements[0]


def _refuse_key(statement: Statement) -> None:
    """A key would promise what only changes need, and only they keep."""
    if not isinstance(statement, _CHANGES):
        raise Refusal(
            400,
            "key_refused",
            "an Idempotency-Key goes with changes only",
            detail="The statement is no INSERT, UPDATE or DELETE, and nothing of it would be kept under the key.",
            hint="send it without the header",
        )


def refuse_statement(statement: Statement, service: Service) -> None:
    """Refuse a definition that this server does not take, or that names what its clients may not name."""
    if isinstance(statement, CreateSource):
        refuse_functions(statement.connector)
        refuse_unlisted(
            service.settings.serve_source_locations, statement.connector, statement.location, dict(statement.options)
        )
    if isinstance(statement, CreateFeed):
        refuse_unlisted(
            service.settings.serve_source_locations, statement.sink, statement.location, dict(statement.options)
        )
    if isinstance(statement, AlterSource | AlterFeed):
        refuse_unlisted(service.settings.serve_source_locations, "", "", dict(statement.options))
    if service.settings.serve_definitions:
        return
    if isinstance(statement, Explain) and not isinstance(statement.target, str):
        raise Refusal(
            403,
            "definitions_refused",
            "this server explains no definition that it would not take",
            detail="EXPLAIN CREATE VIEW has Spark work on a definition while epochs wait.",
            hint="run it with headrace run, or EXPLAIN the query, or a view that there is",
        )
    if not isinstance(statement, (*READS, *_CHANGES)):
        raise Refusal(
            403,
            "definitions_refused",
            "this server takes no definitions",
            detail="CREATE, ALTER and DROP change what the home is, not what it holds.",
            hint="run them with headrace run, or start the server with HEADRACE_SERVE_DEFINITIONS=true",
        )
