from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.spark import jars


def lock_of(content: bytes) -> list[jars.Jar]:
    return [jars.Jar("org.example", "thing", "1.0", hashlib.sha256(content).hexdigest())]


def deliver(content: bytes | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put a download in place of Maven's; returns the list of what was asked for."""
    asked: list[str] = []

    def ivy(wanted: Sequence[jars.Jar], draft: Path) -> None:
        asked.extend(jar.artifact for jar in wanted)
        if content is not None:
            (draft / wanted[0].file_name).write_bytes(content)

    monkeypatch.setattr(jars, "_run_ivy", ivy)
    return asked


def test_every_line_of_the_lock_is_a_pinned_jar() -> None:
    locked = jars.read_lock()
    assert {jar.artifact for jar in locked} >= {"delta-spark_4.2_2.13", "delta-storage"}
    assert all(len(jar.sha256) == 64 for jar in locked)


def test_a_jar_is_fetched_once_and_then_read_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "read_lock", lambda: lock_of(b"right"))
    asked = deliver(b"right", monkeypatch)
    assert jars.paths(tmp_path / "cache") == [tmp_path / "cache" / "thing-1.0.jar"]
    assert jars.paths(tmp_path / "cache")[0].read_bytes() == b"right"
    assert asked == ["thing"]


@pytest.mark.parametrize(("content", "message"), [(b"wrong", "not the pinned one"), (None, "was not delivered")])
def test_a_wrong_jar_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    monkeypatch.setattr(jars, "read_lock", lambda: lock_of(b"right"))
    deliver(content, monkeypatch)
    with pytest.raises(SetupError, match=message):
        jars.paths(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_kept_jar_that_was_damaged_is_told_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "read_lock", lambda: lock_of(b"right"))
    asked = deliver(b"right", monkeypatch)
    (jar,) = jars.paths(tmp_path)
    jar.write_bytes(b"wrong")
    with pytest.raises(SetupError, match="was damaged after it was downloaded") as told:
        jars.paths(tmp_path)
    assert str(jar) in told.value.detail
    assert f"rm '{jar}'" in told.value.hint
    jar.unlink()
    assert jars.paths(tmp_path)[0].read_bytes() == b"right"
    assert asked == ["thing", "thing"]


def test_the_request_to_maven_names_only_what_the_lock_names() -> None:
    request = jars._ivy_module(jars.parse_lock("# a comment\n\n" + "a" * 64 + "  g:a&b:1\n"))
    assert 'org="g" name="a&amp;b" rev="1" transitive="false"' in request
