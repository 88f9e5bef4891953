"""NDJSON or a JSON array as changes of a table, exact, with the line of everything that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from headrace.capture.exact_json import SPACE, decode_at, no_text, read_json, refuse_depth
from headrace.capture.formats import FORMATS, JsonDecoder, insert_delete, raw, weighted
from headrace.capture.messages import Truncation, Undecodable
from headrace.capture.options import FormatOptions
from headrace.intake.table import TableContract

UpdateFormat = Literal["insert_delete", "raw", "weighted", "debezium", "dms", "goldengate"]

# More are not looked for: whoever sends so many has sent something else than changes.
MOST_BAD = 10_000
_BROKEN = re.compile("[\udc80-\udcff]")


class TooManyRepeats(ValueError):
    """Weights that stand for more rows than a body may become."""


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
    table: TableContract | None = None,
    repeats: int = 1_000_000,
    options: FormatOptions | None = None,
) -> Lines:
    """The changes of a body: a JSON array of changes, or lines that hold a change or an array of changes each.

    A weight repeats its row; `TooManyRepeats` if all weights together do so more often than they may. Of more than
    `MOST_BAD` bad lines the rest of the body is not read. What is no change of a row is no part of the answer, but for
    a truncate, which is a bad line.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Each byte that is no text becomes half of a surrogate pair, by which its line is told.
        text = body.decode("utf-8-sig", "surrogateescape")
        if text.lstrip(SPACE).startswith("["):
            return Lines(bad=[BadLine(body.count(b"\n", 0, error.start) + 1, no_text(body[error.start]))])
    as_changes = _as_changes(update_format, table, repeats, options or FormatOptions())
    if text.lstrip(SPACE).startswith("["):
        whole = _read_array(text, as_changes)
        if whole is not None:
            return whole
    return _read_each_line(text, as_changes)


def _read_each_line(text: str, as_changes: _AsChanges) -> Lines:
    changes: list[object] = []
    lines: list[int] = []
    bad: list[BadLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(SPACE):
            continue
        try:
            if not line.isascii() and (byte := _BROKEN.search(line)):
                raise Undecodable(no_text(ord(byte[0]) - 0xDC00))
            value = read_json(line)
            if type(value) is list:
                for element in cast("list[Any]", value):
                    changes.extend(as_changes(element))
            else:
                changes.extend(as_changes(value))
        except Undecodable as error:
            bad.append(BadLine(number, str(error)))
            if len(bad) >= MOST_BAD:
                break
        if len(changes) > len(lines):
            lines.extend([number] * (len(changes) - len(lines)))
    return Lines(changes, lines, bad)


def _read_array(text: str, as_changes: _AsChanges) -> Lines | None:
    """One array over any number of lines; none if the text is several lines that begin with arrays."""
    begin = text.index("[")
    try:
        value, end = decode_at(text, begin)
    except Undecodable as error:
        first = text[begin:].split("\n", 1)[0]
        try:
            decode_at(first, 0)
        except Undecodable:
            # The array that the body begins with is broken, and nobody knows where it was to end.
            line = error.line or text.count("\n", 0, begin) + 1
            return Lines(bad=[BadLine(line, str(error))])
        return None
    if text[end:].strip(SPACE):
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
        except Undecodable as error:
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
        while text[index] in f"{SPACE},":
            index += 1
        if text[index] == "]":
            return starts
        line += text.count("\n", counted, index)
        counted = index
        starts.append(line)
        index = decode_at(text, index)[1]


class _Same(list[int]):
    """A list that answers every index with one number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __getitem__(self, index: Any) -> Any:
        return self._number


def _as_changes(
    update_format: UpdateFormat, table: TableContract | None, repeats: int, options: FormatOptions
) -> _AsChanges:
    """From one value of a body to the changes that it stands for."""
    match update_format:
        case "insert_delete":
            return insert_delete.changes_of
        case "raw":
            return raw.changes_of
        case "weighted":
            return _Weighted(repeats, table)
        case _:
            return _Decoded(FORMATS[update_format](table, options), table)


class _Weighted:
    """Rows so often as their weights say, up to so many repetitions in all."""

    def __init__(self, repeats: int, table: TableContract | None) -> None:
        self._left = repeats
        self._judge: Callable[[object], object] = (lambda _: None) if table is None else table.decode

    def __call__(self, value: Any) -> Sequence[object]:
        changes = weighted.changes_of(value, self._judge)
        self._left -= max(len(changes) - 1, 0)
        if self._left < 0:
            raise TooManyRepeats
        return changes


class _Decoded:
    """Changes of a format that has more to say than these."""

    def __init__(self, decoder: JsonDecoder, table: TableContract | None) -> None:
        self._decoder = decoder
        self._name = "the table" if table is None else table.name

    def __call__(self, value: Any) -> Sequence[object]:
        refuse_depth(value)
        message = self._decoder.decode_json(value)
        if isinstance(message, Truncation):
            raise Undecodable(
                f"a truncate is not taken over HTTP: run DELETE FROM {self._name}, and send what comes after it"
            )
        return message.changes


_AsChanges = Callable[[Any], Sequence[object]]
