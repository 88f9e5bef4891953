"""Which types a column may be widened to: those that hold every value it can have, as in Delta's type widening."""

from __future__ import annotations

from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
)

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_INTEGER_DIGITS = 10
_LONG_DIGITS = 20


def is_wider(old: DataType, new: DataType) -> bool:
    """Whether every value of the old type is one of the new type, and the types differ."""
    if isinstance(old, DecimalType):
        return (
            isinstance(new, DecimalType)
            and new != old
            and new.scale >= old.scale
            and new.precision - new.scale >= old.precision - old.scale
        )
    if isinstance(old, _WHOLE):
        if isinstance(new, _WHOLE):
            return _WHOLE.index(type(new)) > _WHOLE.index(type(old))
        if isinstance(new, DecimalType):
            digits = _LONG_DIGITS if isinstance(old, LongType) else _INTEGER_DIGITS
            return new.precision - new.scale >= digits
        return isinstance(new, DoubleType) and not isinstance(old, LongType)
    if isinstance(old, FloatType):
        return isinstance(new, DoubleType)
    return isinstance(old, DateType) and isinstance(new, TimestampNTZType)


def wider_types(old: DataType) -> str:
    """The types that a column may be widened to, in words; nothing where there is none."""
    if isinstance(old, DecimalType):
        return "a DECIMAL with as many digits before and after the point, or more"
    if isinstance(old, LongType):
        return f"DECIMAL({_LONG_DIGITS}, 0) or larger"
    if isinstance(old, _WHOLE):
        names = ["SMALLINT", "INT", "BIGINT"][_WHOLE.index(type(old)) :]
        return f"{', '.join(names)}, DOUBLE, or DECIMAL({_INTEGER_DIGITS}, 0) or larger"
    if isinstance(old, FloatType):
        return "DOUBLE"
    return "TIMESTAMP_NTZ" if isinstance(old, DateType) else ""
