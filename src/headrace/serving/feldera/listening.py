"""/v0/pipelines/{name}/egress/{relation}: the changes of a table or view, as they are committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from headrace.errors import HeadraceError
from headrace.home import Headrace
from headrace.serving.feldera.pipelines import OfService, OfStanding
from headrace.serving.feldera.spelling import CHANGES, json_rows
from headrace.serving.feldera.standing import Standing
from headrace.serving.feldera.wording import WordedRoute, unquoted
from headrace.serving.problems import Refusal

ROWS_IN_CHUNK = 10_000
# A stream without news still says so, which is how the server learns that a listener has gone.
QUIET_SECONDS = 5.0
POLL_SECONDS = 0.02
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
) -> StreamingResponse:
    """Chunks of insertions and deletions, a line each; the last of an epoch names it as processed_steps."""
    if format != "json":
        raise Refusal(400, "unsupported_format", f"format {format} is not offered", hint="listen with json")
    standing.refuse_stopped()
    found = service.hr.catalog.get(unquoted(relation))
    chunks = follow(service.hr, standing, found.name, whole=send_snapshot)
    return StreamingResponse(chunks, media_type="application/json")


async def follow(hr: Headrace, standing: Standing, relation: str, *, whole: bool) -> AsyncGenerator[bytes, None]:
    """A relation's changes from now on, after all it holds if the whole is asked for; until the pipeline is stopped."""
    stops = standing.stops
    seen, number = hr.epoch, 0
    try:
        if whole:
            held = await run_in_threadpool(hr.query, f"SELECT * FROM `{relation}`", seen)
            for piece in _pieces(f'{{"insert":{row}}}' for row in json_rows(held, CHANGES)):
                yield _chunk(number, piece)
                number += 1
        # The client waits for a first chunk before it goes on.
        yield _chunk(number, processed=seen)
        quiet = 0.0
        while standing.stops == stops and not hr.closed:
            now = hr.epoch
            if now > seen:
                changes = await run_in_threadpool(hr.changes, relation, seen, now)
                for piece in _pieces(change_texts(changes)):
                    number += 1
                    yield _chunk(number, piece)
            elif quiet < QUIET_SECONDS:
                await asyncio.sleep(POLL_SECONDS)
                quiet += POLL_SECONDS
                continue
            number += 1
            seen, quiet = now, 0.0
            yield _chunk(number, processed=seen)
    except HeadraceError:
        # The relation was dropped, or the listener fell behind what is kept: the stream ends, and the client says so.
        return


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
