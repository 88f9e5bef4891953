"""Reopening a home: definitions and deltas are read from the ledger in order; no view is computed again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headrace.engine.catalog import ViewDefinition
from headrace.engine.define import make_table, make_view
from headrace.engine.receipt import Receipt
from headrace.intake.table import TableContract
from headrace.ledger.ledger import Entry, summed
from headrace.sql.resolve import register
from headrace.state.store import Store

if TYPE_CHECKING:
    from headrace.home import Headrace


def recover(home: Headrace, folder: Path) -> None:
    """Bring a home to the newest epoch of its ledger."""
    heads = home.ledger.heads()
    if not heads:
        return
    since: dict[str, int] = {}
    for head in heads:
        content = head.content
        for name in content.get("reset", ()):
            since[name] = head.epoch
        for name in content.get("drop", ()):
            home.catalog.relations.pop(name, None)
        for definition in content.get("define", ()):
            _define(home, folder, definition)
        for key, receipt in content.get("keys", {}).items():
            home.remember(key, Receipt.from_json(receipt))
    home.epoch, home.committed_at = heads[-1].epoch, heads[-1].committed_at
    entries: dict[str, list[Entry]] = {}
    for entry in home.ledger.entries():
        if entry.epoch >= since.get(entry.relation, 0):
            entries.setdefault(entry.relation, []).append(entry)
    for store in [home.clock, *home.catalog.stores()]:
        store.replace(summed(store.schema, entries.get(store.name, [])))


def _define(home: Headrace, folder: Path, definition: Mapping[str, Any]) -> None:
    name = definition["name"]
    if definition["kind"] == "table":
        schema = StructType.fromJson(definition["schema"])
        contract = TableContract(name, schema, tuple(definition["key"]), definition["sequence"])
        home.catalog.relations[name] = make_table(home.catalyst, contract)
        return
    home.catalog.relations.pop(name, None)
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


__all__ = ["Store", "recover", "table_definition", "view_definition"]
