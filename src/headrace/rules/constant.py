"""VALUES, and SELECT without FROM.   Δc = 0"""

from __future__ import annotations

from pyspark.sql.types import DataType

from headrace.rules.base import Epoch, RuleContext
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, empty


class ConstantRule:
    """Rows that never change; a view's first fill brings them."""

    def __init__(self, context: RuleContext, types: tuple[DataType, ...]) -> None:
        self.types = types

    def delta(self, epoch: Epoch) -> Delta:
        """Nothing, ever."""
        return empty(arrow_schema(self.types))
