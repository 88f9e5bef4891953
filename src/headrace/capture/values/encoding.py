"""How a value is written, as plain data: whatever reads values, row by row or column by column, is driven by it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

Family = Literal["date", "time", "timestamp", "duration"]
LARGEST_PRECISION = 38
# What Spark itself gives a number whose source sets no bounds.
UNBOUNDED = DecimalType(LARGEST_PRECISION, 18)


class Kind(StrEnum):
    """What the number, text, bytes or object of a value stands for."""

    # As JSON has it.
    PLAIN = "plain"
    # Numbers of a unit; text in ISO 8601 and objects by calendar field are understood in their place.
    DATE_DAYS = "date_days"
    TIME_MILLIS = "time_millis"
    TIME_MICROS = "time_micros"
    TIME_NANOS = "time_nanos"
    # Since 1970 on the wall clock of the source, which has no zone.
    LOCAL_MILLIS = "local_millis"
    LOCAL_MICROS = "local_micros"
    LOCAL_NANOS = "local_nanos"
    # Since 1970 in UTC.
    INSTANT_MILLIS = "instant_millis"
    INSTANT_MICROS = "instant_micros"
    INSTANT_NANOS = "instant_nanos"
    DURATION_MICROS = "duration_micros"
    DURATION_NANOS = "duration_nanos"
    # Text in ISO 8601, in which a Z that follows a local time or a date means nothing.
    ISO_DATE = "iso_date"
    ISO_TIME = "iso_time"
    ISO_LOCAL = "iso_local"
    ISO_INSTANT = "iso_instant"
    ISO_ZONED_TIME = "iso_zoned_time"
    ISO_DURATION = "iso_duration"
    # Objects by calendar field.
    FIELDS_DATE = "fields_date"
    FIELDS_TIME = "fields_time"
    FIELDS_LOCAL = "fields_local"
    FIELDS_INSTANT = "fields_instant"
    FIELDS_DURATION = "fields_duration"
    # The two's complement of the digits, high byte first; an object has the scale beside them.
    DECIMAL_BYTES = "decimal_bytes"
    DECIMAL_OBJECT = "decimal_object"
    # Bytes, or in JSON their base64; the others are text also where bytes could be.
    BYTES = "bytes"
    BASE64_URL = "base64_url"
    HEX = "hex"
    # Bits, the lowest byte first.
    BITS = "bits"
    # A document as text.
    JSON = "json"
    LIST = "list"
    MAP = "map"
    STRUCT = "struct"
    # A number in a column of times of which nobody said what it counts.
    UNIT_UNKNOWN = "unit_unknown"


@dataclass(frozen=True)
class Encoding:
    """A kind, with what it needs: the scale of digits, the type of plain values, what lies inside."""

    kind: Kind = Kind.PLAIN
    scale: int = 0
    precision: int | None = None
    plain: DataType | None = None
    element: Encoding | None = None
    key: Encoding | None = None
    fields: tuple[tuple[str, Encoding], ...] = ()


PLAIN = Encoding()

# The family of a number, and how many of it make a microsecond, or of how many microseconds it is one.
UNITS: dict[Kind, tuple[Family, int, int]] = {
    Kind.DATE_DAYS: ("date", 86_400_000_000, 1),
    Kind.TIME_MILLIS: ("time", 1_000, 1),
    Kind.TIME_MICROS: ("time", 1, 1),
    Kind.TIME_NANOS: ("time", 1, 1_000),
    Kind.LOCAL_MILLIS: ("timestamp", 1_000, 1),
    Kind.LOCAL_MICROS: ("timestamp", 1, 1),
    Kind.LOCAL_NANOS: ("timestamp", 1, 1_000),
    Kind.INSTANT_MILLIS: ("timestamp", 1_000, 1),
    Kind.INSTANT_MICROS: ("timestamp", 1, 1),
    Kind.INSTANT_NANOS: ("timestamp", 1, 1_000),
    Kind.DURATION_MICROS: ("duration", 1, 1),
    Kind.DURATION_NANOS: ("duration", 1, 1_000),
}
INSTANTS = frozenset(
    {Kind.INSTANT_MILLIS, Kind.INSTANT_MICROS, Kind.INSTANT_NANOS, Kind.ISO_INSTANT, Kind.FIELDS_INSTANT}
)
_TYPES: dict[Kind, DataType] = {
    Kind.DATE_DAYS: DateType(),
    Kind.ISO_DATE: DateType(),
    Kind.FIELDS_DATE: DateType(),
    Kind.TIME_MILLIS: TimeType(3),
    Kind.TIME_MICROS: TimeType(6),
    Kind.TIME_NANOS: TimeType(6),
    Kind.ISO_TIME: TimeType(6),
    Kind.FIELDS_TIME: TimeType(6),
    # Spark has no time of day with a zone.
    Kind.ISO_ZONED_TIME: StringType(),
    Kind.DURATION_MICROS: DayTimeIntervalType(),
    Kind.DURATION_NANOS: DayTimeIntervalType(),
    # These may have months, which a day-time interval has not.
    Kind.ISO_DURATION: StringType(),
    Kind.FIELDS_DURATION: StringType(),
    Kind.LOCAL_MILLIS: TimestampNTZType(),
    Kind.LOCAL_MICROS: TimestampNTZType(),
    Kind.LOCAL_NANOS: TimestampNTZType(),
    Kind.ISO_LOCAL: TimestampNTZType(),
    Kind.FIELDS_LOCAL: TimestampNTZType(),
    Kind.INSTANT_MILLIS: TimestampType(),
    Kind.INSTANT_MICROS: TimestampType(),
    Kind.INSTANT_NANOS: TimestampType(),
    Kind.ISO_INSTANT: TimestampType(),
    Kind.FIELDS_INSTANT: TimestampType(),
    Kind.DECIMAL_OBJECT: UNBOUNDED,
    Kind.BYTES: BinaryType(),
    Kind.BASE64_URL: BinaryType(),
    Kind.HEX: BinaryType(),
    Kind.BITS: BinaryType(),
    Kind.JSON: StringType(),
}


def spark_type(encoding: Encoding) -> DataType:
    """The type of a column that takes every value so written, as nearly as Spark SQL has one."""
    match encoding.kind:
        case Kind.LIST:
            return ArrayType(spark_type(encoding.element or PLAIN))
        case Kind.MAP:
            return MapType(spark_type(encoding.key or PLAIN), spark_type(encoding.element or PLAIN))
        case Kind.STRUCT:
            return StructType([StructField(name, spark_type(inner)) for name, inner in encoding.fields])
        case Kind.DECIMAL_BYTES:
            precision, scale = encoding.precision or LARGEST_PRECISION, encoding.scale
            if not 0 <= scale <= LARGEST_PRECISION:
                return StringType()
            return DecimalType(max(min(precision, LARGEST_PRECISION), scale, 1), scale)
        case _:
            return _TYPES.get(encoding.kind, encoding.plain or StringType())
