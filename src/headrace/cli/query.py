"""`headrace query`: read the home with SQL."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, read_sql
from headrace.cli.options import CsvOption, DebugOption, HomeOption, JsonOption, RowsOption
from headrace.cli.reading import reading
from headrace.cli.show import show_rows


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT; - reads it from stdin.")],
    epoch: Annotated[int | None, typer.Option(help="Read as of this epoch instead of the newest.")] = None,
    home: HomeOption = None,
    rows: RowsOption = 100,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a SELECT over tables and views, all of one consistent epoch.

    Examples:

        headrace query "SELECT * FROM orders_by_city ORDER BY revenue DESC"

        headrace query "SELECT count(*) FROM orders" --epoch 12

        headrace query - --json < report.sql
    """
    with errors_reported(as_json=as_json, debug=debug):
        text = read_sql("-") if sql == "-" else sql
        with reading(choose_home(home)) as hr:
            show_rows(hr.query(text, epoch=epoch), as_json=as_json, as_csv=as_csv, rows=rows)
