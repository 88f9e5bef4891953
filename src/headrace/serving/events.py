"""/v1/events: append to event stores, read them, and ask what was true then."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal, cast
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.capture.exact_json import as_text, json_text, read_json
from headrace.capture.messages import Undecodable
from headrace.errors import HeadraceError, RelationNameError
from headrace.events.event import ID_LENGTH, NAME_LENGTH, number_or_text
from headrace.events.for_others import told_event, told_receipt, told_time
from headrace.events.open_store import OpenStore
from headrace.events.reading import Wanted
from headrace.serving.access import OfAccess, refuse_changes
from headrace.serving.bodies import read_body
from headrace.serving.definition_routes import OfService, answered, read_model, refuse_definitions
from headrace.serving.event_access import store_to_append, store_to_read
from headrace.serving.ingress import KEY_LENGTH
from headrace.serving.openapi import AppendedBody, DefinedBody, body, refusals
from headrace.serving.problems import Refusal, invalid
from headrace.serving.rows import JSON
from headrace.serving.submissions import outcome


def _refuse_no_text(request: Request) -> None:
    """Refuse a path or a query that is no UTF-8: what stands for it would be another name."""
    sent = cast("bytes", request.scope.get("raw_path") or b""), cast("bytes", request.scope.get("query_string") or b"")
    try:
        for part in sent:
            unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Refusal(
            400, "unreadable", "the address cannot be read", detail="It is not UTF-8.", hint="encode names as UTF-8"
        ) from None


router = APIRouter(tags=["events"], dependencies=[Depends(_refuse_no_text)])

_MOST = 10_000
# A time whose + an address made a space.
_ZONE_AFTER_SPACE = re.compile(r"(.*\d:\d\d(?::\d\d(?:\.\d+)?)?) (\d\d:?\d\d)")
_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event_type"],
    "properties": {
        "event_type": {"type": "string"},
        "event_data": {"type": "object"},
        "metadata": {"type": "object"},
        "event_id": {"type": "string"},
        "schema_version": {"type": "integer", "minimum": 1},
    },
}
_FORM = '{"events": [{"event_type": "CustomerCreated", "event_data": {"name": "Ada"}}], "expected": "none"}'
_PARTS = ("events", "expected", "correlation_id", "causation_id", "changes")
Kind = Annotated[str, Path(max_length=NAME_LENGTH, description="The type of the aggregate.")]
Id = Annotated[str, Path(max_length=ID_LENGTH, description="The id of the aggregate.")]
StoreName = Annotated[
    str | None, Query(max_length=NAME_LENGTH, description="The event store; the only one, or events, if none is named.")
]


# Not in a thread of its own, which it would be given if it were no coroutine.
async def _page_of(
    event_type: Annotated[str | None, Query(max_length=NAME_LENGTH)] = None,
    since: Annotated[int, Query(ge=0, lt=2**63, description="Only events after this position.")] = 0,
    before: Annotated[int | None, Query(ge=1, lt=2**63, description="Only events before this position.")] = None,
    order: Annotated[Literal["oldest", "newest"], Query(description="Which come first.")] = "oldest",
    limit: Annotated[int, Query(ge=1, le=_MOST)] = 1000,
) -> Wanted:
    """Which events of a store are asked for, of whatever aggregate."""
    return Wanted(None, None, event_type, since, before, limit, order == "newest")


OfPage = Annotated[Wanted, Depends(_page_of)]


class NewType(BaseModel):
    """A version of an event type: its schema, and the fields of it that are encrypted."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"event_type": "CustomerCreated"}]})

    event_type: str = Field(min_length=1, max_length=NAME_LENGTH)
    version: int = Field(default=1, ge=1, lt=2**31)
    json_schema: dict[str, Any] | None = Field(default=None, description="A JSON Schema of event_data.")
    encrypted: list[str] = Field(default_factory=list[str], max_length=1000)
    subject: str = Field(default="", max_length=NAME_LENGTH)


@router.post(
    "/v1/events/{aggregate_type}/{aggregate_id}",
    response_model=AppendedBody,
    responses=refusals(400, 404, 408, 409, 413, 422, 429, 503),
    openapi_extra=body(
        {
            "anyOf": [
                {"type": "object", "properties": {"events": {"type": "array", "items": _EVENT}}},
                {"type": "array", "items": _EVENT},
                _EVENT,
            ]
        },
        JSON,
        description=f"An event, a list of them, or {_FORM}; there also correlation_id, causation_id and changes of "
        "ordinary tables, which share the epoch.",
    ),
)
async def append(
    aggregate_type: Kind,
    aggregate_id: Id,
    request: Request,
    service: OfService,
    access: OfAccess,
    store: StoreName = None,
    expected: Annotated[
        str | None, Query(max_length=20, description="any, none, or the version that the aggregate must have.")
    ] = None,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=KEY_LENGTH)] = None,
) -> Response:
    """Append events of one aggregate, all or none; 409 tells the version that it has, if another was expected."""
    events = store_to_append(service, access, store)
    with service.arrivals.receiving():
        slot = service.pushes.enter()
        try:
            sent = await read_body(request, slot)
            parts = await run_in_threadpool(_read, sent)
            refuse_changes(access, parts.get("changes") or {})
            if expected is not None:
                parts["expected"] = number_or_text(expected)
            call = await run_in_threadpool(
                lambda: events.call(
                    aggregate_type,
                    aggregate_id,
                    parts["events"],
                    parts.get("expected", "any"),
                    parts.get("correlation_id"),
                    parts.get("causation_id"),
                    parts.get("changes"),
                    key=idempotency_key,
                )
            )
        except BaseException:
            slot.release()
            raise
        submission = service.submissions.submit_call(lambda: call, slot)
    receipt = await outcome(submission)
    events.appended(aggregate_type, aggregate_id, len(parts["events"]), receipt)
    return JSONResponse(told_receipt(events.name, receipt))


@router.get("/v1/events", responses=refusals(400, 404, 422, 503))
async def read_all(
    service: OfService,
    access: OfAccess,
    page: OfPage,
    store: StoreName = None,
    aggregate_type: Annotated[str | None, Query(max_length=NAME_LENGTH)] = None,
    aggregate_id: Annotated[str | None, Query(max_length=ID_LENGTH)] = None,
) -> Response:
    """Events in the order of their positions; `next` is the position to go on from, null after the last.

    Newest first, it is what to give as `before`; oldest first, as `since`.
    """
    events = store_to_read(service, access, store)
    wanted = replace(page, aggregate_type=aggregate_type, aggregate_id=aggregate_id)
    return _json(await run_in_threadpool(_page, events, wanted))


@router.get("/v1/events/{aggregate_type}/{aggregate_id}", responses=refusals(400, 404, 422, 503))
async def read_aggregate(
    aggregate_type: Kind,
    aggregate_id: Id,
    service: OfService,
    access: OfAccess,
    page: OfPage,
    store: StoreName = None,
) -> Response:
    """The events of one aggregate, oldest first unless asked otherwise."""
    events = store_to_read(service, access, store)
    wanted = replace(page, aggregate_type=aggregate_type, aggregate_id=aggregate_id)
    return _json(await run_in_threadpool(_page, events, wanted))


@router.get("/v1/events/{aggregate_type}/{aggregate_id}/state", responses=refusals(400, 404, 422, 503))
async def state(
    aggregate_type: Kind,
    aggregate_id: Id,
    service: OfService,
    access: OfAccess,
    store: StoreName = None,
    as_of: Annotated[str | None, Query(max_length=60, description="A position, or a time with its zone.")] = None,
) -> Response:
    """What an aggregate is, or was as of a position or a time; its state is null once it is deleted."""
    when = _moment(as_of)
    events = store_to_read(service, access, store)

    def answer() -> str:
        try:
            found, reached = events.shown_state(aggregate_type, aggregate_id, when)
        except HeadraceError as error:
            if type(error) is not HeadraceError:
                raise
            raise invalid([{"loc": ("as_of",), "msg": f"{error.message}; {error.hint}"}]) from None
        if reached.version == 0:
            raise RelationNameError(
                f"there is no {aggregate_type[:60]} {aggregate_id[:60]}" + ("" if as_of is None else " as of then"),
                hint=_other_types(events, aggregate_type) or "its first event makes it: POST /v1/events/{type}/{id}",
            )
        at = told_time(reached.at)
        content = {"state": found, "version": reached.version, "position": reached.position, "updated_at": at}
        return json_text(content)

    return _json(await run_in_threadpool(answer))


@router.post(
    "/v1/event-types",
    response_model=DefinedBody,
    responses=refusals(400, 404, 408, 409, 413, 422, 429, 503),
    openapi_extra=body(NewType.model_json_schema(), JSON, description="The version of the event type."),
)
async def register(request: Request, service: OfService, store: StoreName = None) -> Response:
    """Register a version of an event type, as CREATE EVENT TYPE does, where the server takes definitions."""
    refuse_definitions(service)
    sent = await read_model(request, NewType)
    events = service.home.events(store)

    def run() -> dict[str, int]:
        receipt = events.register_schema(
            sent.event_type, sent.json_schema, sent.version, encrypted=sent.encrypted, subject=sent.subject
        )
        return {"epoch": receipt.epoch}

    return await answered(request, service, run)


def _page(events: OpenStore, wanted: Wanted) -> str:
    rows, more = events.find(wanted)
    listed = [told_event(row) for row in rows]
    answer = {"events": listed, "next": listed[-1]["position"] if more else None}
    other = "" if listed or wanted.aggregate_type is None else _other_types(events, wanted.aggregate_type)
    return json_text({**answer, "hint": other} if other else answer)


def _other_types(events: OpenStore, aggregate_type: str) -> str:
    """Which types of aggregates there are, if this one is none of them."""
    types = events.aggregate_types()
    if not types or aggregate_type in types:
        return ""
    return f"no aggregate is of the type {aggregate_type[:60]}; there are {', '.join(types[:20])}"


def _moment(as_of: str | None) -> str | int | None:
    if as_of is None:
        return None
    found = _ZONE_AFTER_SPACE.fullmatch(as_of)
    return number_or_text(as_of) if found is None else f"{found[1]}+{found[2]}"


def _json(text: str) -> Response:
    """An answer whose numbers have the digits that were sent."""
    return Response(text, media_type=JSON)


def _read(sent: bytes) -> dict[str, Any]:
    """The parts of a body: events, and what is said of them together."""
    try:
        content = read_json(as_text(sent))
    except Undecodable as error:
        raise _unreadable(f"{error}.") from None
    if isinstance(content, list):
        return {"events": content}
    if not isinstance(content, dict):
        raise _unreadable("The body is neither an event nor a list of events.")
    parts = cast("dict[str, Any]", content)
    if "events" not in parts:
        return {"events": [parts]}
    unknown = [name for name in parts if name not in _PARTS]
    if unknown:
        raise _unreadable(f"There is no {unknown[0][:60]!r} beside events.")
    for name in ("correlation_id", "causation_id"):
        if not isinstance(parts.get(name), str | None):
            raise _unreadable(f"{name} is no text.")
    if not isinstance(parts.get("changes"), dict | None):
        raise _unreadable("changes are no object of tables.")
    if not isinstance(parts["events"], list):
        raise _unreadable("events are no list.")
    return parts


def _unreadable(detail: str) -> Refusal:
    return Refusal(400, "unreadable", "the body cannot be read", detail=detail, hint=f"send {_FORM}")
