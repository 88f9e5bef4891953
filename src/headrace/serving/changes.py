"""GET /v1/changes/{relation}: a relation's changes as server-sent events, for as long as one listens."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import Response

from headrace.engine.history import refuse_expired
from headrace.errors import EpochExpired, HeadraceError
from headrace.json_forms import json_rows
from headrace.rules.inputs import repeated
from headrace.serving.described import RelationName, refusals
from headrace.serving.problems import Refusal, problem_of
from headrace.serving.service import Service, service_of
from headrace.serving.streams import EventStream, Place

router = APIRouter(tags=["changes out"])

# Rows of one event, and epochs that are read from the log at once.
_ROWS = 1_000
_EPOCHS = 50
_STREAM = (
    "Events: `changes` with epoch, committed_at and changes, each a row with _change_type; `snapshot` with epoch and "
    "rows, first, if no epoch is named; `progress` with epoch, when epochs passed that changed nothing here; "
    "`problem`, last. An epoch of many rows comes in several events; the one with last=true has the id, which is the "
    "epoch: send it as Last-Event-ID to go on after it."
)
_META = ("_change_type", "_commit_version", "_commit_timestamp")


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
    since: Annotated[int | None, Query(ge=0, le=2**62, description="Changes after this epoch.")] = None,
    last_event_id: Annotated[str | None, Header(description="The epoch of the last event that was read.")] = None,
) -> Response:
    """Stream a relation's changes after an epoch; without one, what the relation holds now and then its changes."""
    start = _start(since, last_event_id)
    name = service.hr.catalog.get(relation).name
    if start is not None:
        _refuse_unreadable(service, start)
    place = service.streams.enter()
    return EventStream(_events(service, place, name, start), place, service.settings.serve_patience.total_seconds())


def _start(since: int | None, last_event_id: str | None) -> int | None:
    """Where to go on: a client that comes back says so by the last event it read."""
    if last_event_id is None or not last_event_id.strip():
        return since
    if not (last_event_id.isascii() and last_event_id.strip().isdigit() and len(last_event_id) < 19):
        raise Refusal(400, "invalid_request", "Last-Event-ID is no epoch", hint="send the id of an event as it came")
    return int(last_event_id)


def _refuse_unreadable(service: Service, start: int) -> None:
    refuse_expired(service.hr.ledger, start)
    if start > service.hr.epoch:
        raise EpochExpired(
            f"epoch {start} has not been yet",
            detail=f"The newest epoch is {service.hr.epoch}.",
            hint=f"name an epoch from {service.hr.ledger.oldest} to {service.hr.epoch}",
        )


async def _events(service: Service, place: Place, name: str, start: int | None) -> AsyncGenerator[bytes, None]:
    """The events, for ever; one that ends with an error says why in a last event."""
    try:
        if start is None:
            start, rows = await place.read(lambda: _snapshot(service, name))
            async for event in _pieces(place, "snapshot", start, None, rows):
                yield event
            del rows
        async for event in _changes_after(service, place, name, start):
            yield event
    except HeadraceError as error:
        yield _event("problem", problem_of(error))


async def _changes_after(service: Service, place: Place, name: str, cursor: int) -> AsyncGenerator[bytes, None]:
    hr, caught_up = service.hr, False
    told = cursor
    while not place.ending:
        newest = hr.epoch
        # Later than a relation's last change there is nothing to read; what came before this stream is not known.
        if cursor < newest and (not caught_up or hr.changed_at.get(name, newest) > cursor):
            until = min(newest, cursor + _EPOCHS)
            for epoch, committed_at, rows in await place.read(lambda: _by_epoch(hr.changes(name, cursor, until))):  # noqa: B023 - read before it moves
                async for event in _pieces(place, "changes", epoch, committed_at, rows):
                    yield event
                told = epoch
            cursor = until
            caught_up = cursor >= newest
            continue
        cursor, caught_up = newest, True
        if not await place.newer_than(cursor, service.settings.serve_keep_alive.total_seconds()):
            if place.ending:
                return
            if told < cursor:
                # So that a client that comes back after a long silence does not ask for what has expired.
                told = cursor
                yield _event("progress", {"epoch": cursor}, cursor)
            else:
                yield b": alive\n\n"


def _snapshot(service: Service, name: str) -> tuple[int, pa.Table]:
    """What a relation holds at the newest epoch."""
    hr = service.hr
    while True:
        epoch, relations = hr.epoch, hr.relations()
        if hr.epoch == epoch:
            break
    if name not in relations:
        hr.catalog.get(name)
    snapshot, schema = relations[name]
    return epoch, repeated(snapshot.all()).rename_columns(schema.names)


def _by_epoch(table: pa.Table) -> list[tuple[int, str, pa.Table]]:
    """Each epoch with its time and its changes; they come in the order of epochs."""
    versions = table.column("_commit_version").to_numpy()
    parts: list[tuple[int, str, pa.Table]] = []
    begin = 0
    while begin < len(versions):
        end = int(versions.searchsorted(versions[begin], side="right"))
        committed_at = table.column("_commit_timestamp")[begin].as_py().isoformat()
        kinds = table.column("_change_type")
        rows = table.drop_columns(list(_META)).slice(begin, end - begin)
        rows = rows.add_column(0, "_change_type", kinds.slice(begin, end - begin))
        parts.append((int(versions[begin]), committed_at, rows))
        begin = end
    return parts


async def _pieces(
    place: Place, kind: str, epoch: int, committed_at: str | None, rows: pa.Table
) -> AsyncGenerator[bytes, None]:
    """An epoch in events of bounded size; only the last has the id, so that half an epoch is sent again whole."""
    field = "rows" if kind == "snapshot" else "changes"
    for begin in range(0, max(rows.num_rows, 1), _ROWS):
        last = begin + _ROWS >= rows.num_rows

        def piece(begin: int = begin, last: bool = last) -> bytes:
            head: dict[str, Any] = {"epoch": epoch} if committed_at is None else {
                "epoch": epoch,
                "committed_at": committed_at,
            }  # fmt: skip
            content = {**head, "last": last, field: json_rows(rows.slice(begin, _ROWS))}
            return _event(kind, content, epoch if last else None)

        yield await place.read(piece)


def _event(kind: str, content: object, epoch: int | None = None) -> bytes:
    text = f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n"
    return (text + (f"id: {epoch}\n\n" if epoch is not None else "\n")).encode()
