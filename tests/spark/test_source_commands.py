"""`headrace source` and `headrace dead-letters`: by the process that has the home open, or without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run
from headrace.face import home_of
from tests.spark.test_sources_at_work import shown, taken
from tests.waiting import until


class Shell:
    """The command line, on one home."""

    def __init__(self, home: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self._home = str(home_of(home).path)
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            run([*arguments, "--home", self._home])
        said = self._capsys.readouterr()
        assert int(ended.value.code or 0) == code, said.err
        return said.out if code == 0 or said.out else said.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def shell(home: Any, capsys: pytest.CaptureFixture[str]) -> Shell:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    return Shell(home, capsys)


def write(folder: Path, name: str, *lines: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(f"{one}\n" for one in lines))
    (folder / f".{name}").rename(folder / name)


def test_a_source_from_the_first_to_the_last(home: Any, shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "it's \\ here"
    write(folder, "1.ndjson", '{"insert": {"id": 1, "n": 1}}')
    shell("source", "create", "s", str(folder), "--from", "files", "--into", "t", "-o", "max_records=5",
          "-o", "lag_warning=60 seconds")  # fmt: skip
    until(lambda: shown(home)["applied"] == 1)
    (told,) = shell.json("source", "list")
    assert (told["name"], told["state"], told["location"], told["applied"]) == ("s", "Running", str(folder), 1)
    assert "Running" in shell("source", "list")
    assert shell.json("source", "show", "S")["lag_records"] == 0
    assert "no source is read now" not in shell("source", "list")
    assert shell("source", "pause", "s") == "source s is paused\n"
    assert shown(home)["state"] == "Paused"
    shell("source", "alter", "s", "-o", "max_records=7")
    shell("source", "resume", "s")
    assert "Sources" in shell("status")
    assert shell.json("status")["sources"][0]["state"] == "Running"
    assert "exists already" in shell("source", "create", "s", str(folder), "--from", "files", "--into", "t", code=1)
    shell("source", "create", "s", str(folder), "--from", "files", "--into", "t", "--if-not-exists")
    shell("source", "drop", "s")
    assert shell.json("source", "list") == []


def test_letters_are_shown_mended_and_let_go(home: Any, shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "1.ndjson", "{", '{"insert": {"id": 2, "n": "much"}}', '{"insert": {"id": 3}}')
    shell("source", "create", "s", str(folder), "--from", "files", "--into", "t")
    until(lambda: taken(home) == 3)
    listed = shell.json("dead-letters", "list", "--source", "s")
    assert sorted(one["stage"] for one in listed) == ["contract", "text"]
    (bad,) = [one for one in listed if one["stage"] == "contract"]
    assert "much" in shell("dead-letters", "list", "--stage", "contract")
    assert shell.json("dead-letters", "show", bad["id"]) == bad
    assert "much" in shell("dead-letters", "show", bad["id"])
    again = shell.json("dead-letters", "replay", "--source", "s", code=1)
    assert sum(again["dead"].values()) == 2
    mended = tmp_path / "mended.json"
    mended.write_text('{"insert": {"id": 2, "n": 5}}')
    assert "1 in t applied" in shell("dead-letters", "replay", bad["id"], "--payload", str(mended))
    assert home.query("SELECT n FROM t WHERE id = 2").to_pylist() == [{"n": 5}]
    shell("dead-letters", "discard", "--stage", "text")
    assert shell.json("dead-letters", "list") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("source", "show", "nowhere"), "there is no source nowhere"),
        (("source", "pause", "nowhere"), "there is no source nowhere"),
        (("source", "pause", "x`; DROP TABLE t; --"), "there is no source"),
        (("source", "create", "s", "/tmp", "--from", "nowhere", "--into", "t"), "expected"),
        (("source", "create", "s", "/tmp", "--from", "files", "--into", "t", "-o", "max_records"), "is no option"),
        (("source", "create", "s", "/tmp", "--from", "files", "--into", "t", "-o", "max_record=1"), "no option max"),
        (("dead-letters", "show", "nowhere"), "there is no such dead letter"),
        (("dead-letters", "replay"), "not said which"),
        (("dead-letters", "discard"), "not said which"),
        (("dead-letters", "replay", "--all", "--payload", "-"), "for one letter"),
    ],
)
def test_what_cannot_be_is_told_in_three_lines(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    said = shell(*arguments, code=1)
    assert message in said
    assert said.startswith("error: ")
    assert "hint: " in said
