from __future__ import annotations

import datetime as dt
import io
import json
import subprocess
import sys
import tomllib
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import headrace
from headrace.cli.main import run
from headrace.cli.show import json_form, show_rows
from headrace.errors import StatementError
from tests.command_line import StandInHome, code_of
from tests.small_homes import flip, fold, make_home

VERBS = [
    *("init", "check", "run", "serve", "push", "query", "changes", "explain", "verify", "status"),
    *("fold", "backup", "restore", "reload", "demo"),
]


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches_by_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(verb, "--help") == 0
    said = capsys.readouterr().out
    assert f"headrace {verb}" in said.split("Examples:")[1]
    of_a_home = verb not in ("restore", "init", "check", "push", "demo")
    assert {"--json", "--debug", *(["--home"] if of_a_home else [])} <= set(said.replace(",", " ").split())


@pytest.mark.parametrize("verb", ["up", "down", "status", "capture", "logs"])
def test_help_of_local_servers_teaches_by_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("local", verb, "--help") == 0
    said = capsys.readouterr().out
    assert f"headrace local {verb}" in said.split("Examples:")[1]
    assert {"--json", "--debug", "--folder"} <= set(said.replace(",", " ").split())


def test_the_command_alone_lists_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("--help") == 0
    said = capsys.readouterr().out
    assert all(f"\n  {verb} " in said for verb in [*VERBS, "local"])


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert headrace.__version__ == project["version"]
    assert code_of("--version") == 0
    assert capsys.readouterr().out == f"headrace {project['version']}\n"


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "headrace", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"headrace {headrace.__version__}\n"


def test_rows_are_a_table_or_json(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("query", "SELECT 1") == 0
    shown = capsys.readouterr().out
    assert "NULL" in shown
    assert "2 rows" in shown
    assert code_of("query", "SELECT 1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"id": 1, "price": "1.50"}, {"id": 2, "price": None}]


def test_rows_beyond_the_limit_are_counted(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("query", "SELECT 1", "--rows", "1") == 0
    assert "2 rows, 1 not shown" in capsys.readouterr().out


def test_rows_as_csv(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("query", "SELECT 1", "--csv") == 0
    assert capsys.readouterr().out == "id,price\n1,1.50\n2,\n"


def test_truth_is_written_as_in_sql(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(pa.table({"yes": [True, False]}), as_json=False, as_csv=True)
    assert capsys.readouterr().out == "yes\ntrue\nfalse\n"


def test_a_wide_table_is_never_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wide = pa.table({f"column_{number}": [f"the value of column {number}"] for number in range(12)})
    show_rows(wide, as_json=False)
    piped = capsys.readouterr().out
    assert all(f"the value of column {number}" in piped.splitlines()[2] for number in range(12))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    show_rows(wide, as_json=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if "column_" in line]
    assert len(lines) == 12
    assert lines[11].split(None, 1) == ["column_11", "the value of column 11"]


def test_a_script_of_definitions_says_that_it_is_done(
    home: StandInHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "alter.sql"
    script.write_text("ALTER TABLE t ADD COLUMN c INT")
    assert code_of("run", str(script)) == 0
    assert capsys.readouterr().out.strip() == f"{script} is done"


@pytest.mark.parametrize(
    ("sql", "is_told"),
    [("CREATE CHANGEFEED f FOR TABLE t INTO FILES 'out'", True), ("CREATE VIEW v AS SELECT 1 AS a", False)],
)
def test_a_script_with_a_feed_says_that_it_rests_until_a_process_stays(
    home: StandInHome, tmp_path: Path, capsys: pytest.CaptureFixture[str], sql: str, is_told: bool
) -> None:
    script = tmp_path / "feeds.sql"
    script.write_text(sql)
    assert code_of("run", str(script), "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) is None
    assert ("changefeeds told, while a process has the home open" in said.err) == is_told


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        ((), "detail: name an EVENT_TYPE, or --file FILE"),
        (("Made", "{name: 1}"), "detail: DATA is not JSON: expecting property name"),
        (("Made", "--file", "x.json"), "detail: give one event or --file FILE, not both"),
    ],
)
def test_an_append_that_is_miswritten_blames_no_event(
    home: StandInHome, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], detail: str
) -> None:
    assert code_of("events", "append", "Customer", "c1", *arguments) == 1
    message, told, hint = capsys.readouterr().err.splitlines()
    assert message == "error: this append to an event store is not as it must be"
    assert told.startswith(detail)
    assert hint.startswith("hint: write headrace events append ")


def test_an_error_is_three_lines_on_stderr(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("query", "nonsense") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "error: unexpected word at line 1, column 3",
        "detail: Found nonsense.",
        "hint: say SELECT",
    ]


def test_an_error_is_json_for_programs(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("query", "nonsense", "--json") == 1
    assert json.loads(capsys.readouterr().err)["code"] == "statement_error"


def test_debug_lets_the_error_through(home: StandInHome) -> None:
    with pytest.raises(StatementError):
        run(["query", "nonsense", "--debug"])


def test_reading_does_not_create_a_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("status", "--home", str(tmp_path / "none")) == 1
    assert "there is no home at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_scripts_run_in_order(home: StandInHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.sql", tmp_path / "b.sql"
    first.write_text("CREATE TABLE t (id INT)")
    second.write_text("INSERT INTO t VALUES (1), (2)")
    assert code_of("run", str(first), str(second)) == 0
    assert home.executed == ["CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1), (2)"]
    said = capsys.readouterr().out
    assert "epoch 8: 2 in t applied in 0.250 s (commit 10 ms)" in said
    assert "1 stale in t" in said


def test_a_missing_script_runs_nothing(home: StandInHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.sql").write_text("CREATE TABLE t (id INT)")
    assert code_of("run", str(tmp_path / "a.sql"), str(tmp_path / "b.sql")) == 1
    assert home.executed == []
    assert "cannot read" in capsys.readouterr().err


def test_verify_fails_when_the_judge_finds_a_difference(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("verify") == 0
    assert "every view equals its full recompute at epoch 7" in capsys.readouterr().out
    assert code_of("verify", "bad") == 1
    assert "one row too many" in capsys.readouterr().out
    assert code_of("verify", "bad", "--json") == 1
    assert json.loads(capsys.readouterr().out)["differences"] == ["bad: one row too many"]


def test_explain_changes_and_status_answer(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("explain", "v", "--json") == 0
    assert json.loads(capsys.readouterr().out)["incremental"] is False
    assert code_of("changes", "v", "--since", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "v", "since": 3, "until": None}]
    assert code_of("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 7


def test_fold_opens_a_home_that_nobody_owns(home: StandInHome, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("fold", "--json") == 0
    assert json.loads(capsys.readouterr().out)["folded"] == {"t": 3, "t#0": 9, "_headrace_clock": 1}
    assert code_of("fold") == 0
    told, *relations = capsys.readouterr().out.splitlines()
    assert told.endswith("is folded up to epoch 7 in 0.5 s; epochs from 2 on can be read")
    assert relations == ["  t: 3 rows written"]


def test_fold_does_not_create_a_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("fold", "--home", str(tmp_path / "none")) == 1
    assert "there is no home at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (Decimal("1E+2"), "100"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (b"\x00\xff", "AP8="),
        (dt.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        ({"a": [dt.date(2026, 1, 2), (1, Decimal("0.10"))]}, {"a": ["2026-01-02", [1, "0.10"]]}),
    ],
)
def test_json_forms(value: object, form: object) -> None:
    assert json_form(value) == form


def test_a_closed_home_is_backed_up_without_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, copy, again = (str(tmp_path / name) for name in ("home", "copy", "again"))
    fold(tmp_path / "home", make_home(tmp_path / "home", 3), 2)
    assert code_of("backup", copy, "--home", home, "--json") == 0
    assert json.loads(capsys.readouterr().out)["epoch"] == 3
    assert code_of("backup", copy, "--home", home) == 1
    assert "is not empty" in capsys.readouterr().err
    assert code_of("restore", copy, again) == 0
    told = capsys.readouterr().out
    assert "at epoch 3" in told
    assert "Not restored, for no backup has them: keys, policies, audit trail." in told
    assert code_of("restore", copy, f"{again}-too", "--json") == 0
    assert json.loads(capsys.readouterr().out)["not_restored"] == ["keys", "policies", "audit trail"]
    assert code_of("restore", copy, again, "--json") == 1
    assert json.loads(capsys.readouterr().err)["code"] == "ledger_error"
    assert code_of("verify", "--storage", "--home", again) == 0
    assert "every epoch from 0 to 3 is whole" in capsys.readouterr().out


def test_damage_ends_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_home(tmp_path / "home", 3)
    (file,) = (tmp_path / "home").glob("ledger/epoch-000000000002-*")
    flip(file)
    assert code_of("verify", "--storage", "--home", str(tmp_path / "home")) == 1
    said = capsys.readouterr().out
    assert file.name in said
    assert "epoch 1 is still whole; the newest is 3" in said
    assert code_of("verify", "--storage", "--home", str(tmp_path / "home"), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["whole_epoch"], found["damaged"][0]["epochs"]) == (False, 1, [2, 2])
    assert code_of("verify", "v", "--storage", "--home", str(tmp_path / "home")) == 2
    assert code_of("verify", "--storage", "--home", str(tmp_path / "none")) == 1
    assert "there is no home at" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "query"])
def test_text_from_stdin_that_is_not_utf_8_is_a_clear_error(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"SELECT '\xff'")))
    with pytest.raises(SystemExit) as ended:
        run([verb, "-"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "error: cannot read stdin" in said
    assert "hint: " in said


@pytest.mark.parametrize(("told", "pauses"), [(None, True), ("false", False)])
def test_the_process_is_the_verbs_own_unless_it_is_told_otherwise(
    home: StandInHome, monkeypatch: pytest.MonkeyPatch, told: str | None, pauses: bool
) -> None:
    if told is not None:
        monkeypatch.setenv("HEADRACE_PAUSE_GARBAGE_COLLECTION", told)
    assert code_of("query", "SELECT 1") == 0
    assert home.opened_with["settings"].pause_garbage_collection is pauses
