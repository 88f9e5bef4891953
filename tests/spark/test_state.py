"""Homes whose hidden state another release has shaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.definitions import recover

VIEW = "SELECT g, v, sum(v) OVER (PARTITION BY g ORDER BY v) AS so_far FROM t"


@pytest.mark.slow
def test_views_with_state_of_another_release_are_filled_anew(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY, g STRING, v INT)")
        hr.execute(f"CREATE VIEW w AS {VIEW}; CREATE VIEW n AS SELECT g, count(*) AS n FROM t GROUP BY g")
        hr.apply({"t": [{"insert": {"id": i, "g": "ab"[i % 2], "v": i}} for i in range(6)]})
        epoch = hr.epoch
    monkeypatch.setattr(recover, "STATE", recover.STATE + 1)
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert hr.epoch == epoch + 1
        assert hr.changes("n", since=epoch).num_rows == 0
        hr.apply({"t": [{"delete": {"id": 0}}, {"insert": {"id": 7, "g": "b", "v": 1}}]})
        assert hr.verify().ok
        epoch = hr.epoch
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert hr.epoch == epoch
