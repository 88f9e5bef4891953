"""`headrace policy`: views that stand in for relations, so that columns are masked and rows left out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import pyarrow as pa
import typer

from headrace.access.audit import Audit
from headrace.access.keys import read_keys, set_stand_in
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json, show_rows
from headrace.errors import RelationNameError
from headrace.offline import existing, relation_names
from headrace.storage.objects import Location

policy = typer.Typer(
    name="policy", help="Views that stand in for relations: set, list, drop.", no_args_is_help=True,
    rich_markup_mode=None,
)  # fmt: skip
_Relation = Annotated[str, typer.Argument(help="The relation that is not for everybody.")]


@policy.command("set")
def set_policy(
    relation: _Relation,
    view: Annotated[str, typer.Argument(help="The view that others read in its place.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Set it though there is no such relation or view yet.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Have everybody who does not administer a relation read a view wherever the relation is named.

    The view masks columns and leaves rows out as its SQL says, and is kept current like any other. While there is no
    such view, the relation cannot be read by them at all.

    Example, after CREATE VIEW customers_public AS SELECT id, left(name, 1) AS name, city FROM customers WHERE NOT vip:

        headrace policy set customers customers_public
    """
    with errors_reported(as_json=as_json, debug=debug):
        place = _home(home)
        if not anyway:
            _refuse_unknown(relation.lower(), view.lower(), relation_names(place))
        set_stand_in(place, relation, view)
        Audit(place).note(f"SET POLICY {relation.lower()}={view.lower()}")
    if as_json:
        show_json({"relation": relation.lower(), "view": view.lower()})
        return
    typer.echo(f"{view.lower()} stands in for {relation.lower()}")


@policy.command("list")
def list_policies(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """List the views that stand in for relations.

    Example:

        headrace policy list
    """
    with errors_reported(as_json=as_json, debug=debug):
        held = read_keys(_home(home)).stand_ins
    rows = [{"relation": relation, "view": view} for relation, view in sorted(held.items())]
    shown = pa.Table.from_pylist(rows, schema=pa.schema([("relation", pa.string()), ("view", pa.string())]))
    show_rows(shown, as_json=as_json)


@policy.command("drop")
def drop_policy(
    relation: _Relation, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Have a relation be read as it is again, by all whose keys cover it.

    Example:

        headrace policy drop customers
    """
    with errors_reported(as_json=as_json, debug=debug):
        place = _home(home)
        set_stand_in(place, relation, None)
        Audit(place).note(f"DROP POLICY {relation.lower()}")
    if as_json:
        show_json({"relation": relation.lower()})
        return
    typer.echo(f"{relation.lower()} is read as it is")


def _refuse_unknown(relation: str, view: str, names: Collection[str] | None) -> None:
    """Refuse names of nothing: where a view is missing, nobody but administrators reads the relation."""
    missing = [one for one in (relation, view) if names is not None and one not in names]
    if missing:
        raise RelationNameError(
            f"there is no relation {missing[0]}",
            detail=f"Until there is a view {view}, {relation} could be read by its administrators only.",
            hint="create it first, or say --anyway to set the policy before",
        )


def _home(given: str | None) -> Location:
    chosen = choose_home(given)
    return existing(chosen.location, chosen.settings)
