"""Reopening a home: definitions come from the ledger, state from the bases and the log after them; no view is computed
again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headrace.engine.catalog import ViewDefinition
from headrace.engine.define import make_table, make_view
from headrace.engine.fold import base_path
from headrace.engine.receipt import Receipt
from headrace.errors import LedgerError
from headrace.intake.table import TableContract
from headrace.ledger.base import Base
from headrace.ledger.ledger import Entry, is_hidden, summed
from headrace.sql.resolve import register

if TYPE_CHECKING:
    from headrace.home import Headrace


def recover(home: Headrace, folder: Path) -> None:
    """Bring a home to the newest epoch of its ledger."""
    heads = home.ledger.heads()
    if not heads:
        return
    latest: dict[str, Mapping[str, Any]] = {}
    for head in heads:
        content = head.content
        for name in content.get("reset", ()):
            home.reset_at[name] = head.epoch
        for name in content.get("drop", ()):
            latest.pop(name, None)
        for definition in content.get("define", ()):
            # Those that read a replaced view were made again after it; those that read an altered table were not.
            if definition["kind"] == "view":
                latest.pop(definition["name"], None)
            latest[definition["name"]] = definition
        for key, receipt in content.get("keys", {}).items():
            home.remember(key, Receipt.from_json(receipt))
    for definition in latest.values():
        _define(home, folder, definition)
    home.epoch, home.committed_at = heads[-1].epoch, heads[-1].committed_at
    _restore_stores(home)


def _restore_stores(home: Headrace) -> None:
    bases: dict[str, Base] = {}
    since: dict[str, int] = {}
    for name, shape in home.shapes().items():
        base = Base(base_path(home.path, name))
        if base.fits(shape) and home.reset_at.get(name, 0) <= base.epoch <= home.epoch:
            bases[name], since[name] = base, base.epoch
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
    for entry in home.ledger.entries(since=min(since.values(), default=0)):
        if entry.epoch > since.get(entry.relation, home.epoch):
            entries.setdefault(entry.relation, []).append(entry)
    shapes = home.shapes()
    for store in home.all_stores():
        if store.name in bases:
            store.replace(bases[store.name].contents(shapes[store.name]))
            store.apply(summed(store.schema, entries.get(store.name, [])))
            home.changed_at[store.name] = since[store.name]
        else:
            store.replace([summed(store.schema, entries.get(store.name, []))])
        if store.name in entries:
            home.changed_at[store.name] = entries[store.name][-1].epoch


def _define(home: Headrace, folder: Path, definition: Mapping[str, Any]) -> None:
    name = definition["name"]
    if definition["kind"] == "table":
        schema = StructType.fromJson(definition["schema"])
        contract = TableContract(name, schema, tuple(definition["key"]), definition["sequence"])
        home.catalog.relations[name] = make_table(home.catalyst, contract)
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
        ),
    )
    home.catalog.relations[name] = view
    register(home.catalyst, name, view.schema)


def table_definition(contract: TableContract) -> dict[str, Any]:
    """A table as the ledger keeps it."""
    return {
        "kind": "table",
        "name": contract.name,
        "schema": contract.schema.jsonValue(),
        "key": list(contract.key),
        "sequence": contract.sequence,
    }


def view_definition(definition: ViewDefinition) -> dict[str, Any]:
    """A view as the ledger keeps it."""
    return {
        "kind": "view",
        "name": definition.name,
        "sql": definition.sql,
        "columns": list(definition.columns),
        "materialized": definition.materialized,
        "policy": definition.policy,
    }
