"""POST /v1/ingress/{table}: changes of one table, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from headrace.capture.options import (
    BinaryMode,
    DecimalMode,
    ExcessPrecision,
    FormatOptions,
    MissingColumns,
    TimePrecision,
    read_options,
)
from headrace.epoch.digest import digest
from headrace.epoch.receipt import Receipt
from headrace.errors import ChangesRejected
from headrace.serving.access import OfAccess, refuse_changes, refuse_unwritten
from headrace.serving.bodies import read_body
from headrace.serving.limits import PushSlot, too_large
from headrace.serving.lines import MOST_BAD, BadLine, Lines, TooManyRepeats, UpdateFormat, read_lines
from headrace.serving.openapi import ReceiptBody, RelationName, TokenBody, body, refusals
from headrace.serving.problems import SHOWN_REJECTIONS, Refusal
from headrace.serving.service import Service, service_of
from headrace.serving.submissions import outcome

router = APIRouter(tags=["changes in"])


KEY_LENGTH = 200


def given_options(
    time_precision: Annotated[TimePrecision | None, Query(description="Of debezium without its schema.")] = None,
    time_units: Annotated[str | None, Query(description="column: unit, ...", max_length=10_000)] = None,
    decimal_mode: Annotated[DecimalMode | None, Query(description="Of debezium without its schema.")] = None,
    binary_mode: Annotated[BinaryMode | None, Query(description="How text stands for bytes.")] = None,
    excess_precision: Annotated[ExcessPrecision | None, Query(description="Of times, after six digits.")] = None,
    missing_columns: Annotated[MissingColumns | None, Query(description="Of an update.")] = None,
    unavailable_value: Annotated[str | None, Query(description="Of debezium.", min_length=1, max_length=200)] = None,
    document_column: Annotated[str | None, Query(description="Of MongoDB.", max_length=255)] = None,
) -> dict[str, str]:
    """The options of the format that the request gives, by name."""
    given = {
        "time_precision": time_precision,
        "time_units": time_units,
        "decimal_mode": decimal_mode,
        "binary_mode": binary_mode,
        "excess_precision": excess_precision,
        "missing_columns": missing_columns,
        "unavailable_value": unavailable_value,
        "document_column": document_column,
    }
    return {name: value for name, value in given.items() if value is not None}


@router.post(
    "/v1/ingress/{table}",
    response_model=ReceiptBody,
    responses={202: {"model": TokenBody, "description": "Taken; ask with the token."}}
    | refusals(400, 404, 408, 413, 422, 429, 503),
    openapi_extra=body(
        {"type": "string"},
        "application/x-ndjson",
        "application/json",
        description='A JSON array of changes, or lines with a change each: {"insert": row}, {"update": part of a row} '
        'or {"delete": row}; with update_format=raw a row; with weighted {"weight": number, "data": row}; with '
        "debezium, dms or goldengate what these write, one message each.",
    ),
)
async def ingress(
    table: RelationName,
    request: Request,
    service: Annotated[Service, Depends(service_of)],
    access: OfAccess,
    format: Annotated[Literal["json"], Query()] = "json",  # noqa: A002 - by the peers' name
    update_format: Annotated[UpdateFormat, Query()] = "insert_delete",
    wait: Annotated[
        bool, Query(description="Answer when the changes are durable; else at once, with a token.")
    ] = False,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=KEY_LENGTH)] = None,
    options: Annotated[dict[str, str], Depends(given_options)] = {},  # noqa: B006 - never changed
) -> Response:
    """Apply NDJSON or a JSON array of changes to one table, all of them or none."""
    refuse_unwritten(access, table)
    service.readings.catalog.open_table(table)
    with service.arrivals.receiving():
        slot = service.pushes.enter()
        try:
            sent = await read_body(request, slot)
            read = await run_in_threadpool(_read, service, table, sent, update_format, slot, read_options(options))
            refuse_changes(access, {table: read.changes})
        except BaseException:
            slot.release()
            raise
        explain = partial(with_lines, lines=read.lines)
        how = f"ingress {format} {update_format} {table.lower()}" + (f" {sorted(options.items())}" if options else "")
        what = digest(how.encode("utf-8", "replace"), sent)
        submission = service.submissions.submit({table: read.changes}, idempotency_key, slot, explain, what)
    return await answered(service, submission, wait)


async def answered(service: Service, submission: Future[Receipt], wait: bool) -> Response:
    """The receipt of what is submitted once it is durable, or at once a token to ask with."""
    if wait:
        return JSONResponse((await outcome(submission)).to_json())
    return JSONResponse({"token": service.completions.issue(submission)}, 202)


def _read(
    service: Service, table: str, sent: bytes, update_format: UpdateFormat, slot: PushSlot, options: FormatOptions
) -> Lines:
    """The changes of a body; with a line that cannot be read, all that is wrong with the others is told as well."""
    contract = service.readings.catalog.table(table).contract
    try:
        read = read_lines(sent, update_format, contract, slot.repeats, options)
    except TooManyRepeats:
        raise too_large(0, f"Its weights stand for more than {slot.repeats} rows beyond those that it names.") from None
    if update_format == "weighted":
        slot.repeat(len(read.changes))
    if not read.bad:
        return read
    _, reasons = contract.decode_all(read.changes)
    raise bad_lines([*read.bad, *(BadLine(read.lines[index], reason) for index, reason in reasons.items())])


def with_lines(error: BaseException, lines: Sequence[int]) -> BaseException:
    """A rejection that names lines instead of positions; any other error as it is."""
    if not isinstance(error, ChangesRejected) or not error.rejections:
        return error
    return bad_lines([BadLine(lines[one.index], one.reason) for one in error.rejections])


def bad_lines(bad: Sequence[BadLine]) -> Refusal:
    """The refusal of a body for its bad lines, each with its reason."""
    many, count = "at least " if len(bad) >= MOST_BAD else "", min(len(bad), MOST_BAD)
    shown = sorted(bad, key=lambda one: one.line)[:SHOWN_REJECTIONS]
    return Refusal(
        422,
        "changes_rejected",
        f"{many}{count} change{'s' if count != 1 else ''} rejected",
        detail="; ".join(f"line {one.line}: {one.reason}" for one in shown[:20]),
        hint="mend the listed lines and send the request again; nothing of it was applied",
        extra={"rejected": count, "rejections": [{"line": one.line, "reason": one.reason} for one in shown]},
    )
