"""The `headrace` command: one verb, one file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import headrace
from headrace.cli.backup import backup
from headrace.cli.changefeed import changefeed
from headrace.cli.changes import changes
from headrace.cli.check import check
from headrace.cli.dead_letters import dead_letters
from headrace.cli.demo import demo
from headrace.cli.events import events
from headrace.cli.explain import explain
from headrace.cli.fold import fold
from headrace.cli.init import init
from headrace.cli.key import key
from headrace.cli.local import local
from headrace.cli.policy import policy
from headrace.cli.push import push
from headrace.cli.query import query
from headrace.cli.reload import reload
from headrace.cli.restore import restore
from headrace.cli.run import run as run_scripts
from headrace.cli.serve import serve
from headrace.cli.source import source
from headrace.cli.status import status
from headrace.cli.usage import run_command
from headrace.cli.verify import verify

app = typer.Typer(
    name="headrace",
    help="Spark SQL views kept exactly current, one epoch at a time.\n\n"
    "Start with a project, or with a script of CREATE TABLE, CREATE VIEW and INSERT:\n\n"
    "    headrace init shop\n\n"
    "    headrace run shop.sql\n\n"
    '    headrace query "SELECT * FROM revenue_by_city"\n\n'
    "    headrace explain revenue_by_city\n\n"
    "    headrace verify",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for name, verb in (
    ("init", init),
    ("check", check),
    ("run", run_scripts),
    ("serve", serve),
    ("push", push),
    ("query", query),
    ("changes", changes),
    ("explain", explain),
    ("verify", verify),
    ("status", status),
    ("reload", reload),
    ("fold", fold),
    ("backup", backup),
    ("restore", restore),
    ("demo", demo),
):
    app.command(name)(verb)
app.add_typer(source)
app.add_typer(dead_letters)
app.add_typer(events)
app.add_typer(changefeed)
app.add_typer(key)
app.add_typer(policy)
app.add_typer(local)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: exit code 0 when it did what was asked, 1 when not, 2 when it was misspelt."""
    sys.exit(run_command(app, "headrace", sys.argv[1:] if arguments is None else arguments))
