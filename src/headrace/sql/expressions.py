"""What lowering asks of expressions: which column one is, what orders by it, and what can be summed exactly."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from headrace.ir.nodes import MOMENTS, PAIRS
from headrace.plans.trees import Java, children, data_type, kind_of, may_be_null_for_size, references, walk

INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_ORDERED = (*INTEGERS, DecimalType, DoubleType, FloatType, DateType, TimestampType, TimestampNTZType)


def equal_pair(part: Java, left_ids: set[int], right_ids: set[int]) -> tuple[Java, Java] | None:
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
        return expression if isinstance(data_type(expression.dataType()), _ORDERED) else None
    if kind_of(expression) == "Cast":
        (inner,) = children(expression)
        source, target = data_type(inner.dataType()), data_type(expression.dataType())
        if _keeps_order(source, target):
            return ordered_column(inner)
    return None


def aggregate_calls(results: Sequence[Java]) -> list[Java]:
    found: list[Java] = []
    for result in results:
        for part in walk(result):
            if kind_of(part) == "AggregateExpression" and not any(part.semanticEquals(f) for f in found):
                found.append(part)
    return found


def exact_input(expression: Java) -> Java | None:
    """The integer or decimal behind a cast to DOUBLE, whose powers can be summed exactly."""
    if kind_of(expression) != "Cast" or not isinstance(data_type(expression.dataType()), DoubleType):
        return None
    (inner,) = children(expression)
    kind = data_type(inner.dataType())
    if isinstance(kind, (ByteType, ShortType, IntegerType)) or (isinstance(kind, DecimalType) and kind.precision <= 12):
        return inner
    return None


def _exact(kind: DataType) -> bool:
    return isinstance(kind, (*INTEGERS, DecimalType))


def _comparable(kind: DataType) -> bool:
    """Whether the driver knows Spark's order of a type's values."""
    if isinstance(kind, StructType):
        names = {name.lower() for name in kind.names}
        return 0 < len(names) == len(kind.names) and all(_comparable(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _comparable(kind.elementType)
    return kind.typeName() in (
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "decimal",
        "date",
        "timestamp",
        "timestamp_ntz",
        "string",
        "boolean",
        "binary",
    )


def has_partials(call: Java) -> bool:
    function = call.aggregateFunction()
    name = kind_of(function)
    inputs = children(function)
    types = [data_type(c.dataType()) for c in inputs]
    if any(isinstance(kind, (MapType, VariantType)) for kind in types):
        return False
    if name == "Count":
        return True
    if name in ("Sum", "Average"):
        return _exact(types[0]) and not may_be_null_for_size(function)
    if name in ("Min", "Max"):
        return _comparable(types[0])
    if name in MOMENTS and not call.isDistinct():
        return exact_input(inputs[0]) is not None
    if name in PAIRS and not call.isDistinct():
        return all(exact_input(c) is not None for c in inputs)
    return False
