"""Every value that Spark can compute has a JSON form, also those that Python cannot hold."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.json_forms import date_text, json_column, json_rows, moment_text, with_readable_text
from headrace.serving.feldera.json_rows import CHANGES, QUERY
from headrace.serving.feldera.json_rows import json_rows as texts
from headrace.serving.feldera.results import respond, text_lines
from headrace.serving.rows import ARROW, CSV, JSON, NDJSON, Result, written

DAY = dt.date(1970, 1, 1)


@given(st.dates())
def test_dates_are_written_as_python_writes_them(day: dt.date) -> None:
    assert date_text((day - DAY).days) == day.isoformat()


@given(st.datetimes())
def test_times_are_written_as_python_writes_them(moment: dt.datetime) -> None:
    assert moment_text((moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)) == moment.isoformat()


@given(st.integers(-(2**31), 2**31 - 1))
def test_dates_of_any_year_are_those_of_numpy(days: int) -> None:
    assert int(np.datetime64(date_text(days).lstrip("+"), "D").astype(np.int64)) == days


@pytest.mark.parametrize(
    "text", ["-290307-12-21", "-0044-03-15", "-0001-12-31", "0000-02-29", "0001-01-01", "9999-12-31", "+10000-01-01"]
)
def test_years_beyond_python(text: str) -> None:
    days = int(np.datetime64(text.lstrip("+"), "D").astype(np.int64))
    column = pa.chunked_array([pa.array([days, None], pa.int32()).cast(pa.date32())])
    assert json_column(column) == [text, None]


@given(st.lists(st.none() | st.datetimes(), min_size=1), st.sampled_from([None, "UTC"]))
def test_a_column_of_times_is_written_as_python_writes_them(
    moments: list[dt.datetime | None], zone: str | None
) -> None:
    column = pa.chunked_array(
        [pa.array([None, *moments], pa.timestamp("us", zone)).slice(1), pa.array([], pa.timestamp("us", zone))]
    )
    end = "" if zone is None else "+00:00"
    assert json_column(column) == [None if one is None else one.isoformat() + end for one in moments]


@pytest.mark.parametrize("ticks", [-(2**63), -(2**63) + 1, 2**63 - 1])
def test_the_first_and_the_last_time_of_all(ticks: int) -> None:
    column = pa.chunked_array([pa.array([ticks, None, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))])
    assert json_column(column) == [moment_text(ticks) + "+00:00", None, "1970-01-01T00:00:00+00:00"]


@given(st.data(), st.integers(1, 38), st.booleans())
def test_decimals_are_written_as_python_writes_them(data: st.DataObject, precision: int, nulls: bool) -> None:
    scale = data.draw(st.integers(0, precision))
    digits = st.integers(-(10**precision) + 1, 10**precision - 1) | st.sampled_from([0, 1, -1, 9, -9])
    with decimal.localcontext(prec=50):
        numbers = [Decimal(one).scaleb(-scale) for one in data.draw(st.lists(digits, min_size=1))]
        given = [None, *numbers] if nulls else [Decimal(0), *numbers]
        array = pa.array(given, pa.decimal128(precision, scale))
        column = pa.chunked_array([array if nulls else array.slice(1)])
        wanted = [f"{one:f}" for one in numbers]
    assert json_column(column) == ([None, *wanted] if nulls else wanted)


def broken(*values: bytes | None) -> Any:
    """Text that is not UTF-8, as Spark hands it over."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), raw.buffers())


def _odd() -> pa.Table:
    text = broken(b"a\xffb", None, b"ok")
    far = pa.array([2**62, None, -(2**62)], pa.int64())
    return pa.table(
        {
            "s": text,
            "d": pa.array([-735_525, 0, 2**27], pa.int32()).cast(pa.date32()),
            "t": far.cast(pa.timestamp("us", "UTC")),
            "n": far.cast(pa.timestamp("us")),
            "list": pa.ListArray.from_arrays([0, 2, 2, 3], text),
            "struct": pa.StructArray.from_arrays([text, far.cast(pa.timestamp("us"))], ["s", "t"]),
            "map": pa.MapArray.from_arrays([0, 1, 1, 2], broken(b"\xff", b"k"), broken(b"v", b"\xfe")),
        }
    )


def test_values_that_python_cannot_hold_have_a_form() -> None:
    first, second, third = json_rows(_odd())
    assert first["s"] == "a�b"
    assert first["d"] == "-0044-03-15"
    assert first["t"] == f"{first['n']}+00:00"
    assert first["n"].startswith("+148108-")
    assert third["n"].startswith("-144169-")
    assert (first["list"], first["struct"]["s"], first["map"]) == (["a�b", None], "a�b", {"�": "v"})
    assert second == {"s": None, "d": "1970-01-01", "t": None, "n": None, "list": [], "map": {}} | {
        "struct": {"s": None, "t": None}
    }
    assert json.loads(json.dumps([first, third])) == [first, third]


@pytest.mark.parametrize("media", [JSON, NDJSON, CSV, ARROW])
def test_every_answer_is_whole(media: str) -> None:
    sent = b"".join(written(Result(_odd(), 7), media))
    if media == JSON:
        assert json.loads(sent)["rows"] == json_rows(_odd())
    elif media == NDJSON:
        assert [json.loads(line) for line in sent.splitlines()] == json_rows(_odd())
    elif media == CSV:
        rows = pyarrow.csv.read_csv(io.BytesIO(sent))
        assert rows.column("s")[0].as_py() == "a�b"
    else:
        table = pa.ipc.open_stream(sent).read_all()
        table.validate(full=True)
        assert table.column("s").to_pylist() == ["a�b", None, "ok"]


@pytest.mark.parametrize("spelling", [QUERY, CHANGES])
def test_the_other_client_gets_them_too(spelling: Any) -> None:
    first, _, _ = (json.loads(text) for text in texts(_odd(), spelling))
    assert first["s"] == "a�b"
    assert first["d"] == "-0044-03-15"
    assert first["t"] == first["n"]
    assert first["t"].startswith("+148108-")
    assert first["t"][13] == spelling.between
    assert first["list"] == ["a�b", None]


def test_the_other_client_gets_whole_tables() -> None:
    assert any("a�b" in line for line in text_lines(_odd()))
    for form in ("json", "text", "hash", "parquet", "arrow_ipc"):
        assert respond(_odd(), form).status_code == 200  # pyright: ignore[reportArgumentType]


def test_good_text_is_left_alone() -> None:
    table = pa.table({"s": ["ä", None], "l": [["x"], None], "i": [1, 2]})
    assert with_readable_text(table) is table
