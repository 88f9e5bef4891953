"""The files at the leaves of prepared queries."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import LongType

from headrace.plans.prepared import PreparedQuery
from headrace.plans.query import LeafShape
from headrace.storage.scratch import Scratch


def test_leaves_are_written_also_if_others_have_removed_their_folder(tmp_path: Path) -> None:
    catalyst: Any = SimpleNamespace(is_local=True)
    scratch = Scratch(tmp_path)
    folder = scratch.path / "view"
    folder.mkdir()
    prepared = PreparedQuery(catalyst, folder, "v", [LeafShape((), (("a", LongType()),))], lambda _: None)
    assert prepared._write(0, pa.table({"a": [1]}))  # pyright: ignore[reportPrivateUsage]
    shutil.rmtree(scratch.path)
    # At the length that it was planned with.
    assert not prepared._write(0, pa.table({"a": [7]}))  # pyright: ignore[reportPrivateUsage]
    (leaf,) = folder.glob("leaf-*")
    assert pq.read_table(leaf).column(0).to_pylist() == [7]
    scratch.close()
