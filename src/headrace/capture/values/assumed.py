"""How values are written where nothing says so: by the type of the table's column and the options."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.capture.options import BinaryMode, DecimalMode, TimePrecision
from headrace.capture.values.encoding import PLAIN, Encoding, Kind

_UNKNOWN = Encoding(Kind.UNIT_UNKNOWN)
_BINARIES: dict[BinaryMode, Kind] = {
    "bytes": Kind.BYTES,
    "base64": Kind.BYTES,
    "base64-url-safe": Kind.BASE64_URL,
    "hex": Kind.HEX,
}
# What a number in a column of timestamps counts; adaptive modes leave it to the source.
_TIMESTAMPS: dict[TimePrecision, Kind] = {
    "connect": Kind.LOCAL_MILLIS,
    "microseconds": Kind.LOCAL_MICROS,
    "nanoseconds": Kind.LOCAL_NANOS,
    "isostring": Kind.ISO_LOCAL,
    "structured": Kind.FIELDS_LOCAL,
}
_TIMES: dict[TimePrecision, Kind] = {
    "connect": Kind.TIME_MILLIS,
    "microseconds": Kind.TIME_MICROS,
    "nanoseconds": Kind.TIME_NANOS,
    "isostring": Kind.ISO_TIME,
    "structured": Kind.FIELDS_TIME,
}
# In adaptive modes a number counts what the usual precision of the source's type asks for: PostgreSQL's TIMESTAMP has
# six digits, MySQL's DATETIME none. SQL Server's and Oracle's types have no usual one.
_USUAL: dict[str, Kind] = {
    "": Kind.LOCAL_MICROS,
    "postgresql": Kind.LOCAL_MICROS,
    "mysql": Kind.LOCAL_MILLIS,
    "mariadb": Kind.LOCAL_MILLIS,
}
UNIT_KINDS: dict[str, tuple[Kind, Kind]] = {
    "milliseconds": (Kind.LOCAL_MILLIS, Kind.TIME_MILLIS),
    "microseconds": (Kind.LOCAL_MICROS, Kind.TIME_MICROS),
    "nanoseconds": (Kind.LOCAL_NANOS, Kind.TIME_NANOS),
}


def debezium_values(
    time_precision: TimePrecision, decimal_mode: DecimalMode, binary_mode: BinaryMode, connector: str = ""
) -> Callable[[DataType, str | None], Encoding]:
    """How a connector of Debezium with these modes writes values of a type; of a column, its unit may be named."""

    def assume(data_type: DataType, unit: str | None = None) -> Encoding:
        match data_type:
            case TimestampType() | TimestampNTZType():
                if unit is not None:
                    return Encoding(UNIT_KINDS[unit][0])
                kind = _TIMESTAMPS.get(time_precision) or _USUAL.get(connector)
                return _UNKNOWN if kind is None else Encoding(kind)
            case TimeType():
                if unit is not None:
                    return Encoding(UNIT_KINDS[unit][1])
                return _time(data_type, time_precision, connector)
            case DateType():
                return Encoding(Kind.DATE_DAYS)
            case DayTimeIntervalType():
                return Encoding(Kind.DURATION_MICROS)
            case DecimalType() | DoubleType() | FloatType():
                if decimal_mode != "precise":
                    return PLAIN
                # A double is never written as digits, but an object with digits is a decimal for it.
                exact = isinstance(data_type, DecimalType)
                return Encoding(Kind.DECIMAL_BYTES, data_type.scale) if exact else PLAIN
            case BinaryType():
                return Encoding(_BINARIES[binary_mode])
            case _:
                return PLAIN

    return assume


def _time(data_type: TimeType, time_precision: TimePrecision, connector: str) -> Encoding:
    kind = _TIMES.get(time_precision)
    if kind is not None:
        return Encoding(kind)
    if time_precision == "adaptive" and data_type.precision <= 3:
        return Encoding(Kind.TIME_MILLIS)
    # SQL Server's TIME has seven digits, for which adaptive modes count nanoseconds.
    return _UNKNOWN if connector == "sqlserver" else Encoding(Kind.TIME_MICROS)


def text_values(binary_mode: BinaryMode) -> Callable[[DataType, str | None], Encoding]:
    """How those write values who write them as text: ISO 8601, digits, and bytes as they were told."""

    def assume(data_type: DataType, unit: str | None = None) -> Encoding:
        match data_type:
            case TimestampType() | TimestampNTZType():
                return _UNKNOWN if unit is None else Encoding(UNIT_KINDS[unit][0])
            case TimeType():
                return _UNKNOWN if unit is None else Encoding(UNIT_KINDS[unit][1])
            case DateType() | DayTimeIntervalType():
                return _UNKNOWN
            case BinaryType():
                return Encoding(_BINARIES[binary_mode])
            case _:
                return PLAIN

    return assume
