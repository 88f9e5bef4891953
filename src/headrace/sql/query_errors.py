"""Spark's complaints about a query as errors of Headrace, with the position in the script."""

from __future__ import annotations

import re
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception

from headrace.errors import HeadraceError, QueryError, RelationNameError, StatementError
from headrace.plans.failures import first_line, is_of_query, work_failed
from headrace.sql.made_query import Piece, written_at

_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")


def query_error(error: Exception, line: int = 1, column: int = 1, pieces: Sequence[Piece] = ()) -> HeadraceError:
    """Spark's complaint about a query as ours: short message, detail, hint, and the position in the script.

    The query begins there at this line and column, or is made of these pieces of the script. What
    failed by no fault of its own is `WorkFailed`.
    """
    if not is_of_query(error):
        return work_failed("the query", error)
    captured = convert_exception(error.java_exception) if isinstance(error, Py4JJavaError) else error
    text = str(captured)
    condition = captured.getCondition() if isinstance(captured, PySparkException) else None
    first = f"{first_line(captured)}." if text.strip() else "Spark refused the query."
    found = _POSITION.search(text) or re.search(r"line (\d+) pos (\d+)", text)
    position: tuple[int, int] | None = None
    if found:
        position = position_in_script(int(found.group(1)), int(found.group(2)), line, column, pieces)
    detail = f"{_where(position)}{first}"
    if condition == "PARSE_SYNTAX_ERROR" or (condition or "").startswith("PARSE"):
        return StatementError(
            "the query cannot be read",
            detail=detail,
            hint="check the spelling and the commas near that place; the query is Spark SQL",
            line=position[0] if position else line,
            column=position[1] if position else column,
        )
    if condition and condition.startswith("UNRESOLVED_COLUMN"):
        message, hint = "unknown column", "DESCRIBE the relation to see its columns"
    else:
        message, hint = "Spark refused the query", "mend the query; it must be valid Spark SQL"
    found_line, found_column = position or (None, None)
    return QueryError(message, detail=detail, hint=hint, line=found_line, column=found_column)


def unknown_relation(name: str, position: tuple[int, int] | None) -> RelationNameError:
    """The refusal of a query that names, at this line and column of its script, what is no relation of the home."""
    refusal = RelationNameError(
        "unknown table or view",
        detail=f"{_where(position)}There is no table or view {name}.",
        hint="SHOW TABLES and SHOW VIEWS list what there is",
    )
    refusal.unknown = name.lower()
    # The detail tells the position already; a script need not tell that of the statement as well.
    refusal.line, refusal.column = position or (None, None)
    return refusal


def _where(position: tuple[int, int] | None) -> str:
    return f"line {position[0]}, column {position[1]}: " if position else ""


def position_in_script(
    at_line: int, at_position: int, line: int, column: int, pieces: Sequence[Piece]
) -> tuple[int, int] | None:
    """The script's line and column of a line, from 1, and a position, from 0, of a query in it."""
    if pieces:
        return written_at(pieces, at_line, at_position + 1)
    return line + at_line - 1, (column if at_line == 1 else 1) + at_position
