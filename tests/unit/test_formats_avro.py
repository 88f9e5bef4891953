"""Avro in the wire format of registries: schemas as encodings, envelopes and plain records, and hostile bytes."""

from __future__ import annotations

import io
import json
import random
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
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

from headrace.capture.formats.avro import Avro
from headrace.capture.formats.registry import RegisteredSchema
from headrace.capture.messages import (
    Message,
    RowChange,
    SchemaChange,
    Tombstone,
    TransactionBoundary,
    Truncation,
    Undecodable,
)
from headrace.capture.options import FormatOptions, read_options
from headrace.capture.record import Record
from headrace.intake.table import TableContract
from tests.debezium_events import SOURCES

COLUMNS = StructType(
    [StructField("id", LongType()), StructField("name", StringType()), StructField("price", DecimalType(10, 2))]
)
KEYED = TableContract("things", COLUMNS, ("id",))
PLACEHOLDER = "__debezium_unavailable_value"


class Schemas:
    """A registry in memory: what the real one answers is tried elsewhere."""

    def __init__(self, *schemas: Any, references: tuple[str, ...] = ()) -> None:
        self.texts = [one if isinstance(one, str) else json.dumps(one) for one in schemas]
        self.references = references

    def schema(self, number: int) -> RegisteredSchema:
        if not 1 <= number <= len(self.texts):
            raise Undecodable(f"the schema registry does not know schema {number}", "schema")
        return RegisteredSchema(self.texts[number - 1], self.references)


def written(value: Any, schema: Any, number: int = 1, named: dict[str, Any] | None = None) -> bytes:
    """A value in the wire format, as any producer writes it."""
    stream = io.BytesIO()
    parsed = fastavro.parse_schema(schema, named_schemas={} if named is None else named)
    fastavro.schemaless_writer(stream, parsed, value)
    return struct.pack(">bI", 0, number) + stream.getvalue()


def reader(table: TableContract | None, *schemas: Any, **options: Any) -> Avro:
    registry: Any = Schemas(*schemas)
    return Avro(table, read_options(options), registry)


def connect(kind: Any, meant: str, **parts: Any) -> dict[str, Any]:
    """A type as Connect's converter writes it."""
    return {"type": kind, "connect.version": 1, "connect.name": meant, **parts}


def nullable(kind: Any) -> list[Any]:
    return ["null", kind]


VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": nullable("string"), "default": None},
        {
            "name": "price",
            "type": nullable(
                connect(
                    "bytes",
                    "org.apache.kafka.connect.data.Decimal",
                    scale=2,
                    precision=10,
                    logicalType="decimal",
                    **{"connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}},
                )
            ),
            "default": None,
        },
    ],
    "connect.name": "shop.public.things.Value",
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": nullable("string")},
        {"name": "db", "type": "string"},
        {"name": "sequence", "type": nullable("string")},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "txId", "type": nullable("long")},
        {"name": "lsn", "type": nullable("long")},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.things",
    "fields": [
        {"name": "before", "type": nullable(VALUE), "default": None},
        {"name": "after", "type": nullable("Value"), "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": nullable("long"), "default": None},
        {
            "name": "transaction",
            "type": nullable(
                {
                    "type": "record",
                    "name": "block",
                    "namespace": "event",
                    "fields": [
                        {"name": "id", "type": "string"},
                        {"name": "total_order", "type": "long"},
                        {"name": "data_collection_order", "type": "long"},
                    ],
                }
            ),
        },
    ],
    "connect.name": "shop.public.things.Envelope",
}
KEY = {"type": "record", "name": "Key", "namespace": "shop.public.things", "fields": [{"name": "id", "type": "long"}]}


def event(op: str, before: Any = None, after: Any = None, transaction: Any = None, number: int = 1) -> bytes:
    source = {field["name"]: SOURCES["postgresql"].get(field["name"]) for field in SOURCE["fields"]}
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1, "transaction": transaction}
    return written(value, ENVELOPE, number)


def row(number: int, name: str | None, price: str | None) -> dict[str, Any]:
    return {"id": number, "name": name, "price": None if price is None else Decimal(price)}


def changes(message: Message) -> list[Any]:
    assert isinstance(message, RowChange)
    return list(message.changes)


def test_envelopes_of_debezium() -> None:
    decoder = reader(KEYED, ENVELOPE, KEY)
    (change,) = changes(decoder.decode(Record(event("c", None, row(1, "a", "1.50")))))
    assert KEYED.decode(change).row == (1, "a", Decimal("1.50"))
    moved = changes(decoder.decode(Record(event("u", row(1, "a", None), row(2, "b", "-0.01")))))
    assert moved[0] == {"delete": {"id": 1}}
    assert KEYED.decode(moved[1]).row == (2, "b", Decimal("-0.01"))
    kept = changes(decoder.decode(Record(event("u", None, row(1, PLACEHOLDER, None)))))
    assert kept == [{"update": {"id": 1, "price": None}}]
    assert changes(decoder.decode(Record(event("d", row(1, None, None))))) == [{"delete": {"id": 1}}]
    key = written({"id": 7}, KEY, 2)
    assert changes(decoder.decode(Record(event("d"), key))) == [{"delete": {"id": 7}}]
    assert changes(decoder.decode(Record(event("d"), b'{"id": 7}'))) == [{"delete": {"id": 7}}]
    assert decoder.decode(Record(None, key)) == Tombstone(({"delete": {"id": 7}},))
    assert decoder.decode(Record(None, b"\x00")) == Tombstone()
    assert isinstance(decoder.decode(Record(event("t"))), Truncation)
    block = {"id": "571:53195832", "total_order": 3, "data_collection_order": 2}
    message = decoder.decode(Record(event("c", None, row(1, "a", None), block)))
    assert isinstance(message, RowChange)
    assert message.origin.transaction is not None
    assert message.origin.transaction.order == 3
    assert message.origin.position.order == (33000, 33040)


def test_other_messages_of_debezium() -> None:
    end = {
        "type": "record",
        "name": "TransactionMetadataValue",
        "fields": [
            {"name": "status", "type": "string"},
            {"name": "id", "type": "string"},
            {"name": "event_count", "type": nullable("long")},
        ],
    }
    ddl = {
        "type": "record",
        "name": "SchemaChangeValue",
        "fields": [{"name": "databaseName", "type": nullable("string")}, {"name": "ddl", "type": nullable("string")}],
    }
    decoder = reader(KEYED, end, ddl)
    boundary = decoder.decode(Record(written({"status": "END", "id": "1", "event_count": 2}, end)))
    assert boundary == TransactionBoundary("END", "1", None, 2)
    change = decoder.decode(Record(written({"databaseName": "d", "ddl": "CREATE"}, ddl, 2)))
    assert change == SchemaChange((), "CREATE")


def test_a_schema_describes_its_table() -> None:
    decoder = reader(None, ENVELOPE, KEY, VALUE)
    key = written({"id": 1}, KEY, 2)
    for content in (event("c", None, row(1, "a", None)), written(row(1, "a", None), VALUE, 3)):
        described = decoder.describe(Record(content, key))
        assert described is not None
        assert described.key == ("id",)
        assert [(one.name, one.data_type.simpleString()) for one in described.columns] == [
            ("id", "bigint"),
            ("name", "string"),
            ("price", "decimal(10,2)"),
        ]
    assert decoder.describe(Record(None, key)) is None


AT = datetime(2018, 6, 20, 15, 13, 16, 945104)
MICROS = 1529507596945104
VALUES: list[tuple[Any, Any, DataType, Any]] = [
    ("int", 7, LongType(), 7),
    ("boolean", True, StringType(), "true"),
    ("float", 0.1, FloatType(), 0.10000000149011612),
    ("double", 0.1, DoubleType(), 0.1),
    ("double", float("inf"), DoubleType(), float("inf")),
    ("bytes", b"\x00\xff", BinaryType(), b"\x00\xff"),
    ("bytes", b"\x00\xff", StringType(), "AP8="),
    ({"type": "fixed", "name": "F", "size": 2}, b"\x00\xff", BinaryType(), b"\x00\xff"),
    ({"type": "enum", "name": "E", "symbols": ["red", "blue"]}, "blue", StringType(), "blue"),
    ({"type": "int", "logicalType": "date"}, date(2018, 6, 20), DateType(), date(2018, 6, 20)),
    ({"type": "int", "logicalType": "time-millis"}, time(4, 5, 11, 789000), TimeType(6), time(4, 5, 11, 789000)),
    ({"type": "long", "logicalType": "time-micros"}, time(4, 5, 11, 789123), TimeType(6), time(4, 5, 11, 789123)),
    (
        {"type": "long", "logicalType": "timestamp-micros"},
        AT.replace(tzinfo=UTC),
        TimestampType(),
        AT.replace(tzinfo=UTC),
    ),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, MICROS, TimestampNTZType(), AT),
    ({"type": "long", "logicalType": "timestamp-micros"}, MICROS, LongType(), MICROS),
    (connect("long", "io.debezium.time.MicroTimestamp"), MICROS, TimestampNTZType(), AT),
    (
        connect("string", "io.debezium.time.ZonedTimestamp"),
        "2018-06-20T15:13:16.945104Z",
        TimestampType(),
        AT.replace(tzinfo=UTC),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        Decimal("-1.50"),
        DecimalType(10, 2),
        Decimal("-1.50"),
    ),
    (
        {"type": "fixed", "name": "D", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 10},
        Decimal("1.5"),
        DecimalType(38, 10),
        Decimal("1.5000000000"),
    ),
    (
        {"type": "string", "logicalType": "uuid"},
        "a1b2c3d4-0000-4000-8000-000000000000",
        StringType(),
        "a1b2c3d4-0000-4000-8000-000000000000",
    ),
    (
        {"type": "array", "items": {"type": "int", "logicalType": "date"}},
        [17702],
        ArrayType(DateType()),
        [date(2018, 6, 20)],
    ),
    ({"type": "map", "values": "long"}, {"a": 1}, MapType(StringType(), LongType()), [("a", 1)]),
    (
        {"type": "record", "name": "P", "fields": [{"name": "x", "type": "double"}]},
        {"x": 1.5},
        StructType([StructField("x", DoubleType())]),
        {"x": 1.5},
    ),
    (
        connect(
            "record",
            "io.debezium.data.VariableScaleDecimal",
            name="V",
            fields=[{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        ),
        {"scale": 1, "value": b"\x0f"},
        DecimalType(10, 2),
        Decimal("1.50"),
    ),
    (["null", "int", "string"], "a", StringType(), "a"),
    (["null", "int", "string"], 7, StringType(), "7"),
    ("null", None, StringType(), None),
]


@pytest.mark.parametrize(("kind", "value", "data_type", "expected"), VALUES)
def test_a_plain_record_is_a_row(kind: Any, value: Any, data_type: DataType, expected: Any) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "c", "type": kind}]}
    table = TableContract("t", StructType([StructField("id", LongType()), StructField("c", data_type)]), ("id",))
    (change,) = changes(reader(table, schema).decode(Record(written({"id": 1, "c": value}, schema))))
    found = table.decode(change).row
    assert found is not None
    assert found[1] == expected


def test_a_schema_may_refer_to_others() -> None:
    inner = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    outer = {
        "type": "record",
        "name": "Row",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": nullable("Address")}],
    }
    named: dict[str, Any] = {}
    fastavro.parse_schema(inner, named_schemas=named)
    content = written({"id": 1, "name": {"city": "Oslo"}}, outer, named=named)
    registry: Any = Schemas(outer, references=(json.dumps(inner),))
    decoder = Avro(KEYED, FormatOptions(), registry)
    assert changes(decoder.decode(Record(content))) == [{"insert": {"id": 1, "name": '{"city":"Oslo"}'}}]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("not json", "not JSON"),
        ("7", "is 7"),
        ('"unknown"', "unknown type"),
        ({"type": "record", "name": "R", "fields": 7}, "fields"),
        ({"type": "record", "name": "R", "fields": [7]}, "field"),
        ({"type": "record", "fields": []}, "name"),
        ({"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}, "contains itself"),
        ({"type": "array", "items": "null"}, "without bytes"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "without bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "without bytes"),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, "size"),
        ({"type": "enum", "name": "E", "symbols": [1]}, "symbols"),
        ([], "no branch"),
        ([{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}], "twice"),
        ({"type": "bytes", "logicalType": "decimal", "scale": "many"}, "scale"),
        ("[" * 500 + '"int"' + "]" * 500, "nested too deeply"),
    ],
)
def test_a_schema_that_cannot_be_used_is_told(schema: Any, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason) as refused:
        reader(KEYED, schema).decode(Record(struct.pack(">bI", 0, 1) + b"\x02\x02"))
    assert refused.value.stage == "schema"


@pytest.mark.parametrize("number", [b"\x01", b"\x03", b"\x04"])
def test_an_enum_has_no_symbol_of_a_negative_number(number: bytes) -> None:
    colour = {"type": "enum", "name": "E", "symbols": ["red", "blue"]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "s", "type": colour}]}
    with pytest.raises(Undecodable, match="not Avro of its schema"):
        reader(KEYED, schema).decode(Record(struct.pack(">bI", 0, 1) + b"\x02" + number))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "wire format"),
        (b"\x00\x00\x00", "wire format"),
        (b"\x01\x00\x00\x00\x01\x02", "wire format"),
        (b'{"id": 1}', "wire format"),
        (b"\x00\x00\x00\x00\x09\x02", "does not know schema 9"),
        (struct.pack(">bI", 0, 1), "not Avro"),
        (written(row(1, "a", None), VALUE) + b"x", "1 bytes are left over"),
        (written(row(1, "a" * 100, None), VALUE)[:-20], "not Avro"),
        (struct.pack(">bI", 0, 1) + b"\x80" * 30, "not Avro"),
        (struct.pack(">bI", 0, 1) + b"\x02\x02\x06\xff\xff\xff\x00", "not Avro"),
    ],
)
def test_bytes_that_are_no_avro_are_told(content: bytes, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason):
        reader(KEYED, VALUE).decode(Record(content))


def test_no_damaged_bytes_break_the_decoder() -> None:
    chance = random.Random(7)
    decoder = reader(KEYED, ENVELOPE, KEY, VALUE)
    seeds = [event("u", row(1, "a", "1.50"), row(2, "b", None)), written(row(1, "abc", "1.50"), VALUE, 3)]
    for number in range(3_000):
        content = bytearray(seeds[number % 2])
        for _ in range(chance.choice((1, 1, 2, 5))):
            content[chance.randrange(5, len(content))] = chance.randrange(256)
        if chance.random() < 0.3:
            del content[chance.randrange(5, len(content)) :]
        try:
            decoder.decode(Record(bytes(content), bytes(content)))
        except Undecodable:
            continue


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.binary(max_size=100))
def test_no_bytes_break_the_decoder(content: bytes) -> None:
    decoder = reader(KEYED, ENVELOPE, KEY, VALUE)
    for number in (1, 2, 3):
        try:
            decoder.decode(Record(struct.pack(">bI", 0, number) + content, content))
        except Undecodable:
            continue
