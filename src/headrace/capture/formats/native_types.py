"""Types of databases, as they call them themselves, and the columns that take what Debezium makes of their values."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.sql.types import (
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
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.capture.values.encoding import LARGEST_PRECISION, UNBOUNDED

_BRACKETS = re.compile(r"\(([^)]*)\)")
_Build = Callable[[int | None, int | None], DataType]


def native_type(
    name: str, connector: str = "", length: int | None = None, scale: int | None = None, jdbc_type: int | None = None
) -> DataType:
    """The type of a column for values of a type of a database; STRING for one that nobody here knows."""
    words = _BRACKETS.sub(" ", name).lower().split()
    inside = _BRACKETS.search(name)
    if inside is not None and length is None:
        numbers = [int(part) for part in re.findall(r"\d{1,6}", inside[1])]
        length = numbers[0] if numbers else None
        scale = numbers[1] if len(numbers) > 1 else scale
    unsigned = "unsigned" in words
    spelled = " ".join(part for part in words if part not in ("unsigned", "zerofill", "signed", "identity"))
    # "varchar2 byte" and its kin are known by their first word.
    tables = (_BY_CONNECTOR.get(connector, {}), _BY_NAME)
    known = [table.get(name) for table in tables for name in (spelled, *words[:1])]
    build = next((one for one in known if one is not None), None)
    if build is None:
        build = _BY_JDBC.get(0 if jdbc_type is None else jdbc_type, _string)
    found = build(length, scale)
    return _UNSIGNED[type(found)](length, scale) if unsigned and type(found) in _UNSIGNED else found


def _always(data_type: DataType) -> _Build:
    return lambda _length, _scale: data_type


def _decimal(length: int | None, scale: int | None) -> DataType:
    if length is None or length == 0:
        return UNBOUNDED
    scale = scale or 0
    if not 0 <= scale <= LARGEST_PRECISION:
        return StringType() if scale > 0 else DecimalType(LARGEST_PRECISION, 0)
    return DecimalType(max(min(length, LARGEST_PRECISION), scale, 1), scale)


def _bits(length: int | None, _: int | None) -> DataType:
    return BooleanType() if length is None or length == 1 else BinaryType()


def _oracle_number(length: int | None, scale: int | None) -> DataType:
    """What Debezium makes of NUMBER: an integer if it has no digits after the point and few enough before it."""
    if length is None or scale is None:
        return UNBOUNDED
    if scale > 0:
        return _decimal(length, scale)
    digits = length - scale
    for most, data_type in ((2, ByteType()), (4, ShortType()), (9, IntegerType()), (18, LongType())):
        if digits <= most:
            return data_type
    return DecimalType(min(digits, LARGEST_PRECISION), 0)


def _mysql_float(length: int | None, scale: int | None) -> DataType:
    return DoubleType() if scale is None and length is not None and length > 23 else FloatType()


_string = _always(StringType())
_LOCAL, _INSTANT = _always(TimestampNTZType()), _always(TimestampType())
_BY_NAME: dict[str, _Build] = {
    **dict.fromkeys(("boolean", "bool"), _always(BooleanType())),
    **dict.fromkeys(("bit", "varbit", "bit varying"), _bits),
    "tinyint": _always(ByteType()),
    **dict.fromkeys(("smallint", "int2", "smallserial", "serial2", "year"), _always(ShortType())),
    **dict.fromkeys(("int", "integer", "int4", "mediumint", "serial", "serial4"), _always(IntegerType())),
    **dict.fromkeys(("bigint", "int8", "bigserial", "serial8", "oid"), _always(LongType())),
    **dict.fromkeys(("real", "float4", "binary_float"), _always(FloatType())),
    **dict.fromkeys(("double", "double precision", "float8", "float", "binary_double"), _always(DoubleType())),
    **dict.fromkeys(("decimal", "numeric", "dec", "fixed", "number"), _decimal),
    **dict.fromkeys(("money", "smallmoney"), _always(DecimalType(19, 4))),
    "date": _always(DateType()),
    **dict.fromkeys(("time", "time without time zone"), _always(TimeType(6))),
    **dict.fromkeys(("timetz", "time with time zone"), _string),
    **dict.fromkeys(("timestamp", "timestamp without time zone", "datetime", "datetime2", "smalldatetime"), _LOCAL),
    **dict.fromkeys(
        ("timestamptz", "timestamp with time zone", "timestamp with local time zone", "datetimeoffset"), _INSTANT
    ),
    "interval": _always(DayTimeIntervalType()),
    **dict.fromkeys(
        ("bytea", "binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob", "image", "raw", "rowversion"),
        _always(BinaryType()),
    ),
}
_YEAR = _always(IntegerType())
_BY_CONNECTOR: dict[str, dict[str, _Build]] = {
    # MySQL's TIMESTAMP is an instant, its DATETIME is not; its year comes as an INT.
    "mysql": {"timestamp": _INSTANT, "float": _mysql_float, "year": _YEAR},
    "mariadb": {"timestamp": _INSTANT, "float": _mysql_float, "year": _YEAR},
    # SQL Server's TIMESTAMP is a number of a row's version, and its TINYINT has no sign.
    "sqlserver": {"timestamp": _always(BinaryType()), "tinyint": _always(ShortType())},
    # Oracle's DATE has a time of day, its FLOAT and REAL are decimals, and its integers have 38 digits.
    "oracle": {
        "date": _LOCAL,
        "number": _oracle_number,
        **dict.fromkeys(("float", "real", "double precision"), _always(UNBOUNDED)),
        **dict.fromkeys(("integer", "int", "smallint"), _always(DecimalType(38, 0))),
    },
    "postgresql": {"money": _always(DecimalType(19, 2))},
}
_UNSIGNED: dict[type[DataType], _Build] = {
    ByteType: _always(ShortType()),
    ShortType: _always(IntegerType()),
    IntegerType: _always(LongType()),
}
# Numbers of java.sql.Types.
_BY_JDBC: dict[int, _Build] = {
    -7: _bits,
    -6: _always(ByteType()),
    -5: _always(LongType()),
    **dict.fromkeys((-4, -3, -2, 2004), _always(BinaryType())),
    **dict.fromkeys((2, 3), _decimal),
    4: _always(IntegerType()),
    5: _always(ShortType()),
    7: _always(FloatType()),
    **dict.fromkeys((6, 8), _always(DoubleType())),
    16: _always(BooleanType()),
    91: _always(DateType()),
    92: _always(TimeType(6)),
    93: _LOCAL,
    2014: _INSTANT,
}
