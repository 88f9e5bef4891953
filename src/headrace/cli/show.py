"""Print results: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import headrace
from headrace.json_forms import json_form


def show_rows(table: pa.Table, *, as_json: bool, rows: int = 100) -> None:
    """Print a table: at most `rows` of it for people, all of it as a JSON array."""
    if as_json:
        show_json(table.to_pylist())
        return
    screen = Table(show_edge=False)
    for name in table.column_names:
        screen.add_column(Text(name))
    for row in table.slice(0, rows).to_pylist(maps_as_pydicts="lossy"):
        screen.add_row(*(_cell(row[name]) for name in table.column_names))
    console = Console()
    console.print(screen)
    hidden = table.num_rows - rows
    rows_told = counted(table.num_rows, "row")
    console.print(Text(f"{rows_told}, {hidden} not shown (--rows)" if hidden > 0 else rows_told, style="dim"))


def counted(count: int, word: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def show_receipt(receipt: headrace.Receipt, *, as_json: bool) -> None:
    """Print what became of the changes and where the time went."""
    if as_json:
        show_json(receipt_parts(receipt))
        return
    applied = ", ".join(f"{count} in {table}" for table, count in receipt.applied.items()) or "nothing"
    stages = ", ".join(f"{stage} {seconds * 1000:.0f} ms" for stage, seconds in receipt.stages.items())
    typer.echo(
        f"epoch {receipt.epoch}: {applied} applied in {receipt.seconds:.3f} s" + (f" ({stages})" if stages else "")
    )
    for word, counts in (("stale", receipt.stale), ("dead", receipt.dead)):
        for table, count in counts.items():
            if count:
                typer.echo(f"  {count} {word} in {table}")


def receipt_parts(receipt: headrace.Receipt) -> dict[str, object]:
    """The receipt as a plain mapping."""
    names = ("epoch", "applied", "stale", "dead", "seconds", "stages")
    return {name: getattr(receipt, name) for name in names}


@contextmanager
def watched(what: str) -> Generator[Callable[[int, int], None], None, None]:
    """A bar on stderr that fills as bytes are done; what it gives is called with the bytes done and the bytes to do."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_json(value: object) -> None:
    """Print a value as one JSON document."""
    typer.echo(json.dumps(json_form(value), ensure_ascii=False))


def _cell(value: object) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    return Text(
        value
        if isinstance(value, str)
        else json.dumps(form)
        if isinstance(form := json_form(value), dict | list)
        else str(form)
    )
