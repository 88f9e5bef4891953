"""What verbs have in common that run a statement on a home: by its owner if there is one, and how they tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

import headrace
from headrace.cli.homes import ChosenHome
from headrace.cli.opening import opened, through_owner
from headrace.cli.progress import shown
from headrace.cli.show import show_json, show_receipt
from headrace.errors import RelationNameError

AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]


def run_statement(home: ChosenHome, sql: str, what: str = "", progress: bool | None = False) -> bool:
    """Run a statement, and tell whether a process has the home open that goes on after it."""
    if through_owner(home, "execute", sql=sql) is not None:
        return True
    with opened(home, write=True) as hr, shown(hr, what, progress):
        hr.execute(sql)
    return False


def tell(text: str, *, as_json: bool) -> None:
    """Say that something was done."""
    if as_json:
        show_json({"ok": True})
    else:
        typer.echo(text)


def tell_idle(note: str, at_work: bool, *, as_json: bool) -> None:
    """Say that nothing is at work, if so, to people."""
    if not (at_work or as_json):
        typer.echo(note)


def show_one(rows: Sequence[dict[str, Any]], name: str, kind: str, *, as_json: bool) -> None:
    """Show all that is known of one of a kind."""
    found = [one for one in rows if one["name"] == name.lower()]
    if not found:
        raise RelationNameError(f"there is no {kind} {name}", hint=f"headrace {kind} list shows what there is")
    if as_json:
        show_json(found[0])
        return
    longest = max(map(len, found[0]))
    for column, content in found[0].items():
        typer.echo(f"{column:<{longest}}  {'NULL' if content is None else content}")


def show_discarded(receipt: headrace.Receipt, *, as_json: bool) -> None:
    """Show that something was let go."""
    if as_json:
        show_receipt(receipt, as_json=True)
    else:
        typer.echo(f"epoch {receipt.epoch}: they are gone")
