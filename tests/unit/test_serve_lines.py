"""Bodies as changes: exact values, and the line of everything that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from headrace.capture.exact_json import read_json
from headrace.capture.messages import Undecodable
from headrace.intake.table import TableContract
from headrace.serving.lines import MOST_BAD, TooManyRepeats, read_lines
from tests.costs import cost_of

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def _dumped(value: Any, **how: Any) -> str:
    """JSON with decimals as the numbers they are."""
    marks: dict[str, str] = {}

    def marked(inner: Any) -> Any:
        if isinstance(inner, Decimal):
            mark = f"\x00{len(marks)}\x00"
            marks[json.dumps(mark)] = f"{inner:f}" if inner.as_tuple().exponent not in (0,) else f"{inner}.0"
            return mark
        if isinstance(inner, list):
            return [marked(one) for one in inner]
        return {name: marked(one) for name, one in inner.items()} if isinstance(inner, dict) else inner

    text = json.dumps(marked(value), **how)
    for mark, number in marks.items():
        text = text.replace(mark, number if "." in number else f"{number}.0")
    return text


@pytest.mark.thorough
@settings(max_examples=30, deadline=None)  # the values take long to make up
@given(st.lists(st.dictionaries(st.text(), _values), min_size=1, max_size=5), st.booleans())
def test_what_was_written_is_read(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    lines = "\n".join(_dumped(row, ensure_ascii=ascii_only) for row in rows).encode("utf-8", "surrogatepass")
    try:
        lines.decode()
    except UnicodeDecodeError:
        return
    read = read_lines(lines, "raw")
    assert read.bad == []
    assert read.changes == [{"insert": row} for row in rows]
    assert list(read.lines) == list(range(1, len(rows) + 1))
    for indent in (None, 2):
        array = read_lines(_dumped(rows, indent=indent, ensure_ascii=ascii_only).encode(), "raw")
        assert array.changes == read.changes
        assert array.bad == []


@given(st.binary(max_size=200), st.sampled_from(["insert_delete", "raw", "weighted"]))
def test_no_body_breaks_the_reader(body: bytes, update_format: Any) -> None:
    read = read_lines(body, update_format)
    assert len(read.changes) == len([read.lines[index] for index in range(len(read.changes))])


@given(st.text(alphabet='[]{}",:01e.-\n ntrue', max_size=80), st.sampled_from(["insert_delete", "raw", "weighted"]))
def test_no_text_that_is_almost_json_breaks_the_reader(text: str, update_format: Any) -> None:
    read_lines(text.encode(), update_format)


def test_a_line_that_is_no_text_hides_no_other() -> None:
    read = read_lines(b'{"a": 1}\n{"b": "\xff"}\nnot json\n{"c": "\xc3\xa9"}\n\xe2\x82', "raw")
    assert read.changes == [{"insert": {"a": 1}}, {"insert": {"c": "é"}}]
    assert list(read.lines) == [1, 4]
    reasons = [(one.line, one.reason.split(":")[0]) for one in read.bad]
    assert reasons == [(2, "not UTF-8"), (3, "not JSON"), (5, "not UTF-8")]
    assert "0xff" in read.bad[0].reason


def test_numbers_are_never_floats() -> None:
    read = read_lines(b'{"a": 0.1, "b": 1e400, "c": 123456789012345678901234567890, "d": -0.0}', "raw")
    (change,) = read.changes
    row: Any = change["insert"]  # type: ignore[index]
    assert row == {
        "a": Decimal("0.1"),
        "b": Decimal("1e400"),
        "c": 123456789012345678901234567890,
        "d": Decimal("-0.0"),
    }
    assert [type(value) for value in row.values()] == [Decimal, Decimal, int, Decimal]


@pytest.mark.parametrize(
    ("body", "bad"),
    [
        (b'{"a": 1}\n{"a": \n{"a": 2}', [(2, "not JSON: expecting value, at column 7")]),
        (b'  {"a": }', [(1, "not JSON: expecting value, at column 9")]),
        (b'{"a": 1} {"a": 2}', [(1, "not JSON: unexpected text after the value, at column 10")]),
        (b'{"a": 1}, {"a": 2}', [(1, "not JSON: unexpected text after the value, at column 9")]),
        (b'\xef\xbb\xbf{"a": 1}', []),
        (b'{"a": 1}\n\xff', [(2, "not UTF-8: byte 0xff cannot be read")]),
        (b'{"a": Infinity}', [(1, 'Infinity is not JSON; write it as the string "Infinity"')]),
        (b'{"a": 1, "a": 1}', [(1, "the name 'a' is given twice in one object")]),
        (b"[" * 100_000, [(1, "nested too deeply")]),
        (b'{"a":' * 100_000, [(1, "nested too deeply")]),
        (b'[{"a": 1},\n {"a": }\n]', [(2, "not JSON: expecting value, at column 8")]),
        (b'[{"a": 1}]\n[{"a": }]', [(2, "not JSON: expecting value, at column 8")]),
        (b"", []),
        (b"\n\r\n \t\n", []),
        (b"[]", []),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(body: bytes, bad: list[tuple[int, str]]) -> None:
    assert [(one.line, one.reason) for one in read_lines(body).bad] == bad


def test_an_integer_of_thousands_of_digits_is_told() -> None:
    (one,) = read_lines(b'{"a": ' + b"1" * 5000 + b"}").bad
    assert "not a number that can be read" in one.reason
    assert read_lines(b'{"a": 0.' + b"1" * 5000 + b"}", "raw").bad == []


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ('{"weight": 2, "data": {"a": 1}}', [{"insert": {"a": 1}}] * 2),
        ('{"weight": -1, "data": {"a": 1}}', [{"delete": {"a": 1}}]),
        ('{"weight": 0, "data": {"a": 1}}', []),
        ('{"weight": 1.0, "data": {}}', None),
        ('{"weight": true, "data": {}}', None),
        ('{"weight": 100000000000, "data": {}}', None),
        ('{"weight": 1}', None),
        ("[[]]", None),
    ],
)
def test_weights(line: str, changes: list[Any] | None) -> None:
    read = read_lines(line.encode(), "weighted")
    assert bool(read.bad) == (changes is None)
    assert read.changes == (changes or [])


@pytest.mark.parametrize("form", ["%s\n%s", "[%s,\n%s]"])
def test_a_row_of_no_weight_is_judged_like_any_other(form: str) -> None:
    table = TableContract("t", StructType([StructField("x", LongType())]))
    good, bad = '{"weight": 0, "data": {"x": 1}}', '{"weight": 0, "data": {"x": "no", "q": 1}}'
    read = read_lines((form % (good, bad)).encode(), "weighted", table)
    assert read.changes == []
    ((line, reason),) = [(one.line, one.reason) for one in read.bad]
    assert line == 2
    assert "q" in reason


def test_lines_of_an_array_that_spans_many() -> None:
    one = '{"weight": %d, "data": {}}'
    body = f"\n[{one % 2},\n\n  {one % 1}, {one % 0},\n{one % 1}]".encode()
    read = read_lines(body, "weighted")
    assert list(read.lines) == [2, 2, 4, 5]


def test_one_value_alone() -> None:
    assert read_json(' {"a": 1.50} ') == {"a": Decimal("1.50")}
    with pytest.raises(Undecodable, match="after the value"):
        read_json("{} {}")


def test_lines_cost_little_more_than_to_parse_their_json() -> None:
    row = {"insert": {"id": 12345, "name": "a name", "price": 12.34, "at": "2026-01-02T03:04:05Z", "city": "Oslo"}}
    body = "\n".join([json.dumps(row)] * 5000).encode()
    assert len(read_lines(body).changes) == 5000
    # Measured at about as much.
    assert cost_of(lambda: read_lines(body)) < 5 * cost_of(lambda: [json.loads(one) for one in body.splitlines()])


def test_a_number_beyond_every_exponent_is_a_bad_line() -> None:
    lines = b'{"insert": {"d": 1}}\n{"insert": {"id": 2, "d": 1e99999999999999999999}}\n'
    read = read_lines(lines)
    assert [(one.line, one.reason.partition(":")[0]) for one in read.bad] == [(2, "not a number that can be read")]
    for text in ("[1e99999999999999999999]", '{"a": -1e-99999999999999999999}', "1E+99999999999999999999"):
        with pytest.raises(Undecodable):
            read_json(text)


def test_weights_are_bounded_by_what_they_stand_for() -> None:
    line = b'{"weight": 10000, "data": {"x": 1}}\n'
    assert len(read_lines(line * 10, "weighted", repeats=99_990).changes) == 100_000
    with pytest.raises(TooManyRepeats):
        read_lines(line * 10, "weighted", repeats=99_989)
    with pytest.raises(TooManyRepeats):
        read_lines(b"[" + b",".join([line] * 10) + b"]", "weighted", repeats=99_989)
    ones = b'{"weight": -1, "data": {"x": 1}}\n{"weight": 0, "data": {"x": 1}}\n' * 100
    assert len(read_lines(ones, "weighted", repeats=0).changes) == 100


@pytest.mark.parametrize("body_of", [lambda lines: b"x\n" * lines, lambda lines: b"[" + b"7,\n" * (lines // 2) + b"7]"])
def test_of_a_million_bad_lines_few_are_kept(body_of: Callable[[int], bytes]) -> None:
    def read(body: bytes) -> None:
        read = read_lines(body, "weighted")
        assert len(read.bad) == MOST_BAD
        assert [one.line for one in read.bad[:2]] == [1, 2]

    long, short = body_of(1_000_000), body_of(125_000)
    assert cost_of(lambda: read(long)) < 32 * cost_of(lambda: read(short))
