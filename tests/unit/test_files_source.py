"""Folders of files: each file once, whole, from where it was read to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.capture.connector import Description, laid_over
from headrace.capture.files import FILES, FilesReading
from headrace.capture.record import Record
from headrace.errors import SourceError


def reading(folder: Path, position: dict[str, Any] | None = None, **options: Any) -> FilesReading:
    return FilesReading(Description("s", str(folder), options), position or {})


def rows(arrivals: Any) -> list[Any]:
    return [one.message.after if one.message is not None else _of_bytes(one.record) for one in arrivals]


def _of_bytes(record: Record) -> Any:
    return json.loads(record.value or b"")["insert"] if record.topic.endswith(".csv") else record.value


def position_after(arrivals: Any, before: dict[str, Any] | None = None) -> dict[str, Any]:
    position = before or {}
    for one in arrivals:
        position = laid_over(position, one.advance)
    return position


def test_each_kind_of_file_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,s\n1,a\n2,\n")
    (tmp_path / "2.ndjson").write_text('{"insert": {"id": 3}}\n\n{"insert": {"id": 4}}\n')
    pq.write_table(pa.table({"id": [5], "s": ["e"]}), tmp_path / "3.parquet")
    (tmp_path / ".hidden.csv").write_text("id\n9\n")
    (tmp_path / "notes.txt").write_text("no")
    found = reading(tmp_path).poll(100, 0)
    assert rows(found) == [
        {"id": "1", "s": "a"},
        {"id": "2", "s": None},
        b'{"insert": {"id": 3}}',
        b'{"insert": {"id": 4}}',
        {"id": 5, "s": "e"},
    ]
    assert position_after(found) == {"1.csv": -1, "2.ndjson": -1, "3.parquet": -1}


def test_it_goes_on_in_the_middle_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(10)))
    first = reading(tmp_path).poll(4, 0)
    rest = reading(tmp_path, position_after(first)).poll(100, 0)
    assert [one["id"] for one in rows([*first, *rest])] == [str(number) for number in range(10)]


def test_a_file_is_read_once_and_new_ones_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    one = reading(tmp_path)
    assert len(one.poll(100, 0)) == 1
    assert one.poll(100, 0) == []
    (tmp_path / "b.csv").write_text("id\n2\n")
    assert one.lag().records == 1
    assert rows(one.poll(100, 0)) == [{"id": "2"}]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no")
    with pytest.raises(SourceError, match=r"a\.parquet cannot be read"):
        reading(tmp_path).poll(1, 0)


def test_only_files_of_the_pattern(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;s\n1;x\n")
    (tmp_path / "b.csv").write_text("id\n2\n")
    assert rows(reading(tmp_path, pattern="a*", delimiter=";").poll(9, 0)) == [{"id": "1", "s": "x"}]


@pytest.mark.parametrize("pattern", ["", ".", "..", "../*", "/etc/*", "sub/*.csv", "a\\b", "*\0"])
def test_a_pattern_that_is_of_no_name_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(SourceError, match="pattern cannot be"):
        FILES.check(Description("s", str(tmp_path), {"pattern": pattern}))


@pytest.mark.parametrize("pattern", ["**", "***", "**.csv", "[a].csv", "[", "x" * 300])
def test_a_pattern_is_for_names_and_never_fails(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "a.csv").write_text("id\n1\n")
    FILES.check(Description("s", str(tmp_path), {"pattern": pattern}))
    found = rows(reading(tmp_path, pattern=pattern).poll(9, 0))
    assert found == ([] if pattern in ("[", "x" * 300) else [{"id": "1"}])


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no folder"):
        FILES.check(Description("s", str(tmp_path / "nowhere"), {}))


def test_files_that_are_gone_are_gone_from_the_position(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    one = reading(tmp_path, pattern="*.csv")
    position = position_after(one.poll(100, 0))
    (tmp_path / "a.csv").unlink()
    (tmp_path / "b.csv").write_text("id\n2\n")
    position = position_after(one.poll(100, 0), position)
    assert position == {"b.csv": -1}
    # One that is there and not among those that are read now is still known.
    (tmp_path / "c.ndjson").write_text('{"insert": {"id": 3}}\n')
    position = position_after(reading(tmp_path, position, pattern="*.ndjson").poll(100, 0), position)
    assert position == {"b.csv": -1, "c.ndjson": -1}


def test_a_file_that_cannot_be_read_holds_back_nothing_before_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.parquet").write_text("no Parquet")
    one = reading(tmp_path)
    assert rows(one.poll(100, 0)) == [{"id": "1"}]
    with pytest.raises(SourceError, match=r"b\.parquet"):
        one.poll(100, 0)
