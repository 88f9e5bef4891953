"""A change is decoded to exact values or refused with every reason against it."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    Row,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import StatementError, UnsupportedStatement
from headrace.intake.table import NO_CHANGE, Decoded, TableContract
from headrace.intake.values import BadValue

ORDERS = StructType(
    [
        StructField("Id", LongType(), False),
        StructField("amount", DecimalType(10, 2), False),
        StructField("at", TimestampType()),
        StructField("note", StringType()),
    ]
)
BAG = TableContract("bag", ORDERS)
KEYED = TableContract("keyed", ORDERS, ("ID",))
SEQUENCED = TableContract("sequenced", ORDERS, ("id",), "AT")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
FULL = (1, Decimal("1.50"), NOON, "x")
ROW = {"Id": 1, "amount": "1.5", "at": "2024-01-01T12:00:00Z", "note": "x"}
BARE = (1, Decimal("1.50"), None, None)

ACCEPTED: list[tuple[TableContract, object, Decoded]] = [
    (BAG, {"insert": ROW}, Decoded(False, FULL, (), FULL, None)),
    (BAG, {"delete": ROW}, Decoded(True, FULL, (), FULL, None)),
    (BAG, {"insert": {"Id": 1, "amount": "1.5"}}, Decoded(False, BARE, (), BARE, None)),
    (BAG, {"delete": {"Id": 1, "amount": "1.5", "at": None}}, Decoded(True, BARE, (), BARE, None)),
    (BAG, {"insert": {"ID": 1, "AMOUNT": "1.5"}}, Decoded(False, BARE, (), BARE, None)),
    (BAG, {"insert": Row(id=1, amount=Decimal("1.5"))}, Decoded(False, BARE, (), BARE, None)),
    (KEYED, {"insert": ROW}, Decoded(False, FULL, (1,), (1,), None)),
    (KEYED, {"delete": {"id": 1}}, Decoded(True, None, (1,), (1,), None)),
    (KEYED, {"delete": {"Id": 1, "amount": "no number"}}, Decoded(True, None, (1,), (1,), None)),
    (KEYED, {"delete": ROW}, Decoded(True, None, (1,), (1,), None)),
    (SEQUENCED, {"insert": ROW}, Decoded(False, FULL, (1,), (1,), NOON)),
    (SEQUENCED, {"delete": {"id": 1, "at": "2024-01-01T12:00"}}, Decoded(True, None, (1,), (1,), NOON)),
    (
        KEYED,
        {"insert": {"Id": 1, "amount": 1.5, "note": pa.scalar(None, pa.string())}},
        Decoded(False, BARE, (1,), (1,), None),
    ),
]

REFUSED: list[tuple[TableContract, object, str]] = [
    (BAG, None, NO_CHANGE),
    (BAG, [], NO_CHANGE),
    (BAG, {}, NO_CHANGE),
    (BAG, ROW, NO_CHANGE),
    (BAG, {"upsert": ROW}, NO_CHANGE),
    (BAG, {"insert": ROW, "delete": ROW}, NO_CHANGE),
    (BAG, {"insert": None}, "a row is an object by column name, got NULL"),
    (BAG, {"insert": [1, 2]}, "a row is an object by column name, got [1, 2]"),
    (BAG, {"insert": {**ROW, "colour": 1}}, "unknown column 'colour'; the columns are Id, amount, at, note"),
    (
        KEYED,
        {"delete": {"id": 1, "colour": 1}},
        "unknown column 'colour'; the columns are Id, amount, at, note",
    ),
    (BAG, {"insert": {**ROW, 5: 1}}, "unknown column 5; the columns are Id, amount, at, note"),
    (BAG, {"insert": {**ROW, "ID": 1}}, "column Id is given twice"),
    (BAG, {"insert": {"Id": 1}}, "column amount is missing, but it is NOT NULL"),
    (BAG, {"insert": {"Id": 1, "amount": None}}, "column amount is NULL, but it is NOT NULL"),
    (BAG, {"delete": {"Id": 1}}, "column amount is missing, but it is NOT NULL"),
    (KEYED, {"delete": {}}, "column Id is missing, but it is part of the key"),
    (KEYED, {"insert": {**ROW, "Id": None}}, "column Id is NULL, but it is part of the key"),
    (SEQUENCED, {"delete": {"id": 1}}, "column at is missing, but the table's SEQUENCE BY needs it"),
    (SEQUENCED, {"insert": {**ROW, "at": None}}, "column at is NULL, but the table's SEQUENCE BY needs it"),
    (
        BAG,
        {"insert": {"Id": "1", "amount": "1.005", "note": 5}},
        "column Id: expected an integer for BIGINT, got '1'; column amount: '1.005' would be rounded to fit "
        "DECIMAL(10,2); column note: expected a string for STRING, got 5",
    ),
]


@pytest.mark.parametrize(("contract", "change", "decoded"), ACCEPTED)
def test_a_change_is_decoded(contract: TableContract, change: object, decoded: Decoded) -> None:
    assert contract.decode(change) == decoded
    assert contract.decode_all([change, change]) == ([decoded, decoded], {})
    assert isinstance(contract.decode_all([change])[0][0], Decoded)


@pytest.mark.parametrize(("contract", "change", "reason"), REFUSED)
def test_a_bad_change_is_refused(contract: TableContract, change: object, reason: str) -> None:
    with pytest.raises(BadValue) as caught:
        contract.decode(change)
    assert caught.value.reason == reason
    good = {"insert": ROW}
    decoded, reasons = contract.decode_all([good, change, good])
    assert reasons == {1: reason}
    assert decoded == [contract.decode(good), None, contract.decode(good)]


def test_changes_keep_their_order() -> None:
    changes = [{"insert": {**ROW, "Id": n}} if n % 3 else {"delete": {"id": n}} for n in range(20)]
    decoded, reasons = KEYED.decode_all(changes)
    assert not reasons
    assert [change.key for change in decoded if change is not None] == [(n,) for n in range(20)]
    assert decoded == [KEYED.decode(change) for change in changes]


def test_json_numbers_are_read_as_decimals() -> None:
    text = '{"insert": {"id": 1, "amount": 0.1, "note": "x"}}'
    assert KEYED.decode(json.loads(text, parse_float=Decimal)).row == (1, Decimal("0.10"), None, "x")


def test_equal_keys_have_one_identity() -> None:
    schema = StructType(
        [
            StructField("a", DoubleType(), False),
            StructField("b", ArrayType(IntegerType()), False),
            StructField("c", MapType(StringType(), IntegerType()), True),
        ]
    )
    keyed = TableContract("t", schema, ("b", "a"))
    one = keyed.decode({"insert": {"a": -0.0, "b": [1], "c": {"x": 1, "y": 2}}})
    two = keyed.decode({"delete": {"a": 0.0, "b": np.array([1])}})
    assert one.identity == two.identity == keyed.key_identity(([1], 0.0))
    assert two.key == ([1], 0.0)
    bag = TableContract("t", schema)
    left = bag.decode({"insert": {"a": math.nan, "b": [1], "c": {"x": 1, "y": 2}}})
    right = bag.decode({"delete": {"a": "NaN", "b": [1], "c": {"y": 2, "x": 1}}})
    assert left.identity == right.identity


def test_names_are_as_declared() -> None:
    assert SEQUENCED.key == ("Id",)
    assert SEQUENCED.sequence == "at"


@pytest.mark.parametrize(
    ("key", "sequence", "message"),
    [
        (("nope",), None, "table t has no column nope"),
        (("id",), "nope", "table t has no column nope"),
        (("id", "ID"), None, "the key of table t names a column twice"),
        ((), "at", "table t has SEQUENCE BY without a key"),
    ],
)
def test_a_contract_that_makes_no_sense_is_refused(key: tuple[str, ...], sequence: str | None, message: str) -> None:
    with pytest.raises(StatementError, match=message):
        TableContract("t", ORDERS, key, sequence)


def test_columns_of_one_name_are_refused() -> None:
    schema = StructType([StructField("a", LongType()), StructField("A", LongType())])
    with pytest.raises(StatementError, match="two columns of one name"):
        TableContract("t", schema)


def test_a_sequence_without_an_order_is_refused() -> None:
    schema = StructType([StructField("id", LongType()), StructField("m", MapType(LongType(), LongType()))])
    with pytest.raises(UnsupportedStatement, match="a MAP has no order"):
        TableContract("t", schema, ("id",), "m")


def test_of_very_many_refused_changes_the_first_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.intake.table.MOST_REASONS", 10)
    contract = TableContract("t", StructType([StructField("id", IntegerType())]), ("id",))
    for bad in ({"insert": {"id": "x"}}, {"insert": 7}, 7):
        decoded, reasons = contract.decode_all([bad] * 1000)
        assert sorted(reasons) == list(range(10))
        assert decoded == [None] * 1000
