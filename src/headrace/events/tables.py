"""The tables of an event store: its events, and what is kept beside them.

They are tables like any other, changed in the epoch of the events that they are about: so they are right after any
crash, can be queried, followed and read by views, and need no format of their own on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import DataType, LongType, MapType, StringType, StructField, StructType, TimestampType

from headrace.catalog.catalog import Catalog, Table
from headrace.catalog.make import make_table
from headrace.errors import RelationNameError
from headrace.intake.table import TableContract

_TEXT, _NUMBER, _TIME = StringType(), LongType(), TimestampType()

# The columns of a store by their indexes.
EVENT_ID, EVENT_TYPE, AGGREGATE_ID, AGGREGATE_TYPE, EVENT_DATA, METADATA, EVENT_VERSION, CREATED_AT, POSITION = range(9)
OF_AGGREGATE = (AGGREGATE_TYPE, AGGREGATE_ID)
OF_EVENT = (AGGREGATE_TYPE, AGGREGATE_ID, EVENT_VERSION)

# One row an aggregate: how far it is.
AGGREGATES = StructType(
    [
        StructField("aggregate_type", _TEXT, False),
        StructField("aggregate_id", _TEXT, False),
        StructField("version", _NUMBER, False),
        StructField("position", _NUMBER, False),
        StructField("created_at", _TIME, False),
        StructField("updated_at", _TIME, False),
    ]
)
# Schemas of event types, and which of their fields are encrypted.
TYPES = StructType(
    [
        StructField("event_type", _TEXT, False),
        StructField("schema_version", _NUMBER, False),
        StructField("json_schema", _TEXT),
        StructField("encrypted", _TEXT),
        StructField("subject", _TEXT),
        StructField("registered_at", _TIME, False),
    ]
)
# States of aggregates as of some version; whatever is here may go at any time.
SNAPSHOTS = StructType(
    [
        StructField("aggregate_type", _TEXT, False),
        StructField("aggregate_id", _TEXT, False),
        StructField("version", _NUMBER, False),
        StructField("folded_by", _TEXT, False),
        StructField("position", _NUMBER, False),
        StructField("created_at", _TIME, False),
        StructField("state", _TEXT),
        StructField("taken_at", _TIME, False),
    ]
)
# How far those are who follow the store, and with which code; and what they could not take, with the row of an outbox.
SUBSCRIPTIONS = StructType(
    [
        StructField("subscription", _TEXT, False),
        StructField("position", _NUMBER, False),
        StructField("updated_at", _TIME, False),
        StructField("code", _TEXT),
    ]
)
PARKED = StructType(
    [
        StructField("subscription", _TEXT, False),
        StructField("position", _NUMBER, False),
        StructField("event_id", _TEXT, False),
        StructField("reason", _TEXT),
        StructField("attempts", _NUMBER, False),
        StructField("parked_at", _TIME, False),
        StructField("outbox_row", _TEXT),
    ]
)
_BESIDE: Mapping[str, tuple[StructType, tuple[str, ...]]] = {
    "aggregates": (AGGREGATES, ("aggregate_type", "aggregate_id")),
    "types": (TYPES, ("event_type", "schema_version")),
    "snapshots": (SNAPSHOTS, ("aggregate_type", "aggregate_id", "version")),
    "subscriptions": (SUBSCRIPTIONS, ("subscription",)),
    "parked": (PARKED, ("subscription", "event_id")),
}


def beside(store: str, what: str) -> str:
    """The name of a table that is kept beside a store: its aggregates, types, snapshots, subscriptions, parked."""
    return f"{store}_{what}"


def is_beside(store: str, name: str) -> bool:
    """Whether a table is kept beside a store."""
    return any(name == beside(store, what) for what in _BESIDE)


def event_columns(data: str) -> StructType:
    """The columns of a store whose data are kept as JSON text or as a map of such texts."""
    document: DataType = MapType(_TEXT, _TEXT) if data == "map" else _TEXT
    return StructType(
        [
            StructField("event_id", _TEXT, False),
            StructField("event_type", _TEXT, False),
            StructField("aggregate_id", _TEXT, False),
            StructField("aggregate_type", _TEXT, False),
            StructField("event_data", document, False),
            StructField("metadata", document, False),
            StructField("event_version", _NUMBER, False),
            StructField("created_at", _TIME, False),
            StructField("position", _NUMBER, False),
        ]
    )


def store_tables(name: str, options: Mapping[str, Any]) -> list[Table]:
    """The tables of a new store: its events first."""
    contract = TableContract(name, event_columns(options["data"]), ("event_id",))
    kept = [
        make_table(TableContract(beside(name, what), columns, key), system=True, kept_for=name)
        for what, (columns, key) in _BESIDE.items()
    ]
    return [make_table(contract, system=True, events=dict(options)), *kept]


def store_table(catalog: Catalog, name: str) -> Table:
    """The event store of this name."""
    found = catalog.relations.get(name.lower())
    if isinstance(found, Table) and found.events is not None:
        return found
    stores = [one.name for one in catalog.tables() if one.events is not None]
    if found is not None:
        raise RelationNameError(f"{name} is no event store", hint=f"event stores: {', '.join(stores) or 'none yet'}")
    raise RelationNameError(
        f"there is no event store {name}",
        hint=f"event stores: {', '.join(stores)}" if stores else f"write CREATE EVENT STORE {name}",
    )


def default_store(catalog: Catalog) -> str:
    """The store that is meant where none is named: the only one, or events."""
    stores = [one.name for one in catalog.tables() if one.events is not None]
    if len(stores) == 1 or "events" in stores:
        return "events" if "events" in stores else stores[0]
    if not stores:
        raise RelationNameError("there is no event store", hint="write CREATE EVENT STORE events")
    raise RelationNameError("it is not said which event store", hint=f"name one: {', '.join(stores)}")
