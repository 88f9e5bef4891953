"""`headrace status`: what a home holds."""

from __future__ import annotations

import pyarrow as pa
import typer

import headrace
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, opened
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json, show_rows


def status(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show the newest epoch, the tables and the views.

    Examples:

        headrace status

        headrace status --home s3://lake/sales --json
    """
    with errors_reported(as_json=as_json, debug=debug), opened(chosen := choose_home(home)) as hr:
        tables, views = _listed(hr, "SHOW TABLES"), _listed(hr, "SHOW VIEWS")
        if as_json:
            parts: dict[str, object] = {"home": chosen.location, "epoch": hr.epoch}
            show_json({**parts, "tables": tables.to_pylist(), "views": views.to_pylist()})
            return
        typer.echo(f"{chosen.location} is at epoch {hr.epoch}")
        for title, rows in (("Tables", tables), ("Views", views)):
            typer.echo(f"\n{title}")
            show_rows(rows, as_json=False)


def _listed(hr: headrace.Headrace, statement: str) -> pa.Table:
    result = hr.execute(statement)
    assert isinstance(result, pa.Table)
    return result
