"""INSERT, UPDATE and DELETE."""

from __future__ import annotations

from headrace.errors import StatementError
from headrace.sql.names import Name
from headrace.sql.reader import Reader
from headrace.sql.syntax import Delete, Expression, Insert, Update

INSERT_FORM = "INSERT INTO t [(a, b)] VALUES (1, 'x'), ... | SELECT ..."
UPDATE_FORM = "UPDATE t SET a = expression, ... [WHERE condition]"
DELETE_FORM = "DELETE FROM t [WHERE condition]"


def read_insert(reader: Reader, sql: str, line: int, column: int) -> Insert:
    """What stands after INSERT; bare names in parentheses are the columns, anything else is the query."""
    reader.form = INSERT_FORM
    if reader.at("OVERWRITE"):
        raise reader.unsupported(
            "INSERT OVERWRITE is not offered",
            hint="write DELETE FROM t, then INSERT INTO t; each is one epoch",
        )
    reader.expect("INTO")
    # TABLE may itself be the table's name: INSERT INTO table VALUES ...
    if reader.at("TABLE") and reader.keyword(1) not in ("VALUES", "SELECT") and not reader.at_symbol("(", 1):
        reader.index += 1
    table = reader.relation("table")
    columns: list[Name] = []
    if reader.at_name_list():
        columns = reader.columns()
    if reader.at("BY", "NAME"):
        raise reader.unsupported(
            "BY NAME is not offered", hint="list the columns: INSERT INTO t (a, b) SELECT a, b ..."
        )
    if reader.at("PARTITION") or reader.at("REPLACE"):
        raise reader.unsupported(f"INSERT with {reader.keyword()} is not offered")
    if not reader.at_query():
        choices = ("VALUES", "SELECT", "WITH", "TABLE", "FROM")
        raise reader.expected(*choices) if columns else reader.expected("'(' and the columns", *choices)
    query_line, query_column = reader.position()
    query: str | None = None
    values: str | None = None
    if reader.accept("VALUES"):
        if reader.at_end:
            raise reader.expected("rows of values")
        values = reader.rest()
    else:
        query = reader.rest()
    return Insert(
        sql=sql,
        line=line,
        column=column,
        table=table.name,
        columns=tuple(name.name for name in columns),
        query=query,
        values=values,
        query_line=query_line,
        query_column=query_column,
    )


def read_update(reader: Reader, sql: str, line: int, column: int) -> Update:
    """What stands after UPDATE; expressions and condition are kept as written."""
    reader.form = UPDATE_FORM
    table = reader.relation("table")
    alias = _read_alias(reader, "SET")
    reader.expect("SET")
    assignments: dict[str, Expression] = {}
    while True:
        target = _read_target(reader, (table.name, alias))
        if target.name in assignments:
            raise StatementError(
                f"column '{target.spelled}' is set twice",
                hint="set it once",
                line=target.line,
                column=target.column,
            )
        if not reader.accept_symbol("=") and not reader.accept_symbol("=="):
            raise reader.expected("'='")
        assignments[target.name] = _read_expression(reader)
        if not reader.accept_symbol(","):
            break
    return Update(
        sql=sql,
        line=line,
        column=column,
        table=table.name,
        alias=alias,
        assignments=tuple(assignments.items()),
        where=_read_where(reader),
    )


def read_delete(reader: Reader, sql: str, line: int, column: int) -> Delete:
    """What stands after DELETE; the condition is kept as written."""
    reader.form = DELETE_FORM
    reader.expect("FROM")
    table = reader.relation("table")
    alias = _read_alias(reader, "WHERE")
    return Delete(sql=sql, line=line, column=column, table=table.name, alias=alias, where=_read_where(reader))


def _read_alias(reader: Reader, following: str) -> str | None:
    """An alias counts only before its keyword, so that a misspelt WHERE never deletes everything."""
    if reader.accept("AS"):
        return reader.relation("table").name
    token = reader.peek()
    if token is None or token.kind not in ("word", "quoted") or reader.keyword(1) != following:
        return None
    return reader.relation("table").name


def _read_target(reader: Reader, qualifiers: tuple[str, str | None]) -> Name:
    """The column of an assignment, which may be qualified by the table or its alias."""
    if reader.at_symbol(".", 1):
        qualifier = reader.qualifier()
        if qualifier.name not in qualifiers:
            raise StatementError(
                f"'{qualifier.spelled}' is neither the table nor its alias",
                hint="a field of a struct cannot be set alone: set the whole column with named_struct(...)",
                line=qualifier.line,
                column=qualifier.column,
            )
        reader.expect_symbol(".")
    return reader.column()


def _read_expression(reader: Reader) -> Expression:
    begin = reader.index
    position = reader.position()
    while not (reader.at_end or reader.at_symbol(",") or reader.at("WHERE")):
        if reader.at_symbol("(") or reader.at_symbol("["):
            reader.skip_brackets()
        else:
            reader.index += 1
    text = reader.text_since(begin)
    if not text:
        raise reader.expected("an expression")
    if text.upper() == "DEFAULT":
        reader.index = begin
        raise reader.unsupported("columns have no DEFAULT", hint="write NULL or the value itself")
    return Expression(text, *position)


def _read_where(reader: Reader) -> Expression | None:
    if reader.at_end:
        return None
    if reader.keyword() in ("USING", "LIMIT", "ORDER", "FROM", "RETURNING"):
        raise reader.unsupported(f"{reader.keyword()} is not offered here")
    reader.expect("WHERE")
    if reader.at_end:
        raise reader.expected("a condition")
    line, column = reader.position()
    return Expression(reader.rest(), line, column)
