"""Folders of files: each file is read once, whole, in the order of their names; others may add files meanwhile.

NDJSON has a record a line, in the format of the source; rows of CSV and Parquet are inserts. A file must be there whole
when its name is: write it under another name, or a dot before it, and rename it. A position is how many rows of each
file were taken; files that are gone from the folder are gone from it too.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

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
        self._taken: dict[str, int] = {name: int(rows) for name, rows in position.items()}
        self._open: tuple[str, Iterator[Arrival]] | None = None
        # Files that were taken and are no longer there.
        self._gone: set[str] = set()

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        """The next rows; those of one file before those of the next."""
        ends = time.monotonic() + seconds
        arrivals: list[Arrival] = []
        while len(arrivals) < most:
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
        return arrivals

    def confirm(self, position: Position) -> None:
        """Files are left where they are."""

    def lag(self) -> Lag:
        """How many files wait."""
        return Lag(len(self._waiting()))

    def close(self) -> None:
        """Let go of the file at hand."""
        self._open = None

    def _waiting(self) -> list[str]:
        try:
            found = [one for one in self._folder.iterdir() if fnmatchcase(one.name, self._pattern) and _is_ours(one)]
        except OSError as error:
            raise SourceUnavailable(f"the folder {self._folder} cannot be read", detail=f"{error}.") from error
        return sorted(one.name for one in found if self._taken.get(one.name) != _DONE)

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
        with path.open("rb") as lines:
            for number, line in _with_last(line.strip() for line in lines):
                if number[0] >= taken and line:
                    advance = {path.name: _DONE if number[1] else number[0] + 1}
                    yield Arrival(Record(line, topic=path.name, offset=number[0]), advance)

    def _csv(self, path: Path) -> Iterator[dict[str, Any]]:
        # A mark of the byte order, as spreadsheets write it, is no part of a name.
        with path.open(newline="", encoding="utf-8-sig") as text:
            for row in csv.DictReader(text, delimiter=self._delimiter):
                # An empty field is no value, as it is for Spark.
                yield {name: value if value != "" else None for name, value in row.items()}

    def _parquet(self, path: Path) -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()

    def _rows(self, name: str, rows: Iterator[dict[str, Any]], taken: int, *, typed: bool) -> Iterator[Arrival]:
        for (number, last), row in _with_last(rows):
            if number >= taken:
                record = Record(json.dumps({"insert": json_form(row)}).encode(), topic=name, offset=number)
                # What the texts of CSV stand for is known with the table.
                message = RowChange("create", ({"insert": row},), None, row) if typed else None
                yield Arrival(record, {name: _DONE if last else number + 1}, message)


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
