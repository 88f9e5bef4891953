"""The archive of Spark's classes: where it is, that it is whole or not there, and who makes it when; without Java."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import SetupError, SparkLost
from headrace.settings import Settings
from headrace.spark import class_archive, session
from headrace.spark.class_archive import archive_of, drafted, options_to_make, options_to_use
from headrace.spark.java import Java
from headrace.spark.make_class_archive import Making
from tests.waiting import until


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a machine whose Java and jars are files of a few letters."""
    for name in ("java/release", "java/lib/modules", "spark/jars/core.jar", "cache/jars/delta.jar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(class_archive, "find_java", lambda: Java(tmp_path / "java", 17))
    monkeypatch.setattr(class_archive, "_find_spark_home", lambda: str(tmp_path / "spark"))
    monkeypatch.setattr(class_archive.jars, "paths", lambda folder: sorted(folder.glob("*.jar")))
    return Settings(jars=tmp_path / "cache" / "jars")


@pytest.mark.parametrize("changed", ["java/release", "java/lib/modules", "spark/jars/core.jar", "cache/jars/delta.jar"])
def test_another_java_or_jar_has_another_archive(settings: Settings, tmp_path: Path, changed: str) -> None:
    before = archive_of(settings)
    assert before == archive_of(settings)
    assert before.parent == tmp_path / "cache" / "classes"
    (tmp_path / changed).write_text("another one")
    assert archive_of(settings) != before


def test_an_archive_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    archive = tmp_path / "classes" / "one.jsa"
    with pytest.raises(KeyboardInterrupt):
        interrupted(archive)
    with pytest.raises(SetupError, match="no archive"), drafted(archive):
        pass
    assert not archive.exists()
    with drafted(archive) as draft:
        assert draft is not None
        assert not archive.exists()
        draft.write_text("whole")
    assert archive.read_text() == "whole"
    with drafted(archive) as draft:
        assert draft is None
    assert {path.name for path in archive.parent.iterdir()} == {"one.jsa", "making.lock"}


def interrupted(archive: Path) -> None:
    with drafted(archive) as draft:
        assert draft is not None
        draft.write_text("half")
        raise KeyboardInterrupt


def test_only_one_process_makes_one(tmp_path: Path) -> None:
    archive = tmp_path / "one.jsa"
    with open(tmp_path / "making.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with drafted(archive) as draft:
            assert draft is None


def test_what_is_of_no_use_any_more_is_removed(tmp_path: Path) -> None:
    old, used, left = tmp_path / "old.jsa", tmp_path / "used.jsa", tmp_path / "making-left"
    left.mkdir()
    (left / "half.jsa").write_text("half")
    long_ago = time.time() - 31 * 24 * 3600
    for archive in (old, used):
        archive.write_text("whole")
        os.utime(archive, (long_ago, long_ago))
    options_to_use(used)
    with drafted(tmp_path / "new.jsa") as draft:
        assert draft is not None
        draft.write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"used.jsa", "new.jsa", "making.lock"}


def test_a_path_reaches_java_as_it_is() -> None:
    # Spark takes double quotes off, and a backslash before what it stands before.
    assert '-XX:ArchiveClassesAtExit="/a b/\\"c\\\\d.jsa"' in options_to_make(Path('/a b/"c\\d.jsa'))


def test_an_archive_with_which_spark_does_not_start_is_done_without(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(settings)
    archive.parent.mkdir()
    archive.write_text("of no use")
    tried: list[str] = []
    works = False

    def begun(settings: Settings, java_options: str, changed: Any, archive_options: str = "") -> str:
        tried.append(archive_options)
        if archive_options or not works:
            raise SparkLost("Spark ended while it was started") if works else SetupError("Spark cannot be started")
        return "spark"

    monkeypatch.setattr(session, "_begun", begun)
    with pytest.raises(SetupError):
        session._started(settings, "", {})
    # It was not to blame.
    assert archive.exists()
    works = True
    assert session._started(settings, "", {}) == "spark"
    assert not archive.exists()
    assert [str(archive) in one for one in tried] == [True, False, True, False]


def test_a_server_makes_one_where_there_is_none(settings: Settings, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    program = (sys.executable, "-c", f"import os, sys; open({str(noted)!r}, 'w').write(os.environ['HEADRACE_JARS'])")
    with Making(settings, later=0.0, program=program):
        until(lambda: noted.exists() and noted.read_text() == str(settings.jars))
    noted.unlink()
    with Making(settings.model_copy(update={"class_archive": False}), later=0.0, program=program) as making:
        assert making._thread is None
    archive_of(settings).parent.mkdir()
    archive_of(settings).write_text("there")
    with Making(settings, later=0.0, program=program) as making:
        assert making._thread is None
    assert not noted.exists()


def test_what_a_server_has_begun_to_make_ends_with_it(settings: Settings, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    program = (
        sys.executable,
        "-c",
        f"import os, time; open({str(noted)!r}, 'w').write(str(os.getpid())); time.sleep(3600)",
    )
    with Making(settings, later=0.0, program=program):
        until(lambda: noted.exists() and noted.read_text() != "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
    # Which would otherwise be waited for.
    with Making(settings, later=3600.0, program=program):
        pass


def test_a_program_that_cannot_be_run_is_done_without(settings: Settings) -> None:
    with Making(settings, later=0.0, program=("/nowhere/python",)) as making:
        until(lambda: making._thread is not None and not making._thread.is_alive())
