"""A script as its statements."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import StatementError
from headrace.sql.tokens import Token, scan

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_CLOSES = frozenset(_CLOSING.values())


@dataclass(frozen=True)
class ScriptStatement:
    """One statement of a script, from its first token to its last; all positions are positions in the script."""

    text: str
    start: int
    end: int
    line: int
    column: int
    tokens: tuple[Token, ...]


def split(source: str) -> list[ScriptStatement]:
    """The statements between the ';' of a script, empty ones left out."""
    statements: list[ScriptStatement] = []
    tokens: list[Token] = []
    for token in scan(source):
        if token.kind == "operator" and token.text == ";":
            statements.extend(_statement(source, tokens))
            tokens = []
        else:
            tokens.append(token)
    statements.extend(_statement(source, tokens))
    return statements


def _statement(source: str, tokens: list[Token]) -> list[ScriptStatement]:
    if not tokens:
        return []
    first, last = tokens[0], tokens[-1]
    return [
        ScriptStatement(source[first.start : last.end], first.start, last.end, first.line, first.column, tuple(tokens))
    ]


def check_brackets(tokens: tuple[Token, ...]) -> None:
    """Refuse a bracket without its partner, at the position of the single one."""
    opened: list[Token] = []
    for token in tokens:
        if token.kind != "operator":
            continue
        if token.text in _CLOSING:
            opened.append(token)
        elif token.text in _CLOSES:
            if not opened or _CLOSING[opened[-1].text] != token.text:
                raise _unpaired(f"unexpected '{token.text}'", "remove it or open it before", token)
            opened.pop()
    if opened:
        unpaired = opened[-1]
        raise _unpaired(f"unclosed '{unpaired.text}'", f"close it with '{_CLOSING[unpaired.text]}'", unpaired)


def _unpaired(message: str, hint: str, token: Token) -> StatementError:
    return StatementError(message, hint=hint, line=token.line, column=token.column)
