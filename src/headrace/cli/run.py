"""`headrace run`: execute SQL scripts on a home."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console

import headrace
from headrace.cli.opening import errors_reported, opened
from headrace.cli.options import DEFAULT_HOME, DebugOption, HomeOption, JsonOption, RowsOption
from headrace.cli.show import show_json, show_receipt, show_rows
from headrace.errors import SetupError


def run(
    scripts: Annotated[list[str], typer.Argument(help="SQL files, executed in this order; - reads stdin.")],
    home: HomeOption = DEFAULT_HOME,
    rows: RowsOption = 100,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Execute SQL scripts on a home, which is created if it does not exist.

    Statements are separated by ';'. Each INSERT, UPDATE and DELETE is one epoch. Stops at the first error;
    what came before it stays. Prints the result of each script's last statement.

    Examples:

        headrace run tables.sql views.sql

        echo "DELETE FROM orders WHERE id = 7" | headrace run -
    """
    with errors_reported(as_json=as_json, debug=debug):
        # All are read before the first runs, so that a misspelt name changes nothing.
        texts = {script: _read(script) for script in scripts}
    with opened(home, write=True, as_json=as_json, debug=debug) as hr:
        for script, text in texts.items():
            with Console(stderr=True).status(f"Running {'stdin' if script == '-' else script}"):
                result = hr.execute(text)
            _show(result, as_json=as_json, rows=rows)


def _read(script: str) -> str:
    if script == "-":
        return sys.stdin.read()
    try:
        return Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(
            f"cannot read {script}", detail=str(error), hint="give the path of a SQL file, or - for stdin"
        ) from error


def _show(result: pa.Table | headrace.Receipt | None, *, as_json: bool, rows: int) -> None:
    if result is None:
        if as_json:
            show_json(None)
    elif isinstance(result, headrace.Receipt):
        show_receipt(result, as_json=as_json)
    else:
        show_rows(result, as_json=as_json, rows=rows)
