"""The commits of a Delta table as a source reads them: from where it began, each whole, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from headrace.capture.connector import Description
from headrace.capture.delta_follow import DeltaReading


def reading(path: Path, position: dict[str, Any] | None = None) -> DeltaReading:
    return DeltaReading(Description("s", str(path), {"mode": "follow"}), position or {})


def write(path: Path, *ids: int) -> None:
    write_deltalake(str(path), pa.table({"id": pa.array(ids, pa.int64())}), mode="append")


def ids(arrivals: Any) -> list[int]:
    return [one.message.after["id"] for one in arrivals]


def test_what_is_committed_before_the_first_change_was_read_comes_after_a_restart(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    begun = reading(tmp_path).begins_at()
    write(tmp_path, 3)
    again = reading(tmp_path, dict(begun))
    assert ids(again.poll(10, 0)) == [3]
    assert again.begins_at() == {}
