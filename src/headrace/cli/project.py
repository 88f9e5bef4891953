"""Run a project folder for `headrace run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

import headrace
from headrace.cli.homes import ChosenHome, tell_unused_master, with_master
from headrace.cli.opening import errors_reported, opened, through_owner
from headrace.cli.progress import shown
from headrace.cli.show import receipt_parts, show_json, show_receipt
from headrace.errors import ProjectError
from headrace.project.definitions import read_definitions, refuse_problems
from headrace.project.folder import Project, open_project
from headrace.project.run import Done, Outcome, has_followed, run_project

RUN_PROJECT = "run_project"
UNREAD = (
    "sources are read, and changefeeds told, while a process has the home open, and this one ends now; "
    "headrace serve has them read"
)


def run_folder(
    folder: Path,
    home: str | None,
    values: Sequence[str],
    master: str | None,
    *,
    progress: bool | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Bring the project's home to what the project defines, and print what was done."""
    with errors_reported(as_json=as_json, debug=debug):
        project = open_project(folder, values_of(values))
        definitions = read_definitions(project)
        # Before Spark is started: a refusal should not take seconds.
        refuse_problems(definitions.problems)
        chosen = with_master(ChosenHome(home or project.home, project.content.settings, named=True), master)
        # A process that has the home open runs it; without one it is run here.
        asked = {"folder": str(folder.resolve()), "values": values_of(values)}
        answer = through_owner(chosen, RUN_PROJECT, **asked)
        if answer is not None:
            tell_unused_master(master)
            receipt = None if answer["receipt"] is None else headrace.Receipt.from_json(answer["receipt"])
            outcome = Outcome(
                [Done(one["deed"], one["kind"], one["name"]) for one in answer["done"]], receipt, answer["notes"]
            )
            _tell(project, chosen.location, outcome, answer["epoch"], as_json)
            return
        with opened(chosen, write=True, create=True) as hr:
            with shown(hr, f"Running {project.name}", progress):
                outcome = run_project(hr, definitions)
            if has_followed(definitions):
                outcome.notes.append(UNREAD)
            _tell(project, chosen.location, outcome, hr.epoch, as_json)


def run_for_others(hr: headrace.Headrace) -> Callable[..., dict[str, Any]]:
    """The verb by which the owner of a home runs a project for another process."""

    def run(folder: str, values: dict[str, str]) -> dict[str, Any]:
        outcome = run_project(hr, read_definitions(open_project(Path(folder), values)))
        receipt = None if outcome.receipt is None else outcome.receipt.to_json()
        return {"done": _done_parts(outcome), "receipt": receipt, "notes": outcome.notes, "epoch": hr.epoch}

    return run


def _tell(project: Project, home: str, outcome: Outcome, epoch: int, as_json: bool) -> None:
    if as_json:
        _show_json(home, outcome, [*project.notes, *outcome.notes])
        return
    for note in (*project.notes, *outcome.notes):
        typer.echo(f"note: {note}")
    for done in outcome.done:
        if done.action != "unchanged":
            typer.echo(_line(done))
    if outcome.receipt is not None:
        show_receipt(outcome.receipt, as_json=False)
    kept = outcome.count("unchanged")
    typer.echo(f"{project.name} is at epoch {epoch} in {home}" + (f", {kept} unchanged" if kept else ""))


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
    return f"{done.action} {done.kind} {done.name}"


def _done_parts(outcome: Outcome) -> list[dict[str, str]]:
    return [{"deed": one.action, "kind": one.kind, "name": one.name} for one in outcome.done]


def _show_json(home: str, outcome: Outcome, notes: list[str]) -> None:
    receipt = None if outcome.receipt is None else receipt_parts(outcome.receipt)
    show_json({"home": home, "done": _done_parts(outcome), "receipt": receipt, "notes": notes})
