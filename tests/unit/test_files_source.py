"""Folders of files: each file once, whole, from where it was read to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import DateType, IntegerType, StringType, StructField, StructType

from headrace.capture import files
from headrace.capture.connector import Description, laid_over
from headrace.capture.files import FILES, FilesReading
from headrace.capture.record import Record
from headrace.errors import SourceError
from headrace.sources import intake
from tests.bare_home import BareHome
from tests.waiting import until


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


class Counted:
    """A file that tells how much of it was asked for at once."""

    def __init__(self, file: Any, asked: list[int]) -> None:
        self._file, self._asked = file, asked

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def readline(self, size: int) -> Any:
        self._asked.append(size)
        return self._file.readline(size)


def test_no_more_of_a_line_is_held_than_a_record_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = b'{"insert": {"id": 1}}'
    (tmp_path / "1.ndjson").write_bytes(b"x" * 1000 + b"\n" + short + b"\r\n" + b" " * 1000 + b"y\n" + short)
    (tmp_path / "2.csv").write_text(f"id,s\n1,a\n2,{'x' * 1000}\n3,{'y' * 1000}\n4,b\n")
    asked: list[int] = []
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *how, **more: Counted(opened(path, *how, **more), asked))
    found = reading(tmp_path, max_record_bytes=21).poll(100, 0)
    assert max(asked) == 23
    sizes = [len(one.record.value or b"") for one in found]
    # What has more than that is refused as too large.
    assert sizes[:4] == [23, 21, 23, 21]
    assert [size > 21 for size in sizes[4:]] == [True] * 4
    assert position_after(found) == {"1.ndjson": -1, "2.csv": -1}
    assert [one.record.offset for one in found] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_poll_ends_with_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_POLL_BYTES", 100)
    (tmp_path / "a.ndjson").write_bytes(b"x" * 60 + b"\n" + b"y" * 60 + b"\n" + b"z" * 60 + b"\n")
    one = reading(tmp_path)
    assert [len(one.poll(100, 0)) for _ in range(2)] == [2, 1]
    assert files.MOST_BYTES == intake.MOST_BYTES


def test_a_file_whose_name_is_no_text_is_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")).write_text("id\n2\n")
    one = reading(tmp_path)
    assert rows(one.poll(100, 0)) == [{"id": "1"}]
    assert one.lag().note == "a file whose name is no UTF-8 is left out: b'\\xff.csv'"


def test_a_row_that_cannot_be_read_is_a_dead_letter_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "1.csv").write_bytes(b"id,s\n1,a\n2,\xff\n3," + b"x" * 200_000 + b"\n4," + b"x" * 400_000 + b"\n5,e\n")
    days = pa.array([0, 3_000_000, 1], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"id": [6, 7, 8], "day": days}), folder / "2.parquet")
    columns = StructType(
        [StructField("id", IntegerType(), False), StructField("s", StringType()), StructField("day", DateType())]
    )
    home = BareHome(tmp_path / "home")
    try:
        home.create_table("t", columns, ("id",))
        home.execute(f"CREATE SOURCE s INTO t FROM FILES '{folder}' WITH (max_record_bytes = 300000)")

        def told() -> dict[str, Any]:
            (row,) = home.execute("SHOW SOURCES").to_pylist()
            assert row["state"] == "Running", row
            return row

        until(lambda: told()["received"] == 8 and told()["pending"] == 0)
        assert [row["id"] for row in home.query("SELECT * FROM t").to_pylist()] == [1, 3, 5, 6, 8]
        letters = {row["position"]: row for row in home.query("SELECT * FROM dead_letters").to_pylist()}
        assert {position: row["stage"] for position, row in letters.items()} == {
            "1.csv-0-1": "text",
            "1.csv-0-3": "size",
            "2.parquet-0-1": "contract",
        }
        assert "10183-09-21" in letters["2.parquet-0-1"]["reason"]
    finally:
        home.close()
