"""Scripts: where statements begin and end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StatementError
from headrace.sql.script import check_brackets, split


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", []),
        (" ; ;\n; -- only a comment\n", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1"]),
        ("a; b ;;c", ["a", "b", "c"]),
        ("a ';' ; b `;` ; c -- ;\n d; /* ; */ e \";\"", ["a ';'", "b `;`", "c -- ;\n d", 'e ";"']),
        ("-- lead\nSELECT 1 -- trail\n; /* x */ SELECT 2 /* y */", ["SELECT 1", "SELECT 2"]),
        ("SELECT /* kept */ 1", ["SELECT /* kept */ 1"]),
    ],
)
def test_split(source: str, expected: list[str]) -> None:
    assert [statement.text for statement in split(source)] == expected


def test_places_are_those_of_the_script() -> None:
    source = "SELECT 1;\n\n  SELECT\n 2; SELECT 3"
    assert [(s.line, s.column, s.start, s.end) for s in split(source)] == [
        (1, 1, 0, 8),
        (3, 3, 13, 22),
        (4, 5, 24, 32),
    ]


@given(st.lists(st.sampled_from(["a", "';'", "`;`", "/*;*/", ";", "\n", "(", ")"]), max_size=20))
def test_each_statement_is_its_slice_of_the_script(parts: list[str]) -> None:
    source = " ".join(parts)
    end = 0
    for statement in split(source):
        assert statement.start >= end
        assert source[statement.start : statement.end] == statement.text
        assert statement.tokens[0].start == statement.start
        end = statement.end


@pytest.mark.parametrize(
    ("source", "message", "column"),
    [
        ("a (b", r"unclosed '\('", 3),
        ("a (b [c)", r"unexpected '\)'", 8),
        ("a) (b", r"unexpected '\)'", 2),
        ("a ((b)", r"unclosed '\('", 3),
    ],
)
def test_lonely_brackets(source: str, message: str, column: int) -> None:
    with pytest.raises(StatementError, match=message) as error:
        check_brackets(split(source)[0].tokens)
    assert (error.value.line, error.value.column) == (1, column)
    assert error.value.hint


def test_brackets_in_strings_do_not_count() -> None:
    check_brackets(split("a ('(' , `)` /* ( */)")[0].tokens)
