"""What SQL from outside may do, judged by Spark's plan of it and never by its text.

A query is looked at twice. As parsed, before anything of it is looked up or evaluated: its nodes, functions, relations
and options must all be listed. And as resolved, when names have got their meaning: nothing may have become what is not.
In between, before Spark looks for it, each relation must be one that was registered for the query: what else the given
Spark has under a name is none of the home's, and will not be there with the next Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from headrace.errors import HeadraceError, QueryError, RelationNameError, UnsupportedStatement
from headrace.plans.catalyst import Catalyst, analyzed_plan
from headrace.plans.failures import FAILURES
from headrace.plans.trees import Java, Part, survey
from headrace.sql.allowed_functions import (
    FUNCTIONS,
    OPTIONED,
    OPTIONS,
    REFUSED,
    REFUSED_TABLE_FUNCTIONS,
    TABLE_FUNCTIONS,
)
from headrace.sql.allowed_plans import PARSED_EXPRESSIONS, PARSED_PLANS, RESOLVED_EXPRESSIONS, RESOLVED_PLANS
from headrace.sql.made_query import Piece
from headrace.sql.query_errors import position_in_script, query_error, unknown_relation

_WITH = "org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith"
_BUILT_IN = ("system.builtin.", "builtin.")
_HINTS = {
    "table_changes": "read changes with hr.changes, or over HTTP with GET /v1/changes/{relation}",
    "table_changes_by_path": "read changes with hr.changes, or over HTTP with GET /v1/changes/{relation}",
    "monotonically_increasing_id": "use row_number() OVER (ORDER BY ...)",
    "current_catalog": "leave it out",
}
_NODES = {
    "ScriptTransformation": ("a query runs no programs", "leave out TRANSFORM ... USING"),
    "ExpressionWithUnresolvedIdentifier": ("IDENTIFIER(...) is not offered here", "write the name itself"),
    "PlanWithUnresolvedIdentifier": ("IDENTIFIER(...) is not offered here", "write the name itself"),
    "NamedParameter": ("a query has no parameters", "write the value itself"),
    "PosParameter": ("a query has no parameters", "write the value itself"),
    "RelationTimeTravel": ("AS OF is out of place", "write FROM t VERSION AS OF 12, or put AS OF at the very end"),
    "PythonUDF": ("functions of users are not offered", "use Spark's own functions"),
    "ScalaUDF": ("functions of users are not offered", "use Spark's own functions"),
}


@dataclass(frozen=True)
class Parsed:
    """A query from outside that is made of nothing but what is listed, the relations it reads, and where it stands."""

    plan: Java
    relations: Sequence[Part]
    line: int
    column: int
    pieces: Sequence[Piece]

    @property
    def names(self) -> frozenset[str]:
        """The names of the relations that it reads, in lower case."""
        return frozenset(part.name.lower() for part in self.relations)

    def position(self, part: Part) -> tuple[int, int] | None:
        """The line and column of the script where a part of it was met."""
        if part.line is None or part.position is None:
            return None
        return position_in_script(part.line, part.position, self.line, self.column, self.pieces)


def parse_query(catalyst: Catalyst, sql: str, line: int = 1, column: int = 1, pieces: Sequence[Piece] = ()) -> Parsed:
    """Parse a query from outside; it is refused unless all that it is made of is listed.

    It begins at this line and column of a script, or is made of these pieces of it.
    """
    try:
        plan = catalyst.parse_query(sql)
        parts = survey(plan, OPTIONED)
    except FAILURES as error:
        raise query_error(error, line, column, pieces) from None
    parsed = Parsed(plan, _relations(parts), line, column, pieces)
    for part in parts:
        fault = _parsed_fault(part)
        if fault is not None:
            raise _placed(fault, part, parsed)
    if not any(part.name == _WITH for part in parts):
        return parsed
    try:
        # Where a name means what WITH calls so, and where it does not, is known to Spark.
        return replace(parsed, relations=_relations(survey(catalyst.rule("CTESubstitution")(plan))))
    except FAILURES as error:
        raise query_error(error, line, column, pieces) from None


def frame_of(catalyst: Catalyst, parsed: Parsed) -> Any:
    """A DataFrame of a parsed query; it is refused if a name in it is not registered, or means what is not listed."""
    try:
        for part in parsed.relations:
            if not catalyst.has_temporary_view(part.name):
                raise unknown_relation(part.name, parsed.position(part))
        frame = catalyst.frame(parsed.plan)
        parts = survey(analyzed_plan(frame))
    except FAILURES as error:
        raise query_error(error, parsed.line, parsed.column, parsed.pieces) from None
    for part in parts:
        fault = _resolved_fault(catalyst, part)
        if fault is not None:
            raise _placed(fault, part, parsed)
    return frame


def analyze(catalyst: Catalyst, sql: str, line: int = 1, column: int = 1) -> Java:
    """The analyzed plan of a query from outside; errors come with line, column and a hint."""
    return analyzed_plan(frame_of(catalyst, parse_query(catalyst, sql, line, column)))


def _relations(parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if part.what == "relation"]


def _parsed_fault(part: Part) -> HeadraceError | None:
    match part.what:
        case "plan":
            return None if part.name in PARSED_PLANS else _node_fault(part.name)
        case "expression":
            return None if part.name in PARSED_EXPRESSIONS else _node_fault(part.name)
        case "function":
            name = _bare(part.name)
            return None if name in FUNCTIONS else _function_fault(name, REFUSED, FUNCTIONS, "function")
        case "table function":
            name = _bare(part.name)
            if name in TABLE_FUNCTIONS:
                return None
            return _function_fault(name, REFUSED_TABLE_FUNCTIONS, TABLE_FUNCTIONS, "table function")
        case "relation":
            return None
        case "far relation":
            return RelationNameError(
                "unknown table or view",
                detail=f"{part.name} is none: a relation's name has one part.",
                hint="SHOW TABLES and SHOW VIEWS list what there is",
            )
        case "option":
            return _option_fault(part.name)
        case "unknown options":
            return UnsupportedStatement(
                f"the options of {part.name}() must be written out",
                hint="write map('option', 'value', ...) with the name of each option as a string",
            )
        case _:
            return UnsupportedStatement(
                f"a {part.what} is not offered", detail=f"It is given to {part.name}.", hint="leave it out"
            )


def _resolved_fault(catalyst: Catalyst, part: Part) -> HeadraceError | None:
    if part.what == "option":
        return _option_fault(part.name)
    if part.name in (RESOLVED_PLANS if part.what == "plan" else RESOLVED_EXPRESSIONS):
        return None
    names = catalyst.functions_by_class.get(part.name, ())
    if any(name in FUNCTIONS for name in names):
        return None
    refused = next((name for name in names if name in REFUSED), None)
    return _node_fault(part.name) if refused is None else _function_fault(refused, REFUSED, (), "function")


def _bare(name: str) -> str:
    """The name of a function without the catalog and schema of Spark's own."""
    lowered = name.lower()
    return next((lowered.removeprefix(start) for start in _BUILT_IN if lowered.startswith(start)), lowered)


def _node_fault(made: str) -> HeadraceError:
    name = made.rpartition(".")[2].rstrip("$")
    message, hint = _NODES.get(name, (f"{name} is not offered in a query", "write the query without it"))
    return UnsupportedStatement(message, hint=hint)


def _option_fault(name: str) -> HeadraceError | None:
    if name.lower() in OPTIONS:
        return None
    return UnsupportedStatement(
        f"the option {name} is not offered",
        detail="Options say how text is read and written; none may name a file, a class or an amount of memory.",
        hint="leave it out",
    )


def _function_fault(name: str, refused: Mapping[str, str], listed: Iterable[str], what: str) -> HeadraceError:
    if name in refused:
        return UnsupportedStatement(
            f"{name}() is not offered", detail=f"{refused[name].capitalize()}.", hint=_HINTS.get(name, "leave it out")
        )
    close = get_close_matches(name, [one for one in listed if one[0].isalpha()], 1)
    return QueryError(
        f"unknown {what} {name}()",
        detail="Spark's own functions are offered, and no functions of users.",
        hint=f"did you mean {close[0]}()?" if close else "use one of Spark's own functions",
    )


def _placed(fault: HeadraceError, part: Part, parsed: Parsed) -> HeadraceError:
    """The error with the position in the script where its cause was met."""
    position = parsed.position(part)
    if position is not None:
        fault.line, fault.column = position
        fault.detail = f"line {position[0]}, column {position[1]}: {fault.detail}".rstrip(": ")
    return fault
