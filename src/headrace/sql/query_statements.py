"""Queries, and EXPLAIN of one."""

from __future__ import annotations

from headrace.sql.reader import Reader
from headrace.sql.syntax import Query
from headrace.sql.time_travel import blank, find_time_travel, undated_relations

_QUERY_VERBS = ("SELECT", "FROM", "VALUES", "TABLE")
_CHANGE_VERBS = ("INSERT", "UPDATE", "DELETE", "MERGE")


def read_query(reader: Reader) -> Query:
    """The query that reaches from here to the end of the statement."""
    _refuse_change_after_with(reader)
    first, tokens = reader.position(), reader.tokens[reader.index :]
    sql = reader.rest()
    time_travel = find_time_travel(reader.source, tokens)
    # One at the end is for all of them.
    for_some = bool(time_travel) and all(clause.relation is not None for clause in time_travel)
    return Query(
        sql=sql,
        line=first[0],
        column=first[1],
        time_travel=time_travel,
        plain_sql=blank(sql, time_travel),
        undated=undated_relations(reader.source, tokens) if for_some else (),
    )


def _refuse_change_after_with(reader: Reader) -> None:
    """Refuse WITH ... INSERT: the verb is the first word at the top that follows a closing bracket."""
    if not reader.at("WITH"):
        return
    begin, closed = reader.index, False
    while not reader.at_end:
        if closed and reader.keyword() in _QUERY_VERBS:
            break
        if closed and reader.keyword() in _CHANGE_VERBS:
            verb = reader.keyword()
            raise reader.unsupported(
                f"{verb} after WITH is not offered",
                hint="write WITH after the head: INSERT INTO t WITH ... SELECT ...",
            )
        closed = reader.at_symbol("(")
        if closed:
            reader.skip_brackets()
        else:
            reader.index += 1
    reader.index = begin
