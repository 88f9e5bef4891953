from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.spark import java


def install(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="someone"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    return monkeypatch


def test_java_home_comes_first(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("JAVA_HOME", str(install(tmp_path / "named", "21.0.1")))
    bare.setenv("PATH", str(install(tmp_path / "path", "17.0.2") / "bin"))
    assert java.find_java() == java.Java(tmp_path / "named", 21)


def test_an_old_java_is_passed_over(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("JAVA_HOME", str(install(tmp_path / "old", "1.8.0_402")))
    bare.setenv("PATH", str(install(tmp_path / "new", "17") / "bin"))
    assert java.find_java() == java.Java(tmp_path / "new", 17)


def test_without_java_the_error_tells_what_was_tried(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("JAVA_HOME", str(install(tmp_path / "old", "11.0.2")))
    with pytest.raises(SetupError) as caught:
        java.find_java()
    assert caught.value.detail == "JAVA_HOME is Java 11."
    assert "headrace[java]" in caught.value.hint


def test_a_java_home_that_is_not_there_is_named(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(SetupError, match="no Java 17 or newer"):
        java.find_java()


def test_the_launcher_drops_the_module_and_keeps_every_other_argument(tmp_path: Path) -> None:
    home = install(tmp_path / "it's a java", "17.0.2")
    launcher = java.launcher_home(java.Java(home, 17), tmp_path / "launchers") / "bin" / "java"
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "Main", "$x", "'"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-cp", "a b:*", "", "Main", "$x", "'"]
