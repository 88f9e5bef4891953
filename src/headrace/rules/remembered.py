"""The output of operators whose floating-point results depend on the order of their input.

Computed again, such a result may differ in its last bits. So what was given out is remembered by key, and what is
taken back is what was remembered, never a recomputation.   Δ = f(R'|k) − remembered|k
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import Column, Node
from headrace.plans.trees import Java
from headrace.rules.base import Epoch
from headrace.rules.context import RuleContext
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, concat, consolidate, empty, negate, project_and_sum
from headrace.state.hashing import Hashes
from headrace.state.state import State


@dataclass(frozen=True, eq=False)
class Remembered:
    """An operator's output with its key columns last."""

    store: str
    types: tuple[DataType, ...]
    width: int

    @property
    def _key(self) -> tuple[int, ...]:
        return tuple(range(self.width, len(self.types)))

    def exchange(self, epoch: Epoch, wanted: Hashes, computed: pa.Table) -> Delta:
        """Replace what was remembered of the wanted keys by what was computed; the difference of the outputs."""
        before = self.before(epoch)
        return self.replace(epoch, before.lookup(self._key, wanted) if self._key else before.all(), computed)

    def before(self, epoch: Epoch) -> State:
        """What is remembered before this epoch."""
        return epoch.before(self.store)

    def replace(self, epoch: Epoch, old: Delta, computed: pa.Table) -> Delta:
        """Replace some remembered rows by what was computed; the difference of the outputs."""
        rows = conform(computed, self.types)
        new = consolidate(rows, np.ones(rows.num_rows, dtype=np.int64))
        delta = concat(rows.schema, [new, negate(old)])
        epoch.record(self.store, delta)
        if len(delta) == 0:
            return empty(arrow_schema(self.types[: self.width]))
        return project_and_sum(delta, range(self.width))


def remember(context: RuleContext, node: Node, keys: Sequence[Column], plan: Java) -> Remembered:
    """Remember what an operator gives out; the plan computes it, its key columns last."""
    types = (*node.types, *(key.type for key in keys))
    store = context.store(types, plan, stands_for=context.java(node.plan))
    return Remembered(store.name, types, len(node.output))
