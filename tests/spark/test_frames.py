"""What a query reads is there for as long as the query may, and no longer."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.engine import frames
from headrace.engine.frames import Frames
from headrace.home import Headrace
from headrace.state.delta import consolidate
from headrace.state.store import Run, Snapshot


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Headrace]:
    # Files that nobody holds go at once.
    monkeypatch.setattr(frames, "_GRACE_SECONDS", -1.0)
    monkeypatch.setattr(frames, "_IN_MEMORY", 50)
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        hr.execute("CREATE VIEW v AS SELECT id, n + 1 AS m FROM t")
        yield hr


def large(hr: Headrace) -> Snapshot:
    """A run of 200 rows, and three of 30 with more than may be held in memory, ten of which replace old ones."""
    schema = hr.catalog.table("t").store.schema

    def run(ids: range, n: int, gone: range = range(0)) -> Run:
        rows = [*((one, n) for one in ids), *((one, 0) for one in gone)]
        columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(2)]
        weights = np.array([1] * len(ids) + [-1] * len(gone), dtype=np.int64)
        return Run(consolidate(pa.table(columns, schema=schema), weights))

    parts = run(range(200), 0), run(range(200, 230), 1), run(range(230, 260), 1), run(range(250, 280), 2, range(10))
    return Snapshot(schema, parts)


def bound(hr: Headrace, held: Frames) -> Any:
    schema = hr.catalog.table("t").schema
    return held.bind(hr.catalog.view("v").resolved.plan, lambda _: (large(hr), schema))


def asked(hr: Headrace, held: Frames) -> Any:
    return hr.queries.frame("SELECT id, n + 1 AS m FROM t", {"t": (large(hr), hr.catalog.table("t").schema)})


@pytest.mark.parametrize("made", [bound, asked])
def test_the_files_of_a_frame_are_there_until_it_goes(home: Headrace, made: Callable[..., Any]) -> None:
    folder = home.frames._folder
    before = set(folder.iterdir())
    frame = made(home, home.frames)
    gc.collect()
    assert len(set(folder.iterdir()) - before) == 2
    assert frame.count() == 280
    assert frame.agg({"m": "sum"}).collect()[0][0] == 190 + 2 * 60 + 3 * 30
    del frame
    gc.collect()
    assert set(folder.iterdir()) == before
