"""Which home a verb works on, and that none is made by accident."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import headrace
from tests.command_line import StandInHome, code_of
from tests.small_homes import make_home


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
    in_a_project(tmp_path, monkeypatch).mkdir(parents=True)
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


def test_a_named_home_goes_before_the_project_and_leaves_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, object]] = []

    def stand_in(home: str, *, settings: headrace.Settings, **options: object) -> StandInHome:
        opened.append((home, settings.small_bound))
        return StandInHome()

    monkeypatch.setattr(headrace, "open", stand_in)
    in_a_project(tmp_path, monkeypatch)
    (tmp_path / "other").mkdir()
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
