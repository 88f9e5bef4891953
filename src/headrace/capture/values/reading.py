"""The one place where an encoding and a column's type meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.capture.exact_json import read_json, refuse_depth
from headrace.capture.messages import Undecodable
from headrace.capture.values.binaries import read_binary
from headrace.capture.values.encoding import PLAIN, UNITS, Encoding, Kind
from headrace.capture.values.numbers import read_boolean, read_decimal, read_float, read_integer
from headrace.capture.values.texts import text_reader
from headrace.capture.values.times import temporal_reader
from headrace.intake.reasons import BadValue, shown

Reader = Callable[[Any], Any]
# What an encoding is inside of a value: that of an element without a schema follows from the type of the element.
Assume = Callable[[DataType], Encoding]


def reader(encoding: Encoding, data_type: DataType, assume: Assume, *, truncate: bool = False) -> Reader:
    """From a value that is not NULL to one that the intake takes for a column of this type, or `BadValue`.

    The intake has the last word: it refuses whatever would change on the way. Inside of lists, maps and objects that
    come without a description, `assume` says how values of a type are written.
    """
    name = data_type.simpleString().upper()
    match data_type:
        case BooleanType():
            return read_boolean
        case IntegralType():
            # A number of days or seconds in a column of numbers stays the number that it is.
            return partial(read_integer, encoding=encoding, type_name=name) if encoding.kind not in UNITS else _as_it_is
        case DecimalType():
            return partial(read_decimal, encoding=encoding, type_name=name)
        case DoubleType() | FloatType():
            return partial(read_float, encoding=encoding, type_name=name)
        case StringType():
            return text_reader(encoding, truncate=truncate)
        case BinaryType():
            # Text that nothing more is said of stands for bytes as the options say.
            found = assume(data_type) if encoding.kind is Kind.PLAIN else encoding
            return partial(read_binary, encoding=found)
        case DateType():
            return temporal_reader(encoding, "date", name, truncate=truncate)
        case TimestampType() | TimestampNTZType():
            return temporal_reader(encoding, "timestamp", name, truncate=truncate)
        case TimeType():
            return temporal_reader(encoding, "time", name, truncate=truncate)
        case DayTimeIntervalType():
            return temporal_reader(encoding, "duration", name, truncate=truncate)
        case ArrayType():
            return _list_reader(encoding, data_type, assume, truncate=truncate)
        case MapType():
            return _map_reader(encoding, data_type, assume, truncate=truncate)
        case StructType():
            return _struct_reader(encoding, data_type, assume, truncate=truncate)
        case _:
            return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _list_reader(encoding: Encoding, data_type: ArrayType, assume: Assume, *, truncate: bool) -> Reader:
    inner = encoding.element or assume(data_type.elementType)
    read = reader(inner, data_type.elementType, assume, truncate=truncate)

    def read_list(value: Any) -> Any:
        content = _document(value)
        if not isinstance(content, list):
            return content
        return [
            None if part is None else _within(f"[{index}]", read, part)
            for index, part in enumerate(cast("list[Any]", content))
        ]

    return read_list


def _map_reader(encoding: Encoding, data_type: MapType, assume: Assume, *, truncate: bool) -> Reader:
    read_key = reader(encoding.key or PLAIN, data_type.keyType, assume, truncate=truncate)
    inner = encoding.element or assume(data_type.valueType)
    read = reader(inner, data_type.valueType, assume, truncate=truncate)

    def read_map(value: Any) -> Any:
        content = _document(value)
        # Names that are no text come as a list of pairs.
        if isinstance(content, list) and all(_is_pair(pair) for pair in cast("list[Any]", content)):
            pairs = cast("list[Any]", content)
        elif isinstance(content, dict):
            pairs = list(cast("dict[Any, Any]", content).items())
        else:
            return content
        return [
            (
                None if key is None else _within("key", read_key, key),
                None if part is None else _within(f"[{shown(key)}]", read, part),
            )
            for key, part in pairs
        ]

    return read_map


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(cast("list[Any]", value)) == 2


def _struct_reader(encoding: Encoding, data_type: StructType, assume: Assume, *, truncate: bool) -> Reader:
    described = {name.lower(): inner for name, inner in encoding.fields}
    readers = {
        field.name.lower(): reader(
            described.get(field.name.lower()) or assume(field.dataType), field.dataType, assume, truncate=truncate
        )
        for field in data_type.fields
    }

    def read_struct(value: Any) -> Any:
        content = _document(value)
        if not isinstance(content, dict):
            return content
        fields = cast("dict[Any, Any]", content)
        return {
            name: part if part is None else _within(f".{name}", readers.get(str(name).lower(), _as_it_is), part)
            for name, part in fields.items()
        }

    return read_struct


def _document(value: Any) -> Any:
    """What is inside of a list, a map or an object; text may hold it as JSON."""
    if type(value) is not str:
        return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else value
    try:
        content = read_json(value)
        refuse_depth(content)
        return content
    except Undecodable as unreadable:
        raise BadValue(f"{shown(value)} is no JSON: {unreadable.reason}") from None


def _within(where: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except BadValue as bad:
        raise bad.within(where) from None
