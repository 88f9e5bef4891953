"""Queries that are made of a statement's expressions."""

from __future__ import annotations

import pytest

from headrace.sql.made_query import make_query, written_at
from headrace.sql.names import quoted
from headrace.sql.syntax import Expression


@pytest.mark.parametrize(("name", "written"), [("a", "`a`"), ("a`b", "`a``b`"), ("x y", "`x y`"), ("`", "````")])
def test_a_name_is_quoted(name: str, written: str) -> None:
    assert quoted(name) == written


def test_names_are_quoted_and_expressions_stay_between_brackets() -> None:
    value = Expression("b + 1 -- one more", 4, 9)
    made = make_query(["a`b", "c"], [("a`b", "INT"), (value, "STRING")], "t", "x y", Expression("c > 0", 9, 3))
    assert made.sql == (
        "SELECT `a``b`, `c`, CAST(`a``b` AS INT), CAST((\nb + 1 -- one more\n) AS STRING)"
        " FROM `t` AS `x y` WHERE (\nc > 0\n)"
    )


def test_a_condition_cannot_pass_for_an_alias() -> None:
    made = make_query(["flag"], [], "t", None, Expression("flag", 1, 1))
    assert made.sql == "SELECT `flag` FROM `t` AS `t` WHERE (\nflag\n)"


def test_a_place_in_an_expression_is_found_in_the_script() -> None:
    first, where = Expression("a +\n  b", 3, 20), Expression("c > 0", 7, 8)
    made = make_query(["line\nbreak"], [(first, "INT")], "t", None, where)
    lines = made.sql.splitlines()
    assert lines[2:4] == ["a +", "  b"]
    assert written_at(made.pieces, 3, 1) == (3, 20)
    assert written_at(made.pieces, 4, 3) == (4, 3)
    assert lines[5] == "c > 0"
    assert written_at(made.pieces, 6, 5) == (7, 12)


def test_a_place_between_expressions_is_nowhere_in_the_script() -> None:
    made = make_query(["a"], [], "t", None, Expression("c > 0", 7, 8))
    assert [written_at(made.pieces, line, 1) for line in (1, 2, 3)] == [None, (7, 8), None]
