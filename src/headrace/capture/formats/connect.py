"""Schemas of Kafka Connect, as they travel in JSON beside their values: what each value is, and the column for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from headrace.capture.described import DescribedColumn
from headrace.capture.messages import Undecodable
from headrace.capture.values.encoding import Encoding, Kind, spark_type
from headrace.intake.reasons import shown

PLAIN_TYPES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int8": ByteType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "float": FloatType(),
    "float32": FloatType(),
    "double": DoubleType(),
    "float64": DoubleType(),
    "string": StringType(),
}
# What the name of a schema makes of a value; names that are not here change nothing of what its type says.
LOGICAL: dict[str, Kind] = {
    "org.apache.kafka.connect.data.Date": Kind.DATE_DAYS,
    "org.apache.kafka.connect.data.Time": Kind.TIME_MILLIS,
    "org.apache.kafka.connect.data.Timestamp": Kind.LOCAL_MILLIS,
    "org.apache.kafka.connect.data.Decimal": Kind.DECIMAL_BYTES,
    "io.debezium.time.Date": Kind.DATE_DAYS,
    "io.debezium.time.Time": Kind.TIME_MILLIS,
    "io.debezium.time.MicroTime": Kind.TIME_MICROS,
    "io.debezium.time.NanoTime": Kind.TIME_NANOS,
    "io.debezium.time.Timestamp": Kind.LOCAL_MILLIS,
    "io.debezium.time.MicroTimestamp": Kind.LOCAL_MICROS,
    "io.debezium.time.NanoTimestamp": Kind.LOCAL_NANOS,
    "io.debezium.time.ZonedTimestamp": Kind.ISO_INSTANT,
    "io.debezium.time.ZonedTime": Kind.ISO_ZONED_TIME,
    "io.debezium.time.IsoDate": Kind.ISO_DATE,
    "io.debezium.time.IsoTime": Kind.ISO_TIME,
    "io.debezium.time.IsoTimestamp": Kind.ISO_LOCAL,
    "io.debezium.time.MicroDuration": Kind.DURATION_MICROS,
    "io.debezium.time.NanoDuration": Kind.DURATION_NANOS,
    "io.debezium.time.Interval": Kind.ISO_DURATION,
    "io.debezium.time.StructuredDate": Kind.FIELDS_DATE,
    "io.debezium.time.StructuredTime": Kind.FIELDS_TIME,
    "io.debezium.time.StructuredZonedTime": Kind.ISO_ZONED_TIME,
    "io.debezium.time.StructuredTimestamp": Kind.FIELDS_LOCAL,
    "io.debezium.time.StructuredZonedTimestamp": Kind.FIELDS_INSTANT,
    "io.debezium.time.StructuredDuration": Kind.FIELDS_DURATION,
    "io.debezium.data.VariableScaleDecimal": Kind.DECIMAL_OBJECT,
    "io.debezium.data.Bits": Kind.BITS,
    "io.debezium.data.Json": Kind.JSON,
}
_WRAPPER = frozenset({"schema", "payload"})
# More fields than a row can have.
MOST_FIELDS = 10_000


def split_wrapper(value: Any) -> tuple[Any, Any]:
    """The payload of a value and its schema, None where it has none: such a value is its own payload."""
    if isinstance(value, dict):
        content = cast("dict[str, Any]", value)
        if content.keys() <= _WRAPPER and "payload" in content:
            return content["payload"], content.get("schema")
    return value, None


def encodings_of(schema: Any) -> dict[str, Encoding]:
    """How the fields of a struct are written, by name; nothing for what is no struct."""
    return {name: encoding_of(field) for name, field in fields_of(schema)}


def described_columns(schema: Any) -> tuple[DescribedColumn, ...]:
    """The columns that take the fields of a struct."""
    return tuple(
        DescribedColumn(name, spark_type(encoding_of(field)), field.get("optional") is not False)
        for name, field in fields_of(schema)
    )


def fields_of(schema: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The fields of a struct in their order, each with its name."""
    fields = as_object(schema).get("fields")
    if fields is None:
        return []
    if not isinstance(fields, list) or len(cast("list[Any]", fields)) > MOST_FIELDS:
        raise Undecodable(f"the fields of a schema are no list, but {shown(fields)}", "schema")
    named: list[tuple[str, Mapping[str, Any]]] = []
    for field in cast("list[Any]", fields):
        content = as_object(field)
        name = content.get("field")
        if not isinstance(name, str):
            raise Undecodable(f"a field of a schema has no name: {shown(field)}", "schema")
        named.append((name, content))
    return named


def encoding_of(schema: Any) -> Encoding:
    """How the values of a schema are written."""
    content = as_object(schema)
    kind, name = content.get("type"), content.get("name")
    logical = LOGICAL.get(name) if isinstance(name, str) else None
    if logical is Kind.DECIMAL_BYTES:
        return Encoding(logical, parameter(content, "scale") or 0, parameter(content, "connect.decimal.precision"))
    if logical is not None:
        return Encoding(logical)
    if isinstance(kind, str) and kind in PLAIN_TYPES:
        return Encoding(plain=PLAIN_TYPES[kind])
    match kind:
        case "bytes":
            return Encoding(Kind.BYTES)
        case "array":
            return Encoding(Kind.LIST, element=encoding_of(content.get("items")))
        case "map":
            return Encoding(Kind.MAP, key=encoding_of(content.get("keys")), element=encoding_of(content.get("values")))
        case "struct":
            return Encoding(Kind.STRUCT, fields=tuple((name, encoding_of(field)) for name, field in fields_of(content)))
        case _:
            raise Undecodable(f"a schema has the unknown type {shown(kind)}", "schema")


def parameter(content: Mapping[str, Any], name: str) -> int | None:
    """A whole number among the parameters of a schema, which are all text."""
    parameters = content.get("parameters")
    if parameters is None:
        return None
    value = as_object(parameters).get(name)
    if value is None:
        return None
    text = str(value)
    if len(text) > 6 or not text.removeprefix("-").isdecimal():
        raise Undecodable(f"the parameter {name} of a schema is no number, but {shown(value)}", "schema")
    return int(text)


def as_object(value: Any) -> Mapping[str, Any]:
    """A part of a schema, which must be an object."""
    if not isinstance(value, dict):
        raise Undecodable(f"a part of a schema is no object, but {shown(value)}", "schema")
    return cast("dict[str, Any]", value)
