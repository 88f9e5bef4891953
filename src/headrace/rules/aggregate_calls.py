"""Aggregate functions of a GROUP BY, and which of them can be kept as exact partial results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    MapType,
    ShortType,
    StructType,
    VariantType,
)

from headrace.ir.nodes import Column, Tree
from headrace.plans.trees import Java, children, data_type, kind_of, may_be_null_for_size, walk
from headrace.rules.base import is_floating
from headrace.types import INTEGERS, ORDERED

MOMENTS = frozenset({"VariancePop", "VarianceSamp", "StddevPop", "StddevSamp"})
PAIRS = frozenset({"CovPopulation", "CovSample", "Corr"})


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate function: what it is called, and the columns of the node below that it takes.

    The buffers are the columns that Spark's own final expression of it reads.
    """

    tree: Tree
    name: str
    shown: str
    distinct: bool
    inputs: tuple[int, ...]
    type: DataType
    buffers: tuple[Column, ...]

    @property
    def is_inexact(self) -> bool:
        """Whether its result is a floating-point number that Spark's own fill may round otherwise."""
        return self.name in ("Average", *MOMENTS, *PAIRS) and is_floating(self.type)


def calls_in(results: Sequence[Java]) -> list[Java]:
    """The aggregate functions in some expressions, each once."""
    found: list[Java] = []
    for result in results:
        for part in walk(result):
            if kind_of(part) == "AggregateExpression" and not any(part.semanticEquals(one) for one in found):
                found.append(part)
    return found


def has_partials(call: Java) -> bool:
    """Whether an aggregate is made of partial results that can be kept exactly."""
    function = call.aggregateFunction()
    name = kind_of(function)
    inputs = children(function)
    types = [data_type(one.dataType()) for one in inputs]
    if any(isinstance(kind, (MapType, VariantType)) for kind in types):
        return False
    if name == "Count":
        return True
    if name in ("Sum", "Average"):
        return isinstance(types[0], (*INTEGERS, DecimalType)) and not may_be_null_for_size(function)
    if name in ("Min", "Max"):
        return _comparable(types[0])
    if name in MOMENTS and not call.isDistinct():
        return exact_input(inputs[0]) is not None
    if name in PAIRS and not call.isDistinct():
        return all(exact_input(one) is not None for one in inputs)
    return False


def exact_input(expression: Java) -> Java | None:
    """The integer or decimal behind a cast to DOUBLE, whose powers can be summed exactly."""
    if kind_of(expression) != "Cast" or not isinstance(data_type(expression.dataType()), DoubleType):
        return None
    (inner,) = children(expression)
    kind = data_type(inner.dataType())
    if isinstance(kind, (ByteType, ShortType, IntegerType)) or (isinstance(kind, DecimalType) and kind.precision <= 12):
        return inner
    return None


def _comparable(kind: DataType) -> bool:
    """Whether the driver knows Spark's order of a type's values."""
    if isinstance(kind, StructType):
        names = {name.lower() for name in kind.names}
        return 0 < len(names) == len(kind.names) and all(_comparable(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _comparable(kind.elementType)
    return isinstance(kind, ORDERED)
