"""`headrace check`: find what is wrong with a project, without running it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, JsonOption, ProjectArgument, SetOption
from headrace.cli.project import values_of
from headrace.cli.show import counted, show_json
from headrace.project.check import check_definitions
from headrace.project.definitions import Problem, read_definitions
from headrace.project.folder import open_project


def check(
    project: ProjectArgument = Path(),
    values: SetOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Check a project: every statement is read and every view resolved; nothing is made.

    Lists all problems with file, line and column. The exit code is 1 if there is any.

    Examples:

        headrace check

        headrace check examples/medallion --json
    """
    with errors_reported(as_json=as_json, debug=debug):
        found = open_project(project, values_of(values or ()))
        definitions = read_definitions(found)
        with Console(stderr=True).status("Starting Spark and resolving the views"):
            findings = check_definitions(definitions)
        notes = [*found.notes, *findings.notes]
        if as_json:
            show_json({"ok": findings.ok, "problems": [asdict(one) for one in findings.problems], "notes": notes})
        else:
            for problem in findings.problems:
                _print(problem)
            for note in notes:
                typer.echo(f"note: {note}")
            kinds = {"table": definitions.tables, "view": definitions.views, "source": definitions.sources}
            if definitions.feeds:
                kinds["changefeed"] = definitions.feeds
            counts = ", ".join(counted(len(ones), kind) for kind, ones in kinds.items())
            wrong = len(findings.problems)
            typer.echo(f"{found.name}: {counts}, {counted(wrong, 'problem') if wrong else 'nothing wrong'}")
        if not findings.ok:
            raise typer.Exit(1)


def _print(problem: Problem) -> None:
    typer.echo(str(problem))
    if problem.detail:
        typer.echo(f"  detail: {problem.detail}")
    if problem.hint:
        typer.echo(f"  hint: {problem.hint}")
