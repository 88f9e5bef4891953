"""A bar on stderr for every table and view that is being filled."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

import headrace


@contextmanager
def shown(hr: headrace.Headrace, what: str, asked: bool | None) -> Generator[None, None, None]:
    """Inside, fills are shown: as bars on a terminal, as a line each where they are asked for elsewhere."""
    console = Console(stderr=True)
    if asked is False or (asked is None and not console.is_terminal):
        yield
    elif console.is_terminal:
        with _bars(hr, what, console):
            yield
    else:
        with hr.watch(_line):
            yield


@contextmanager
def _bars(hr: headrace.Headrace, what: str, console: Console) -> Generator[None, None, None]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[so_far]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        progress.add_task(what, total=None, so_far="")
        tasks: dict[str, TaskID] = {}

        def listen(step: headrace.Step) -> None:
            total = max(step.total, 1)
            if step.relation not in tasks:
                tasks[step.relation] = progress.add_task(step.relation, total=total, so_far="")
            elif step.done == 0:
                progress.reset(tasks[step.relation], total=total)
            done = total if step.done >= step.total else step.done
            so_far = f"{step.done:,} rows" if step.kind == "table" else f"{step.done} of {step.total}"
            progress.update(tasks[step.relation], completed=done, total=total, so_far=so_far)

        with hr.watch(listen):
            yield


def _line(step: headrace.Step) -> None:
    if step.done >= step.total:
        typer.echo(f"{step.relation}: {f'{step.done:,} rows' if step.kind == 'table' else 'filled'}", err=True)
