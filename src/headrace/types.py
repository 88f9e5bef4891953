"""The types that a column of a relation may have, and what is known of each.

To carry another type is to give it a row here: tests/unit/test_types.py then names every file that does not know it
yet. Why others are not carried is told in decision 0010.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)


@dataclass(frozen=True)
class CarriedType:
    """One of Spark's types.

    The name in Delta is that of a type without parameters or parts. The values of one that is ordered can be brought
    into Spark's order by the driver, for MIN and MAX and to cut the partitions of a window; those of a numbered one can
    be looked up by ranges of numbers, too.
    """

    kind: type[DataType]
    delta: str = ""
    ordered: bool = False
    numbered: bool = False


CARRIED = (
    CarriedType(ByteType, "byte", ordered=True, numbered=True),
    CarriedType(ShortType, "short", ordered=True, numbered=True),
    CarriedType(IntegerType, "integer", ordered=True, numbered=True),
    CarriedType(LongType, "long", ordered=True, numbered=True),
    CarriedType(FloatType, "float", ordered=True, numbered=True),
    CarriedType(DoubleType, "double", ordered=True, numbered=True),
    CarriedType(DecimalType, ordered=True, numbered=True),
    CarriedType(BooleanType, "boolean", ordered=True),
    CarriedType(StringType, "string", ordered=True),
    CarriedType(BinaryType, "binary", ordered=True),
    CarriedType(DateType, "date", ordered=True, numbered=True),
    CarriedType(TimestampType, "timestamp", ordered=True, numbered=True),
    CarriedType(TimestampNTZType, "timestamp_ntz", ordered=True, numbered=True),
    CarriedType(TimeType),
    CarriedType(DayTimeIntervalType),
    CarriedType(NullType),
    CarriedType(ArrayType),
    CarriedType(MapType),
    CarriedType(StructType),
)

KINDS = tuple(one.kind for one in CARRIED)
ORDERED = tuple(one.kind for one in CARRIED if one.ordered)
NUMBERED = tuple(one.kind for one in CARRIED if one.numbered)
INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def not_carried(kind: DataType) -> DataType | None:
    """The part of a type, or all of it, that no relation carries; strings are carried if they go by their bytes."""
    if not isinstance(kind, KINDS) or (isinstance(kind, StringType) and kind.simpleString() != "string"):
        return kind
    parts: list[DataType] = []
    if isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    return next((found for part in parts if (found := not_carried(part)) is not None), None)
