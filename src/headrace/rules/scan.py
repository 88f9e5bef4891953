"""Columns of a table or of another view.   Δ(π R) = π(ΔR)

Choosing columns of a relation needs no query at all, and nothing is remembered.
"""

from __future__ import annotations

from pyspark.sql.types import DataType

from headrace.ir.nodes import Scan
from headrace.rules.base import Epoch, RuleContext, types_of
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, empty, project_and_sum


class ScanRule:
    """Some columns of a relation."""

    def __init__(self, context: RuleContext, node: Scan) -> None:
        self.types: tuple[DataType, ...] = types_of(node)
        self._relation = node.relation
        self._columns = node.columns
        self._schema = arrow_schema(self.types)

    def delta(self, epoch: Epoch) -> Delta:
        """The relation's delta, narrowed."""
        delta = project_and_sum(epoch.delta_of(self._relation), self._columns)
        return delta if len(delta) else empty(self._schema)
