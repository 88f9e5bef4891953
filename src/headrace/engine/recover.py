"""Reopening a home: definitions come from the ledger, state from the bases and the log after them; no view is computed
again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headrace.engine.catalog import Table, View, ViewDefinition
from headrace.engine.columns import Columns, converted
from headrace.engine.define import make_table, make_view
from headrace.engine.fold import base_path
from headrace.engine.receipt import Receipt
from headrace.errors import LedgerError
from headrace.intake.table import TableContract
from headrace.ledger.base import Base, Shape
from headrace.ledger.ledger import Entry, summed
from headrace.ledger.names import is_hidden
from headrace.sql.resolve import register
from headrace.state.delta import Delta

if TYPE_CHECKING:
    from headrace.home import Headrace


# What rules remember in hidden stores, by number: raised when a release remembers otherwise in the same columns.
STATE = 2


def recover(home: Headrace, folder: Path) -> list[ViewDefinition]:
    """Bring a home to the newest epoch of its ledger; the views whose hidden state another release has shaped.

    Those hold the right rows, but cannot follow a change until they are filled anew.
    """
    heads = home.ledger.heads()
    if not heads:
        return []
    latest: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for head in heads:
        content = head.content
        home.catalog.record(head.epoch, content)
        for name in content.get("reset", ()):
            home.reset_at[name] = head.epoch
        for name in content.get("drop", ()):
            latest.pop(name, None)
        for definition in content.get("define", ()):
            # Those that read a replaced view were made again after it; those that read an altered table were not.
            if definition["kind"] == "view":
                latest.pop(definition["name"], None)
            latest[definition["name"]] = head.epoch, definition
        digests = content.get("digests", {})
        for key, receipt in content.get("keys", {}).items():
            home.remember(key, Receipt.from_json(receipt, digests.get(key, "")))
    for epoch, definition in latest.values():
        _define(home, folder, epoch, definition)
    home.epoch, home.committed_at = heads[-1].epoch, heads[-1].committed_at
    outdated = [
        view
        for view in home.catalog.views()
        if view.hidden and latest[view.name][1].get("state") != remembered_state(view)
    ]
    _restore_stores(home, {name for view in outdated for name in view.hidden})
    return [view.definition for view in outdated]


def _restore_stores(home: Headrace, but: Collection[str]) -> None:
    bases: dict[str, tuple[Base, Shape]] = {}
    since: dict[str, int] = {}
    history = home.catalog.history
    for name, present in home.shapes().items():
        if name in but:
            continue
        base = Base(base_path(home.path, name))
        shape = _shape_then(history.at(name, base.epoch), present)
        if base.fits(shape) and home.reset_at.get(name, 0) <= base.epoch <= home.epoch:
            bases[name], since[name] = (base, shape), base.epoch
        else:
            since[name] = max(home.reset_at.get(name, 0) - 1, 0)
            begins = home.ledger.compacted if is_hidden(name) else home.ledger.oldest
            if since[name] < begins and home.reset_at.get(name, 0):
                raise LedgerError(
                    f"the state of {name} cannot be restored",
                    detail=f"Its base is missing, and the log begins after epoch {begins}.",
                    hint="restore the home from a backup",
                )
    entries: dict[str, list[Entry]] = {}
    for entry in home.ledger.entries_after(since) if since else ():
        entries.setdefault(entry.relation, []).append(entry)
    for store in (one for one in home.all_stores() if one.name not in but):
        log = entries.get(store.name, [])
        columns = history.at(store.name, home.epoch)
        later = summed(store.schema, log if columns is None else history.under(log, columns))
        if store.name in bases:
            store.replace(_restored(*bases[store.name], history.at(store.name, since[store.name]), columns))
            store.apply(later)
            home.changed_at[store.name] = since[store.name]
        else:
            store.replace([later])
        if log:
            home.changed_at[store.name] = log[-1].epoch


def _shape_then(columns: Columns | None, present: Shape) -> Shape:
    """What a base that was written under older columns looks like."""
    if columns is None or columns.schema is None or columns.arrow is None:
        return present
    return Shape(tuple(columns.schema.names), columns.arrow, hidden=present.hidden)


def _restored(base: Base, shape: Shape, written: Columns | None, columns: Columns | None) -> Iterator[Delta]:
    for content in base.contents(shape):
        if written is None or columns is None or written.alike(columns):
            yield content
        else:
            yield converted(content.rows, content.weights, written, columns)


def _define(home: Headrace, folder: Path, epoch: int, definition: Mapping[str, Any]) -> None:
    name = definition["name"]
    if definition["kind"] == "table":
        schema = StructType.fromJson(definition["schema"])
        contract = TableContract(name, schema, tuple(definition["key"]), definition["sequence"])
        home.catalog.relations[name] = make_table(contract, definition.get("ids"))
        register(home.catalyst, name, schema)
        return
    view = make_view(
        home.catalyst,
        home.catalog,
        folder,
        ViewDefinition(
            name,
            definition["sql"],
            tuple(definition["columns"]),
            definition["materialized"],
            definition["policy"],
            as_of=definition.get("as_of", epoch),
        ),
    )
    home.catalog.relations[name] = view
    register(home.catalyst, name, view.schema)


def table_definition(table: Table) -> dict[str, Any]:
    """A table as the ledger keeps it."""
    contract = table.contract
    return {
        "kind": "table",
        "name": contract.name,
        "schema": contract.schema.jsonValue(),
        "ids": list(table.ids),
        "key": list(contract.key),
        "sequence": contract.sequence,
    }


def view_definition(view: View) -> dict[str, Any]:
    """A view as the ledger keeps it."""
    definition = view.definition
    return {
        "kind": "view",
        "name": definition.name,
        "sql": definition.sql,
        "columns": list(definition.columns),
        "materialized": definition.materialized,
        "policy": definition.policy,
        "as_of": definition.as_of,
        "schema": view.schema.jsonValue(),
        "state": remembered_state(view),
    }


def remembered_state(view: View) -> dict[str, Any]:
    """What a view's rules remember, so that another release can tell whether it remembers the same."""
    stores = {name: [str(kind) for kind in store.schema.types] for name, store in view.hidden.items()}
    return {"number": STATE, "stores": stores}
