"""No record breaks a decoder: whatever it is, there is a message, or `Undecodable` with its reason."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.capture.formats import FORMATS
from headrace.capture.messages import Undecodable
from headrace.capture.options import FormatOptions, read_options
from headrace.capture.record import Record
from headrace.intake.reasons import BadValue
from headrace.intake.table import TableContract
from tests.costs import cost_of
from tests.debezium_events import (
    SOURCES,
    decimal,
    dumped,
    envelope,
    envelope_schema,
    field,
    key_schema,
    struct,
    wrapped,
)

FIXED = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
TYPES: dict[str, Any] = {
    "id": LongType(),
    "flag": BooleanType(),
    "name": StringType(),
    "price": DecimalType(10, 2),
    "ratio": DoubleType(),
    "single": FloatType(),
    "day": DateType(),
    "clock": TimeType(6),
    "at": TimestampType(),
    "local": TimestampNTZType(),
    "long": DayTimeIntervalType(),
    "raw": BinaryType(),
    "list": ArrayType(DateType()),
    "pairs": MapType(StringType(), DecimalType(5, 2)),
    "point": StructType([StructField("x", DoubleType()), StructField("wkb", BinaryType())]),
}
TABLE = TableContract("t", StructType([StructField(name, kind) for name, kind in TYPES.items()]), ("id",))
BAG = TableContract("t", TABLE.schema)
ROW: dict[str, Any] = {
    "id": 1,
    "flag": True,
    "name": "a",
    "price": "AfQ=",
    "ratio": 0.5,
    "single": 1.5,
    "day": 17702,
    "clock": 14711789123,
    "at": "2018-06-20T15:13:16.945104Z",
    "local": 1529507596945104,
    "long": 5,
    "raw": "AP8=",
    "list": [17702, None],
    "pairs": {"k": "AfQ="},
    "point": {"x": 1.5, "wkb": "AP8="},
}
FIELDS = [
    field("id", "int64"),
    field("flag", "boolean"),
    field("name", "string"),
    decimal("price", 2, 10),
    field("ratio", "double"),
    field("single", "float"),
    field("day", "int32", "io.debezium.time.Date"),
    field("clock", "int64", "io.debezium.time.MicroTime"),
    field("at", "string", "io.debezium.time.ZonedTimestamp"),
    field("local", "int64", "io.debezium.time.MicroTimestamp"),
    field("long", "int64", "io.debezium.time.MicroDuration"),
    field("raw", "bytes"),
    field("list", "array", items=field("", "int32", "io.debezium.time.Date")),
    field("pairs", "map", keys=field("", "string"), values=decimal("", 2)),
    struct("point", [field("x", "double"), field("wkb", "bytes")], "io.debezium.data.geometry.Point"),
]
KEY = wrapped({"id": 1}, key_schema([field("id", "int64")]))
DOCUMENT = json.dumps(
    {"_id": {"$oid": "a"}, "name": "x", "at": {"$date": 1}, "raw": {"$binary": "AA==", "$type": "00"}}
)
SCHEMA_CHANGE = {
    "source": SOURCES["mysql"],
    "databaseName": "d",
    "ddl": "ALTER",
    "tableChanges": [
        {
            "type": "ALTER",
            "id": '"d"."t"',
            "table": {
                "primaryKeyColumnNames": ["id"],
                "columns": [{"name": "id", "typeName": "DECIMAL(5,2)", "length": 5, "scale": 2, "position": 1}],
            },
        }
    ],
}
END = {"status": "END", "id": "1:2", "event_count": 1, "data_collections": [{"data_collection": "t", "event_count": 1}]}
DMS = {"data": ROW, "metadata": {"record-type": "data", "operation": "update", "timestamp": "2021-01-01T00:00:00Z"}}
GOLDENGATE = {"table": "T", "op_type": "U", "op_ts": "2021-01-01 00:00:00", "pos": "1", "before": ROW, "after": ROW}
SEEDS: dict[str, list[Any]] = {
    "debezium": [
        *(wrapped(envelope(op, ROW, ROW), envelope_schema(FIELDS)) for op in "crudtm"),
        *(envelope("u", ROW, ROW, connector) for connector in SOURCES if connector != "mongodb"),
        envelope("c", None, DOCUMENT, "mongodb"),
        envelope("u", None, None, "mongodb", updateDescription={"updatedFields": DOCUMENT, "removedFields": ["a"]}),
        envelope("c", None, ROW, transaction={"id": "1", "total_order": 1, "data_collection_order": 1}),
        SCHEMA_CHANGE,
        wrapped(END, None),
    ],
    "dms": [DMS, {**DMS, "before-image": ROW}],
    "goldengate": [GOLDENGATE, {"op_type": "I", **ROW}],
    "insert_delete": [{"insert": ROW}, {"update": ROW}, {"delete": ROW}],
    "raw": [ROW],
    "weighted": [{"weight": 2, "data": ROW}, {"weight": 0, "data": ROW}],
}
OPTIONS = [
    {},
    {"time_precision": "connect", "decimal_mode": "string", "binary_mode": "hex", "excess_precision": "truncate"},
    {
        "missing_columns": "keep",
        "unknown_columns": "ignore",
        "document_column": "name",
        "binary_mode": "base64-url-safe",
    },
]
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1 << 31,
    1 << 63,
    -(1 << 63),
    10**4000,
    0.5,
    1e308,
    -1e-300,
    "",
    "x",
    "AAAA",
    "é\u0000",
    "\ud800",
    "9" * 5000,
    "-",
    "0x",
    "P1D",
    "P" + "9" * 18 + "D",
    "NaN",
    "2018-06-20",
    "0000-00-00",
    "99999-01-01T00:00:00Z",
    "__debezium_unavailable_value",
    [],
    [[]],
    [None],
    {},
    {"a": {}},
    {"scale": 1 << 40, "value": "AAAA"},
    {"scale": -9999, "value": "AAAA"},
    {"year": 1, "month": 1, "day": 99},
    {"year": 2018, "month": 6, "day": 20, "hour": 25},
    {"days": 1 << 62},
    {"specialValue": "INFINITY"},
    {"$date": "x"},
    {"$oid": None},
    '{"$date": {"$numberLong": "99999999999999999999"}}',
    "c",
    "r",
    "u",
    "d",
    "t",
    "m",
    "END",
    "mongodb",
    "int32",
    "struct",
    "io.debezium.time.Interval",
    "org.apache.kafka.connect.data.Decimal",
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside of a value, with each of its places."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, part in list(inner):
        yield value, place
        yield from places(part)


def mutated(seed: Any, chance: random.Random) -> Any:
    value = copy.deepcopy(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        found = list(places(value))
        if not found:
            return value
        container, place = chance.choice(found)
        what = chance.random()
        if what < 0.6:
            container[place] = copy.deepcopy(chance.choice(ODD))
        elif what < 0.75:
            del container[place]
        elif what < 0.85 and isinstance(container, dict):
            container[chance.choice(["ID", "op", "after", "x", "", "schema", "type", "name", "_id"])] = container.pop(
                place
            )
        else:
            other, at = chance.choice(found)
            container[place] = copy.deepcopy(other[at])
    return value


def tried(decoder: Any, value: bytes | None, key: bytes | None, table: TableContract) -> None:
    """Decode a record, and let the intake judge its changes; anything but their own refusals comes out of here."""
    refusal, changes = refused(lambda: decoder.decode(Record(value, key)).changes)
    if refusal is not None:
        assert isinstance(refusal, Undecodable)
        assert refusal.stage in ("text", "schema", "envelope", "values")
    for change in changes or ():
        refused(lambda one=change: table.decode(one))


def refused(attempt: Callable[[], Any]) -> tuple[Undecodable | BadValue | None, Any]:
    """The refusal of an attempt, which has a reason of a bearable length, or what it gave."""
    try:
        return None, attempt()
    except (Undecodable, BadValue) as refusal:
        found = refusal
    assert 0 < len(found.reason) < 2_000
    return found, None


@pytest.mark.thorough
@pytest.mark.parametrize("form", sorted(FORMATS))
@pytest.mark.parametrize("table", [TABLE, BAG], ids=["key", "bag"])
def test_no_mutated_record_breaks_a_decoder(form: str, table: TableContract) -> None:
    chance = random.Random(7)
    decoders = [FORMATS[form](table, read_options(options)) for options in OPTIONS]
    for number in range(1_000):
        seed = SEEDS[form][number % len(SEEDS[form])]
        value = mutated(seed, chance)
        key = mutated(KEY, chance) if number % 5 == 0 else KEY
        decoder = decoders[number % len(decoders)]
        tried(decoder, _bytes(value), _bytes(key), table)


@pytest.mark.thorough
@pytest.mark.parametrize("form", sorted(FORMATS))
@settings(FIXED, max_examples=200)
@given(content=st.binary(max_size=200), key=st.none() | st.binary(max_size=40))
def test_no_bytes_break_a_decoder(form: str, content: bytes, key: bytes | None) -> None:
    tried(FORMATS[form](TABLE, FormatOptions()), content, key, TABLE)


@pytest.mark.thorough
@pytest.mark.parametrize("form", sorted(FORMATS))
@settings(FIXED, max_examples=150)
@given(data=st.data())
def test_no_damaged_text_breaks_a_decoder(form: str, data: st.DataObject) -> None:
    whole = _bytes(data.draw(st.sampled_from(SEEDS[form])))
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(begin + 20, len(whole))))
    content = whole[:begin] + data.draw(st.binary(max_size=5)) + whole[end:]
    decoder = FORMATS[form](TABLE, FormatOptions())
    # One that was read before leaves its schema behind.
    tried(decoder, whole, None, TABLE)
    tried(decoder, content, None, TABLE)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_records_that_are_made_to_hurt(form: str) -> None:
    decoder = FORMATS[form](TABLE, FormatOptions())
    row = json.dumps(ROW).encode()

    def take(content: bytes) -> None:
        tried(decoder, content, None, TABLE)
        tried(decoder, row, content, TABLE)
        tried(decoder, None, content, TABLE)

    for content in (
        b'{"op":"c","after":{"id":1e999999999999}}',
        b'{"op":"c","op":"c","after":{}}',
        b'{"op":"c","after":{"name":"\xff"}}',
        b"\xef\xbb\xbf" + row,
        b"\xff\xfe" + json.dumps(ROW).encode("utf-16-le"),
    ):
        take(content)
    # What is small costs too little to be compared by itself.
    usual = 20 * cost_of(lambda: take(row))
    for long, short in zip(_long(10_000), _long(1_000), strict=True):
        assert cost_of(partial(take, long)) < 30 * max(cost_of(partial(take, short)), usual)


def _long(parts: int) -> list[bytes]:
    """Return records of so many parts; to look through one of them again for each part would cost the square."""
    return [
        b"[" * parts,
        b'{"a":' * parts,
        b'{"op":"c","after":' + b'{"a":' * (parts // 11) + b"1" + b"}" * (parts // 11 + 1),
        b'{"schema":'
        + b'{"type":"array","items":' * (parts // 20)
        + b"1"
        + b"}" * (parts // 20)
        + b',"payload":{"op":"c","after":{}}}',
        b'{"op":"c","after":{"id":' + b"9" * 10 * parts + b"}}",
        b'{"op":"c","after":{"price":"' + b"A" * 100 * parts + b'"}}',
        b'{"op":"c","after":{' + b",".join(b'"c%d":1' % n for n in range(2 * parts)) + b"}}",
        json.dumps({"op": "c", "after": {"pairs": {"k" * 10 * parts: 1}}}).encode(),
        json.dumps({"op": "c", "after": {"point": "[" * 5 * parts}}).encode(),
    ]


def _bytes(value: Any) -> bytes:
    return dumped(value)
