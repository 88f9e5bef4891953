"""/v0/pipelines/{name}/egress/{relation}: the changes of a table or view, as they are committed."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from itertools import repeat
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi.responses import Response

from headrace.errors import HeadraceError, RelationNameError, ViewError
from headrace.reading.following import Changes, Dropped, Position, Reset
from headrace.reading.history import EpochChanges
from headrace.serving.access import OfAccess, readable
from headrace.serving.feldera.errors import ClientRoute, client_error, unquoted
from headrace.serving.feldera.json_rows import CHANGES, json_rows
from headrace.serving.feldera.pipeline_status import PipelineStatus
from headrace.serving.feldera.pipelines import OfPipeline, OfService
from headrace.serving.problems import Refusal
from headrace.serving.service import Service
from headrace.serving.streams import EventStream, OpenStream

ROWS_IN_CHUNK = 10_000
# How often a stream without news looks whether the pipeline was stopped.
LOOK_SECONDS = 0.5
_LEAVING = frozenset({"delete", "update_preimage"})
_log = logging.getLogger("headrace.serving")

router = APIRouter(prefix="/v0/pipelines", tags=["feldera"], route_class=ClientRoute)


@router.post("/{name}/egress/{relation}")
async def egress(
    relation: str,
    service: OfService,
    pipeline: OfPipeline,
    access: OfAccess,
    format: Annotated[str, Query()] = "json",  # noqa: A002 - the name that the client sends
    send_snapshot: Annotated[bool, Query()] = False,
) -> Response:
    """Chunks of insertions and deletions, a line each; the last of an epoch names it as processed_steps."""
    if format != "json":
        raise Refusal(400, "unsupported_format", f"format {format} is not offered", hint="listen with json")
    pipeline.refuse_stopped()
    found = readable(access, service.readings.catalog, unquoted(relation))
    # Noted before the client hears anything: what it pushes after the greeting comes later than this. And before a
    # slot is taken, since a relation that is gone by now is an error.
    position = service.readings.following.begin(found, None if send_snapshot else service.readings.epoch)
    stream = service.streams.enter()
    chunks = follow(service, stream, pipeline, position)
    patience = service.settings.serve_patience.total_seconds()
    # The greeting is the first chunk, for which the client waits before it goes on.
    return EventStream(chunks, stream, patience, greeting=_chunk(0), media_type="application/json")


async def follow(
    service: Service, stream: OpenStream, pipeline: PipelineStatus, position: Position
) -> AsyncGenerator[bytes, None]:
    """A relation's changes after a position, and before them all it holds if nothing of it is known yet.

    Ends when the pipeline is stopped. The client reads the columns of a view once, so it also ends when they change,
    and says why in a last chunk.
    """
    stops, keep_alive = pipeline.stops, service.settings.serve_keep_alive.total_seconds()
    numbers, whole = itertools.count(1), position.epoch is None
    told_at = time.monotonic()
    try:
        if not whole:
            yield _chunk(next(numbers), processed=position.epoch)
        async for step in stream.steps(position, LOOK_SECONDS):
            if pipeline.stops != stops:
                return
            match step:
                case Changes():
                    async for texts in stream.changes("chunk", step, ROWS_IN_CHUNK, _change_texts):
                        yield _chunk(next(numbers), texts)
                case Reset() if whole:
                    async for texts in _held_texts(stream, step):
                        yield _chunk(next(numbers), texts)
                case Reset():
                    raise ViewError(
                        f"{step.position.relation} was defined anew",
                        detail=f"At epoch {step.position.epoch} it is no longer what this stream told of.",
                        hint="listen to it again",
                    )
                case Dropped():
                    raise RelationNameError(f"{step.relation} was dropped", detail=f"That was epoch {step.epoch}.")
                case None if time.monotonic() - told_at < keep_alive:
                    continue
                case _:
                    pass
            whole, told_at = False, time.monotonic()
            position = position if step is None else step.position
            # What it brought may be large, and the wait for the next long.
            del step
            yield _chunk(next(numbers), processed=position.epoch)
    except Exception as error:
        if not isinstance(error, HeadraceError):
            _log.exception("a change stream failed")
        yield _chunk(next(numbers), error=error)


def _change_texts(changed: EpochChanges, _: bool) -> bytes:
    """Changes of one epoch, each as {"insert": row} or {"delete": row}."""
    return _texts(changed.rows, map(_word, changed.kinds.to_pylist()))


async def _held_texts(stream: OpenStream, step: Reset) -> AsyncGenerator[bytes, None]:
    """What a relation holds, each row as {"insert": row}."""
    async for at, piece in stream.pieces(step, ROWS_IN_CHUNK):
        if piece.rows.num_rows:
            yield await stream.text(("held", step.reading, at), partial(_texts, piece.rows, repeat("insert")))


def _texts(rows: pa.Table, words: Iterable[str]) -> bytes:
    texts = (f'{{"{word}":{row}}}' for word, row in zip(words, json_rows(rows, CHANGES), strict=False))
    return ",".join(texts).encode()


def _word(kind: str) -> str:
    return "delete" if kind in _LEAVING else "insert"


def _chunk(
    number: int,
    changes: bytes | None = None,
    *,
    processed: int | None = None,
    error: BaseException | None = None,
) -> bytes:
    parts = [b'"sequence_number":%d' % number]
    if changes is not None:
        parts.append(b'"json_data":[%b]' % changes)
    if processed is not None:
        parts.append(b'"processed_steps":%d' % processed)
    if error is not None:
        parts.append(json.dumps(client_error(error), default=str).encode()[1:-1])
    return b"{" + b",".join(parts) + b"}\n"
