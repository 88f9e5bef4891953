"""Spark SQL text as tokens, each with its position; what lies between them is white space and comments.

Only as much of Spark's lexer as statement heads need: strings, names, comments and brackets are exact, so
that a keyword or a ';' inside them never counts. '>>' is two tokens, since in a type it closes two brackets.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, cast

from headrace.errors import StatementError

Kind = Literal["word", "quoted", "string", "number", "operator"]


class Token(NamedTuple):
    """One token; `start` and `end` are offsets into the source, `line` and `column` count from 1.

    A tuple, since an INSERT of many rows has very many of them and a frozen dataclass takes longer to make.
    """

    kind: Kind
    text: str
    start: int
    end: int
    line: int
    column: int

    @property
    def keyword(self) -> str:
        """The word in capitals, or nothing where quotes keep it from being a keyword."""
        return self.text.upper() if self.kind == "word" else ""


# Possessive quantifiers keep an unclosed quote from costing more than one pass over the text.
_PATTERN = re.compile(
    r"""
      (?P<space>\s++ | --(?:\\\n|[^\r\n])*+)
    | (?P<comment>/\*)
    | (?P<string>[rR]'[^']*+' | [rR]"[^"]*+"
        | '(?:[^'\\]++|\\(?s:.)|'')*+' | "(?:[^"\\]++|\\(?s:.)|"")*+")
    | (?P<quoted>`(?:[^`]++|``)*+`)
    | (?P<number>(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?:[bB][dD]|[fFdD])?(?!\w)
        | [0-9]++(?:[eE][+-]?[0-9]++)?(?:[bB][dD]|[lLsSyYfFdD])?(?!\w))
    | (?P<word>\w++)
    | (?P<operator><=>|<>|!=|<=|>=|==|\|\||\|>|->|=>|::|(?s:.))
    """,
    re.VERBOSE,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NEWLINE = re.compile(r"\n")
_UNCLOSED = {"'": "string", '"': "string", "`": "quoted name"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|(?s:.))")
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def scan(source: str) -> list[Token]:
    """Every token of the source in order; an unclosed string, quoted name or comment is a StatementError."""
    line_starts = [0, *(match.end() for match in _NEWLINE.finditer(source)), len(source) + 1]
    tokens: list[Token] = []
    offset, end, line, next_token = 0, len(source), 1, _PATTERN.match
    while offset < end:
        match = next_token(source, offset)
        assert match is not None, "the last alternative takes any character"
        kind, text, start = match.lastgroup, match.group(), offset
        offset = match.end()
        if kind == "space":
            continue
        if kind == "comment":
            offset = _comment_end(source, start)
            continue
        if kind == "operator" and text in _UNCLOSED:
            line, column = locate(source, start)
            raise StatementError(f"unclosed {_UNCLOSED[text]}", hint=f"close it with {text}", line=line, column=column)
        while line_starts[line] <= start:
            line += 1
        tokens.append(Token(cast(Kind, kind), text, start, offset, line, start - line_starts[line - 1] + 1))
    return tokens


def keywords(text: str) -> frozenset[str]:
    """A set of keywords, written as one text."""
    return frozenset(text.split())


def locate(source: str, offset: int) -> tuple[int, int]:
    """The line and the column of an offset, both from 1."""
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def string_value(token: Token) -> str:
    """What a string token stands for, its escapes resolved as Spark resolves them."""
    if token.text[0] in "rR":
        return token.text[2:-1]
    quote = token.text[0]
    parts: list[str] = []
    # A doubled quote is only one where no backslash has already escaped the first of the two.
    for piece in re.split(r"(\\(?s:.))", token.text[1:-1]):
        parts.append(piece if piece.startswith("\\") else piece.replace(quote * 2, quote))
    return _ESCAPE.sub(_unescape, "".join(parts))


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) == 1:
        return _ESCAPED.get(code, code)
    number = int(code[1:], 16) if code[0] in "uU" else int(code, 8)
    return chr(number) if number <= 0x10FFFF else match.group()


def quoted_value(token: Token) -> str:
    """The name inside backticks."""
    return token.text[1:-1].replace("``", "`")


def _comment_end(source: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(source, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    line, column = locate(source, start)
    raise StatementError("unclosed comment", hint="close it with */", line=line, column=column)
