"""What verbs have in common that run a statement on a home: by its owner if there is one, and how they tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

import headrace
from headrace.cli.homes import choose_home
from headrace.cli.opening import opened, through_owner
from headrace.cli.progress import shown
from headrace.cli.show import show_json, show_receipt
from headrace.errors import RelationNameError

AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]


def carry_out(
    home: str | None,
    sql: str,
    done: str,
    *,
    as_json: bool,
    idle: str = "",
    what: str = "",
    progress: bool | None = False,
) -> bool:
    """Run a statement and say that it was done; whether a process did that has the home open. `idle` is said if not."""
    chosen = choose_home(home)
    at_work = through_owner(chosen, "execute", sql=sql) is not None
    if not at_work:
        with opened(chosen, write=True) as hr, shown(hr, what, progress):
            hr.execute(sql)
    if as_json:
        show_json({"ok": True})
    else:
        typer.echo(done)
    if idle:
        tell_idle(idle, at_work, as_json=as_json)
    return at_work


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
        typer.echo(f"{column:<{longest}}  {_plain(content)}")


def _plain(content: object) -> object:
    """A value as people read it: names one after the other, and no more digits of a measure than matter."""
    if isinstance(content, list):
        return ", ".join(map(str, cast("list[object]", content)))
    if isinstance(content, float):
        return round(content, 1)
    return "NULL" if content is None else content


def show_replayed(receipt: headrace.Receipt, *, as_json: bool, reasons: Sequence[str] = ()) -> None:
    """Show what became of what was tried again, and why it stays; ends with code 1 if any of it does."""
    show_receipt(receipt, as_json=as_json)
    for reason in reasons:
        typer.echo(f"  {reason}")
    if sum(receipt.dead.values()):
        raise typer.Exit(1)


def show_discarded(receipt: headrace.Receipt, *, as_json: bool) -> None:
    """Show that something was let go."""
    if as_json:
        show_receipt(receipt, as_json=True)
    else:
        typer.echo(f"epoch {receipt.epoch}: they are gone")
