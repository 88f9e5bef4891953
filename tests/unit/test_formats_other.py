"""What AWS DMS and Oracle GoldenGate write, and changes as Headrace writes them itself."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    BinaryType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.capture.formats import FORMATS
from headrace.capture.messages import (
    Message,
    NoChange,
    Origin,
    Position,
    RowChange,
    Tombstone,
    Transaction,
    Truncation,
    Undecodable,
)
from headrace.capture.options import read_options
from headrace.capture.record import Record
from headrace.intake.table import TableContract
from tests.debezium_events import record

COLUMNS = StructType(
    [
        StructField("id", LongType(), False),
        StructField("name", StringType()),
        StructField("price", DecimalType(10, 2)),
        StructField("at", TimestampType()),
        StructField("raw", BinaryType()),
    ]
)
KEYED = TableContract("things", COLUMNS, ("id",))
BAG = TableContract("things", COLUMNS)
AT = datetime(2021, 3, 22, 9, 52, 42, 123456, tzinfo=UTC)


def decode(form: str, value: Any, table: TableContract = KEYED, key: Any = None, **options: Any) -> Message:
    return FORMATS[form](table, read_options(options)).decode(record(value, key))


def changes(form: str, value: Any, table: TableContract = KEYED, **options: Any) -> list[Any]:
    message = decode(form, value, table, **options)
    assert isinstance(message, RowChange)
    return list(message.changes)


def dms(operation: str, data: Any, kind: str = "data", **more: Any) -> dict[str, Any]:
    metadata = {
        "timestamp": "2021-03-22T09:52:42.123456Z",
        "record-type": kind,
        "operation": operation,
        "partition-key-type": "primary-key",
        "partition-key-value": "things.1",
        "schema-name": "shop",
        "table-name": "things",
        "transaction-id": 87978110091475,
        "transaction-record-id": 3,
        "commit-timestamp": "2021-03-22T09:52:42.123456Z",
        "stream-position": "mysql-bin-changelog.000003:484",
    } | more.pop("metadata", {})
    return {"data": data, "metadata": metadata, **more}


ROW = {"id": 1, "name": "a", "price": Decimal("1.50"), "at": "2021-03-22T09:52:42.123456Z", "raw": "AP8="}
EXACT = (1, "a", Decimal("1.50"), AT, b"\x00\xff")


def test_dms() -> None:
    for operation, meant in (("load", "read"), ("insert", "create"), ("update", "update")):
        message = decode("dms", dms(operation, ROW))
        assert isinstance(message, RowChange)
        assert message.operation == meant
        assert KEYED.decode(message.changes[0]).row == EXACT
        assert message.origin == Origin(
            "dms",
            "shop.things",
            Position("mysql-bin-changelog.000003:484"),
            AT,
            Transaction("87978110091475", 3),
            snapshot=operation == "load",
        )
    assert changes("dms", dms("delete", {"id": 1})) == [{"delete": {"id": 1}}]
    assert changes("dms", dms("delete", ROW))[0] == {"delete": {"id": 1}}
    # Many write numbers and times as text.
    texts = {"id": "1", "name": "a", "price": "1.50", "at": "2021-03-22 09:52:42.123456", "raw": "AP8="}
    assert KEYED.decode(changes("dms", dms("insert", texts))[0]).row == EXACT


def test_what_dms_leaves_out_is_null_or_kept() -> None:
    assert changes("dms", dms("update", {"id": 1, "name": "b"})) == [{"insert": {"id": 1, "name": "b"}}]
    kept = changes("dms", dms("update", {"id": 1, "name": "b"}), missing_columns="keep")
    assert kept == [{"update": {"id": 1, "name": "b"}}]


def test_the_row_before_in_dms() -> None:
    moved = [{"delete": {"id": 1}}, {"insert": {"id": 2, "name": "b"}}]
    after = {"id": 2, "name": "b"}
    assert changes("dms", dms("update", after, **{"before-image": {"id": 1}})) == moved
    assert changes("dms", dms("update", after, was={"id": 1}), before_image="was") == moved
    assert changes("dms", dms("update", {**after, "BI_id": 1})) == moved
    full = {"id": 1, "name": "a", "price": None, "at": None, "raw": None}
    assert changes("dms", dms("update", {**full, "name": "b"}, **{"before-image": full}), BAG) == [
        {"delete": full},
        {"insert": {**full, "name": "b"}},
    ]
    with pytest.raises(Undecodable, match="no key to find it by"):
        decode("dms", dms("update", full), BAG)


def test_control_records_of_dms() -> None:
    for operation in ("create-table", "drop-table", "add-column", "rename-table"):
        message = decode("dms", dms(operation, None, "control"))
        assert isinstance(message, NoChange)
        assert message.meaning == "control"
    assert isinstance(decode("dms", dms("truncate-table", None, "control")), Truncation)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "no object"),
        ({"data": ROW}, "metadata"),
        (dms("insert", None), "data of a record"),
        (dms("upsert", ROW), "upsert"),
        (dms("insert", ROW, "other"), "record-type"),
        (dms("update", ROW, **{"before-image": 7}), "before-image"),
        (dms("insert", {"id": 1, "at": 5}), "nobody said"),
        (dms("insert", {"id": 1, "raw": "?"}), "base64"),
    ],
)
def test_what_dms_never_wrote_is_told(value: Any, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason):
        decode("dms", value)


def gg(operation: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {**_meta(operation), "before": before, "after": after, **more}


def _meta(operation: str) -> dict[str, Any]:
    return {
        "table": "SHOP.THINGS",
        "op_type": operation,
        "op_ts": "2021-03-22 09:52:42.123456",
        "current_ts": "2021-03-22T09:52:44.899000",
        "pos": "00000000000000004338",
        "primary_keys": ["ID"],
        "tokens": {"6": "9.0.80330", "L": "206080450", "R": "AADPkvAAEAAEqLzAAC"},
    }


UPPER = {"ID": 1, "NAME": "a", "PRICE": "1.50", "AT": "2021-03-22:09:52:42.123456", "RAW": "AP8="}


def test_goldengate_models_operations() -> None:
    message = decode("goldengate", gg("I", None, UPPER))
    assert isinstance(message, RowChange)
    assert KEYED.decode(message.changes[0]).row == EXACT
    assert message.origin == Origin(
        "goldengate", "SHOP.THINGS", Position("00000000000000004338", (4338,)), AT, Transaction("9.0.80330")
    )
    assert changes("goldengate", gg("U", {"ID": 1}, {**UPPER, "NAME": "b"}))[0]["insert"]["name"] == "b"
    assert changes("goldengate", gg("D", UPPER)) == [{"delete": {"id": 1}}]
    moved = changes("goldengate", gg("U", {"ID": 1}, {**UPPER, "ID": 2}))
    assert [next(iter(one)) for one in moved] == ["delete", "insert"]
    assert isinstance(decode("goldengate", gg("T")), Truncation)


def test_what_goldengate_leaves_out_is_kept_or_null() -> None:
    after = {"ID": 1, "NAME": "b"}
    assert changes("goldengate", gg("U", None, after)) == [{"update": {"id": 1, "name": "b"}}]
    assert changes("goldengate", gg("U", None, after), missing_columns="null") == [{"insert": {"id": 1, "name": "b"}}]
    before = {"ID": 1, "NAME": "a", "PRICE": 1, "AT": None, "RAW": None}
    whole = {"id": 1, "name": "b", "price": 1, "at": None, "raw": None}
    assert changes("goldengate", gg("U", before, after)) == [{"insert": whole}]
    marked = {
        "ID": 1,
        "ID_isMissing": False,
        "NAME": None,
        "NAME_isMissing": True,
        "PRICE": None,
        "PRICE_isMissing": False,
    }
    assert changes("goldengate", gg("U", None, marked)) == [{"update": {"id": 1, "price": None}}]


def test_goldengate_models_rows() -> None:
    assert KEYED.decode(changes("goldengate", {**_meta("I"), **UPPER})[0]).row == EXACT
    assert changes("goldengate", {**_meta("U"), "ID": 1, "NAME": "b"}) == [{"update": {"id": 1, "name": "b"}}]
    assert changes("goldengate", {**_meta("D"), "ID": 1}) == [{"delete": {"id": 1}}]
    assert isinstance(decode("goldengate", _meta("T")), Truncation)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "no object"),
        (gg("X", None, UPPER), "op_type"),
        (gg("I"), "no after"),
        (gg("D"), "no before"),
        (gg("U", UPPER, None), "no after"),
        (gg("I", None, 7), "no object"),
        ({"op_type": ["I"], "after": UPPER}, "op_type"),
    ],
)
def test_what_goldengate_never_wrote_is_told(value: Any, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason):
        decode("goldengate", value)


def test_changes_as_headrace_writes_them() -> None:
    row = {"id": 1, "name": "a"}
    for kind, operation in (("insert", "create"), ("update", "update"), ("delete", "delete")):
        message = decode("insert_delete", {kind: row})
        assert isinstance(message, RowChange)
        assert (message.operation, list(message.changes)) == (operation, [{kind: row}])
    for bad in (row, {"upsert": row}, {"insert": row, "delete": row}, {"insert": 7}, [], None, 7):
        with pytest.raises(Undecodable):
            decode("insert_delete", bad if bad is not None else "null")


def test_a_record_of_debezium_in_the_usual_format_names_the_format_that_reads_it() -> None:
    envelope = {"op": "c", "before": None, "after": {"id": 1}, "source": {}}
    for value in (envelope, {"schema": {}, "payload": envelope}):
        with pytest.raises(Undecodable, match="format = 'debezium'"):
            decode("insert_delete", value)
    with pytest.raises(Undecodable) as other:
        decode("insert_delete", {"payload": 7})
    assert "debezium" not in str(other.value)


def test_a_row_without_an_envelope_in_the_usual_format_names_the_format_that_reads_it() -> None:
    with pytest.raises(Undecodable, match=r"WITH \(format = 'raw'\)"):
        decode("insert_delete", {"id": 1, "name": "a"})
    for value in ({"insert": 7}, {"insert": ROW, "delete": ROW}, {}, [ROW]):
        with pytest.raises(Undecodable) as told:
            decode("insert_delete", value)
        assert "raw" not in str(told.value)


def test_rows_and_weights() -> None:
    row = {"id": 1, "name": "a"}
    assert changes("raw", row) == [{"insert": row}]
    assert changes("weighted", {"weight": 2, "data": row}) == [{"insert": row}] * 2
    assert changes("weighted", {"weight": -1, "data": row}) == [{"delete": row}]
    assert decode("weighted", {"weight": 0, "data": row}) == NoChange("empty")
    for form, bad in (
        ("raw", [row]),
        ("weighted", row),
        ("weighted", {"weight": 10**9, "data": row}),
        ("weighted", {"weight": 0, "data": {"id": "x"}}),
    ):
        with pytest.raises(Undecodable):
            decode(form, bad)


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"debezium"}))
def test_a_tombstone_deletes_what_its_key_names(form: str) -> None:
    gone = Tombstone(({"delete": {"id": 7}},))
    assert decode(form, None, key={"id": 7}) == gone
    assert decode(form, None, key={"ID": 7, "more": 1}) == gone
    assert decode(form, None, key=7) == gone
    assert decode(form, None, key={"name": "a"}) == Tombstone()
    assert decode(form, None, BAG, key={"id": 7}) == Tombstone()
    assert decode(form, None) == Tombstone()
    assert FORMATS[form](KEYED, read_options({})).decode(Record(None, b"{")) == Tombstone()
