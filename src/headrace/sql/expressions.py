"""What is asked of expressions: what they make equal, which column one is, and which column one orders by."""

from __future__ import annotations

from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    TimestampNTZType,
    TimestampType,
)

from headrace.plans.trees import Java, children, data_type, kind_of, references
from headrace.types import INTEGERS, NUMBERED


def equal_pair(part: Java, left_ids: set[int], right_ids: set[int]) -> tuple[Java, Java] | None:
    """The expressions of two sides that a condition makes equal, the left one first."""
    if kind_of(part) not in ("EqualTo", "EqualNullSafe"):
        return None
    a, b = children(part)
    ids_a, ids_b = references(a), references(b)
    if not ids_a or not ids_b:
        return None
    if ids_a <= left_ids and ids_b <= right_ids:
        return a, b
    if ids_a <= right_ids and ids_b <= left_ids:
        return b, a
    return None


def plain_column(expression: Java) -> Java | None:
    """The column that an expression is, looking through casts between integer types (they hash alike)."""
    if kind_of(expression) == "AttributeReference":
        return expression
    if kind_of(expression) == "Cast":
        (inner,) = children(expression)
        if isinstance(data_type(expression.dataType()), INTEGERS) and isinstance(data_type(inner.dataType()), INTEGERS):
            return plain_column(inner)
    return None


def _keeps_order(source: DataType, target: DataType) -> bool:
    """Whether a cast loses nothing that a comparison could see."""
    if isinstance(source, INTEGERS):
        return isinstance(target, (*INTEGERS, DecimalType, DoubleType))
    if isinstance(source, DecimalType):
        return isinstance(target, DoubleType) or (isinstance(target, DecimalType) and target.scale >= source.scale)
    if isinstance(source, FloatType):
        return isinstance(target, DoubleType)
    times = (TimestampType, TimestampNTZType)
    return isinstance(source, (DateType, *times)) and isinstance(target, times)


def ordered_column(expression: Java) -> Java | None:
    """The column that an expression orders by, looking through casts that keep the order."""
    if kind_of(expression) == "AttributeReference":
        return expression if isinstance(data_type(expression.dataType()), NUMBERED) else None
    if kind_of(expression) == "Cast":
        (inner,) = children(expression)
        source, target = data_type(inner.dataType()), data_type(expression.dataType())
        if _keeps_order(source, target):
            return ordered_column(inner)
    return None
