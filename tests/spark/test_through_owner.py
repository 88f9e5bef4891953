"""While a process has a home open, `headrace run` has it run scripts and projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.cli.project import RUN_PROJECT, run_for_others
from headrace.face import home_of

SCRIPT = """
CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(6,2), at TIMESTAMP);
INSERT INTO t VALUES (1, 1.50, TIMESTAMP '2026-01-31 12:00:00');
SELECT * FROM t
"""


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(list(arguments))
    return int(ended.value.code or 0)


def test_scripts_are_run_by_the_owner(home: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.sql", tmp_path / "second.sql"
    first.write_text(SCRIPT)
    second.write_text("DELETE FROM t WHERE id = 1")
    assert called("run", str(first), str(second), "--home", str(home_of(home).path), "--json") == 0
    rows, receipt = map(json.loads, capsys.readouterr().out.strip().splitlines())
    assert rows == [{"id": 1, "d": "1.50", "at": "2026-01-31T12:00:00+00:00"}]
    assert receipt["epoch"] == home.epoch
    assert receipt["applied"] == {"t": 1}
    assert home.query("SELECT * FROM t").num_rows == 0


def test_an_error_of_the_owner_is_told(home: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "bad.sql"
    script.write_text("\nDROP VIEW nowhere")
    assert called("run", str(script), "--home", str(home_of(home).path)) == 1
    said = capsys.readouterr().err
    assert "nowhere" in said
    assert "line 2, column 1" in said
    assert "hint: " in said


def test_a_project_is_run_by_the_owner(home: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "shop"
    assert called("init", str(folder)) == 0
    home_of(home).offer(RUN_PROJECT, run_for_others(home))
    capsys.readouterr()
    assert called("run", str(folder), "--home", str(home_of(home).path), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["deed"] for one in told["done"]} == {"created"}
    assert sorted(home_of(home).core.catalog.relations) == sorted(
        one["name"] for one in told["done"] if one["kind"] != "source"
    )
    assert called("run", str(folder), "--home", str(home_of(home).path)) == 0
    assert "unchanged" in capsys.readouterr().out
