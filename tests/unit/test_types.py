"""A type that is carried is known in every room of the house; one that is not is told, with the rooms that lack it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VariantType,
    YearMonthIntervalType,
)

from headrace.catalog.make import refuse_type
from headrace.errors import HeadraceError
from headrace.intake.values import converter
from headrace.json_forms import json_column
from headrace.ledger.delta_schema import delta_schema, stored_type
from headrace.serving.feldera.json_rows import QUERY, column_texts
from headrace.serving.feldera.schema import relation
from headrace.state.arranged import Order, OrderColumn, sort_keys
from headrace.state.arrow_types import arrow_type, sql_name
from headrace.state.extremes import dense_ranks
from headrace.state.hashing import identity
from headrace.state.run import order_numbers
from headrace.types import CARRIED, KINDS, CarriedType, not_carried


@dataclass(frozen=True)
class Example:
    """Two values of a type, the smaller first, and how the first is written: in JSON, in Delta's schema, by Feldera."""

    kind: DataType
    values: tuple[Any, Any]
    json: Any
    delta: Any
    feldera: str


POINT = StructType([StructField("x", IntegerType())])
EXAMPLES = (
    Example(ByteType(), (-1, 2), -1, "byte", "TINYINT"),
    Example(ShortType(), (-1, 2), -1, "short", "SMALLINT"),
    Example(IntegerType(), (-1, 2), -1, "integer", "INTEGER"),
    Example(LongType(), (-1, 2), -1, "long", "BIGINT"),
    Example(FloatType(), (-1.5, 2.0), -1.5, "float", "REAL"),
    Example(DoubleType(), (-1.5, 2.0), -1.5, "double", "DOUBLE"),
    Example(DecimalType(4, 2), (Decimal("-1.50"), Decimal("2.00")), "-1.50", "decimal(4,2)", "DECIMAL"),
    Example(BooleanType(), (False, True), False, "boolean", "BOOLEAN"),
    Example(StringType(), ("a", "b"), "a", "string", "VARCHAR"),
    Example(BinaryType(), (b"\x01", b"\xff"), "AQ==", "binary", "VARBINARY"),
    Example(DateType(), (date(2020, 1, 2), date(2020, 1, 3)), "2020-01-02", "date", "DATE"),
    Example(
        TimestampType(),
        (datetime(2020, 1, 2, 3, tzinfo=UTC), datetime(2020, 1, 2, 4, tzinfo=UTC)),
        "2020-01-02T03:00:00+00:00",
        "timestamp",
        "TIMESTAMP",
    ),
    Example(
        TimestampNTZType(),
        (datetime(2020, 1, 2, 3), datetime(2020, 1, 2, 4)),
        "2020-01-02T03:00:00",
        "timestamp_ntz",
        "TIMESTAMP",
    ),
    Example(TimeType(6), (time(3), time(4)), "03:00:00", "long", "TIME"),
    Example(DayTimeIntervalType(), (timedelta(hours=3), timedelta(hours=4)), "3:00:00", "long", "INTERVAL"),
    Example(NullType(), (None, None), None, "string", "VARCHAR"),
    Example(
        ArrayType(IntegerType()),
        ([1], [2]),
        [1],
        {"type": "array", "elementType": "integer", "containsNull": True},
        "ARRAY",
    ),
    Example(
        MapType(StringType(), IntegerType()),
        ([("a", 1)], [("a", 2)]),
        {"a": 1},
        {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
        "MAP",
    ),
    Example(
        POINT,
        ({"x": 1}, {"x": 2}),
        {"x": 1},
        {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]},
        "STRUCT",
    ),
)


def column_of(one: Example) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(one.values, arrow_type(one.kind))])


def is_offered(one: Example) -> bool:
    if isinstance(one.kind, NullType):
        # A query may give it; no table has it.
        return True
    return converter(one.kind)(one.values[0]) == one.values[0]


def is_told_apart(one: Example) -> bool:
    low, _ = identity([column_of(one)], 2)
    return (low[0] == low[1]) == isinstance(one.kind, NullType)


def is_sorted(one: Example) -> bool:
    keys = sort_keys(pa.table([column_of(one)], names=["c0"]), Order((), (OrderColumn(0, False, True),)))
    return bool(keys[0] < keys[1])


def is_ranked(one: Example) -> bool:
    first, second = dense_ranks(column_of(one).combine_chunks())
    return bool(first < second)


def is_numbered(one: Example) -> bool:
    first, second = order_numbers(column_of(one))
    return bool(np.isfinite([first, second]).all() and first < second)


def has_name_in_delta(one: Example) -> bool:
    arrow = arrow_type(one.kind)
    (field,) = json.loads(delta_schema(pa.schema([pa.field("c0", arrow)])))["fields"]
    return field["type"] == one.delta and stored_type(arrow) is not None


def has_json_form(one: Example) -> bool:
    return json_column(column_of(one))[0] == one.json


def has_feldera_form(one: Example) -> bool:
    (described,) = relation("t", pa.schema([pa.field("c0", arrow_type(one.kind))]))["fields"]
    text = column_texts(column_of(one), QUERY)[0]
    return described["columntype"]["type"] == one.feldera and (text is None) == (one.json is None)


Room = Callable[[Example], bool]
ROOMS: dict[str, Room] = {
    "catalog/make.py": lambda one: refuse_type("a column", one.kind) is None,
    "intake/values.py": is_offered,
    "state/arrow_types.py": lambda one: sql_name(column_of(one).type) == one.kind.simpleString(),
    "state/hashing.py": is_told_apart,
    "ledger/delta_schema.py": has_name_in_delta,
    "json_forms.py": has_json_form,
    "serving/feldera/schema.py": has_feldera_form,
}
IF_ORDERED: dict[str, Room] = {"state/arranged.py": is_sorted, "state/extremes.py": is_ranked}
IF_NUMBERED: dict[str, Room] = {"state/run.py": is_numbered}


def lacking(carried: CarriedType, one: Example) -> list[str]:
    """The rooms that do not know a type as its row promises."""
    rooms = {**ROOMS, **(IF_ORDERED if carried.ordered else {}), **(IF_NUMBERED if carried.numbered else {})}
    found: list[str] = []
    for name, knows in rooms.items():
        try:
            if not knows(one):
                found.append(name)
        except Exception:
            found.append(name)
    return found


def test_every_carried_type_has_an_example() -> None:
    assert {type(one.kind) for one in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize("one", EXAMPLES, ids=lambda one: one.kind.simpleString())
def test_a_carried_type_is_known_in_every_room(one: Example) -> None:
    (carried,) = [row for row in CARRIED if row.kind is type(one.kind)]
    assert lacking(carried, one) == []


@pytest.mark.parametrize("one", [one for one in EXAMPLES if not isinstance(one.kind, (ArrayType, MapType, StructType))])
def test_a_type_is_carried_inside_of_others(one: Example) -> None:
    outer = Example(ArrayType(one.kind), ([one.values[0]], [one.values[1]]), [one.json], None, "ARRAY")
    assert [room for room in lacking(CarriedType(ArrayType), outer) if room != "ledger/delta_schema.py"] == (
        ["intake/values.py", "state/hashing.py"] if isinstance(one.kind, NullType) else []
    )


def test_a_type_that_is_added_to_the_table_alone_is_missed_in_every_room() -> None:
    """What is told to who adds a type: here one that Arrow itself does not know how to carry."""
    months = Example(YearMonthIntervalType(), (1, 2), "1", "interval", "INTERVAL")
    rooms = [*ROOMS, *IF_ORDERED, *IF_NUMBERED]
    assert lacking(CarriedType(YearMonthIntervalType, ordered=True, numbered=True), months) == rooms


@pytest.mark.parametrize("kind", [YearMonthIntervalType(), CalendarIntervalType(), VariantType()], ids=str)
@pytest.mark.parametrize(
    "around",
    [
        lambda kind: kind,
        ArrayType,
        lambda kind: MapType(StringType(), kind),
        lambda kind: MapType(kind, StringType()),
        lambda kind: StructType([StructField("a", IntegerType()), StructField("b", ArrayType(kind))]),
    ],
)
def test_a_type_that_is_not_carried_is_refused_wherever_it_is(kind: DataType, around: Callable[[Any], Any]) -> None:
    assert not_carried(around(kind)) == kind
    with pytest.raises(HeadraceError, match="which Headrace does not carry") as refused:
        refuse_type("column a", around(kind))
    assert kind.simpleString() in refused.value.message
    assert "cast it" in refused.value.hint


def test_strings_of_a_collation_are_not_carried() -> None:
    assert not_carried(StringType("UTF8_LCASE")) is not None
    assert not_carried(StringType()) is None
