"""An hour of the medallion example's changes: its files, and how they are sent."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.remote import Remote, Server
from headrace.errors import HeadraceError, SetupError

TABLES = ("orders", "order_items", "clickstream_events", "inventory_events")
CHUNK_BYTES = 1_000_000


@dataclass(frozen=True)
class Payload:
    """What one table has for an hour: its changes, a line of JSON each."""

    table: str
    file: Path
    lines: tuple[bytes, ...]
    size: int

    @property
    def rows(self) -> int:
        """How many changes there are."""
        return len(self.lines)


@dataclass(frozen=True)
class Sent:
    """How the changes of one table went: the seconds until all views were current, and the last epoch."""

    table: str
    rows: int
    seconds: float
    epoch: int
    requests: int


def read_hour(data: Path, hour: str) -> list[Payload]:
    """The tables that have a file for the hour; an error if none has."""
    found = [_read(table, data / "cdc" / table / f"{hour}.json") for table in TABLES]
    payloads = [payload for payload in found if payload is not None]
    if not payloads:
        raise SetupError(
            f"there are no changes for {hour}",
            detail=f"None of {', '.join(TABLES)} has a file {hour}.json under {data / 'cdc'}.",
            hint="make the data with examples/medallion/generate.py, or name its folder with --data",
        )
    return payloads


def send_together(server: Server, hour: str, payloads: Sequence[Payload]) -> int:
    """Send everything as one atomic epoch, and return it once every view is current."""
    key = _key(hour, *(line for payload in payloads for line in (payload.table.encode(), *payload.lines)))
    # The lines are JSON already: they are put together, never read and written again.
    parts = [b'"%s":[%s]' % (payload.table.encode(), b",".join(payload.lines)) for payload in payloads]
    answer = server.post("/v1/epochs", b"{%s}" % b",".join(parts), content_type="application/json", key=key)
    return int(answer["epoch"])


def send_apart(server: Server, hour: str, payloads: Sequence[Payload], *, chunked: bool) -> list[Sent]:
    """Send every table by itself, all at once; what failed is raised when the others are through."""
    with ThreadPoolExecutor(len(payloads)) as pool:
        under_way = [pool.submit(_send_table, server, hour, payload, chunked=chunked) for payload in payloads]
    failed = [one for one in under_way if one.exception() is not None]
    if failed and len(failed) < len(payloads):
        arrived = ", ".join(one.result().table for one in under_way if one not in failed)
        error = failed[0].exception()
        if isinstance(error, HeadraceError):
            error.detail = f"{error.detail} The changes of {arrived} were applied.".strip()
    return [one.result() for one in under_way]


def _send_table(server: Server, hour: str, payload: Payload, *, chunked: bool) -> Sent:
    """Send one table, a chunk after the other, so that its changes keep their order."""
    began = time.perf_counter()
    parts = list(chunks(payload.lines)) if chunked else [payload.lines]
    epoch, first = 0, 1
    for number, lines in enumerate(parts):
        key = _key(f"{hour}/{payload.table}/{number}", *lines)
        path = f"/v1/ingress/{payload.table}?format=json&update_format=insert_delete&wait=true"
        try:
            answer = server.post(path, b"\n".join(lines), content_type="application/x-ndjson", key=key)
        except Remote as error:
            error.detail = f"{error.detail} Its line 1 is change {first} of {payload.file}.".strip()
            raise
        epoch, first = int(answer["epoch"]), first + len(lines)
    return Sent(payload.table, payload.rows, time.perf_counter() - began, epoch, len(parts))


def chunks(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The lines in runs below the bound; a line that reaches it by itself goes alone."""
    begin, size = 0, 0
    for i, line in enumerate(lines):
        if i > begin and size + len(line) + 1 >= CHUNK_BYTES:
            yield lines[begin:i]
            begin, size = i, 0
        size += len(line) + 1
    yield lines[begin:]


def _read(table: str, file: Path) -> Payload | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"cannot read {file}", detail=str(error)) from error
    lines = tuple(line for line in content.split(b"\n") if line.strip())
    return Payload(f"bronze_{table}", file, lines, len(content))


def _key(what: str, *parts: bytes) -> str:
    """An idempotency key: what is sent, and a digest of its content."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return f"push/{what}/{digest.hexdigest()[:32]}"
