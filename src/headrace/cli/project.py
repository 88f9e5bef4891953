"""Run a project folder for `headrace run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from headrace.cli.opening import errors_reported, opened
from headrace.cli.progress import shown
from headrace.cli.show import receipt_parts, show_json, show_receipt
from headrace.errors import ProjectError
from headrace.project.definitions import read_definitions, refuse_problems
from headrace.project.folder import open_project
from headrace.project.run import Done, Outcome, run_project


def run_folder(
    folder: Path, home: str | None, values: Sequence[str], *, progress: bool | None, as_json: bool, debug: bool
) -> None:
    """Bring the project's home to what the project defines, and print what was done."""
    with errors_reported(as_json=as_json, debug=debug):
        project = open_project(folder, values_of(values))
        definitions = read_definitions(project)
        # Before Spark is started: a refusal should not take seconds.
        refuse_problems(definitions.problems)
    place = home or project.home
    with opened(place, write=True, settings=project.content.settings, as_json=as_json, debug=debug) as hr:
        with shown(hr, f"Running {project.name}", progress):
            outcome = run_project(hr, definitions)
        if as_json:
            _show_json(place, outcome, project.notes)
            return
        for note in project.notes:
            typer.echo(f"note: {note}")
        for done in outcome.done:
            if done.deed != "unchanged":
                typer.echo(_line(done))
        if outcome.receipt is not None:
            show_receipt(outcome.receipt, as_json=False)
        kept = outcome.count("unchanged")
        typer.echo(f"{project.name} is at epoch {hr.epoch} in {place}" + (f", {kept} unchanged" if kept else ""))


def values_of(pairs: Sequence[str]) -> dict[str, str]:
    """What was given as NAME=VALUE."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise ProjectError(f"'{pair}' is no setting", hint="write --set NAME=VALUE")
        values[name] = value
    return values


def _line(done: Done) -> str:
    return f"{done.deed} {done.kind} {done.name}"


def _show_json(home: str, outcome: Outcome, notes: list[str]) -> None:
    receipt = None if outcome.receipt is None else receipt_parts(outcome.receipt)
    done = [{"deed": one.deed, "kind": one.kind, "name": one.name} for one in outcome.done]
    show_json({"home": home, "done": done, "receipt": receipt, "notes": notes})
