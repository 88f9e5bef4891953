"""The scanner: strings, names, comments and places are exact."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StatementError
from headrace.sql.tokens import Token, locate, quoted_value, scan, string_value


def kinds(source: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in scan(source)]


def texts(source: str) -> list[str]:
    return [token.text for token in scan(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'a''b'", [("string", "'a''b'")]),
        (r"'a\'b' c", [("string", r"'a\'b'"), ("word", "c")]),
        (r"'\\' ;", [("string", r"'\\'"), ("operator", ";")]),
        ('"a;b"', [("string", '"a;b"')]),
        (r'"a\"b" x', [("string", r'"a\"b"'), ("word", "x")]),
        ('"a""b"', [("string", '"a""b"')]),
        (r"r'\' x", [("string", r"r'\'"), ("word", "x")]),
        (r'R"\" x', [("string", r'R"\"'), ("word", "x")]),
        ("bar'x'", [("word", "bar"), ("string", "'x'")]),
        ("X'1F'", [("word", "X"), ("string", "'1F'")]),
        ("'line\nbreak'", [("string", "'line\nbreak'")]),
        ("`a``b`.`c;d`", [("quoted", "`a``b`"), ("operator", "."), ("quoted", "`c;d`")]),
        ("a--b\nc", [("word", "a"), ("word", "c")]),
        ("a--b\\\nstill\nc", [("word", "a"), ("word", "c")]),
        ("a -- ' ` /* \n b", [("word", "a"), ("word", "b")]),
        ("a/* ' -- /* nested */ ; */b", [("word", "a"), ("word", "b")]),
        ("a/**/b", [("word", "a"), ("word", "b")]),
        ("SELECT /*+ BROADCAST(x) */ 1", [("word", "SELECT"), ("number", "1")]),
        ("1 1.5 .5", [("number", "1"), ("number", "1.5"), ("number", ".5")]),
        ("1. 1e5 1.5E-3", [("number", "1."), ("number", "1e5"), ("number", "1.5E-3")]),
        ("2L 3.0BD 4d", [("number", "2L"), ("number", "3.0BD"), ("number", "4d")]),
        ("1a 12_b 1e", [("word", "1a"), ("word", "12_b"), ("word", "1e")]),
        ("1-1", [("number", "1"), ("operator", "-"), ("number", "1")]),
        ("größe", [("word", "größe")]),
        ("", []),
        (" \n\t", []),
    ],
)
def test_kinds(source: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(source) == expected


def test_operators() -> None:
    spaced = "a <=> b <> c != d <= e >= f == g || h -> i => j :: k |> l"
    assert " ".join(texts(spaced.replace(" ", ""))) == spaced
    assert texts("ARRAY<ARRAY<INT>>") == ["ARRAY", "<", "ARRAY", "<", "INT", ">", ">"]


def test_places() -> None:
    tokens = scan("a\n  'b\nc' d\r\n\te")
    assert [(t.text, t.line, t.column, t.start, t.end) for t in tokens] == [
        ("a", 1, 1, 0, 1),
        ("'b\nc'", 2, 3, 4, 9),
        ("d", 3, 4, 10, 11),
        ("e", 4, 2, 14, 15),
    ]


@pytest.mark.parametrize(
    ("source", "message", "position"),
    [
        ("a 'b", "unclosed string", (1, 3)),
        ("a\n b'c\\'", "unclosed string", (2, 3)),
        ('"b', "unclosed string", (1, 1)),
        ("a `b", "unclosed quoted name", (1, 3)),
        ("a\n/* /* */", "unclosed comment", (2, 1)),
    ],
)
def test_unclosed(source: str, message: str, position: tuple[int, int]) -> None:
    with pytest.raises(StatementError, match=message) as error:
        scan(source)
    assert (error.value.line, error.value.column) == position
    assert error.value.hint.startswith("close it with")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("'a''b'", "a'b"),
        (r"'a\'b'", "a'b"),
        (r"'a\nb\\n'", "a\nb\\n"),
        (r"'\u0041\U0001F600\101\%\_\q'", "A\U0001f600A\\%\\_q"),
        (r"'\\''x'", "\\'x"),
        (r"r'a\nb'", r"a\nb"),
        ('"it\'\'s ""x"""', "it''s \"x\""),
    ],
)
def test_string_value(source: str, value: str) -> None:
    assert string_value(scan(source)[0]) == value


def test_quoted_value() -> None:
    assert quoted_value(scan("`a``b`")[0]) == "a`b"


def test_a_keyword_needs_to_be_bare() -> None:
    assert [token.keyword for token in scan("select `select` 'select' 1")] == ["SELECT", "", "", ""]


def test_a_long_unclosed_string_is_refused_at_once() -> None:
    with pytest.raises(StatementError):
        scan("'" + "a\\'''" * 50_000 + "a")


FRAGMENTS = st.sampled_from(
    [
        "'a'",
        "'",
        '"',
        "`",
        "``",
        "--",
        "\n",
        "/*",
        "*/",
        "\\",
        ";",
        "a",
        "1",
        ".",
        "e",
        " ",
        "r'",
        "<",
        ">",
        "(",
        ")",
        "ü",
        "$",
    ]
)


@given(st.lists(FRAGMENTS, max_size=30).map("".join) | st.text(max_size=60))
def test_tokens_and_gaps_give_back_the_source(source: str) -> None:
    try:
        tokens = scan(source)
    except StatementError:
        return
    rebuilt: list[str] = []
    offset = 0
    for token in tokens:
        gap = source[offset : token.start]
        assert scan(gap + "\n") == []
        assert locate(source, token.start) == (token.line, token.column)
        rebuilt += [gap, token.text]
        offset = token.end
    assert "".join(rebuilt) + source[offset:] == source


SAFE = st.sampled_from(["'x;''y'", "`a``;`", "/* ; /* ' */ */", "-- ' ;\n", "word", "1.5", "<=>", '"--"', r"r'\'"])


@given(st.lists(SAFE, max_size=12))
def test_what_is_quoted_or_commented_never_leaks(parts: list[str]) -> None:
    tokens: list[Token] = scan(" ".join(parts))
    assert [token.text for token in tokens] == [p for p in parts if not p.startswith(("/*", "--"))]
