"""NDJSON or a JSON array as changes of a table, exact, with the line of everything that cannot be read.

Numbers with a point or an exponent become decimals, never floats: 0.1 stays one tenth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from json import JSONDecodeError, JSONDecoder
from typing import Any, Literal, cast

from headrace.intake.reasons import BadValue

UpdateFormat = Literal["insert_delete", "raw", "weighted"]

# One change of weight 1,000,000,000 is a short line; what it stands for would fill the memory.
LARGEST_WEIGHT = 10_000
# More are not looked for: whoever sends so many has sent something else than changes.
MOST_BAD = 10_000
_SPACE = " \t\r\n"
_BROKEN = re.compile("[\udc80-\udcff]")


class TooManyRepeats(ValueError):
    """Weights that stand for more rows than a body may become."""


class Unreadable(ValueError):
    """A line, or an element of an array, that is no change."""


@dataclass(frozen=True)
class BadLine:
    """One line that cannot be read, and why; lines are counted from 1."""

    line: int
    reason: str


@dataclass(frozen=True)
class Lines:
    """The changes of a body, the line on which each begins, and the lines that could not be read."""

    changes: list[object] = field(default_factory=list[object])
    lines: Sequence[int] = ()
    bad: list[BadLine] = field(default_factory=list[BadLine])


def read_lines(
    body: bytes,
    update_format: UpdateFormat = "insert_delete",
    repeats: int = 1_000_000,
    judge: Callable[[object], object] = lambda _: None,
) -> Lines:
    """The changes of a body: a JSON array of changes, or lines that hold a change or an array of changes each.

    A weight repeats its row; `TooManyRepeats` if all weights together do so more often than they may. A row of weight 0
    is no change, and no part of the answer: it is shown to `judge`, which raises `BadValue` if it is not as the table
    asks. Of more than `MOST_BAD` bad lines the rest of the body is not read.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Each byte that is no text becomes half of a surrogate pair, by which its line is told.
        text = body.decode("utf-8-sig", "surrogateescape")
        if text.lstrip(_SPACE).startswith("["):
            return Lines(bad=[BadLine(body.count(b"\n", 0, error.start) + 1, _no_text(body[error.start]))])
    as_changes = _Weighted(repeats, judge) if update_format == "weighted" else _FORMATS[update_format]
    if text.lstrip(_SPACE).startswith("["):
        whole = _read_array(text, as_changes)
        if whole is not None:
            return whole
    return _read_each_line(text, as_changes)


def _read_each_line(text: str, as_changes: _AsChanges) -> Lines:
    changes: list[object] = []
    lines: list[int] = []
    bad: list[BadLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(_SPACE):
            continue
        try:
            if not line.isascii() and (byte := _BROKEN.search(line)):
                raise Unreadable(_no_text(ord(byte[0]) - 0xDC00))
            value = read_json(line)
            if type(value) is list:
                for element in cast("list[Any]", value):
                    changes.extend(as_changes(element))
            else:
                changes.extend(as_changes(value))
        except Unreadable as error:
            bad.append(BadLine(number, str(error)))
            if len(bad) >= MOST_BAD:
                break
        if len(changes) > len(lines):
            lines.extend([number] * (len(changes) - len(lines)))
    return Lines(changes, lines, bad)


def _no_text(byte: int) -> str:
    return f"not UTF-8: byte 0x{byte:02x} cannot be read"


def _read_array(text: str, as_changes: _AsChanges) -> Lines | None:
    """One array over any number of lines; none if the text is several lines that begin with arrays."""
    begin = text.index("[")
    try:
        value, end = _decode(text, begin)
    except Unreadable as error:
        first = text[begin:].split("\n", 1)[0]
        try:
            _decode(first, 0)
        except Unreadable:
            # The array that the body begins with is broken, and nobody knows where it was to end.
            line = getattr(error, "line", text.count("\n", 0, begin) + 1)
            return Lines(bad=[BadLine(line, str(error))])
        return None
    if text[end:].strip(_SPACE):
        return None
    starts: list[int] | None = None
    changes: list[object] = []
    lines: list[int] = []
    bad: list[BadLine] = []
    for index, element in enumerate(cast("list[Any]", value)):
        if starts is None:
            starts = _element_lines(text, begin)
        try:
            changes.extend(as_changes(element))
        except Unreadable as error:
            bad.append(BadLine(starts[index], str(error)))
            if len(bad) >= MOST_BAD:
                break
        if len(changes) > len(lines):
            lines.extend([starts[index]] * (len(changes) - len(lines)))
    return Lines(changes, lines, bad)


def _element_lines(text: str, begin: int) -> list[int]:
    """The line on which each element of an array begins."""
    if "\n" not in text:
        return _Same(1)
    starts: list[int] = []
    index, line, counted = begin + 1, 1, 0
    while True:
        while text[index] in f"{_SPACE},":
            index += 1
        if text[index] == "]":
            return starts
        line += text.count("\n", counted, index)
        counted = index
        starts.append(line)
        index = _decode(text, index)[1]


class _Same(list[int]):
    """A list that answers every index with one number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __getitem__(self, index: Any) -> Any:
        return self._number


def read_json(text: str) -> Any:
    """One JSON value that fills the text, numbers exact; `Unreadable` if it is anything else."""
    begin = 0 if text.startswith("{") else len(text) - len(text.lstrip(_SPACE))
    value, end = _decode(text, begin)
    if end != len(text) and (rest := text[end:].lstrip(_SPACE)):
        raise Unreadable(f"not JSON: unexpected text after the value, at column {len(text) - len(rest) + 1}")
    return value


def _decode(text: str, begin: int) -> tuple[Any, int]:
    try:
        return _decoder.raw_decode(text, begin)
    except JSONDecodeError as error:
        unreadable = Unreadable(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}, at column {error.colno}")
        unreadable.line = error.lineno  # type: ignore[attr-defined]
        raise unreadable from None
    except RecursionError:
        raise Unreadable("nested too deeply") from None
    except Unreadable:
        raise
    except ArithmeticError:
        raise Unreadable("not a number that can be read: its exponent is too large") from None
    except ValueError as error:
        raise Unreadable(f"not a number that can be read: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise Unreadable(f"the name {twice[:60]!r} is given twice in one object")
    return content


def _no_constant(name: str) -> Any:
    raise Unreadable(f'{name} is not JSON; write it as the string "{name}"')


_decoder = JSONDecoder(parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_unique)


def _insert_delete(value: Any) -> Sequence[object]:
    # What else a change must be is said by the table's contract, with the same words as in Python.
    return (value,)


def _raw(value: Any) -> Sequence[object]:
    return ({"insert": value},)


class _Weighted:
    """Rows so often as their weights say, up to so many repetitions in all."""

    def __init__(self, repeats: int, judge: Callable[[object], object]) -> None:
        self._left = repeats
        self._judge = judge

    def __call__(self, value: Any) -> Sequence[object]:
        if not isinstance(value, dict) or set(cast("dict[str, Any]", value)) != {"weight", "data"}:
            raise Unreadable('a weighted change is {"weight": number, "data": row}')
        weight, row = value["weight"], cast("object", value["data"])
        if type(weight) is not int:
            raise Unreadable("a weight is a whole number")
        if abs(weight) > LARGEST_WEIGHT:
            raise Unreadable(f"a weight is from -{LARGEST_WEIGHT} to {LARGEST_WEIGHT}")
        if weight == 0:
            try:
                self._judge({"insert": row})
            except BadValue as bad:
                raise Unreadable(bad.reason) from None
        self._left -= max(abs(weight) - 1, 0)
        if self._left < 0:
            raise TooManyRepeats
        return [{"insert" if weight > 0 else "delete": row}] * abs(weight)


_AsChanges = Callable[[Any], Sequence[object]]
_FORMATS: dict[UpdateFormat, _AsChanges] = {"insert_delete": _insert_delete, "raw": _raw}
