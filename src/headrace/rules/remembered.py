"""The output of operators whose floating-point results depend on the order of their input.

Computed again, such a result may differ in its last bits. So what was given out is remembered by key, and what is
taken back is what was remembered, never a recomputation.   Δ = f(R'|k) − remembered|k
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.plans.trees import Java
from headrace.rules.base import Epoch, RuleContext
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, combine, consolidate, project_and_sum
from headrace.state.hashing import Hashes
from headrace.state.state import State


class Remembered:
    """An operator's output with its key columns last."""

    def __init__(
        self,
        context: RuleContext,
        outputs: Sequence[DataType],
        keys: Sequence[DataType],
        plan: Java,
        stands_for: Java,
    ) -> None:
        self.types = (*outputs, *keys)
        self._width = len(outputs)
        self._key = tuple(range(self._width, len(self.types)))
        self._store = context.store(self.types, plan, stands_for=stands_for)

    def exchange(self, epoch: Epoch, wanted: Hashes, computed: pa.Table) -> Delta:
        """Replace what was remembered of the wanted keys by what was computed; the difference of the outputs."""
        before = self.before(epoch)
        return self.replace(epoch, before.lookup(self._key, wanted) if self._key else before.all(), computed)

    def before(self, epoch: Epoch) -> State:
        """What is remembered before this epoch."""
        return epoch.before(self._store.name)

    def replace(self, epoch: Epoch, old: Delta, computed: pa.Table) -> Delta:
        """Replace some remembered rows by what was computed; the difference of the outputs."""
        rows = conform(computed, self.types)
        new = consolidate(rows, np.ones(rows.num_rows, dtype=np.int64))
        delta = (
            combine(
                pa.concat_tables([new.rows, old.rows]).combine_chunks(),
                np.concatenate([new.weights, -old.weights]),
                np.concatenate([new.low, old.low]),
                np.concatenate([new.high, old.high]),
            )
            if len(old)
            else new
        )
        epoch.record(self._store.name, delta)
        return project_and_sum(delta, range(self._width)) if len(delta) else _none(self.types[: self._width])


def _none(types: Sequence[DataType]) -> Delta:
    return consolidate(arrow_schema(types).empty_table(), np.zeros(0, dtype=np.int64))
