"""The audit log: a view of who changed what and when, from the events of a store and from all that sources captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.catalog.catalog import Catalog, Table, ViewDefinition
from headrace.definitions.adopt import adopt
from headrace.epoch.loop import Loop
from headrace.errors import RelationNameError
from headrace.events.tables import store_table
from headrace.sql.names import quoted, relation_name_fault

# Where an event's metadata may tell who it was, the first that is there.
_WHO = ("user", "user_id", "actor")


def create_audit_log(loop: Loop, store: str, name: str, sources: Sequence[str]) -> None:
    """Make the view, which is kept like any other."""
    fault = relation_name_fault(name)
    if fault:
        raise RelationNameError(f"no view can be called {name[:60]}", detail=f"{fault}.", hint="choose another name")
    core = loop.core
    if name.lower() in core.catalog:
        raise RelationNameError(f"{name} exists already", hint="choose another name, or drop it")
    query = audit_query(core.catalog, store, sources)
    with core.sessions.catalyst.active():
        definition = ViewDefinition(name.lower(), query, materialized=True, as_of=core.epoch + 1)
        loop.define(lambda: adopt(core, views=[definition]))


def audit_query(catalog: Catalog, store: str, sources: Sequence[str]) -> str:
    """The query of an audit log: changed_at, changed_by, what, which, action, before, after, and whence."""
    table = store_table(catalog, store)
    parts = [_of_events(table, table.events or {}), *(_of_source(catalog, one) for one in sources)]
    return "\nUNION ALL\n".join(parts)


def _of_events(table: Table, options: Mapping[str, Any]) -> str:
    if options.get("data") == "map":
        about = [f"metadata['{name}']" for name in (*_WHO, "correlation_id", "causation_id")]
        data = "to_json(event_data)"
    else:
        about = [f"get_json_object(metadata, '$.{name}')" for name in (*_WHO, "correlation_id", "causation_id")]
        data = "event_data"
    who, (correlation, causation) = about[: len(_WHO)], about[len(_WHO) :]
    return (
        f"SELECT created_at AS changed_at, coalesce({', '.join(who)}) AS changed_by, aggregate_type AS what, "
        "aggregate_id AS which, event_type AS action, CAST(NULL AS STRING) AS before, "
        f"{data} AS after, {correlation} AS correlation_id, {causation} AS causation_id, '{table.name}' AS origin, "
        f"event_id, position FROM {quoted(table.name)}"
    )


def _of_source(catalog: Catalog, source: str) -> str:
    raw = f"{source.lower()}_raw"
    if raw not in catalog:
        raise RelationNameError(
            f"nothing is kept of all that source {source} brought",
            hint=f"write ALTER SOURCE {source} SET (raw = TRUE)"
            if source.lower() in catalog.sources
            else "SHOW SOURCES",
        )
    known = catalog.sources.get(source.lower())
    what = known.table if known is not None and known.table else source.lower()
    which = _key_of(catalog.relations.get(what))
    return (
        f"SELECT coalesce(source_at, arrived_at), CAST(NULL AS STRING), '{what}', {which}, operation, before, after, "
        f"CAST(NULL AS STRING), CAST(NULL AS STRING), '{source.lower()}', event_id, CAST(NULL AS BIGINT) "
        f"FROM {quoted(raw)}"
    )


def _key_of(target: object) -> str:
    """The key of a captured row, as its table has one; what stands for the record where nothing tells it."""
    key = target.contract.key if isinstance(target, Table) else ()
    if not key:
        return "event_id"
    values = [f"get_json_object(coalesce(after, before), {_path(name)})" for name in key]
    found = values[0] if len(values) == 1 else f"nullif(concat_ws(',', {', '.join(values)}), '')"
    return f"coalesce({found}, event_id)"


def _path(name: str) -> str:
    escaped = f"$['{name}']".replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
