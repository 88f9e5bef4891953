"""While a process has a home open, it runs the scripts and projects of others, and reads for them."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.cli.main import run
from headrace.cli.project import RUN_PROJECT, run_for_others
from headrace.face import home_of
from headrace.query_processes import for_others
from headrace.query_processes.for_others import query_verb, reading_verbs
from tests.waiting import PATIENCE

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


READ = """
CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(6,2), at TIMESTAMP, bag ARRAY<STRUCT<a: INT, b: STRING>>);
CREATE VIEW v AS SELECT d, count(*) AS n FROM t GROUP BY d;
INSERT INTO t SELECT id, 1.50, TIMESTAMP '2026-01-31 12:00:00', array(named_struct('a', 1, 'b', 'x')) FROM range(5);
DELETE FROM t WHERE id = 3
"""
READS = (
    ["query", "SELECT * FROM t WHERE id = 2"],
    ["query", "SELECT id, d * 2 AS twice, bag FROM t ORDER BY id"],
    ["query", "SELECT count(*) AS n FROM t", "--epoch", "3"],
    ["query", "SELECT count(*) AS n FROM t VERSION AS OF 3", "--csv"],
    ["query", "SELECT count(*) AS n FROM t", "--epoch", "99"],
    ["query", "SELECT nothing\nFROM t"],
    ["query", "SELECT *\nFROM nowhere"],
    ["query", "SELECT FROM WHERE"],
    ["query", "SELECT 1; SELECT 2"],
    ["query", "DELETE FROM t"],
    ["query", "SELECT 1 / (id - 2) FROM t"],
    ["changes", "t"],
    ["changes", "v", "--since", "3", "--until", "4"],
    ["changes", "nowhere"],
    ["changes", "t", "--since", "99"],
    ["explain", "v"],
    ["explain", "t"],
    ["status"],
)


@pytest.mark.slow
def test_reading_beside_an_owner_is_as_reading_alone(
    home: Any,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home.execute(READ)
    open_home, path = headrace.open, str(home_of(home).path)

    def told(*arguments: str) -> tuple[int, str, str]:
        code = called(*arguments, "--home", path)
        out, err = capsys.readouterr()
        return code, out, err

    for arguments in [*READS, *([*one, "--json"] for one in READS)]:
        with monkeypatch.context() as alone:
            alone.setattr("headrace.cli.reading.ask_to_read", lambda *_: None)
            alone.setattr(headrace, "open", lambda home, **options: open_home(home, spark=spark, **options))
            wanted = told(*arguments)
        with monkeypatch.context() as beside:
            beside.setattr(headrace, "open", lambda home, **options: pytest.fail("the home was opened"))
            assert told(*arguments) == wanted, arguments


def test_an_owner_leaves_what_is_too_much_to_who_asks(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    home.execute("CREATE TABLE t (id BIGINT); INSERT INTO t SELECT id FROM range(1000)")
    verbs = reading_verbs(home_of(home))
    everything = {"query": {"sql": "SELECT id + 1 AS x FROM t"}, "changes": {"name": "t"}}
    for verb, arguments in everything.items():
        assert pa.ipc.open_stream(base64.b64decode(verbs[verb](**arguments)["rows"])).read_all().num_rows == 1000
    monkeypatch.setattr(for_others, "MOST_BYTES", 7999)
    for verb, arguments in everything.items():
        assert verbs[verb](**arguments).keys() == {"left"}
    monkeypatch.undo()
    monkeypatch.setattr(for_others, "MOST_ROWS", 999)
    assert verbs["query"](sql="SELECT id + 1 AS x FROM t").keys() == {"left"}
    assert verbs["query"](sql="SELECT id + 1 AS x FROM t LIMIT 999").keys() == {"rows"}


def test_an_owner_stops_what_takes_too_long(home: Any) -> None:
    run = partial(for_others._run_here, home_of(home).core)
    endless = "SELECT count(*) AS n FROM range(10000000) a CROSS JOIN range(10000000) b"
    assert query_verb(run, seconds=0.5)(sql=endless).keys() == {"left"}
    assert query_verb(run, seconds=PATIENCE)(sql="SELECT 1 AS one").keys() == {"rows"}
