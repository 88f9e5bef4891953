"""`headrace run`: bring a home to what a project defines, or execute SQL scripts on it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import headrace
from headrace.cli.homes import choose_home, current_folder, nearest_project, tell_unused_master, with_master
from headrace.cli.opening import errors_reported, opened, read_sql, through_owner
from headrace.cli.options import (
    DebugOption,
    HomeOption,
    JsonOption,
    MasterOption,
    ProgressOption,
    RowsOption,
    SetOption,
)
from headrace.cli.progress import shown
from headrace.cli.project import UNREAD, run_folder
from headrace.cli.show import show_json, show_receipt, show_rows
from headrace.errors import HeadraceError, HomeBusy
from headrace.home_elsewhere import result_of
from headrace.project.definitions import makes_tables, script_makes_followed
from headrace.project.folder import is_project

# What no statement is to blame for.
_OF_THE_HOME = (HomeBusy.code, "not_known", "not_understood")


def run(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROJECT | SCRIPT...]",
            help="A project's folder, or SQL files, executed in this order; - reads stdin. By default this folder.",
        ),
    ] = None,
    home: HomeOption = None,
    master: MasterOption = None,
    values: SetOption = None,
    rows: RowsOption = 100,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a project, or SQL scripts, on a home.

    The home is created if it is not there and a project, or a script with CREATE TABLE, is run.

    A project: what is missing is made, changed views are replaced, sources are read into one epoch, and what is
    unchanged is left alone. Running it again changes nothing.

    If a process has the home open, such as 'headrace serve', it is asked to run them.

    Scripts: statements are separated by ';'. Each INSERT, UPDATE and DELETE is one epoch. Stops at the first error;
    what came before it stays. Prints the result of each script's last statement.

    Examples:

        headrace run

        headrace run examples/medallion --set data=/data/shop

        headrace run tables.sql views.sql

        echo "DELETE FROM orders WHERE id = 7" | headrace run -

        headrace run --master spark://host:7077
    """
    with errors_reported(as_json=as_json, debug=debug):
        wanted = what or [str(nearest_project(current_folder()) or ".")]
    if len(wanted) == 1 and (is_project(Path(wanted[0])) or Path(wanted[0]).is_dir()):
        run_folder(Path(wanted[0]), home, values or (), master, progress=progress, as_json=as_json, debug=debug)
        return
    with errors_reported(as_json=as_json, debug=debug):
        # All are read before the first runs, so that a misspelt name changes nothing.
        texts = {script: read_sql(script) for script in wanted}
        chosen = with_master(choose_home(home), master)
        # A process that has the home open runs them; without one they are run here.
        while texts:
            script = next(iter(texts))
            with _named(script):
                answer = through_owner(chosen, "execute", sql=texts[script])
            if answer is None:
                break
            if script == wanted[0]:
                tell_unused_master(master)
            _show(result_of(answer), script, as_json=as_json, rows=rows)
            del texts[script]
        else:
            return
        # A script without tables of its own cannot be meant for a home that is not there yet.
        with opened(chosen, write=True, create=_makes_tables(texts)) as hr:
            for script, text in texts.items():
                with shown(hr, f"Running {'stdin' if script == '-' else script}", progress), _named(script):
                    result = hr.execute(text)
                _show(result, script, as_json=as_json, rows=rows)
        if any(map(script_makes_followed, texts.values())):
            typer.echo(f"note: {UNREAD}", err=True)


def _makes_tables(texts: Mapping[str, str]) -> bool:
    for script, text in texts.items():
        with _named(script):
            if makes_tables(text):
                return True
    return False


@contextmanager
def _named(script: str) -> Generator[None, None, None]:
    """Inside, an error names the file whose statement met it; its line and column are told already."""
    try:
        yield
    except HeadraceError as error:
        if script != "-" and error.code not in _OF_THE_HOME:
            error.message = f"{script}: {error.message}"
        raise


def _show(result: pa.Table | headrace.Receipt | None, script: str, *, as_json: bool, rows: int) -> None:
    if result is None:
        if as_json:
            show_json(None)
        else:
            typer.echo(f"{'stdin' if script == '-' else script} is done")
    elif isinstance(result, headrace.Receipt):
        show_receipt(result, as_json=as_json)
    else:
        show_rows(result, as_json=as_json, rows=rows)
