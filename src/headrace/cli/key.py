"""`headrace key`: API keys of a home, made, listed and revoked."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import pyarrow as pa
import typer

from headrace.access.audit import Audit, user_here
from headrace.access.grants import EVERYTHING, Grant, read_grant
from headrace.access.keys import create_key, read_keys, revoke_key
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json, show_rows
from headrace.errors import SetupError
from headrace.offline import existing, relation_names
from headrace.storage.objects import Location

key = typer.Typer(name="key", help="API keys: create, list, revoke.", no_args_is_help=True, rich_markup_mode=None)
_TIME = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@key.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Who or what it is for.")],
    read: Annotated[
        list[str] | None,
        typer.Option(
            "--read",
            metavar="RELATION[=VIEW]",
            help="Relations that it may read; with =VIEW, the view that it reads in place of one. May be repeated.",
        ),
    ] = None,
    write: Annotated[
        list[str] | None,
        typer.Option("--write", metavar="TABLE", help="Tables that it may read and change. May be repeated."),
    ] = None,
    admin: Annotated[
        list[str] | None,
        typer.Option("--admin", metavar="RELATION", help="What it may administer; * is everything. May be repeated."),
    ] = None,
    observe: Annotated[bool, typer.Option("--observe", help="It may see figures and states, and no rows.")] = False,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it lasts, such as 12h or 90d.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a key and print it, once: the home keeps a digest of it only.

    It is in force at once, also for a server that runs. From the first key on, every request needs one.

    Examples:

        headrace key create ci --write orders --write 'sales_*'

        headrace key create dashboard --read 'revenue*' --read customers=customers_public --expires 90d

        headrace key create prometheus --observe

        headrace key create ann --admin '*'
    """
    with errors_reported(as_json=as_json, debug=debug):
        grants = [
            *(read_grant(f"read:{one}") for one in read or ()),
            *(read_grant(f"write:{one}") for one in write or ()),
            *(read_grant(f"admin:{one}") for one in admin or ()),
            *([Grant("observe")] if observe else []),
        ]
        lasts = None if expires is None else datetime.now(UTC) + _lasting(expires)
        place = _home(home)
        made, token = create_key(place, name, grants, user_here(), lasts)
        for warning in _of_nothing(grants, relation_names(place)):
            typer.echo(f"warning: {warning}", err=True)
        Audit(place).note(
            f"CREATE KEY {made.name} ({made.id})", grants=" ".join(map(str, grants)), expires=made.expires_at
        )
    if as_json:
        told = {name: value for name, value in made.to_json().items() if name != "digest"}
        show_json({**told, "key": token})
        return
    typer.echo(token)
    typer.echo(f"This is key {made.id} ({made.name}): {', '.join(map(str, grants))}. It is shown only now.", err=True)


@key.command("list")
def list_keys(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the keys of a home, revoked and expired ones too; what opens anything is not kept, so it is not shown.

    Example:

        headrace key list --home sales
    """
    with errors_reported(as_json=as_json, debug=debug):
        held = read_keys(_home(home))
    now = datetime.now(UTC)
    rows = [
        {
            "id": one.id,
            "name": one.name,
            "state": "revoked" if one.revoked_at else "in force" if one.is_valid(now) else "expired",
            "grants": ", ".join(map(str, one.grants)),
            "created_at": one.created_at,
            "created_by": one.created_by,
            "expires_at": one.expires_at,
            "revoked_at": one.revoked_at,
        }
        for one in held.keys.values()
    ]
    names = ("id", "name", "state", "grants", "created_at", "created_by", "expires_at", "revoked_at")
    show_rows(pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in names])), as_json=as_json)


@key.command("revoke")
def revoke(
    which: Annotated[str, typer.Argument(metavar="ID|NAME", help="The key's id, or its name.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Revoke a key; servers that run refuse it within a second, within five of a home in an object store.

    Example:

        headrace key revoke ci
    """
    with errors_reported(as_json=as_json, debug=debug):
        place = _home(home)
        gone = revoke_key(place, which)
        Audit(place).note(f"REVOKE KEY {gone.name} ({gone.id})")
    if as_json:
        show_json({"id": gone.id, "name": gone.name, "revoked_at": gone.revoked_at})
        return
    typer.echo(f"key {gone.id} ({gone.name}) is revoked")


def _lasting(text: str) -> timedelta:
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise SetupError(f"{text} is no time", hint="write 30m, 12h or 90d")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def _of_nothing(grants: Sequence[Grant], names: Collection[str] | None) -> Iterator[str]:
    """What grants name that is not there: it may come, or may be a mistake in writing."""
    if names is None:
        return
    for one in grants:
        if one.relations != EVERYTHING and not any(one.covers(one.role, name) for name in names):
            yield f"{one} covers nothing for now: there is no relation {one.relations}"
        elif one.stand_in is not None and one.stand_in not in names:
            yield f"there is no view {one.stand_in}: until there is, {one.relations} cannot be read with this key"


def _home(given: str | None) -> Location:
    chosen = choose_home(given)
    return existing(chosen.location, chosen.settings)
