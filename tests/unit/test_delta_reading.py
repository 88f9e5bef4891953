"""The commits of a Delta table as a source reads them: from where it began, each whole, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.capture.connector import Description, laid_over
from headrace.capture.delta_follow import DeltaReading


def reading(path: Path, position: dict[str, Any] | None = None) -> DeltaReading:
    return DeltaReading(Description("s", str(path), {"mode": "follow"}), position or {})


def write(path: Path, *ids: int, feed: bool = False) -> None:
    wanted = {"delta.enableChangeDataFeed": "true"} if feed else None
    write_deltalake(str(path), pa.table({"id": pa.array(ids, pa.int64())}), mode="append", configuration=wanted)


def ids(arrivals: Any) -> list[int]:
    return [one.message.after["id"] for one in arrivals]


def test_what_is_committed_before_the_first_change_was_read_comes_after_a_restart(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    begun = reading(tmp_path).begins_at()
    write(tmp_path, 3)
    again = reading(tmp_path, dict(begun))
    assert ids(again.poll(10, 0)) == [3]
    assert again.begins_at() == {}


@pytest.mark.parametrize("feed", [True, False])
def test_a_commit_that_was_parted_goes_on_where_it_was_parted(tmp_path: Path, feed: bool) -> None:
    write(tmp_path, 1, feed=feed)
    first = reading(tmp_path)
    write(tmp_path, *range(10, 20))
    arrivals = first.poll(100, 0)
    assert [one.whole for one in arrivals] == [False] * 9 + [True]
    position: dict[str, Any] = dict(first.begins_at())
    for one in arrivals[:4]:
        position = laid_over(position, one.advance)
    rest = reading(tmp_path, position).poll(100, 0)
    assert ids([*arrivals[:4], *rest]) == list(range(10, 20))
    for one in rest:
        position = laid_over(position, one.advance)
    assert position == {"version": 1}
