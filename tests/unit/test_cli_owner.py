"""Verbs beside a process that has the home open: they ask it, or read by themselves."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.errors import HeadraceError, HomeBroken, HomeClosed, StatementError, WorkFailed
from headrace.owner.control import Control
from headrace.owner.ownership import take_ownership
from headrace.statements.answers import to_answer
from tests.command_line import StandInHome, code_of


@contextmanager
def owned(folder: Path, **verbs: Any) -> Iterator[None]:
    """Inside, a home has an owner that knows these verbs."""
    control = Control(verbs)
    ownership = take_ownership(folder, timedelta(seconds=30))
    ownership.announce(control.address)
    try:
        yield
    finally:
        ownership.release()
        control.close()


def failing(error: HeadraceError) -> Any:
    def verb(**arguments: object) -> dict[str, object]:
        raise error

    return verb


def test_an_error_of_a_script_names_its_file(
    home: StandInHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.sql", tmp_path / "bad.sql"
    good.write_text("SELECT 1")
    bad.write_text("\nSELECT nonsense")
    wrong = StatementError("unexpected word", hint="say SELECT", line=2, column=1)

    def execute(sql: str) -> None:
        if "nonsense" in sql:
            raise StatementError("unexpected word", hint="say SELECT", line=2, column=1)

    monkeypatch.setattr(home, "execute", execute)
    assert code_of("run", str(good), str(bad)) == 1
    assert f"error: {bad}: unexpected word at line 2, column 1\n" in capsys.readouterr().err
    unread = tmp_path / "unread.sql"
    unread.write_text("\n\n what is this")
    assert code_of("run", str(good), str(unread)) == 1
    assert f"error: {unread}: 'what' begins no statement at line 3, column 2\n" in capsys.readouterr().err
    # A process that has the home open is told of one text, and knows no file.
    with owned(tmp_path, execute=lambda sql: {} if "nonsense" not in sql else failing(wrong)()):
        assert code_of("run", str(good), str(bad), "--json") == 1
        assert json.loads(capsys.readouterr().err)["message"] == f"{bad}: unexpected word at line 2, column 1"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"SELECT nonsense")))
    assert code_of("run", "-") == 1
    assert capsys.readouterr().err.startswith("error: unexpected word at line 2")


def test_fold_goes_through_the_running_owner(
    home: StandInHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> dict[str, object]:
        raise StatementError("not now", detail="It is busy.", hint="wait")

    answers = iter([lambda: {"epoch": 9}, refuse])
    monkeypatch.setattr(headrace, "open", lambda home, **options: pytest.fail("the home was opened"))
    with owned(tmp_path, fold=lambda: next(answers)()):
        assert code_of("fold", "--json") == 0
        assert json.loads(capsys.readouterr().out)["epoch"] == 9
        assert code_of("fold") == 1
        assert capsys.readouterr().err.splitlines() == ["error: not now", "detail: It is busy.", "hint: wait"]


READS = {
    "query": ["query", "SELECT 1"],
    "changes": ["changes", "t", "--since", "3"],
    "explain": ["explain", "t"],
    "relations": ["status"],
}


@pytest.mark.parametrize("verb", READS)
def test_reading_goes_through_the_running_owner(
    verb: str, home: StandInHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, object]] = []
    rows = to_answer(pa.table({"x": [Decimal("7.50")]}))["rows"]
    explained = {"name": "t", "incremental": True, "reasons": [], "text": "t: by x 7.50"}
    answers = {"explain": explained, "relations": {"epoch": 9, "tables": rows, "views": rows, "sources": rows}}

    def answer(**arguments: object) -> object:
        asked.append(arguments)
        return answers.get(verb, {"rows": rows})

    monkeypatch.setattr(headrace, "open", lambda home, **options: pytest.fail("the home was opened"))
    with owned(tmp_path, **{verb: answer}):
        assert code_of(*READS[verb]) == 0
        assert "7.50" in capsys.readouterr().out
    with owned(tmp_path, **{verb: failing(StatementError("not so", detail="It is wrong.", hint="mend it"))}):
        assert code_of(*READS[verb], "--json") == 1
        told = json.loads(capsys.readouterr().err)
        assert told == {"code": "statement_error", "message": "not so", "detail": "It is wrong.", "hint": "mend it"}
    arguments = {
        "query": {"sql": "SELECT 1", "epoch": None},
        "changes": {"name": "t", "since": 3, "until": None},
        "explain": {"name": "t"},
        "relations": {},
    }
    assert asked == [arguments[verb]]


@pytest.mark.thorough
@pytest.mark.parametrize("verb", READS)
def test_what_the_owner_does_not_answer_is_read_here(
    verb: str, home: StandInHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*READS[verb]) == 0
    alone = capsys.readouterr().out
    refusals: list[dict[str, Any]] = [
        {},
        {verb: lambda **_: {"left": "it is too much"}},
        *({verb: failing(error)} for error in (WorkFailed("Spark is full"), HomeClosed("closed"), HomeBroken(3, None))),
    ]
    for verbs in refusals:
        with owned(tmp_path, **verbs):
            assert code_of(*READS[verb]) == 0
            assert capsys.readouterr().out == alone
    # One that is there but cannot be reached, as from another machine.
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    ownership.announce(str(tmp_path / "nowhere"))
    assert code_of(*READS[verb]) == 0
    assert capsys.readouterr().out == alone
    ownership.release()


def test_backup_goes_through_the_running_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def backup(destination: str) -> dict[str, object]:
        asked.append(destination)
        return {"epoch": 9, "files": 1, "bytes": 2, "seconds": 0.1}

    with owned(tmp_path, backup=backup):
        assert code_of("backup", "some/copy", "--home", str(tmp_path)) == 0
    assert asked == [str(Path.cwd() / "some" / "copy")]
    assert "epoch 9" in capsys.readouterr().out
