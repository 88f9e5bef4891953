"""Reopening a home: definitions come from the ledger, state from the bases and the log after them; no view is computed
again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql.types import StructType

from headrace.catalog.catalog import Catalog, Table, View, ViewDefinition
from headrace.catalog.columns import Columns, converted
from headrace.catalog.make import make_table
from headrace.epoch.core import Core
from headrace.epoch.present import Present, receipts_of
from headrace.epoch.receipt import Receipt
from headrace.errors import LedgerError, RelationNameError, UnsupportedStatement, ViewError
from headrace.intake.table import TableContract
from headrace.ledger.base import Base, BaseSchema
from headrace.ledger.ledger import Entry, summed
from headrace.ledger.names import is_hidden
from headrace.sql.flows import flow_of
from headrace.sql.resolve import register
from headrace.state.delta import Delta
from headrace.state.store import Store
from headrace.upkeep.fold import base_path, base_schemas_of

# What rules remember in hidden stores, by number: raised when a release remembers otherwise in the same columns.
STATE = 3


@dataclass(frozen=True, eq=False)
class Recovered:
    """A home at the newest epoch of its ledger, and the views whose hidden state another release has shaped.

    Those hold the right rows, but cannot follow a change until they are filled anew.
    """

    present: Present = field(default_factory=Present)
    receipts: Mapping[str, Receipt] = field(default_factory=dict[str, Receipt])
    outdated: Sequence[ViewDefinition] = ()


def recover(core: Core, made: Catalog | None = None) -> Recovered:
    """What a home is at the newest epoch of its ledger; views that were made already are taken from `made`."""
    heads = core.ledger.heads()
    if not heads:
        return Recovered()
    catalog = Catalog()
    reset_at: dict[str, int] = {}
    receipts: dict[str, Receipt] = {}
    latest: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for head in heads:
        content = head.content
        catalog = catalog.recorded(head.epoch, content)
        reset_at.update(dict.fromkeys(content.get("reset", ()), head.epoch))
        for name in content.get("drop", ()):
            latest.pop(name, None)
        for definition in content.get("define", ()):
            # Those that read a replaced view were made again after it; those that read an altered table were not.
            if definition["kind"] == "view":
                latest.pop(definition["name"], None)
            latest[definition["name"]] = head.epoch, definition
        receipts.update(receipts_of(content))
    for epoch, definition in latest.values():
        if made is not None and definition["kind"] == "view":
            catalog = catalog.having(_emptied(made.view(definition["name"])))
            continue
        relation = _defined(core, catalog, epoch, definition)
        catalog = catalog.having(relation)
        register(core.sessions.catalyst, relation.name, relation.schema)
    outdated = [
        view for view in catalog.views() if view.hidden and latest[view.name][1].get("state") != remembered_state(view)
    ]
    stores = {core.clock.name: core.clock, **{store.name: store for store in catalog.stores()}}
    reset_at = {name: at for name, at in reset_at.items() if name in stores}
    present = Present(heads[-1].epoch, heads[-1].committed_at, catalog, {}, reset_at)
    whole = {name: store for name, store in stores.items() if not any(name in view.hidden for view in outdated)}
    present = replace(present, changed_at=_restore_stores(core, present, whole))
    return Recovered(present, receipts, [view.definition for view in outdated])


def _emptied(view: View) -> View:
    """A view with the rule that it has, over stores without a row: who reads those that it had goes on to."""
    hidden = {name: Store(name, store.schema) for name, store in view.hidden.items()}
    return replace(view, store=Store(view.store.name, view.store.schema), hidden=hidden)


def _restore_stores(core: Core, present: Present, stores: Mapping[str, Store]) -> dict[str, int]:
    """Bring stores to the newest epoch, from their bases and the log after them; when each last changed."""
    bases: dict[str, tuple[Base, BaseSchema]] = {}
    since: dict[str, int] = {}
    changed_at: dict[str, int] = {}
    history, reset_at = present.catalog.history, present.reset_at
    for name, present_schema in base_schemas_of(stores.values(), present.catalog).items():
        base = Base(base_path(core.path, name))
        base_schema = _base_schema_then(history.at(name, base.epoch), present_schema)
        if base.fits(base_schema) and reset_at.get(name, 0) <= base.epoch <= present.epoch:
            bases[name], since[name] = (base, base_schema), base.epoch
        else:
            since[name] = max(reset_at.get(name, 0) - 1, 0)
            begins = core.ledger.compacted if is_hidden(name) else core.ledger.oldest
            if since[name] < begins and reset_at.get(name, 0):
                raise LedgerError(
                    f"the state of {name} cannot be restored",
                    detail=f"Its base is missing, and the log begins after epoch {begins}.",
                    hint="restore the home from a backup",
                )
    entries: dict[str, list[Entry]] = {}
    for entry in core.ledger.entries_after(since) if since else ():
        entries.setdefault(entry.relation, []).append(entry)
    for store in stores.values():
        log = entries.get(store.name, [])
        columns = history.at(store.name, present.epoch)
        later = summed(store.schema, log if columns is None else history.under(log, columns))
        if store.name in bases:
            store.replace(_restored(*bases[store.name], history.at(store.name, since[store.name]), columns))
            store.apply(later)
            changed_at[store.name] = since[store.name]
        else:
            store.replace([later])
        if log:
            changed_at[store.name] = log[-1].epoch
    return changed_at


def _base_schema_then(columns: Columns | None, present: BaseSchema) -> BaseSchema:
    """What a base that was written under older columns looks like."""
    if columns is None or columns.schema is None or columns.arrow is None:
        return present
    return BaseSchema(tuple(columns.schema.names), columns.arrow, hidden=present.hidden, partition=present.partition)


def _restored(base: Base, base_schema: BaseSchema, written: Columns | None, columns: Columns | None) -> Iterator[Delta]:
    for content in base.contents(base_schema):
        if written is None or columns is None or written.alike(columns):
            yield content
        else:
            yield converted(content.rows, content.weights, written, columns)


def _defined(core: Core, catalog: Catalog, epoch: int, definition: Mapping[str, Any]) -> Table | View:
    """A relation as the ledger defines it, over those that the catalog has."""
    name = definition["name"]
    if definition["kind"] == "table":
        schema = StructType.fromJson(definition["schema"])
        contract = TableContract(name, schema, tuple(definition["key"]), definition["sequence"])
        return make_table(
            contract,
            definition.get("ids"),
            system=definition.get("system", False),
            events=definition.get("events"),
            kept_for=definition.get("kept_for", ""),
        )
    written = ViewDefinition(
        name,
        definition["sql"],
        tuple(definition["columns"]),
        definition["materialized"],
        definition["policy"],
        as_of=definition.get("as_of", epoch),
        flow=None if definition.get("flow") is None else flow_of(definition["flow"]),
    )
    try:
        return core.make_view(written, catalog)
    except (RelationNameError, UnsupportedStatement) as error:
        # An older release took it. To open the home without it would be to drop it unasked.
        raise ViewError(
            f"view {name} uses what SQL may no longer do, so the home cannot be opened",
            detail=f"{error.message}. {error.detail}".rstrip(),
            hint=f"open the home with the release that made the view, drop {name}, and open it here again",
        ) from None


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
        **({"system": True} if table.system else {}),
        **({} if table.events is None else {"events": dict(table.events)}),
        **({"kept_for": table.kept_for} if table.kept_for else {}),
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
        **({} if definition.flow is None else {"flow": asdict(definition.flow)}),
    }


def remembered_state(view: View) -> dict[str, Any]:
    """What a view's rules remember, so that another release can tell whether it remembers the same."""
    stores = {name: [str(kind) for kind in store.schema.types] for name, store in view.hidden.items()}
    return {"number": STATE, "stores": stores}
