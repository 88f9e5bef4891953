"""What is wrong with a flow, in the words of its statement: the query behind it is ours, and nobody has seen it."""

from __future__ import annotations

import re
from difflib import get_close_matches

from headrace.epoch.core import Core
from headrace.errors import HeadraceError, QueryError, RelationNameError, StatementError
from headrace.sql.allowed import analyze
from headrace.sql.flows import AutoCdc, Columns
from headrace.sql.names import quoted

_POSITION = re.compile(r"^line \d+, column \d+: ")


def refuse_unknown(core: Core, flow: AutoCdc) -> None:
    """Refuse a flow whose stream is not there, or has not the columns that its clauses name."""
    stream = core.catalog.relations.get(flow.stream)
    if stream is None:
        near = get_close_matches(flow.stream, list(core.catalog.relations), n=1)
        raise RelationNameError(
            f"there is no table or view {flow.stream}, which flow {flow.name} is to follow",
            hint=f"did you mean {near[0]}?" if near else "SHOW TABLES and SHOW VIEWS list what there is",
        )
    names = {name.lower(): name for name in stream.schema.names}
    tracked = flow.tracked or Columns()
    clauses = (("KEYS", flow.keys), ("COLUMNS", flow.columns.names), ("TRACK HISTORY ON", tracked.names))
    for clause, named in clauses:
        for one in named:
            if one.lower() not in names:
                near = get_close_matches(one.lower(), list(names), n=1)
                raise QueryError(
                    f"{flow.stream} has no column {one}, which {clause} of flow {flow.name} names",
                    hint=f"did you mean {names[near[0]]}?" if near else f"DESCRIBE {flow.stream} shows its columns",
                )


def told_of(core: Core, flow: AutoCdc, error: HeadraceError, line: int, column: int) -> HeadraceError:
    """Spark's complaint about the query of a flow as one about the clause of the statement that it is about."""
    expressions = (
        ("SEQUENCE BY", flow.sequence),
        ("APPLY AS DELETE WHEN", flow.deletes),
        ("APPLY AS TRUNCATE WHEN", flow.truncates),
    )
    where = f"flow {flow.name}"
    for clause, expression in expressions:
        try:
            if expression:
                analyze(core.sessions.catalyst, f"SELECT ({expression}\n) AS x FROM {quoted(flow.stream)}")
        except (QueryError, StatementError) as fault:
            where, error = f"{clause} of flow {flow.name}", fault
            break
    said = error.message.removesuffix(f" at line {error.line}, column {error.column}")
    kind = StatementError if isinstance(error, StatementError) else QueryError
    detail = _POSITION.sub("", error.detail)
    return kind(f"{where}: {said}", detail=detail, hint=error.hint, line=line, column=column)
