"""`headrace changes`: the log of a table or view."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported
from headrace.cli.options import CsvOption, DebugOption, HomeOption, JsonOption, RowsOption
from headrace.cli.reading import reading
from headrace.cli.show import show_rows


def changes(
    name: Annotated[str, typer.Argument(help="A table or a view of the home.")],
    since: Annotated[int, typer.Option(help="Changes after this epoch.")] = 0,
    until: Annotated[int | None, typer.Option(help="Changes up to and including this epoch.")] = None,
    home: HomeOption = None,
    rows: RowsOption = 100,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    debug: DebugOption = False,
) -> None:
    """Show how a table or view changed, epoch by epoch.

    Each row has _change_type, _commit_version (the epoch) and _commit_timestamp.

    Examples:

        headrace changes orders_by_city --since 12

        headrace changes orders --since 12 --until 15 --json
    """
    with errors_reported(as_json=as_json, debug=debug), reading(choose_home(home)) as hr:
        show_rows(hr.changes(name, since=since, until=until), as_json=as_json, as_csv=as_csv, rows=rows)
