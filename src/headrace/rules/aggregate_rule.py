"""GROUP BY with partial results.   Δγ(R) = γ(old partials + partials of ΔR) − γ(old partials), for the groups touched

Each group keeps what its aggregates are made of: counts, exact sums, powers, the extreme values and, for DISTINCT and
MIN/MAX, the multiset of values. The partials absorb a change on the driver; Spark's own final expressions turn
partials into results, so that types, overflow and NULLs are Spark's. A group without rows vanishes; a global
aggregate always has one row. State: a row per group, and (group, value, n) where values must be remembered. Cost: the
groups touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.errors import ViewEvaluationError
from headrace.plans.query import Query
from headrace.rules.aggregate_direct import Result
from headrace.rules.aggregate_partials import Buffer, Partial
from headrace.rules.aggregate_values import GrowingValues, ValueStore
from headrace.rules.base import Epoch, Rule
from headrace.rules.remembered import Remembered
from headrace.rules.signed import leaf_table, signed
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty, found_among, gather, number_identities
from headrace.state.hashing import identity, key_hashes
from headrace.state.state import State


@dataclass(frozen=True, eq=False, kw_only=True)
class AggregateRule:
    """Partials per group, which absorb a change on the driver and are finished by one query."""

    types: tuple[DataType, ...]
    view: str
    child: Rule
    width: int
    partials: tuple[Partial, ...]
    buffers: tuple[Buffer, ...]
    values: tuple[ValueStore | GrowingValues, ...]
    state: str
    state_schema: pa.Schema
    remembered: Remembered | None
    query: Query
    direct: tuple[Result, ...] | None

    def delta(self, epoch: Epoch) -> Delta:
        """Results of the touched groups after the change minus those before."""
        change = self.child.delta(epoch)
        if len(change) == 0:
            return empty(arrow_schema(self.types))
        columns = [change.rows.column(i) for i in range(self.width)]
        low, high = identity(columns, len(change))
        firsts, numbers = number_identities(low, high)
        old, found = self._old(epoch, low[firsts], high[firsts])
        keys = [column.take(pa.array(firsts)) for column in columns]
        values = {one.columns: one.absorb(epoch, change, numbers, len(firsts)) for one in self.values}
        try:
            new = [
                partial.absorb(
                    old.column(self.width + i), change, numbers, len(firsts), values, (low[firsts], high[firsts])
                )
                for i, partial in enumerate(self.partials)
            ]
            return self._renew(epoch, old, found, keys, new)
        except OverflowError:
            raise ViewEvaluationError(
                f"a sum in view {self.view} overflows",
                view=self.view,
                detail="The exact sum does not fit into the type of the result.",
                hint="cast the summed column to a wider type, such as DECIMAL(38, 0)",
            ) from None

    def _renew(self, epoch: Epoch, old: pa.Table, found: Any, keys: list[Any], new: list[pa.Array]) -> Delta:
        """Replace the touched groups' partials, and give out what that changes."""
        rows_now = np.asarray(new[0])
        if bool(np.any(rows_now < 0)):
            raise AssertionError(f"a group of {self.state} has a negative count")
        lives = rows_now > 0 if self.width else np.ones(1, dtype=bool)
        table_new = pa.table([*keys, *(pa.chunked_array([n]) for n in new)], schema=self.state_schema)
        return self._emit(epoch, old, found, table_new, lives)

    def _emit(self, epoch: Epoch, old: pa.Table, found: Any, new: pa.Table, lives: Any) -> Delta:
        old_rows = old.filter(pa.array(found))
        new_rows = new.filter(pa.array(lives))
        rows = pa.concat_tables([old_rows, new_rows]).combine_chunks()
        weights = (
            np.concatenate([np.full(old_rows.num_rows, -1, dtype=np.int64), np.ones(new_rows.num_rows, dtype=np.int64)])
            if self.width
            else np.array([-1, 1], dtype=np.int64)
        )
        state = consolidate(rows, weights)
        epoch.record(self.state, state)
        if len(state) == 0:
            return empty(arrow_schema(self.types))
        if self.remembered is not None:
            touched = (
                np.unique(key_hashes(state.rows, tuple(range(self.width)))) if self.width else np.zeros(1, np.uint64)
            )
            return self.remembered.exchange(epoch, touched, self.query.run([self._leaf(_only_new(state))]))
        leaf = self._leaf(state)
        if self.direct is not None:
            columns = [taken(leaf) for taken in self.direct]
            rows = conform(pa.table(columns, names=[f"c{i}" for i in range(len(columns))]), self.types)
            return consolidate(rows, state.weights)
        return signed(self.query.run([leaf]), self.types)

    def _leaf(self, state: Delta) -> pa.Table:
        """Groups and buffers, as the finishing query reads them."""
        groups = [state.rows.column(i) for i in range(self.width)]
        buffers = [buffer(state.rows, self.width) for buffer in self.buffers]
        return leaf_table([*groups, *buffers, pa.array(state.weights)])

    def _old(self, epoch: Epoch, low: Any, high: Any) -> tuple[pa.Table, Any]:
        """The groups' rows before, in the order of the groups, and which of them were there."""
        snapshot: State = epoch.before(self.state)
        count = len(low)
        if self.width == 0:
            return snapshot.all().rows, np.ones(1, dtype=bool)
        known = snapshot.lookup(tuple(range(self.width)), np.unique(low))
        columns = [known.rows.column(i) for i in range(self.width)]
        known_low, known_high = identity(columns, len(known))
        order = np.lexsort((known_high, known_low))
        where, found = found_among(low, high, known_low[order], known_high[order])
        where = order[np.where(found, where, 0)] if len(order) else where
        rows = known.rows.take(pa.array(where, mask=~found))
        assert rows.num_rows == count
        return rows, found


def _only_new(state: Delta) -> Delta:
    return gather(state, np.flatnonzero(state.weights > 0))
