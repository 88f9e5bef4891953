"""CREATE VIEW and CREATE MATERIALIZED VIEW."""

from __future__ import annotations

from typing import cast

from headrace.errors import StatementError, UnsupportedStatement
from headrace.sql.reader import Reader
from headrace.sql.syntax import CreateView, Policy
from headrace.sql.time_travel import find_time_travel
from headrace.sql.tokens import keywords, locate

VIEW_FORM = "CREATE [OR REPLACE] VIEW v AS SELECT ..."
MATERIALIZED_FORM = "CREATE [OR REPLACE] MATERIALIZED VIEW v [REFRESH POLICY AUTO | INCREMENTAL | FULL] AS SELECT ..."

_UNSUPPORTED = keywords(
    "TBLPROPERTIES PARTITIONED CLUSTER USING LOCATION SCHEDULE TRIGGER WITH OPTIONS DEFAULT LANGUAGE"
)


def read_create_view(
    reader: Reader, sql: str, line: int, column: int, *, materialized: bool, or_replace: bool
) -> CreateView:
    """What stands after VIEW; the query is taken as it is, to the end of the statement."""
    reader.form = MATERIALIZED_FORM if materialized else VIEW_FORM
    if or_replace and reader.at("IF", "NOT", "EXISTS"):
        raise reader.fail("OR REPLACE and IF NOT EXISTS exclude each other", hint="keep one of the two")
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.relation("view", new=True)
    columns = _read_columns(reader)
    policy: Policy | None = None
    comment: str | None = None
    while not reader.accept("AS"):
        if policy is None and reader.at("REFRESH"):
            policy = _read_policy(reader, materialized=materialized)
        elif comment is None and reader.accept("COMMENT"):
            comment = reader.string("the comment as a string")
        elif reader.keyword() in _UNSUPPORTED:
            raise reader.unsupported(f"{reader.keyword()} is not offered for views")
        else:
            missing = (["REFRESH POLICY"] if materialized and policy is None else []) + (
                ["COMMENT"] if comment is None else []
            )
            raise reader.expected("AS", *missing)
    if not reader.at_query():
        raise reader.expected("SELECT", "WITH", "VALUES", "TABLE", "FROM")
    query_line, query_column = reader.position()
    _refuse_time_travel(reader)
    return CreateView(
        sql=sql,
        line=line,
        column=column,
        name=name.name,
        spelled=name.spelled,
        query=reader.rest(),
        query_line=query_line,
        query_column=query_column,
        materialized=materialized,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        policy=policy or "auto",
        columns=tuple(column_name.lower() for column_name in columns),
        columns_spelled=tuple(columns),
        comment=comment,
    )


def _read_columns(reader: Reader) -> list[str]:
    if not reader.at_symbol("("):
        return []
    if reader.keyword(2) == "COMMENT":
        reader.index += 2
        raise reader.unsupported("comments on a view's columns are not offered", hint="write an SQL comment")
    return [column.spelled for column in reader.columns(new=True)]


def _read_policy(reader: Reader, *, materialized: bool) -> Policy:
    if not materialized:
        raise reader.fail("REFRESH POLICY belongs to a materialized view", hint=f"write {MATERIALIZED_FORM}")
    reader.expect("REFRESH", "POLICY")
    if reader.keyword() not in ("AUTO", "INCREMENTAL", "FULL"):
        raise reader.expected("AUTO", "INCREMENTAL", "FULL")
    policy = cast(Policy, reader.keyword().lower())
    reader.index += 1
    return policy


def _refuse_time_travel(reader: Reader) -> None:
    tokens = reader.tokens[reader.index :]
    try:
        clauses = find_time_travel(reader.source, tokens)
    except StatementError:
        # A clause that is also wrong in itself: Spark tells of it with the rest of the query.
        return
    if clauses:
        line, column = locate(reader.source, tokens[0].start + clauses[0].start)
        raise UnsupportedStatement(
            "a view always follows the newest epoch: AS OF is not offered in views",
            hint="leave AS OF out, and use it where the view is queried",
            line=line,
            column=column,
        )
