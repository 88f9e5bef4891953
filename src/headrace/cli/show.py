"""Print results: tables for people, JSON for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import headrace
from headrace.json_forms import json_form

_WIDEST = 100_000


def show_rows(table: pa.Table, *, as_json: bool, as_csv: bool = False, rows: int = 100) -> None:
    """Print a table: at most `rows` of it for people, all of it as a JSON array or as CSV.

    What is too wide for a terminal is printed row by row, a line for each column; into a pipe, as wide as it is.
    """
    if as_json:
        show_json(table.to_pylist())
        return
    if as_csv:
        show_csv(table)
        return
    screen = Table(show_edge=False)
    for name in table.column_names:
        screen.add_column(Text(name), no_wrap=True)
    shown = table.slice(0, rows).to_pylist(maps_as_pydicts="lossy")
    for row in shown:
        screen.add_row(*(_cell(row[name]) for name in table.column_names))
    console = Console()
    width = console.measure(screen, options=console.options.update(width=_WIDEST)).maximum
    if width <= console.width:
        console.print(screen)
    elif console.is_terminal:
        _show_one_by_one(console, table.column_names, shown)
    else:
        console = Console(width=width)
        console.print(screen)
    hidden = table.num_rows - rows
    rows_told = counted(table.num_rows, "row")
    console.print(Text(f"{rows_told}, {hidden} not shown (--rows)" if hidden > 0 else rows_told, style="dim"))


def show_csv(table: pa.Table) -> None:
    """Print a table as CSV with a header; NULL is an empty field, text is quoted where it must be."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in table.to_pylist(maps_as_pydicts="lossy"):
        writer.writerow("" if row[name] is None else _text(row[name]) for name in table.column_names)


def _show_one_by_one(console: Console, names: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    longest = max(map(len, names), default=0)
    for number, row in enumerate(rows, start=1):
        console.print(Text(f"row {number}", style="dim"))
        for name in names:
            console.print(Text(f"  {name:<{longest}}  ").append_text(_cell(row[name])), soft_wrap=True)


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
    return Text("NULL", style="dim") if value is None else Text(_text(value))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    form = json_form(value)
    return json.dumps(form, ensure_ascii=False) if isinstance(form, dict | list | bool) else str(form)
