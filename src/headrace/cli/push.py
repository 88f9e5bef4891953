"""`headrace push`: hours of the medallion example's changes, to a running server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from headrace.cli.hourly import Payload, Sent, read_hour, send_apart, send_together
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, JsonOption
from headrace.cli.remote import Server
from headrace.cli.show import show_json

PIPELINE = "ecommerce-medallion-architecture"
DATA = Path("examples/medallion/data")
HOUR = "%Y-%m-%dT%H"


def _hour(text: str) -> str:
    try:
        return datetime.strptime(text, HOUR).strftime(HOUR)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no hour such as 2025-11-30T00") from None


def push(
    hour: Annotated[str, typer.Option(callback=_hour, help="The hour to send, such as 2025-11-30T00.")],
    hours: Annotated[int, typer.Option(min=1, help="How many hours to send, one after the other.")] = 1,
    data: Annotated[Path, typer.Option(help="The folder that holds cdc/<table>/<hour>.json.")] = DATA,
    url: Annotated[str, typer.Option(help="The server to send to.")] = "http://localhost:8080",
    pipeline: Annotated[str, typer.Option(help="The pipeline's name, to which the server must answer.")] = PIPELINE,
    atomic: Annotated[
        bool, typer.Option("--atomic/--no-atomic", help="One epoch for all tables, or each by itself and all at once.")
    ] = True,
    chunk_input: Annotated[
        bool, typer.Option("--chunk-input", help="Requests below 1 MB, a table's in order; implies --no-atomic.")
    ] = False,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="HEADRACE_API_KEY", help="The server's key, if it asks for one.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Send an hour of changes of four tables, and wait until every view is current.

    An hour is one atomic epoch. Sent again, it changes nothing: its idempotency key is made of the hour and of what the
    files hold. A missing file skips its table. With --json, each hour is one line.

    Examples:

        headrace push --hour 2025-11-30T00

        headrace push --hour 2025-11-30T00 --hours 6 --data data --no-atomic
    """
    together = atomic and not chunk_input
    first = datetime.strptime(hour, HOUR)
    with errors_reported(as_json=as_json, debug=debug), Server(url, api_key) as server:
        # A name that the server does not answer to is told before anything is sent.
        server.get(f"/v0/pipelines/{quote(pipeline, safe='')}?selector=status")
        for number in range(hours):
            one = (first + timedelta(hours=number)).strftime(HOUR)
            payloads = read_hour(data, one)
            if not as_json:
                _show_read(one, payloads, f" ({number + 1} of {hours})" if hours > 1 else "")
            with Console(stderr=True).status("Waiting until every view is current"):
                began = time.perf_counter()
                if together:
                    sent, epoch = None, send_together(server, one, payloads)
                else:
                    sent = send_apart(server, one, payloads, chunked=chunk_input)
                    epoch = max(part.epoch for part in sent)
                seconds = time.perf_counter() - began
            if as_json:
                show_json(_parts(one, payloads, sent, epoch, seconds))
            else:
                _show_sent(payloads, sent, seconds)


def _show_read(hour: str, payloads: Sequence[Payload], which: str) -> None:
    rows, size = _totals(payloads)
    typer.echo(f"Hour {hour}{which}: {rows:,} rows, {size / 1_000_000:.2f} MB read")
    for payload in payloads:
        typer.echo(f"  {payload.table:<28}{payload.rows:>8,} rows")


def _show_sent(payloads: Sequence[Payload], sent: Sequence[Sent] | None, seconds: float) -> None:
    for part in sent or ():
        requests = f" in {part.requests} requests" if part.requests > 1 else ""
        typer.echo(f"  {part.table:<28}{part.seconds:>8.3f} s{requests}")
    rows, _ = _totals(payloads)
    typer.echo(f"All tables and views updated in {seconds:.3f}s ({rows} rows across {len(payloads)} tables)")


def _parts(
    hour: str, payloads: Sequence[Payload], sent: Sequence[Sent] | None, epoch: int, seconds: float
) -> dict[str, object]:
    rows, size = _totals(payloads)
    parts: dict[str, object] = {"hour": hour, "rows": rows, "bytes": size, "epoch": epoch, "seconds": seconds}
    parts["tables"] = {payload.table: payload.rows for payload in payloads}
    if sent is not None:
        parts["latency"] = {part.table: part.seconds for part in sent}
    return parts


def _totals(payloads: Sequence[Payload]) -> tuple[int, int]:
    return sum(payload.rows for payload in payloads), sum(payload.size for payload in payloads)
