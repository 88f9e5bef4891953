"""Which home a verb works on, and that none is made by accident."""

from __future__ import annotations

import io
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import face
from headrace.cli.homes import ChosenHome, with_master
from headrace.offline import is_there
from headrace.owner.ownership import take_ownership
from tests.command_line import StandInHome, code_of
from tests.small_homes import fold, make_home


def in_a_project(folder: Path, monkeypatch: pytest.MonkeyPatch, storage: str = "data/home") -> Path:
    """Stand in a folder below a project's; where its home lies."""
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    (folder / "headrace.yml").write_text(f"name: shop\nstorage: {storage}\nsettings: {{small_bound: 7}}\n")
    (folder / "sql" / "deep").mkdir(parents=True)
    monkeypatch.chdir(folder / "sql" / "deep")
    return folder / storage


@pytest.mark.parametrize(
    "verb",
    [
        ("query", "SELECT 1"),
        ("changes", "t"),
        ("explain", "v"),
        ("verify",),
        ("status",),
        ("fold",),
        ("run", "changes.sql"),
    ],
)
def test_a_verb_finds_the_home_of_the_project_it_stands_in(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, int]] = []

    def stand_in(home: str, *, settings: headrace.Settings, **options: object) -> StandInHome:
        opened.append((home, settings.small_bound))
        return StandInHome()

    monkeypatch.setattr(headrace, "open", stand_in)
    make_home(in_a_project(tmp_path, monkeypatch), 1)
    Path("changes.sql").write_text("DELETE FROM t WHERE id = 1")
    assert code_of(*verb) == 0
    assert opened == [(str(tmp_path / "data" / "home"), 7)]
    assert not Path("headrace-home").exists()


def test_backup_and_the_check_of_storage_find_the_home_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = in_a_project(tmp_path, monkeypatch)
    make_home(location, 2)
    assert code_of("verify", "--storage") == 0
    assert code_of("backup", str(tmp_path / "copy")) == 0
    assert (tmp_path / "copy" / "backup.json").exists()


def give_to_a_stranger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        stranger = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: stranger)


@pytest.mark.parametrize("what", ["headrace.yml", "."])
@pytest.mark.parametrize("below", ["sql/deep", "."])
@pytest.mark.parametrize("verb", [("run",), ("run", "changes.sql"), ("status",), ("serve",)])
@pytest.mark.parametrize("owned", [True, False])
def test_a_project_that_another_user_may_have_left_is_taken_only_if_it_is_named(
    owned: bool,
    verb: tuple[str, ...],
    below: str,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stand_in(home: str, **_: object) -> StandInHome:
        raise AssertionError(f"{home} is opened")

    monkeypatch.setattr(headrace, "open", stand_in)
    in_a_project(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path / below)
    Path("changes.sql").write_text("CREATE TABLE t (id INT PRIMARY KEY)")
    if owned:
        (tmp_path / what).chmod(0o777)
    else:
        give_to_a_stranger(tmp_path / what, monkeypatch)
    assert code_of(*verb) == 1
    told = capsys.readouterr().err
    assert f"error: {tmp_path / 'headrace.yml'} may be another user's, and is not taken" in told
    assert ("Everybody may write" if owned else "belongs to") in told
    assert f"headrace run {tmp_path}" in told


def test_a_project_of_another_user_is_run_by_who_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def stand_in(home: str, **_: object) -> StandInHome:
        opened.append(home)
        raise headrace.SetupError("far enough")

    monkeypatch.setattr(headrace, "open", stand_in)
    location = in_a_project(tmp_path, monkeypatch)
    (tmp_path / "sql" / "t.sql").write_text("CREATE TABLE t (id INT PRIMARY KEY)")
    give_to_a_stranger(tmp_path / "headrace.yml", monkeypatch)
    assert code_of("run", str(tmp_path)) == 1
    assert opened == [str(location)]


@pytest.mark.parametrize(
    ("below", "more", "told"), [("sql/deep", (), True), ("sql/deep", ("--json",), False), (".", (), False)]
)
def test_which_project_was_found_above_is_told_to_people(
    below: str,
    more: tuple[str, ...],
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(headrace, "open", lambda home, **_: StandInHome())
    make_home(in_a_project(tmp_path, monkeypatch), 1)
    monkeypatch.chdir(tmp_path / below)
    assert code_of("query", "SELECT 1", *more) == 0
    note = f"note: the project is that of {tmp_path / 'headrace.yml'}\n"
    assert capsys.readouterr().err.count(note) == int(told)


def test_a_server_tells_its_project_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stand_in(home: str, **_: object) -> StandInHome:
        raise headrace.SetupError("far enough")

    monkeypatch.setattr(headrace, "open", stand_in)
    make_home(in_a_project(tmp_path, monkeypatch), 1)
    assert code_of("serve", "--port", "0") == 1
    assert capsys.readouterr().err.count("note: the project is that of") == 1


def test_a_named_home_goes_before_the_project_and_leaves_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, object]] = []

    def stand_in(home: str, *, settings: headrace.Settings, **options: object) -> StandInHome:
        opened.append((home, settings.small_bound))
        return StandInHome()

    monkeypatch.setattr(headrace, "open", stand_in)
    in_a_project(tmp_path, monkeypatch)
    make_home(tmp_path / "other", 1)
    assert code_of("status", "--home", str(tmp_path / "other")) == 0
    assert opened == [(str(tmp_path / "other"), headrace.Settings().small_bound)]


@pytest.mark.parametrize("verb", [("run", "-"), ("serve",)])
def test_no_home_is_made_by_accident(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"DELETE FROM orders WHERE id = 7")))
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert code_of(*verb) == 1
    assert "there is no home at headrace-home" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_script_that_makes_tables_makes_its_home_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(headrace, "open", lambda home, **options: StandInHome())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"CREATE TABLE t (id INT PRIMARY KEY)")))
    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert code_of("run", "-") == 0
    assert "made a new home at headrace-home" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("fold",), ("status",), ("query", "SELECT 1"), ("key", "list"), ("backup", "copy")])
def test_a_folder_is_no_home(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "notes.txt").write_text("hi")
    assert code_of(*verb, "--home", "d") == 1
    assert "d is a folder, but no home" in capsys.readouterr().err
    assert [one.name for one in tmp_path.rglob("*")] == ["d", "notes.txt"]


def test_who_names_a_folder_for_a_new_home_gets_one_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(headrace, "open", lambda home, **options: StandInHome())
    script = tmp_path / "tables.sql"
    script.write_text("CREATE TABLE t (id INT PRIMARY KEY)")
    (tmp_path / "d" / "lost+found").mkdir(parents=True)
    assert code_of("run", str(script), "--home", str(tmp_path / "d")) == 0
    assert "made a new home" in capsys.readouterr().err


def test_a_home_that_lost_its_ledger_is_there(tmp_path: Path) -> None:
    fold(tmp_path, make_home(tmp_path, 2), 2)
    shutil.rmtree(tmp_path / "ledger")
    assert is_there(tmp_path)


def test_a_home_that_is_being_made_is_there(tmp_path: Path) -> None:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    assert is_there(tmp_path)
    ownership.release()
    assert not is_there(tmp_path)


def test_nothing_is_left_of_a_home_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(_: headrace.Settings) -> None:
        raise headrace.SetupError("no Spark could be started")

    monkeypatch.setattr(face, "start_spark", no_spark)
    with pytest.raises(headrace.SetupError, match="no Spark"):
        headrace.open(tmp_path / "new")
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty").mkdir()
    with pytest.raises(headrace.SetupError, match="no Spark"):
        headrace.open(tmp_path / "empty")
    assert (tmp_path / "empty").exists()


def test_a_session_is_looked_at_before_a_home_is_made(tmp_path: Path) -> None:
    given: Any = object()
    with pytest.raises(headrace.SetupError):
        headrace.open(tmp_path / "new", spark=given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", [("run",), ("status",)])
def test_a_folder_that_was_removed_is_told(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def removed() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.delenv("HEADRACE_HOME", raising=False)
    monkeypatch.setattr(Path, "cwd", removed)
    assert code_of(*verb) == 1
    assert "the current folder cannot be found" in capsys.readouterr().err


@pytest.mark.parametrize("home", ["a\0b", "s3://bucket/a\0b", "file://otherhost/x"])
def test_a_name_that_no_folder_of_this_machine_has_is_told(home: str) -> None:
    with pytest.raises(headrace.SetupError, match="not a place for a home"):
        is_there(home)


def test_a_master_that_is_given_leaves_what_is_not() -> None:
    settings = with_master(ChosenHome("home", headrace.Settings(small_bound=7), named=True), "local[2]").settings
    assert settings is not None
    assert settings.model_fields_set == {"small_bound", "spark_master"}
    assert "pause_garbage_collection" not in settings.model_fields_set


def test_a_master_that_another_process_leaves_unused_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headrace.cli.run.through_owner", lambda *_, **__: {})
    script = tmp_path / "a.sql"
    script.write_text("DELETE FROM t WHERE id = 1")
    assert code_of("run", str(script), "--home", str(tmp_path / "home"), "--master", "local[2]") == 0
    assert "with its own Spark, not at local[2]" in capsys.readouterr().err
