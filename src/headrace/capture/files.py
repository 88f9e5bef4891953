"""Folders of files: each file is read once, whole, in the order of their names; others may add files meanwhile.

NDJSON has a record a line, in the format of the source; rows of CSV and Parquet are inserts. A file must be there whole
when its name is: write it under another name, or a dot before it, and rename it. A position is how many rows of each
file were taken; files that are gone from the folder are gone from it too.

A row that cannot be read is told as a record that its format does not understand, and the rows after it are read. No
more of one is ever held than a record may have.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, AnyStr

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.capture.connector import GONE, Arrival, Connector, Description, Lag, Position, laid_over
from headrace.capture.messages import RowChange
from headrace.capture.record import Record
from headrace.errors import SourceError, SourceUnavailable
from headrace.json_forms import json_form

_LOOK_SECONDS = 0.2
_KINDS = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".csv": "csv", ".parquet": "parquet"}
_DONE = -1
# How large a record may be if nobody says, as everywhere; and how much is read at once, however large each is.
MOST_BYTES = 10_000_000
_POLL_BYTES = 64_000_000

OPTIONS: Mapping[str, str] = {
    "pattern": "Which files are read, such as *.ndjson; all that are NDJSON, CSV or Parquet if it is not given.",
    "delimiter": "What stands between the values of a CSV file; ',' if it is not given.",
}


class FilesReading:
    """The files of a folder that were not read before."""

    def __init__(self, description: Description, position: Position) -> None:
        self._folder = Path(description.location).expanduser()
        self._pattern = str(description.options.get("pattern", "*"))
        self._delimiter = str(description.options.get("delimiter", ","))
        self._most_bytes = int(description.options.get("max_record_bytes", MOST_BYTES))
        self._taken: dict[str, int] = {name: int(rows) for name, rows in position.items()}
        self._open: tuple[str, Iterator[Arrival]] | None = None
        # Files that were taken and are no longer there.
        self._gone: set[str] = set()

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        """The next rows; those of one file before those of the next."""
        ends = time.monotonic() + seconds
        arrivals: list[Arrival] = []
        size = 0
        while len(arrivals) < most and size < _POLL_BYTES:
            if self._open is None:
                name = next(iter(self._waiting()), None)
                if name is None:
                    if arrivals or time.monotonic() >= ends:
                        break
                    time.sleep(_LOOK_SECONDS)
                    continue
                self._open = name, self._read(name, self._taken.get(name, 0))
                self._gone |= self._taken.keys() - {one.name for one in self._folder.iterdir()} - {name}
            name, rows = self._open
            try:
                arrival = next(rows, None)
            except SourceError:
                # What was read before it is taken first; then it is told.
                self._open = None
                if arrivals:
                    break
                raise
            if arrival is None:
                self._open, self._taken[name] = None, _DONE
                # That a file is through is said with its last row; one without rows is looked at again and again.
                continue
            if self._gone:
                arrival = replace(arrival, advance={**dict.fromkeys(self._gone, GONE), **arrival.advance})
                self._gone = set()
            self._taken = laid_over(self._taken, arrival.advance)
            arrivals.append(arrival)
            size += len(arrival.record.value or b"")
        return arrivals

    def confirm(self, position: Position) -> None:
        """Files are left where they are."""

    def lag(self) -> Lag:
        """How many files wait, and which is none that can be named."""
        nameless = next((one.name for one in self._found() if not _is_named(one)), None)
        told = f"a file whose name is no UTF-8 is left out: {os.fsencode(nameless or '')}"
        return Lag(len(self._waiting()), note=told if nameless else None)

    def close(self) -> None:
        """Let go of the file at hand."""
        self._open = None

    def _waiting(self) -> list[str]:
        return sorted(one.name for one in self._found() if _is_named(one) and self._taken.get(one.name) != _DONE)

    def _found(self) -> list[Path]:
        try:
            return [one for one in self._folder.iterdir() if fnmatchcase(one.name, self._pattern) and _is_ours(one)]
        except OSError as error:
            raise SourceUnavailable(f"the folder {self._folder} cannot be read", detail=f"{error}.") from error

    def _read(self, name: str, taken: int) -> Iterator[Arrival]:
        path = self._folder / name
        kind = _KINDS[path.suffix.lower()]
        try:
            if kind == "ndjson":
                yield from self._lines(path, taken)
            else:
                rows = self._csv(path) if kind == "csv" else self._parquet(path)
                yield from self._rows(path.name, rows, taken, typed=kind != "csv")
        except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
            raise SourceError(
                f"the file {path} cannot be read",
                detail=f"{error}.",
                hint="mend or remove it, then RESUME SOURCE; what was read of it before is not read again",
            ) from error

    def _lines(self, path: Path, taken: int) -> Iterator[Arrival]:
        with path.open("rb") as file:
            lines = (line if is_cut else line.strip() for line, is_cut in _bounded_lines(file, self._most_bytes))
            for number, line in _with_last(lines):
                if number[0] >= taken and line:
                    advance = {path.name: _DONE if number[1] else number[0] + 1}
                    yield Arrival(Record(line, topic=path.name, offset=number[0]), advance)

    def _csv(self, path: Path) -> Iterator[dict[str, Any] | bytes]:
        # It is one limit for the whole process, which others may have set higher.
        csv.field_size_limit(max(csv.field_size_limit(), self._most_bytes))
        cut: list[str] = []
        # A mark of the byte order, as spreadsheets write it, is no part of a name. Bytes that are no text come through.
        with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
            rows = csv.DictReader(self._cut_short(text, cut), delimiter=self._delimiter)
            if rows.fieldnames is not None and cut:
                raise csv.Error("its first line is longer than max_record_bytes")
            for row in rows:
                if cut:
                    yield cut[0].encode("utf-8", "surrogateescape")
                    cut.clear()
                else:
                    # An empty field is no value, as it is for Spark.
                    yield {name: value if value != "" else None for name, value in row.items()}

    def _cut_short(self, text: IO[str], cut: list[str]) -> Iterator[str]:
        """The lines of a text; for one that is too long to be read stands another, and it is told what there was."""
        for line, is_cut in _bounded_lines(text, self._most_bytes):
            if is_cut:
                cut.append(line)
            yield "-\n" if is_cut else line

    def _parquet(self, path: Path) -> Iterator[dict[str, Any] | bytes]:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches():
                yield from _listed(batch)

    def _rows(self, name: str, rows: Iterator[dict[str, Any] | bytes], taken: int, *, typed: bool) -> Iterator[Arrival]:
        row: dict[str, Any] | bytes
        for (number, last), row in _with_last(rows):
            if number >= taken:
                message = None
                # What the texts of CSV stand for is known with the table.
                if typed and not isinstance(row, bytes):
                    message = RowChange("create", ({"insert": row},), None, row)
                record = Record(row if isinstance(row, bytes) else _inserted(row), topic=name, offset=number)
                yield Arrival(record, {name: _DONE if last else number + 1}, message)


def _bounded_lines(file: IO[AnyStr], most: int) -> Iterator[tuple[AnyStr, bool]]:
    """The lines of a file; of one that is longer than `most`, so much that this shows, and that it was cut."""
    # Room for both characters of an end of line.
    size = most + 2
    while line := file.readline(size):
        is_cut = len(line) == size and not _ends(line)
        yield line, is_cut
        while is_cut and (rest := file.readline(size)) and not _ends(rest):
            pass


def _ends(line: str | bytes) -> bool:
    return line.endswith(("\n", "\r")) if isinstance(line, str) else line.endswith(b"\n")


def _inserted(row: Mapping[str, Any]) -> bytes:
    """The record of a row; bytes that are no text are in it as they were."""
    return json.dumps({"insert": json_form(row)}, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _listed(batch: pa.RecordBatch) -> Sequence[dict[str, Any] | bytes]:
    """The rows of a batch; one with a value that is none here, as a date after 9999, as a record with its text."""
    try:
        rows = batch.to_pylist()
    except (OverflowError, ValueError):
        if batch.num_rows == 1:
            rows = [_inserted({name: _text(batch[name][0]) for name in batch.schema.names})]
        else:
            singles = (batch.slice(index, 1) for index in range(batch.num_rows))
            rows = [row for single in singles for row in _listed(single)]
    return rows


def _text(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError) as error:
        try:
            return value.cast(pa.string()).as_py()
        except (pa.ArrowException, ValueError):
            return f"{value.type}: {error}"


def _with_last(items: Iterator[Any]) -> Iterator[tuple[tuple[int, bool], Any]]:
    """Each item with its number, and whether it is the last."""
    before: Any = None
    number = -1
    for number, item in enumerate(items):
        if number:
            yield (number - 1, False), before
        before = item
    if number >= 0:
        yield (number, True), before


def _is_ours(path: Path) -> bool:
    return path.suffix.lower() in _KINDS and not path.name.startswith((".", "_")) and path.is_file()


def _is_named(path: Path) -> bool:
    """Whether the name of a file is text, as all that is kept of it must be."""
    try:
        return bool(path.name.encode())
    except UnicodeEncodeError:
        return False


def _check(description: Description) -> None:
    if not Path(description.location).expanduser().is_dir():
        raise SourceError(f"there is no folder {description.location}", hint="name the folder that the files come into")
    pattern = str(description.options.get("pattern", "*"))
    if pattern in ("", ".", "..") or any(letter in pattern for letter in "/\\\0"):
        raise SourceError(f"pattern cannot be {pattern!r}", hint="it is for the names of files in the folder: '*.csv'")
    if len(str(description.options.get("delimiter", ","))) != 1:
        raise SourceError("delimiter is one letter", hint="write delimiter = ';'")


def _is_text_row(record: Record) -> bool:
    return _KINDS.get(Path(record.topic).suffix.lower()) == "csv"


FILES = Connector("FILES", OPTIONS, FilesReading, _check, has_format=True, is_text_row=_is_text_row)
