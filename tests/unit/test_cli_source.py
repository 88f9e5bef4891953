"""`headrace source` and `dead-letters` beside a process that has the home open: what people are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.cli import source
from headrace.statements.answers import to_answer
from tests.command_line import code_of
from tests.unit.test_cli_owner import owned

RAN_INTO = "the login was refused. Hint: give the option password, or another one, and RESUME SOURCE shop."


def row(name: str, **told: Any) -> dict[str, Any]:
    known = {"table": "", "tables": ["orders", "customers"], "state": "Running", "received": 0, "applied": 0, "dead": 0}
    unknown = dict.fromkeys(("lag_records", "lag_seconds", "error", "warning", "position"))
    return {"name": name, **known, **unknown, "records_per_second": 8.858120477551354, **told}


def relations(*rows: dict[str, Any]) -> dict[str, Any]:
    kinds = {kind: to_answer(pa.table({"name": pa.array([], pa.string())}))["rows"] for kind in ("tables", "views")}
    return {"epoch": 7, **kinds, "sources": to_answer(pa.Table.from_pylist(list(rows)))["rows"]}


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> int:
    """Make a source whose home tells this of it, time after time."""
    # The last of several is waited for.
    monkeypatch.setattr(source, "_ANSWER_SECONDS", 90 if len(answers) > 1 else 0.3)
    monkeypatch.setattr(source, "_LOOK_SECONDS", 0.01)
    left = list(answers)
    folder.mkdir()
    with owned(
        folder,
        execute=lambda **_: {},
        relations=lambda: relations(left.pop(0) if len(left) > 1 else left[0]),
    ):
        return code_of("source", "create", "Shop", "localhost:1/t", "--from", "kafka", "--home", str(folder))


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([row("shop"), row("shop", state="Error", error=RAN_INTO)], f"Error, {RAN_INTO}\n"),
        ([row("shop")], "nothing has come from it yet\n"),
        ([row("shop", warning="t is filled by source s too")], "Running, warning: t is filled by source s too\n"),
        ([row("shop"), row("shop", lag_records=0)], ""),
    ],
)
def test_what_a_new_source_runs_into_is_told_and_where_more_is(
    answers: list[dict[str, Any]],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert made(tmp_path / "home", monkeypatch, *answers) == 0
    more = "headrace source show Shop tells how it fares\n"
    assert capsys.readouterr().out == f"source Shop is made\n{told}{more}"


def test_a_list_has_a_line_for_each_that_a_terminal_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    folder = tmp_path / "home"
    folder.mkdir()
    listed = [
        row("shop", applied=1234567, lag_records=12, lag_seconds=0.25),
        row("wards", state="Error", error=RAN_INTO * 3, tables=[f"table_{number}" for number in range(20)]),
        row("late", warning="behind by 90 seconds", table="t", tables=[]),
    ]
    with owned(folder, relations=lambda: relations(*listed)):
        assert code_of("source", "list", "--home", str(folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert [word.strip() for word in lines[0].split("┃")] == [
        "name",
        "state",
        "tables",
        "lag",
        "applied",
        "dead",
        "error",
    ]
    shop, wards, late = ([word.strip() for word in line.split("│")] for line in lines[2:5])
    assert shop == ["shop", "Running", "orders, customers", "12, 0.2 s", "1,234,567", "0", ""]
    assert (wards[-1][:13], wards[-1][-1]) == ("the login was", "…")
    assert (late[2], late[-1]) == ("t", "warning: behind by 90 seconds")


def test_one_source_is_told_as_people_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    with owned(folder, relations=lambda: relations(row("shop"))):
        assert code_of("source", "show", "shop", "--home", str(folder)) == 0
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if " " in line.strip())
    assert (told["tables"], told["records_per_second"]) == ("orders, customers", "8.9")


def test_a_letter_that_is_refused_again_is_told_with_its_new_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, mended = tmp_path / "home", tmp_path / "mended.json"
    folder.mkdir()
    mended.write_text('{"insert": {"id": 2, "n": "more"}}')
    reasons = ["n: 'much' is no INT"]

    def answer(deed: str, **_: Any) -> dict[str, Any]:
        if deed == "replay":
            reasons.append("n: 'more' is no INT")
            return {"receipt": {"epoch": 8, "dead": {"t": 1}}}
        return {"count": 1, "letters": [{"id": "s-1", "reason": reasons[-1]}]}

    with owned(folder, dead_letters=answer):
        replayed = code_of("dead-letters", "replay", "s-1", "--payload", str(mended), "--home", str(folder))
    assert replayed == 1
    assert "  s-1: n: 'more' is no INT\n" in capsys.readouterr().out
