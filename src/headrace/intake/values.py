"""From a Python value or its JSON form to the one canonical Python value of a column's type.

The canonical values are those that Arrow takes for the type and gives back: an aware datetime in UTC for
TIMESTAMP, a naive one for TIMESTAMP_NTZ, a Decimal at the column's scale, bytes for BINARY, a dict for
STRUCT, a list of (key, value) pairs for MAP. A value that would change on the way is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from types import NoneType
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

from headrace.errors import UnsupportedStatement
from headrace.intake import numeric, temporal
from headrace.intake.identity import identity_of
from headrace.intake.reasons import BadValue, expected, plain, shown

__all__ = ["BadValue", "Converter", "column_converter", "converter", "names_by_lower"]

Converter = Callable[[object], object]
ColumnConverter = Callable[[Sequence[object]], Sequence[object]]


def converter(data_type: DataType) -> Converter:
    """A function from a value that is not NULL to the type's canonical value, or `BadValue`."""
    match data_type:
        case StringType():
            return _string
        case IntegralType():
            return numeric.integer_converter(data_type)
        case DecimalType():
            return numeric.decimal_converter(data_type)
        case DoubleType():
            return numeric.double_converter()
        case FloatType():
            return numeric.float_converter()
        case BooleanType():
            return _boolean
        case BinaryType():
            return _binary
        case DateType():
            return temporal.date_converter()
        case TimestampType():
            return temporal.timestamp_converter()
        case TimestampNTZType():
            return temporal.timestamp_ntz_converter()
        case TimeType():
            return temporal.time_converter(data_type)
        case DayTimeIntervalType():
            return temporal.interval_converter(data_type)
        case ArrayType():
            return _array_converter(data_type)
        case MapType():
            return _map_converter(data_type)
        case StructType():
            return _struct_converter(data_type)
        case _:
            raise UnsupportedStatement(
                f"type {data_type.simpleString().upper()} is not offered for tables",
                hint="store the value in another type, such as STRING",
            )


def column_converter(data_type: DataType, *, nullable: bool = True) -> ColumnConverter:
    """A function that converts many values at once, NULLs among them: the usual ones without a call each."""
    convert = converter(data_type)
    native = _NATIVE.get(type(data_type))
    natives = {native, NoneType} if native is not None else set[type]()
    fits = _fits(data_type)
    read_texts = _texts_reader(data_type)

    def convert_column(values: Sequence[object]) -> Sequence[object]:
        kinds = set(map(type, values))
        if NoneType in kinds and not nullable:
            raise BadValue("NULL, but the column is NOT NULL")
        if kinds <= natives and (fits is None or fits(values if NoneType not in kinds else _without_null(values))):
            return values
        if read_texts is not None and kinds == {str}:
            exact = read_texts(cast("Sequence[str]", values))
            if exact is not None:
                return exact
        if NoneType in kinds:
            return [None if value is None else convert(value) for value in values]
        return list(map(convert, values))

    return convert_column


# The Python type whose values are canonical as they stand, or after one check over the whole column.
_NATIVE: dict[type[DataType], type] = {
    StringType: str,
    BooleanType: bool,
    BinaryType: bytes,
    DoubleType: float,
    DateType: date,
    TimestampType: datetime,
    TimestampNTZType: datetime,
}
_NATIVE.update(dict.fromkeys(numeric.INTEGER_BITS, int))


def _fits(data_type: DataType) -> Callable[[Sequence[Any]], bool] | None:
    """The check over a whole column of native values, if they need one."""
    match data_type:
        case IntegralType():
            low, high = numeric.integer_range(data_type)
            return lambda values: not values or (low <= min(values) and max(values) <= high)
        case StringType():
            return lambda values: all(map(str.isascii, values))
        case TimestampType():
            return lambda values: all(value.tzinfo is UTC for value in values)
        case TimestampNTZType():
            return lambda values: all(value.tzinfo is None for value in values)
        case _:
            return None


def _texts_reader(data_type: DataType) -> Callable[[Sequence[str]], Sequence[object] | None] | None:
    """What reads a whole column of text, if anything does; it answers None where each must be looked at alone."""
    match data_type:
        case DecimalType():
            return numeric.decimal_texts_reader(data_type)
        case TimestampType():
            return temporal.read_utc_texts
        case _:
            return None


def _without_null(values: Iterable[object]) -> list[object]:
    return [value for value in values if value is not None]


def _string(value: object) -> str:
    if isinstance(value, str):
        text = value if type(value) is str else str(value)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BadValue(f"{shown(value)} holds half a surrogate pair, which is no text") from None
        return text
    inner = plain(value)
    if inner is value:
        raise expected("a string", "STRING", value)
    return _string(inner)


def _boolean(value: object) -> bool:
    if type(value) is bool:
        return value
    inner = plain(value)
    if inner is value:
        raise expected("true or false", "BOOLEAN", value)
    return _boolean(inner)


def _binary(value: object) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise expected("base64 text", "BINARY", value) from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    inner = plain(value)
    if inner is value:
        raise expected("bytes or base64 text", "BINARY", value)
    return _binary(inner)


def _array_converter(data_type: ArrayType) -> Converter:
    convert_element = converter(data_type.elementType)
    contains_null = data_type.containsNull

    def convert(value: object) -> object:
        if not isinstance(value, (list, tuple)) or hasattr(value, "asDict"):
            inner = plain(value)
            if inner is value:
                raise expected("a list", "ARRAY", value)
            return convert(inner)
        result: list[object] = []
        for index, element in enumerate(cast("Sequence[object]", value)):
            if element is not None:
                try:
                    result.append(convert_element(element))
                except BadValue as bad:
                    raise bad.within(f"[{index}]") from None
            elif contains_null:
                result.append(None)
            else:
                raise BadValue(f"[{index}]: NULL, but the elements are NOT NULL")
        return result

    return convert


def names_by_lower(names: Iterable[str]) -> dict[str, str]:
    """The names as declared, by their lower-case form."""
    return {name.lower(): name for name in names}


def _struct_converter(data_type: StructType) -> Converter:
    fields = [(field.name, converter(field.dataType), field.nullable) for field in data_type.fields]
    names = [name for name, _, _ in fields]
    declared = names_by_lower(names)
    if len(declared) != len(names):
        raise UnsupportedStatement("a STRUCT with two fields of one name is not offered for tables")
    known = set(names)

    def by_declared_name(value: Mapping[object, object]) -> Mapping[object, object]:
        if value.keys() <= known:
            return value
        given: dict[object, object] = {}
        for name, item in value.items():
            exact = declared.get(name.lower()) if isinstance(name, str) else None
            if exact is None:
                raise BadValue(f"unknown field {shown(name)}; the fields are {', '.join(names)}")
            if exact in given:
                raise BadValue(f"field {exact} is given twice")
            given[exact] = item
        return given

    def convert(value: object) -> object:
        if hasattr(value, "asDict"):
            value = cast(Any, value).asDict()
        if not isinstance(value, Mapping):
            inner = plain(value)
            if inner is value:
                raise expected("an object", "STRUCT", value)
            return convert(inner)
        given = by_declared_name(cast("Mapping[object, object]", value))
        result: dict[str, object] = {}
        for name, convert_field, nullable in fields:
            item = given.get(name)
            if item is not None:
                try:
                    result[name] = convert_field(item)
                except BadValue as bad:
                    raise bad.within(f".{name}") from None
            elif nullable:
                result[name] = None
            else:
                raise BadValue(f".{name}: {'NULL' if name in given else 'missing'}, but it is NOT NULL")
        return result

    return convert


def _map_converter(data_type: MapType) -> Converter:
    convert_key = converter(data_type.keyType)
    convert_text_key = _text_key_converter(data_type.keyType, convert_key)
    convert_value = converter(data_type.valueType)
    key_identity = identity_of(data_type.keyType)
    contains_null = data_type.valueContainsNull

    def pairs_of(value: object) -> Iterable[tuple[object, object]]:
        if isinstance(value, Mapping):
            return cast("Mapping[object, object]", value).items()
        if not isinstance(value, (list, tuple)) or hasattr(value, "asDict"):
            inner = plain(value)
            if inner is value:
                raise expected("an object or a list of pairs", "MAP", value)
            return pairs_of(inner)
        pairs = cast("Sequence[Any]", value)
        if not all(isinstance(pair, (list, tuple)) and len(cast("Sequence[object]", pair)) == 2 for pair in pairs):
            raise expected("an object or a list of pairs", "MAP", value)
        return pairs

    def convert(value: object) -> object:
        result: list[tuple[object, object]] = []
        seen: set[object] = set()
        key_converter = convert_text_key if isinstance(value, Mapping) else convert_key
        for key, item in pairs_of(value):
            if key is None:
                raise BadValue("a MAP key is NULL")
            try:
                exact_key = key_converter(key)
            except BadValue as bad:
                raise bad.within("key") from None
            mark = key_identity(exact_key)
            if mark in seen:
                raise BadValue(f"the MAP key {shown(exact_key)} is given twice")
            seen.add(mark)
            if item is None:
                if not contains_null:
                    raise BadValue(f"[{shown(exact_key)}]: NULL, but the values are NOT NULL")
                result.append((exact_key, None))
                continue
            try:
                result.append((exact_key, convert_value(item)))
            except BadValue as bad:
                raise bad.within(f"[{shown(exact_key)}]") from None
        return result

    return convert


def _text_key_converter(data_type: DataType, convert: Converter) -> Converter:
    """The key of a JSON object is text; this reads the number or truth value that it spells."""
    match data_type:
        case IntegralType():
            type_name = data_type.simpleString().upper()
            return lambda key: convert(numeric.integer_text(key, type_name) if isinstance(key, str) else key)
        case DoubleType() | FloatType():
            is_number = numeric.NUMBER_TEXT.fullmatch
            return lambda key: convert(Decimal(key) if isinstance(key, str) and is_number(key) else key)
        case BooleanType():
            truth = {"true": True, "false": False}
            return lambda key: convert(truth.get(key, key) if isinstance(key, str) else key)
        case _:
            return convert
