"""/v0/pipelines/{name}/egress/{relation}: the changes of a table or view, as they are committed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.responses import Response

from headrace.errors import HeadraceError
from headrace.serving.feldera.pipelines import OfService, OfStanding
from headrace.serving.feldera.spelling import CHANGES, json_rows
from headrace.serving.feldera.standing import Standing
from headrace.serving.feldera.wording import WordedRoute, unquoted
from headrace.serving.problems import Refusal
from headrace.serving.service import Service
from headrace.serving.streams import EventStream, Place

ROWS_IN_CHUNK = 10_000
EPOCHS_AT_ONCE = 100
# How often a stream without news looks whether the pipeline was stopped.
LOOK_SECONDS = 0.5
CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_LEAVING = frozenset({"delete", "update_preimage"})

router = APIRouter(prefix="/v0/pipelines", tags=["feldera"], route_class=WordedRoute)


@router.post("/{name}/egress/{relation}")
async def egress(
    relation: str,
    service: OfService,
    standing: OfStanding,
    format: Annotated[str, Query()] = "json",  # noqa: A002 - the name that the client sends
    send_snapshot: Annotated[bool, Query()] = False,
) -> Response:
    """Chunks of insertions and deletions, a line each; the last of an epoch names it as processed_steps."""
    if format != "json":
        raise Refusal(400, "unsupported_format", f"format {format} is not offered", hint="listen with json")
    standing.refuse_stopped()
    found = service.hr.catalog.get(unquoted(relation)).name
    place = service.streams.enter()
    # Noted before the client hears anything: what it pushes after the greeting comes later than this.
    chunks = follow(service, place, standing, found, service.hr.epoch, whole=send_snapshot)
    patience = service.settings.serve_patience.total_seconds()
    # The greeting is the first chunk, for which the client waits before it goes on.
    return EventStream(chunks, place, patience, greeting=_chunk(0), media_type="application/json")


async def follow(
    service: Service, place: Place, standing: Standing, relation: str, seen: int, *, whole: bool
) -> AsyncGenerator[bytes, None]:
    """A relation's changes after an epoch, and before them all it held then if the whole is asked for.

    Ends when the pipeline is stopped.
    """
    hr, stops, keep_alive = service.hr, standing.stops, service.settings.serve_keep_alive.total_seconds()
    number, quiet = 1, 0.0
    try:
        if whole:
            for piece in _pieces(await place.read(lambda: held_texts(hr.query(f"SELECT * FROM `{relation}`", seen)))):
                yield _chunk(number, piece)
                number += 1
        yield _chunk(number, processed=seen)
        while standing.stops == stops and not place.ending:
            if await place.newer_than(seen, LOOK_SECONDS):
                until = min(hr.epoch, seen + EPOCHS_AT_ONCE)
                if hr.changed_at.get(relation, until) > seen:
                    texts = await place.read(lambda: change_texts(hr.changes(relation, seen, until)))  # noqa: B023 - read before they move
                    for piece in _pieces(texts):
                        number += 1
                        yield _chunk(number, piece)
                seen, quiet = until, 0.0
            elif quiet < keep_alive:
                quiet += LOOK_SECONDS
                continue
            number, quiet = number + 1, 0.0
            yield _chunk(number, processed=seen)
    except HeadraceError:
        # The relation was dropped, or the listener fell behind what is kept: the stream ends, and the client says so.
        return


def held_texts(rows: pa.Table) -> Iterator[str]:
    """Each row as {"insert": row}."""
    return (f'{{"insert":{row}}}' for row in json_rows(rows, CHANGES))


def change_texts(changes: pa.Table) -> Iterator[str]:
    """Each change as {"insert": row} or {"delete": row}."""
    kinds = changes.column("_change_type").to_pylist()
    rows = json_rows(changes.drop_columns(list(CHANGE_COLUMNS)), CHANGES)
    return (f'{{"{"delete" if kind in _LEAVING else "insert"}":{row}}}' for kind, row in zip(kinds, rows, strict=True))


def _pieces(texts: Iterator[str]) -> Iterator[list[str]]:
    while piece := list(islice(texts, ROWS_IN_CHUNK)):
        yield piece


def _chunk(number: int, changes: list[str] | None = None, *, processed: int | None = None) -> bytes:
    parts = [f'"sequence_number":{number}']
    if changes is not None:
        parts.append(f'"json_data":[{",".join(changes)}]')
    if processed is not None:
        parts.append(f'"processed_steps":{processed}')
    return ("{" + ",".join(parts) + "}\n").encode()
