"""Events read back: by aggregate, by type, by position; looked up and never scanned where there is a key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headrace.events.tables import AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, OF_AGGREGATE, OF_EVENT, POSITION
from headrace.state.arrow_types import conform
from headrace.state.delta import Delta
from headrace.state.hashing import Hashes, hash_columns
from headrace.state.state import State

# So many events of an aggregate are read at a time, so that a state of long ago reads few of those after it.
CHUNK = 2_000
# Of more aggregates than these, nobody is told which types there are: it would cost more than it tells.
_FEW = 500_000


@dataclass(frozen=True)
class Wanted:
    """Which events somebody looks for: by names, between two positions, so many at most, in which order."""

    aggregate_type: str | None = None
    aggregate_id: str | None = None
    event_type: str | None = None
    since: int = 0
    before: int | None = None
    limit: int = 1000
    newest_first: bool = False

    @property
    def equal(self) -> dict[int, str]:
        """The names by their columns."""
        named = {AGGREGATE_TYPE: self.aggregate_type, AGGREGATE_ID: self.aggregate_id, EVENT_TYPE: self.event_type}
        return {index: name for index, name in named.items() if name is not None}


def find_events(state: State, schema: StructType, wanted: Wanted, versions: int = 0) -> tuple[pa.Table, bool]:
    """The first events that somebody looks for, and whether others follow; little more of the store is read.

    Those of an aggregate, which has so many versions, are looked up by their versions, all others by their positions.
    """
    low = wanted.since + 1
    # Positions have no holes: the last one is how many there are.
    high = state.count if wanted.before is None else min(state.count, wanted.before - 1)
    equal = wanted.equal
    pieces: list[pa.Table] = []
    found, step = 0, wanted.limit + 1
    kind, name = wanted.aggregate_type, wanted.aggregate_id
    if kind is not None and name is not None:
        low = _first_version(state, kind, name, low - 1, versions)
        high = _first_version(state, kind, name, high, versions) - 1
    while low <= high and found <= wanted.limit:
        first, last = (max(low, high - step + 1), high) if wanted.newest_first else (low, min(high, low + step - 1))
        if kind is not None and name is not None:
            keys = [(kind, name, version) for version in range(first, last + 1)]
            read = state.lookup(OF_EVENT, key_hashes(state, OF_EVENT, keys)).rows
        else:
            read = state.between(POSITION, first, last).rows
        pieces.append(_where(read, equal))
        found += pieces[-1].num_rows
        low, high = (low, first - 1) if wanted.newest_first else (last + 1, high)
        step *= 4
    rows = pa.concat_tables(pieces) if pieces else state.between(POSITION, 0, -1).rows
    ordered = in_order(rows, schema)
    if wanted.newest_first:
        ordered = ordered.take(pa.array(range(ordered.num_rows - 1, -1, -1), pa.int64()))
    return ordered.slice(0, wanted.limit), ordered.num_rows > wanted.limit


def types_there(aggregates: State) -> list[str]:
    """The types of the aggregates of a store; none are told of one that has very many."""
    if aggregates.count > _FEW:
        return []
    held = aggregates.all((0,)).rows
    return sorted(set(held.column(0).to_pylist()))


def _where(rows: pa.Table, equal: dict[int, str]) -> pa.Table:
    for index, value in equal.items():
        rows = rows.filter(pc.call_function("equal", [rows.column(index), pa.scalar(value, rows.column(index).type)]))
    return rows


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
        found = state.lookup(OF_AGGREGATE, key_hashes(state, OF_AGGREGATE, [(aggregate_type, aggregate_id)]))
    elif since > 0 or until is not None:
        found = state.between(POSITION, since + 1, last)
    else:
        found = state.all()
    rows = _where(found.rows, equal)
    if len(equal) == len(OF_AGGREGATE) and (since > 0 or until is not None):
        positions = rows.column(POSITION).to_numpy()
        rows = rows.filter(pa.array((positions > since) & (positions <= last)))
    return in_order(rows, schema)


def _first_version(state: State, aggregate_type: str, aggregate_id: str, since: int, versions: int) -> int:
    """The first version of an aggregate whose event is after a position; versions grow as positions do."""
    low, high = 1, versions + 1
    if since <= 0:
        return low
    while low < high:
        middle = (low + high) // 2
        found = events_by_version(state, aggregate_type, aggregate_id, middle, middle, math.inf, None)
        if next(iter(found))["position"] > since:
            high = middle
        else:
            low = middle + 1
    return low


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
        wanted = key_hashes(state, OF_EVENT, [(aggregate_type, aggregate_id, one) for one in versions])
        found: Delta = state.lookup(OF_EVENT, wanted)
        columns = [python_values(found.rows.column(index)) for index in indexes]
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


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, maps as dicts."""
    return column.to_pylist(maps_as_pydicts="strict") if pa.types.is_map(column.type) else column.to_pylist()


def key_hashes(state: State, key: tuple[int, ...], wanted: Sequence[tuple[Any, ...]]) -> Hashes:
    """What a state is asked by for the rows of some keys."""
    columns = [
        pa.array(values, state.schema.field(index).type)
        for values, index in zip(zip(*wanted, strict=True), key, strict=True)
    ]
    return np.unique(hash_columns(columns, len(wanted)))
