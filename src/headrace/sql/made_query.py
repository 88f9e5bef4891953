"""A query made of a statement's own expressions: every one of them stays what it is, and known by where it was written.

An expression stands between brackets on lines of its own, so that nothing in it reaches past them and a position in the
made query, which nobody has seen, is found again in the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.sql.names import quoted
from headrace.sql.syntax import Expression


@dataclass(frozen=True)
class Piece:
    """An expression in a made query, and the line of that query on which it begins."""

    line: int
    expression: Expression

    def written_at(self, line: int, column: int) -> tuple[int, int] | None:
        """The script's line and column of a position in the made query, if it lies in this expression."""
        down = line - self.line
        if not 0 <= down <= self.expression.text.count("\n"):
            return None
        return self.expression.line + down, column + (self.expression.column - 1 if down == 0 else 0)


@dataclass(frozen=True)
class MadeQuery:
    """The text of a query, and the expressions in it."""

    sql: str
    pieces: tuple[Piece, ...]


def written_at(pieces: Iterable[Piece], line: int, column: int) -> tuple[int, int] | None:
    """The script's line and column of a position in a made query; None where no expression of the script stands."""
    found = (piece.written_at(line, column) for piece in pieces)
    return next((position for position in found if position is not None), None)


def make_query(
    columns: Sequence[str],
    values: Sequence[tuple[Expression | str, str]],
    table: str,
    alias: str | None,
    where: Expression | None,
) -> MadeQuery:
    """Columns of a table as they are, then values cast to their types, of the rows that the condition names."""
    text: list[str] = ["SELECT ", ", ".join(quoted(name) for name in columns)]
    pieces: list[Piece] = []

    def add(expression: Expression) -> None:
        text.append("(\n")
        pieces.append(Piece("".join(text).count("\n") + 1, expression))
        text.append(f"{expression.text}\n)")

    for value, kind in values:
        text.append(", CAST(")
        if isinstance(value, Expression):
            add(value)
        else:
            text.append(quoted(value))
        text.append(f" AS {kind})")
    # Without an alias Spark would read WHERE (flag) as one: a table called WHERE, with one column, and no condition.
    text.append(f" FROM {quoted(table)} AS {quoted(alias or table)}")
    if where is not None:
        text.append(" WHERE ")
        add(where)
    return MadeQuery("".join(text), tuple(pieces))
