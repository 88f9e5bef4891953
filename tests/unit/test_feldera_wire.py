"""What the feldera client reads and writes, without a server."""

from __future__ import annotations

import json
from concurrent.futures import Future
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.catalog.catalog import Table
from headrace.intake.table import TableContract
from headrace.serving.feldera.client_values import from_client
from headrace.serving.feldera.errors import refused, unquoted
from headrace.serving.feldera.json_rows import CHANGES, QUERY, json_rows, writer
from headrace.serving.feldera.pipeline_status import PipelineStatus
from headrace.serving.feldera.results import naive, text_lines
from headrace.serving.feldera.schema import relation
from headrace.serving.problems import Refusal
from headrace.state.store import Store

MOMENT = datetime(2025, 11, 30, 0, 21, 44, 95001, tzinfo=UTC)
INSTANT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("value", "kind", "query", "changes"),
    [
        (7, pa.int64(), "7", "7"),
        (2**63 - 1, pa.int64(), "9223372036854775807", "9223372036854775807"),
        (True, pa.bool_(), "true", "true"),
        (Decimal("12.50"), pa.decimal128(12, 2), "12.50", '"12.50"'),
        (Decimal("0E-10"), pa.decimal128(38, 10), "0.0000000000", '"0.0000000000"'),
        (MOMENT, INSTANT, '"2025-11-30T00:21:44.095001"', '"2025-11-30 00:21:44.095001"'),
        (MOMENT.replace(microsecond=95000), INSTANT, '"2025-11-30T00:21:44.095"', '"2025-11-30 00:21:44.095"'),
        (MOMENT.replace(microsecond=0), INSTANT, '"2025-11-30T00:21:44"', '"2025-11-30 00:21:44"'),
        (date(2025, 11, 30), pa.date32(), '"2025-11-30"', '"2025-11-30"'),
        (time(1, 2, 3), pa.time64("us"), '"01:02:03"', '"01:02:03"'),
        (0.1, pa.float64(), "0.1", "0.1"),
        (float("nan"), pa.float64(), "null", "null"),
        (0.1, pa.float32(), "0.1", "0.1"),
        (float("inf"), pa.float32(), "null", "null"),
        ('ö"\n\u2028', pa.string(), '"ö\\"\\n\u2028"', '"ö\\"\\n\u2028"'),
        (b"ab", pa.binary(), '"YWI="', '"YWI="'),
        ([Decimal("1.5"), None], pa.list_(pa.decimal128(3, 1)), "[1.5,null]", '["1.5",null]'),
        ([(1, "a")], pa.map_(pa.int32(), pa.string()), '{"1":"a"}', '{"1":"a"}'),
        ({"a b": None}, pa.struct([("a b", pa.int8())]), '{"a b":null}', '{"a b":null}'),
        (timedelta(days=-1, microseconds=-500_000), pa.duration("us"), '"-P1DT0.5S"', '"-P1DT0.5S"'),
        (None, pa.int64(), "null", "null"),
    ],
)
def test_a_value_is_spelt_exactly(value: Any, kind: pa.DataType, query: str, changes: str) -> None:
    held = pa.array([value], kind).to_pylist()[0]
    assert writer(kind, QUERY)(held) == query
    assert writer(kind, CHANGES)(held) == changes
    (row,) = json_rows(pa.table({"c": pa.array([value], kind)}), QUERY)
    assert row == f'{{"c":{query}}}'
    json.loads(row)


def test_pandas_reads_an_interval_as_it_is_spelt() -> None:
    value = timedelta(days=-3, hours=5, microseconds=7)
    assert pd.Timedelta(json.loads(writer(pa.duration("us"), QUERY)(value))) == value


def test_rows_without_columns_are_still_rows() -> None:
    assert list(json_rows(pa.table({"a": [1, 2]}).select([]), QUERY)) == ["{}", "{}"]


def test_a_table_is_ruled() -> None:
    rows = pa.table({"n": [1, None], "text": ["two\nlines", '"quoted"']})
    assert list(text_lines(rows)) == [
        "+---+------------+",
        "| n | text       |",
        "+---+------------+",
        "| 1 | two\\nlines |",
        '|   | "quoted"   |',
        "+---+------------+",
    ]
    assert list(text_lines(rows.slice(0, 0))) == ["+---+------+", "| n | text |", "+---+------+"]


def test_timestamps_lose_their_zone_at_every_depth() -> None:
    kind = pa.struct([("at", INSTANT), ("all", pa.list_(pa.map_(pa.string(), INSTANT)))])
    value = {"at": MOMENT, "all": [[("x", MOMENT)]]}
    (found,) = naive(pa.table({"c": pa.array([value], kind)})).column("c").to_pylist()
    plain = MOMENT.replace(tzinfo=None)
    assert found == {"at": plain, "all": [[("x", plain)]]}


def test_the_client_finds_columns_by_the_names_they_have() -> None:
    described = relation("t", pa.schema([pa.field("id", pa.int32(), nullable=False), ("userId", pa.string())]))
    assert [(one["name"], one["case_sensitive"]) for one in described["fields"]] == [("id", False), ("userId", True)]
    assert described["fields"][0]["columntype"] == {"type": "INTEGER", "nullable": False}


def test_pandas_milliseconds_become_dates_and_timestamps() -> None:
    schema = StructType(
        [
            StructField("id", IntegerType()),
            StructField("At", TimestampType()),
            StructField("day", DateType()),
            StructField("local", TimestampNTZType()),
        ]
    )
    contract = TableContract("t", schema)
    table = Table("t", contract, Store("t", pa.schema([])))
    milliseconds = 1_764_460_800_095
    row = {"id": 1, "at": milliseconds, "day": 1_764_460_800_000, "local": milliseconds}
    (change,) = from_client([{"insert": row}], table, pandas=True)
    moment = datetime(2025, 11, 30, 0, 0, 0, 95000, tzinfo=UTC)
    assert change == {
        "insert": {"id": 1, "at": moment, "day": date(2025, 11, 30), "local": moment.replace(tzinfo=None)}
    }
    left = [{"insert": {"day": milliseconds}}, {"insert": {"at": 10**18}}, "no change", {"insert": "no row"}]
    _, reasons = contract.decode_all(from_client(left, table, pandas=True))
    assert sorted(reasons) == [0, 1, 2, 3]
    assert "would be rounded" in reasons[0]


def test_text_of_a_number_is_one_for_floating_point_only() -> None:
    schema = StructType(
        [StructField("x", DoubleType()), StructField("y", FloatType()), StructField("i", IntegerType())]
    )
    contract = TableContract("t", schema)
    table = Table("t", contract, Store("t", pa.schema([])))
    rows = [{"X": "1.5", "y": "1e2"}, {"x": "NaN"}, {"x": "1_0"}, {"x": "half"}, {"i": "1"}]
    decoded, reasons = contract.decode_all(from_client([{"insert": row} for row in rows], table, pandas=False))
    assert [one.row for one in decoded[:1] if one] == [(1.5, 100.0, None)]
    assert sorted(reasons) == [2, 3, 4]


def test_what_waits_is_counted_until_it_is_over() -> None:
    pipeline = PipelineStatus("home")
    submission: Future[Any] = Future()
    pipeline.count(5, submission)
    pipeline.count_done(2)
    assert (pipeline.counts.received, pipeline.counts.waiting) == (7, 5)
    submission.set_exception(Refusal(422, "no", "no"))
    assert (pipeline.counts.received, pipeline.counts.waiting) == (7, 0)


def test_a_stop_is_seen_even_if_a_start_follows() -> None:
    pipeline = PipelineStatus("home")
    for status in ("Stopped", "Stopped", "Running", "Paused", "Running"):
        pipeline.move(status)
    assert (pipeline.status, pipeline.stops) == ("Running", 1)


def test_a_refusal_has_the_words_of_both() -> None:
    answer = refused(Refusal(504, "timeout", "too slow", detail="It took long.", hint="wait", extra={"rows": 3}))
    content = json.loads(bytes(answer.body))
    assert answer.status_code == 400
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert (content["message"], content["error_code"]) == ("too slow: It took long.", "timeout")
    assert content["details"] == {"hint": "wait", "rows": 3}
    assert content["title"] == "too slow"


def test_quotes_around_a_name_are_the_client_s() -> None:
    assert [unquoted(name) for name in ('"Mixed"', "plain", '"', '""')] == ["Mixed", "plain", '"', '""']
