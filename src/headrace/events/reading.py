"""Events read back: by aggregate, by type, by position; looked up and never scanned where there is a key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headrace.events.tables import AGGREGATE_ID, AGGREGATE_TYPE, OF_AGGREGATE, OF_EVENT, POSITION
from headrace.state.arrow_types import conform
from headrace.state.delta import Delta
from headrace.state.hashing import Hashes, hash_columns
from headrace.state.state import State

# So many events of an aggregate are read at a time, so that a state of long ago reads few of those after it.
CHUNK = 2_000


def read_events(
    state: State,
    schema: StructType,
    aggregate_type: str | None,
    aggregate_id: str | None,
    since: int,
    until: int | None,
) -> pa.Table:
    """Events after one position, up to and including another, in the order of their positions."""
    last = math.inf if until is None else until
    equal: dict[int, str] = {}
    if aggregate_type is not None:
        equal[AGGREGATE_TYPE] = aggregate_type
    if aggregate_id is not None:
        equal[AGGREGATE_ID] = aggregate_id
    if len(equal) == len(OF_AGGREGATE):
        found = state.lookup(OF_AGGREGATE, _hashes(state, OF_AGGREGATE, [(aggregate_type, aggregate_id)]))
    elif since > 0 or until is not None:
        found = state.between(POSITION, since + 1, last)
    else:
        found = state.all()
    rows = found.rows
    for index, value in equal.items():
        rows = rows.filter(pc.call_function("equal", [rows.column(index), pa.scalar(value, rows.column(index).type)]))
    if len(equal) == len(OF_AGGREGATE) and (since > 0 or until is not None):
        positions = rows.column(POSITION).to_numpy()
        rows = rows.filter(pa.array((positions > since) & (positions <= last)))
    return in_order(rows, schema)


def in_order(rows: pa.Table, schema: StructType) -> pa.Table:
    """Rows of a store under the names of its columns, in the order of their positions."""
    order = np.argsort(rows.column(POSITION).to_numpy(), kind="stable")
    ordered = rows.take(pa.array(order)).combine_chunks()
    return conform(ordered, [field.dataType for field in schema.fields]).rename_columns(schema.names)


def events_by_version(
    state: State,
    aggregate_type: str,
    aggregate_id: str,
    first: int,
    last: int,
    most_position: float,
    latest: datetime | None,
) -> Iterator[dict[str, Any]]:
    """The events of an aggregate from one version to another, but none after a position or a time."""
    names: list[str] = ["event_type", "event_data", "metadata", "event_version", "created_at", "position"]
    indexes = (1, 4, 5, 6, 7, 8)
    for begin in range(first, last + 1, CHUNK):
        versions = range(begin, min(begin + CHUNK, last + 1))
        wanted = _hashes(state, OF_EVENT, [(aggregate_type, aggregate_id, one) for one in versions])
        found: Delta = state.lookup(OF_EVENT, wanted)
        columns = [_values(found.rows.column(index)) for index in indexes]
        keys = [found.rows.column(index).to_pylist() for index in OF_AGGREGATE]
        rows = [
            dict(zip(names, values, strict=True))
            for kind, name, *values in zip(*keys, *columns, strict=True)
            if kind == aggregate_type and name == aggregate_id
        ]
        for row in sorted(rows, key=lambda one: one["event_version"]):
            if row["position"] > most_position or (latest is not None and row["created_at"] > latest):
                return
            yield row


def _values(column: pa.ChunkedArray) -> list[Any]:
    return column.to_pylist(maps_as_pydicts="strict") if pa.types.is_map(column.type) else column.to_pylist()


def _hashes(state: State, key: tuple[int, ...], wanted: Sequence[tuple[Any, ...]]) -> Hashes:
    columns = [
        pa.array(values, state.schema.field(index).type)
        for values, index in zip(zip(*wanted, strict=True), key, strict=True)
    ]
    return np.unique(hash_columns(columns, len(wanted)))
