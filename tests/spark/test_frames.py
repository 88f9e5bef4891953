"""What a query reads is there for as long as the query may, and no longer."""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.errors import WorkFailed
from headrace.face import Headrace, home_of
from headrace.reading import files, frames
from headrace.reading.frames import Frames
from headrace.state.delta import consolidate
from headrace.state.run import Run
from headrace.state.snapshot import Snapshot


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Headrace]:
    # Files that nobody holds go at once.
    monkeypatch.setattr(files, "_GRACE_SECONDS", -1.0)
    monkeypatch.setattr(frames, "_IN_MEMORY", 50)
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        hr.execute("CREATE VIEW v AS SELECT id, n + 1 AS m FROM t")
        yield hr


def large(hr: Headrace) -> Snapshot:
    """A run of 200 rows, and three of 30 with more than may be held in memory, ten of which replace old ones."""
    schema = home_of(hr).core.catalog.table("t").store.schema

    def run(ids: range, n: int, gone: range = range(0)) -> Run:
        rows = [*((one, n) for one in ids), *((one, 0) for one in gone)]
        columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(2)]
        weights = np.array([1] * len(ids) + [-1] * len(gone), dtype=np.int64)
        return Run(consolidate(pa.table(columns, schema=schema), weights))

    parts = run(range(200), 0), run(range(200, 230), 1), run(range(230, 260), 1), run(range(250, 280), 2, range(10))
    return Snapshot(schema, parts)


def bound(hr: Headrace, held: Frames) -> Any:
    schema = home_of(hr).core.catalog.table("t").schema
    return held.bind(home_of(hr).core.catalog.view("v").resolved.plan, lambda _: (large(hr), schema))


def asked(hr: Headrace, held: Frames) -> Any:
    return home_of(hr).core.sessions.queries.frame(
        "SELECT id, n + 1 AS m FROM t", {"t": (large(hr), home_of(hr).core.catalog.table("t").schema)}
    )


@pytest.mark.parametrize("made", [bound, asked])
def test_the_files_of_a_frame_are_there_until_it_goes(home: Headrace, made: Callable[..., Any]) -> None:
    folder = home_of(home).core.sessions.frames._files._folder
    before = set(folder.iterdir())
    frame = made(home, home_of(home).core.sessions.frames)
    gc.collect()
    assert len(set(folder.iterdir()) - before) == 2
    assert frame.count() == 280
    assert frame.agg({"m": "sum"}).collect()[0][0] == 190 + 2 * 60 + 3 * 30
    del frame
    gc.collect()
    assert set(folder.iterdir()) == before


def weighted(hr: Headrace, *runs: dict[int, int]) -> Snapshot:
    """Runs of rows (id, id), each as often as is said."""
    schema = home_of(hr).core.catalog.table("t").store.schema
    made: list[Run] = []
    for run in runs:
        ids = pa.array(run, pa.int64())
        made.append(Run(consolidate(pa.table([ids, ids], schema=schema), np.array(list(run.values()), dtype=np.int64))))
    return Snapshot(schema, tuple(made))


def counts(hr: Headrace, snapshot: Snapshot) -> dict[int, int]:
    held = {"t": (snapshot, home_of(hr).core.catalog.table("t").schema)}
    rows = (
        home_of(hr)
        .core.sessions.queries.run("SELECT id, count(*) AS n, sum(n) AS m FROM t GROUP BY id", held)
        .to_pylist()
    )
    assert all(row["m"] == row["n"] * row["id"] for row in rows)
    return {row["id"]: row["n"] for row in rows}


@pytest.mark.parametrize(
    "runs",
    [
        [{1: 1, 2: 3, 3: 200_000}],
        [{i: 1 + i % 3 for i in range(60)}],
        [dict.fromkeys(range(60), 1), dict.fromkeys(range(50, 120), 2)],
        [dict.fromkeys(range(60), 2), dict.fromkeys(range(60, 160), 1), {5: -1, 6: -2, 7: 70_000, 200: 3}],
        [dict.fromkeys(range(60), 1), {i: 1 + i % 2 for i in range(40, 90)}, dict.fromkeys(range(80, 130), 3)],
        [dict.fromkeys(range(30), 2), dict.fromkeys(range(20, 50), 1)],
    ],
    ids=["few rows", "one file", "files", "files and a few", "files and a rest", "small runs"],
)
def test_rows_that_are_there_often_are_read_as_often(home: Headrace, runs: list[dict[int, int]]) -> None:
    total: Counter[int] = Counter()
    for run in runs:
        total.update(run)
    assert counts(home, weighted(home, *runs)) == dict(+total)


def test_a_few_of_very_many_rows_are_read_at_once(home: Headrace) -> None:
    # To read them all would take hours.
    held = {"t": (weighted(home, {1: 10**11, 2: 1}), home_of(home).core.catalog.table("t").schema)}
    queries = home_of(home).core.sessions.queries
    assert queries.run("SELECT id FROM t WHERE id = 1", held, rows=5).to_pylist() == [{"id": 1}] * 5
    assert queries.run("SELECT * FROM t WHERE id > 1 LIMIT 3", held).to_pylist() == [{"id": 2, "n": 2}]


@pytest.fixture
def filled(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Headrace]:
    """A home whose table and view lie in files that Spark wrote."""
    monkeypatch.setattr(frames, "_IN_MEMORY", 50)
    with headrace.open(tmp_path / "home", spark=spark, small_bound=10, inline_bytes=100) as hr:
        hr.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        hr.execute("INSERT INTO t SELECT id, 0 FROM range(200)")
        hr.execute("CREATE VIEW v AS SELECT id, n + 1 AS m FROM t")
        yield hr


def parts_of(hr: Headrace, view: str) -> list[Path]:
    """The files that Spark wrote of a view, and that are read again."""
    core = home_of(hr).core
    content = core.sessions.frames.content(core.catalog.view(view).store.snapshot())
    return [path for file in content.files for path in file.paths if file.path.is_dir()]


def test_a_file_that_others_add_to_what_spark_wrote_is_not_read(filled: Headrace) -> None:
    part = parts_of(filled, "v")[0]
    shutil.copy(part, part.with_name("part-99999.parquet"))
    assert filled.query("SELECT count(*) AS n FROM v WHERE id >= 0").to_pylist() == [{"n": 200}]
    filled.execute("CREATE VIEW w AS SELECT m, count(*) AS n FROM v GROUP BY m")
    assert filled.query("SELECT * FROM w").to_pylist() == [{"m": 1, "n": 200}]
    assert filled.verify().ok


def test_a_file_of_spark_that_was_torn_is_written_anew(filled: Headrace) -> None:
    os.truncate(parts_of(filled, "v")[0], 100)
    assert filled.query("SELECT count(*) AS n FROM v WHERE id >= 0").to_pylist() == [{"n": 200}]
    assert parts_of(filled, "v") == []


def test_what_is_torn_before_it_was_read_fails_and_may_be_sent_again(
    filled: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Frames._write  # pyright: ignore[reportPrivateUsage]

    def torn(self: Frames, frame: Any, path: Path) -> int | None:
        rows = write(self, frame, path)
        os.truncate(next(path.glob("*.parquet")), 100)
        return rows

    statements = ("CREATE VIEW w AS SELECT id, m + 1 AS k FROM v", "INSERT INTO t SELECT id + 1000, 0 FROM range(200)")
    before = filled.epoch
    with monkeypatch.context() as patched:
        patched.setattr(Frames, "_write", torn)
        for sql in statements:
            with pytest.raises(WorkFailed, match="could not be worked out") as failed:
                filled.execute(sql)
            assert failed.value.transient
            assert "cannot be read" in failed.value.detail
    assert filled.epoch == before
    for sql in statements:
        filled.execute(sql)
    assert filled.query("SELECT count(*) AS n FROM w").to_pylist() == [{"n": 400}]
