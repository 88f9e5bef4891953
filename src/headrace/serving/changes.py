"""GET /v1/changes/{relation}: a relation's changes as server-sent events, for as long as one listens."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import Response

from headrace.errors import HeadraceError, RelationNameError
from headrace.json_forms import json_rows
from headrace.reading.following import Changes, Dropped, Position, Progress, Reset
from headrace.reading.history import EpochChanges
from headrace.serving.access import OfAccess, readable
from headrace.serving.openapi import RelationName, refusals
from headrace.serving.problems import Refusal, problem_of
from headrace.serving.service import Service, service_of
from headrace.serving.streams import EventStream, OpenStream
from headrace.state.state import Piece

router = APIRouter(tags=["changes out"])

# Rows of one event.
_ROWS = 1_000
_STREAM = (
    "Events: `changes` with epoch, committed_at and changes, each a row with _change_type; `snapshot` with epoch and "
    "rows, first, if no epoch is named; `reset` with epoch and columns, when the relation was replaced or altered: "
    "what was sent before is void, and what it holds now follows as `snapshot`; `progress` with epoch, when epochs "
    "passed that changed nothing here; `problem`, last. An epoch of many rows comes in several events; the one with "
    "last=true has the id, which is the epoch: send it as Last-Event-ID to go on after it."
)
_log = logging.getLogger("headrace.serving")


@router.get(
    "/v1/changes/{relation}",
    response_class=Response,
    responses={
        200: {"description": _STREAM, "content": {"text/event-stream": {"schema": {"type": "string"}}}},
    }
    | refusals(400, 404, 410, 422, 429, 503),
)
async def changes(
    relation: RelationName,
    service: Annotated[Service, Depends(service_of)],
    access: OfAccess,
    since: Annotated[int | None, Query(ge=0, le=2**62, description="Changes after this epoch.")] = None,
    last_event_id: Annotated[str | None, Header(description="The epoch of the last event that was read.")] = None,
) -> Response:
    """Stream a relation's changes after an epoch; without one, what the relation holds now and then its changes."""
    start = _start(since, last_event_id)
    name = readable(access, service.readings.catalog, relation)
    position = service.readings.following.begin(name, start)
    stream = service.streams.enter()
    return EventStream(_events(service, stream, position), stream, service.settings.serve_patience.total_seconds())


def _start(since: int | None, last_event_id: str | None) -> int | None:
    """Where to go on: a client that comes back says so by the last event it read."""
    if last_event_id is None or not last_event_id.strip():
        return since
    if not (last_event_id.isascii() and last_event_id.strip().isdigit() and len(last_event_id) < 19):
        raise Refusal(400, "invalid_request", "Last-Event-ID is no epoch", hint="send the id of an event as it came")
    return int(last_event_id)


async def _events(service: Service, stream: OpenStream, position: Position) -> AsyncGenerator[bytes, None]:
    """The events, for ever; whatever ends them but the client is said in a last one."""
    keep_alive = service.settings.serve_keep_alive.total_seconds()
    told = reached = position.epoch
    told_at = time.monotonic()
    try:
        async for step in stream.steps(position, keep_alive):
            match step:
                case Changes():
                    async for event in stream.changes("changes", step, _ROWS, _changed):
                        yield event
                    told = step.epochs[-1].epoch
                case Reset():
                    async for event in _content(stream, step, first=told is None):
                        yield event
                    told = step.position.epoch
                case Dropped():
                    raise RelationNameError(f"{step.relation} was dropped", detail=f"That was epoch {step.epoch}.")
                case Progress() | None:
                    # So that a client that comes back after a long silence does not ask for what has expired.
                    if step is not None:
                        reached = step.position.epoch
                        if time.monotonic() - told_at < keep_alive:
                            continue
                    yield b": alive\n\n" if told == reached else _event("progress", {"epoch": reached}, reached)
                    told = reached
            reached = reached if step is None else step.position.epoch
            told_at = time.monotonic()
            # What it brought may be large, and the wait for the next long.
            del step
    except Exception as error:
        if not isinstance(error, HeadraceError):
            _log.exception("a change stream failed")
        yield _event("problem", problem_of(error))


def _changed(changed: EpochChanges, last: bool) -> bytes:
    """Changes of one epoch; only the last event has the id, so that half an epoch is sent again whole."""
    rows = changed.rows.add_column(0, "_change_type", changed.kinds)
    content = {
        "epoch": changed.epoch,
        "committed_at": changed.committed_at.isoformat(),
        "last": last,
        "changes": json_rows(rows),
    }
    return _event("changes", content, changed.epoch if last else None)


async def _content(stream: OpenStream, step: Reset, *, first: bool) -> AsyncGenerator[bytes, None]:
    """What a relation holds, in place of all that was sent before, if anything was."""
    head = {"epoch": step.position.epoch}
    if not first:
        columns = [{"name": one.name, "type": one.dataType.simpleString()} for one in step.columns.fields]
        yield _event("reset", {**head, "columns": columns})
    async for at, piece in stream.pieces(step, _ROWS):

        def write(piece: Piece = piece) -> bytes:
            content = {**head, "last": piece.after is None, "rows": json_rows(piece.rows)}
            return _event("snapshot", content, head["epoch"] if piece.after is None else None)

        yield await stream.text(("snapshot", step.reading, at), write)


def _event(kind: str, content: object, epoch: int | None = None) -> bytes:
    text = f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n"
    return (text + (f"id: {epoch}\n\n" if epoch is not None else "\n")).encode()
