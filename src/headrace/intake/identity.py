"""When two values are the same, and which comes first: as Spark groups and sorts them.

NULL equals NULL, NaN equals NaN and is the largest number, 0.0 equals -0.0, maps are equal by their
entries in any order. A value's identity is a hashable form that is equal exactly when Spark's GROUP BY
would put the values together; its rank is a form that compares as Spark's ORDER BY would.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StringType, StructType

from headrace.errors import UnsupportedStatement

Identity = Hashable
Row = tuple[Any, ...]
BINARY_COLLATION = "UTF8_BINARY"

# Text never occurs among a column's numbers, so that it can stand for the one value unequal to itself.
_NAN = "NaN"


def identity(value: object, data_type: DataType) -> Identity:
    """The hashable form under which equal values of the type meet."""
    return identity_of(data_type)(value)


def row_identity(row: Sequence[object], schema: StructType) -> Identity:
    """The hashable form under which equal rows meet; the row holds its values by position."""
    return row_identity_of(field.dataType for field in schema.fields)(tuple(row))


def identity_of(data_type: DataType) -> Callable[[Any], Identity]:
    """The `identity` of one type, prepared for many values."""
    match data_type:
        case DoubleType() | FloatType():
            return _float_identity
        case ArrayType():
            return _array_identity(data_type)
        case MapType():
            return _map_identity(data_type)
        case StructType():
            return _struct_identity(data_type)
        case _:
            _refuse_collation(data_type)
            return _as_it_is


def row_identity_of(data_types: Iterable[DataType]) -> Callable[[Row], Identity]:
    """The identity of rows with these column types, prepared for many rows."""
    parts = [identity_of(data_type) for data_type in data_types]
    changing = [(index, part) for index, part in enumerate(parts) if part is not _as_it_is]
    if not changing:
        return _as_it_is

    def find(row: Row) -> Identity:
        marks = list(row)
        for index, part in changing:
            marks[index] = part(row[index])
        return tuple(marks)

    return find


def rank_of(data_type: DataType) -> Callable[[Any], Any]:
    """A function from a value that is not NULL to a form that sorts as Spark sorts the type."""
    match data_type:
        case DoubleType() | FloatType():
            return _float_rank
        case ArrayType():
            part = _null_first(rank_of(data_type.elementType))
            return lambda value: tuple([part(element) for element in value])
        case StructType():
            parts = [(field.name, _null_first(rank_of(field.dataType))) for field in data_type.fields]
            return lambda value: tuple([part(value[name]) for name, part in parts])
        case MapType():
            raise UnsupportedStatement(
                "a MAP has no order", hint="choose a column of a number, a time or a text for SEQUENCE BY"
            )
        case _:
            _refuse_collation(data_type)
            return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _float_identity(value: float | None) -> Identity:
    if value is None:
        return None
    # Adding zero makes -0.0 the plain 0.0.
    return value + 0.0 if value == value else _NAN


def _float_rank(value: float) -> tuple[bool, float]:
    return (False, value) if value == value else (True, 0.0)


def _null_first(rank: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: (False,) if value is None else (True, rank(value))


def _array_identity(data_type: ArrayType) -> Callable[[Any], Identity]:
    element = identity_of(data_type.elementType)
    return lambda value: None if value is None else tuple([element(item) for item in value])


def _struct_identity(data_type: StructType) -> Callable[[Any], Identity]:
    parts = [(field.name, identity_of(field.dataType)) for field in data_type.fields]
    return lambda value: None if value is None else tuple([part(value[name]) for name, part in parts])


def _map_identity(data_type: MapType) -> Callable[[Any], Identity]:
    key = identity_of(data_type.keyType)
    item = identity_of(data_type.valueType)

    def find(value: Mapping[Any, Any] | Iterable[tuple[Any, Any]] | None) -> Identity:
        if value is None:
            return None
        pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else value
        return frozenset([(key(name), item(held)) for name, held in pairs])

    return find


def _refuse_collation(data_type: DataType) -> None:
    if isinstance(data_type, StringType) and data_type.collation != BINARY_COLLATION:
        raise UnsupportedStatement(
            f"collation {data_type.collation} is not offered where rows are told apart",
            hint=f"declare the column as STRING COLLATE {BINARY_COLLATION}",
        )
