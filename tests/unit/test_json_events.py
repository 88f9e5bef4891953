"""Events as JSON: the same values as everywhere, in every envelope, fast enough for a feed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.feeds.batch import Batch, EventForm, Events, Mark, null_rows
from headrace.feeds.json_events import event_texts, key_texts, row_texts
from headrace.json_forms import json_rows
from tests.costs import cost_of

AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
COLUMNS = StructType([StructField("id", LongType(), False), StructField("name", StringType())])

_TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.text(st.characters(exclude_categories=("Cs",)))),
    "f": (pa.float64(), st.floats()),
    "f32": (pa.float32(), st.floats(width=32)),
    "d2": (pa.decimal128(12, 2), st.decimals(-9_999_999, 9_999_999, places=2, allow_nan=False)),
    "d10": (pa.decimal128(20, 10), st.decimals(-9_999_999, 9_999_999, places=10, allow_nan=False)),
    "ts": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "ntz": (pa.timestamp("us"), st.datetimes()),
    "far": (pa.timestamp("us", "UTC"), st.integers(-(2**62), 2**62)),
    "day": (pa.date32(), st.dates() | st.integers(-5_000_000, 5_000_000)),
    "bin": (pa.binary(), st.binary(max_size=20)),
    "list": (pa.list_(pa.decimal128(5, 1)), st.lists(st.decimals(-99, 99, places=1, allow_nan=False), max_size=3)),
    "map": (pa.map_(pa.string(), pa.int32()), st.dictionaries(st.text("ab\"\\", max_size=3), st.integers(0, 9))),
    "row": (pa.struct([("y", pa.date32())]), st.fixed_dictionaries({"y": st.dates()})),
}  # fmt: skip


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_row_is_written_as_json_rows_tells_it(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 6))
    columns: dict[str, pa.ChunkedArray] = {}
    for name, (kind, values) in _TYPES.items():
        drawn = data.draw(st.lists(st.none() | values, min_size=count, max_size=count))
        if pa.types.is_map(kind):
            drawn = [None if one is None else list(one.items()) for one in drawn]
        if name == "day":
            drawn = [(one - date(1970, 1, 1)).days if isinstance(one, date) else one for one in drawn]
            columns[name] = pa.chunked_array([pa.array(drawn, pa.int32()).cast(kind)])
        elif name == "far":
            columns[name] = pa.chunked_array([pa.array(drawn, pa.int64()).cast(kind)])
        else:
            columns[name] = pa.chunked_array([pa.array(drawn, kind)])
    rows = pa.table(columns)
    assert [json.loads(one) for one in row_texts(rows).to_pylist()] == json_rows(rows)


def test_text_that_is_no_utf8_has_marks_for_its_broken_bytes() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0])), pa.py_buffer(b"\xff\x41")]
    )
    rows = pa.table({"s": broken})
    assert [json.loads(one) for one in row_texts(rows).to_pylist()] == json_rows(rows) == [{"s": "\ufffdA"}]


def form(envelope: Any = "ours", old: bool = False) -> EventForm:
    return EventForm("f", "t", COLUMNS, ("id",), old, envelope)


def batch(envelope: Any = "ours", old: bool = False, scan: bool = False) -> Batch:
    rows = pa.table({"id": pa.array([1, 2, 3]), "name": ["a", 'q"\n', "gone"]})
    before = pa.table({"id": pa.array([None, 2, 3], pa.int64()), "name": [None, "before", "gone"]})
    epoch = Events.of_epoch(4, AT, ["INSERT", "UPDATE", "DELETE"], rows, before)
    times = np.array([AT, AT, AT + timedelta(seconds=1)], dtype=object)
    events = replace(epoch, epochs=np.array([4, 4, 5]), committed_at=times, scan=scan)
    return Batch.of(form(envelope, old), events, Mark(5, 1, 9))


def test_an_event_of_ours_has_the_old_row_only_when_asked() -> None:
    first, second, third = (json.loads(one) for one in event_texts(batch()))
    assert first == {
        "sequence": 7, "timestamp": "2026-03-01T12:00:00.250000+00:00", "table": "t", "operation": "INSERT",
        "key": {"id": 1}, "new_row": {"id": 1, "name": "a"},
    }  # fmt: skip
    assert list(first) == ["sequence", "timestamp", "table", "operation", "key", "new_row"]
    assert second["new_row"]["name"] == 'q"\n'
    assert (third["operation"], third["new_row"], third["key"]) == ("DELETE", None, {"id": 3})
    first, second, third = (json.loads(one) for one in event_texts(batch(old=True)))
    assert [one["old_row"] for one in (first, second, third)] == [
        None,
        {"id": 2, "name": "before"},
        {"id": 3, "name": "gone"},
    ]


def test_the_other_envelopes() -> None:
    told = [json.loads(one) for one in event_texts(batch("wrapped", old=True))]
    assert [(one["after"], one["before"], one["key"]) for one in told] == [
        ({"id": 1, "name": "a"}, None, [1]),
        ({"id": 2, "name": 'q"\n'}, {"id": 2, "name": "before"}, [2]),
        (None, {"id": 3, "name": "gone"}, [3]),
    ]
    assert told[0]["updated"] == "1772366400250000000.0000000007"
    assert told[0]["updated"] < told[1]["updated"] < told[2]["updated"]
    told = [json.loads(one) for one in event_texts(batch("debezium"))]
    assert [(one["op"], one["before"]) for one in told] == [("c", None), ("u", None), ("d", {"id": 3})]
    assert (told[2]["after"], told[0]["source"]["table"], told[0]["ts_ms"]) == (None, "t", 1772366400250)
    assert {json.loads(one)["op"] for one in event_texts(batch("debezium", scan=True))} == {"r"}
    assert key_texts(batch()) == [b'{"id":1}', b'{"id":2}', b'{"id":3}']


@pytest.mark.parametrize("envelope", ["ours", "wrapped", "debezium"])
def test_a_reset_tells_the_columns(envelope: Any) -> None:
    nothing = null_rows(pa.schema([("id", pa.int64()), ("name", pa.string())]), 1)
    reset = Batch.of(form(envelope), Events.of_epoch(9, AT, "RESET", nothing), Mark(9, None, 3))
    told = json.loads(event_texts(reset)[0])
    if envelope == "ours":
        assert (told["operation"], told["new_row"], told["sequence"]) == ("RESET", None, 3)
    assert envelope == "debezium" or told["columns"] == [
        {"name": "id", "type": "bigint"},
        {"name": "name", "type": "string"},
    ]
    assert key_texts(reset) == [b"null"]


@pytest.mark.slow
def test_events_cost_less_than_their_rows_one_by_one() -> None:
    count = 20_000
    amounts = [Decimal(one) / 100 for one in range(count)]
    moments = [AT + timedelta(microseconds=one) for one in range(count)]
    rows = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "user_id": pa.array(range(count), pa.int32()),
            "amount": pa.array(amounts, pa.decimal128(12, 2)),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "currency": ["EUR"] * count,
            "note": [f"payment {one}" for one in range(count)],
            "ok": [True] * count,
            "rate": [1.5] * count,
        }
    )
    events, mark = Events.of_epoch(1, AT, "INSERT", rows, rows), Mark(1, count, count)

    def write() -> None:
        assert len(event_texts(Batch.of(form(), events, mark))) == count

    # Measured at a quarter.
    assert cost_of(write) < 0.7 * cost_of(lambda: [json.dumps(row, default=str) for row in rows.to_pylist()])
