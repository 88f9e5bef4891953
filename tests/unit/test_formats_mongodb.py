"""Documents of MongoDB: extended JSON in all its versions, whole documents and what an update changed of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.capture.formats.debezium import DebeziumJson
from headrace.capture.formats.extended_json import read_extended
from headrace.capture.messages import Position, RowChange, Tombstone, Undecodable
from headrace.capture.options import FormatOptions, read_options
from headrace.intake.table import TableContract
from tests.debezium_events import envelope, record

OID = "596e275826f08b2730779e1f"
AT = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
MILLIS = 1700000000123
COLUMNS = StructType(
    [StructField("_id", StringType()), StructField("name", StringType()), StructField("n", LongType())]
)
TABLE = TableContract("things", COLUMNS, ("_id",))
KEY = {"id": json.dumps({"$oid": OID})}
DOCUMENT = {"_id": {"$oid": OID}, "name": "Anne", "n": {"$numberLong": "5"}}


def change(op: str, table: TableContract = TABLE, key: Any = KEY, options: Any = None, **parts: Any) -> RowChange:
    payload = envelope(op, connector="mongodb", **parts)
    message = DebeziumJson(table, read_options(options or {})).decode(record(payload, key))
    assert isinstance(message, RowChange)
    return message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"$oid": "596e275826f08b2730779e1f"}', OID),
        ('{"$numberInt": "7"}', 7),
        ('{"$numberLong": "-7"}', -7),
        ('{"$numberLong": 7}', 7),
        ('{"$numberDouble": "0.1"}', Decimal("0.1")),
        ('{"$numberDouble": "-Infinity"}', Decimal("-Infinity")),
        ('{"$numberDecimal": "1.10"}', Decimal("1.10")),
        (f'{{"$date": {MILLIS}}}', AT),
        (f'{{"$date": {{"$numberLong": "{MILLIS}"}}}}', AT),
        ('{"$date": "2023-11-14T22:13:20.123Z"}', "2023-11-14T22:13:20.123Z"),
        ('{"$binary": "AP8=", "$type": "00"}', b"\x00\xff"),
        ('{"$binary": {"base64": "AP8=", "subType": "00"}}', b"\x00\xff"),
        (
            '{"$binary": {"base64": "obLD1AAAQACAAAAAAAAAAA==", "subType": "04"}}',
            "a1b2c3d4-0000-4000-8000-000000000000",
        ),
        ('{"$uuid": "a1b2c3d4-0000-4000-8000-000000000000"}', "a1b2c3d4-0000-4000-8000-000000000000"),
        ('{"$undefined": true}', None),
        ('{"$symbol": "s"}', "s"),
        ('{"$timestamp": {"t": 1, "i": 2}}', {"$timestamp": {"t": 1, "i": 2}}),
        ('{"$regex": "a", "$options": "i"}', {"$regex": "a", "$options": "i"}),
        ('{"$minKey": 1}', {"$minKey": 1}),
        ('{"$ref": "c", "$id": {"$oid": "a"}}', {"$ref": "c", "$id": "a"}),
        ('{"$numberLong": "1", "other": 2}', {"$numberLong": "1", "other": 2}),
        ('[1, {"a": {"$numberInt": "2"}}, 1.50]', [1, {"a": 2}, Decimal("1.50")]),
        ("12.34", Decimal("12.34")),
        ('"1234"', "1234"),
    ],
)
def test_extended_json(text: str, expected: Any) -> None:
    assert read_extended(text, "it") == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"$numberLong": "x"}',
        '{"$numberLong": 1.5}',
        '{"$numberDouble": []}',
        '{"$numberDecimal": "1e999999999999999999999"}',
        '{"$date": true}',
        '{"$date": {"$numberLong": "9223372036854775807"}}',
        '{"$binary": 7}',
        '{"$binary": {"base64": "?"}}',
        '{"$oid": 7}',
        "{broken",
        "[" * 1000,
        "{" + '"a":{' * 200 + "}" * 201,
    ],
)
def test_what_is_no_extended_json_is_told(text: str) -> None:
    with pytest.raises(Undecodable, match=r"^it"):
        read_extended(text, "it")


def test_whole_documents() -> None:
    row = {"_id": OID, "name": "Anne", "n": 5}
    text = json.dumps(DOCUMENT)
    assert list(change("c", after=text).changes) == [{"insert": row}]
    assert change("r", after=text).operation == "read"
    updated = change("u", after=text, updateDescription={"updatedFields": '{"name": "Anne"}'})
    assert list(updated.changes) == [{"insert": row}]
    assert list(change("d", before=text, key=None).changes) == [{"delete": {"_id": OID}}]
    assert updated.origin.position == Position("1700000000:31", (1700000000, 31, 0))
    assert updated.origin.table == "shop.things"


def test_a_deleted_document_is_known_by_its_key() -> None:
    for key, expected in ((KEY, OID), ({"id": '"1234"'}, "1234"), ({"id": "1234"}, "1234")):
        assert TABLE.decode(change("d", key=key).changes[0]).key == (expected,)
    for key in (None, {"id": 7}, {"other": "1"}, {"id": "{broken"}):
        with pytest.raises(Undecodable):
            change("d", key=key)
    assert list(change("d", options={"unknown_columns": "ignore"}).changes) == [{"delete": {"_id": OID}}]
    decoder = DebeziumJson(TABLE, FormatOptions())
    assert decoder.decode(record(None, KEY)) == Tombstone(({"delete": {"_id": OID}},))
    for key in ({"id": "{broken"}, {"id": 7}, {"other": "1"}):
        assert decoder.decode(record(None, key)) == Tombstone()


def test_what_an_update_changed_is_taken_and_the_rest_is_kept() -> None:
    description = {"updatedFields": '{"n": {"$numberLong": "6"}}', "removedFields": ["name"], "truncatedArrays": None}
    message = change("u", updateDescription=description)
    assert list(message.changes) == [{"insert": {"_id": OID, "n": 6, "name": None}}]
    message = change("u", updateDescription={**description, "removedFields": None})
    assert (list(message.changes), message.kept) == ([{"update": {"_id": OID, "n": 6}}], {"name"})
    before = json.dumps(DOCUMENT)
    message = change("u", before=before, updateDescription={**description, "removedFields": None})
    assert list(message.changes) == [{"insert": {"_id": OID, "n": 6, "name": "Anne"}}]


@pytest.mark.parametrize(
    "description",
    [
        None,
        7,
        {"updatedFields": '{"a.b": 1}'},
        {"updatedFields": "{}", "removedFields": ["a.b"]},
        {"updatedFields": "{}", "truncatedArrays": [{"field": "a", "size": 1}]},
        {"updatedFields": "[1]"},
        {"updatedFields": 7},
        {"updatedFields": "{}", "removedFields": 7},
    ],
)
def test_what_an_update_changed_of_a_part_is_refused(description: Any) -> None:
    with pytest.raises(Undecodable):
        change("u", updateDescription=description)


def column(value: Any, data_type: DataType) -> Any:
    """What a column holds of a field of a document."""
    table = TableContract("t", StructType([StructField("_id", StringType()), StructField("c", data_type)]), ("_id",))
    message = change("c", table, after=json.dumps({"_id": "1", "c": value}))
    row = table.decode(message.changes[0]).row
    assert row is not None
    return row[1]


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        ({"$date": MILLIS}, TimestampType(), AT),
        ({"$date": "2023-11-14T22:13:20.123Z"}, TimestampType(), AT),
        ({"$date": MILLIS}, StringType(), "2023-11-14T22:13:20.123000+00:00"),
        ({"$numberDecimal": "1.10"}, DecimalType(5, 2), Decimal("1.10")),
        ({"$numberDouble": "0.5"}, DoubleType(), 0.5),
        ({"$numberDouble": "Infinity"}, DoubleType(), float("inf")),
        ({"$numberLong": "5"}, LongType(), 5),
        ({"$numberLong": "5"}, StringType(), "5"),
        ({"$binary": {"base64": "AP8=", "subType": "00"}}, BinaryType(), b"\x00\xff"),
        ({"a": {"$oid": OID}, "b": [1, 2]}, StringType(), f'{{"a":"{OID}","b":[1,2]}}'),
        ({"a": {"$numberLong": "1"}}, StructType([StructField("a", LongType())]), {"a": 1}),
        ({"a": {"$numberLong": "1"}}, MapType(StringType(), LongType()), [("a", 1)]),
        ([{"$date": MILLIS}], ArrayType(TimestampType()), [AT]),
        (None, LongType(), None),
    ],
)
def test_fields_become_columns(value: Any, data_type: DataType, expected: Any) -> None:
    assert column(value, data_type) == expected


def test_a_whole_document_may_lie_in_one_column() -> None:
    columns = [StructField("_id", StringType()), StructField("doc", StringType()), StructField("n", LongType())]
    table = TableContract("things", StructType(columns), ("_id",))
    options = {"document_column": "doc"}
    text = json.dumps({**DOCUMENT, "deep": {"x": 1.50}})
    message = change("c", table, options=options, after=text)
    whole = f'{{"_id":"{OID}","name":"Anne","n":5,"deep":{{"x":1.5}}}}'
    assert table.decode(message.changes[0]).row == (OID, whole, 5)
    assert list(change("d", table, options=options).changes) == [{"delete": {"_id": OID}}]
    with pytest.raises(Undecodable, match="whole document"):
        change("u", table, options=options, updateDescription={"updatedFields": '{"n": 6}'})
