"""A command that is misspelt is told so like any other error: message, detail, hint; and ends with code 2."""

from __future__ import annotations

import json

import pytest

from tests.command_line import code_of


@pytest.mark.parametrize(
    ("words", "message", "where"),
    [
        (("key", "create"), "missing argument 'name'", "headrace key create"),
        (("query",), "missing argument 'sql'", "headrace query"),
        (("query", "SELECT 1", "--bogus"), "no such option: --bogus", "headrace query"),
        (("source", "create", "a"), "missing", "headrace source create"),
        (("query", "SELECT 1", "--rows", "many"), "invalid value for '--rows'", "headrace query"),
        (("qurey",), "no such command 'qurey'", "headrace"),
        (("changefeed", "pasue", "f"), "no such command 'pasue'", "headrace changefeed"),
    ],
)
def test_a_misspelt_command_says_message_detail_and_hint(
    words: tuple[str, ...], message: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    error, detail, hint = said.err.splitlines()
    assert error.startswith(f"error: {message}")
    assert detail.startswith(f"detail: Usage: {where} ")
    assert hint == f"hint: {where} --help tells what it takes"


def test_a_program_is_told_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("key", "create", "--json") == 2
    told = json.loads(capsys.readouterr().err)
    assert (told["code"], told["message"]) == ("usage_error", "missing argument 'name'")


def test_a_group_without_a_verb_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("key") == 2
    said = capsys.readouterr()
    assert "Commands:" in said.out + said.err
    assert "error:" not in said.err
