"""UNION ALL.   Δ(R ⊎ S) = ΔR ⊎ ΔS"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import UnionAll
from headrace.rules.base import Epoch, Rule, RuleContext, types_of
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty


class UnionRule:
    """The sum of several operators' deltas."""

    def __init__(self, context: RuleContext, node: UnionAll, inputs: Sequence[Rule]) -> None:
        self.types: tuple[DataType, ...] = types_of(node)
        self._inputs = list(inputs)

    def delta(self, epoch: Epoch) -> Delta:
        """All deltas together, net."""
        parts = [delta for one in self._inputs if len(delta := one.delta(epoch))]
        if not parts:
            return empty(arrow_schema(self.types))
        rows = pa.concat_tables([conform(part.rows, self.types) for part in parts]).combine_chunks()
        return consolidate(rows, np.concatenate([part.weights for part in parts]))
