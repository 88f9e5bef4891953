"""Statement heads, read into data."""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StatementError
from headrace.sql.statements import (
    AddColumn,
    AlterColumnType,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    DropColumn,
    DropEventStore,
    DropFlow,
    Explain,
    ExplainQuery,
    Insert,
    Query,
    RenameColumn,
    Show,
    SourceAction,
    Statement,
    Update,
    parse,
)
from headrace.sql.tokens import keywords

S = TypeVar("S", bound=Statement)


def one(kind: type[S], sql: str) -> S:
    (statement,) = parse(sql)
    assert isinstance(statement, kind)
    return statement


def table(sql: str) -> CreateTable:
    return one(CreateTable, sql)


def view(sql: str) -> CreateView:
    return one(CreateView, sql)


def test_create_table() -> None:
    found = table(
        "CREATE TABLE Order (Id INT PRIMARY KEY,\n total DECIMAL(12,2) NOT NULL,\n  n STRING COMMENT 'it''s')"
    )
    assert (found.name, found.spelled, found.if_not_exists) == ("order", "Order", False)
    assert found.primary_key == ("id",)
    assert found.sequence_by is None
    assert [(c.name, c.spelled, c.type_text, c.not_null, c.comment) for c in found.columns_ddl] == [
        ("id", "Id", "INT", True, None),
        ("total", "total", "DECIMAL(12,2)", True, None),
        ("n", "n", "STRING", False, "it's"),
    ]
    assert [(c.line, c.column) for c in found.columns_ddl] == [(1, 21), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    "type_text",
    [
        "INT",
        "bigint",
        "DECIMAL(12, 2)",
        "DECIMAL",
        "VARCHAR(10)",
        "CHAR(3)",
        "TIMESTAMP_NTZ",
        "TIMESTAMP WITHOUT TIME ZONE",
        "TIMESTAMP WITH LOCAL TIME ZONE",
        "TIME(6)",
        "INTERVAL",
        "INTERVAL DAY TO SECOND",
        "INTERVAL YEAR",
        "STRING COLLATE UTF8_LCASE",
        "VARIANT",
        "BINARY",
        "ARRAY<INT>",
        "ARRAY<ARRAY<ARRAY<STRING>>>",
        "MAP<STRING,INT>",
        "MAP<STRING, ARRAY<DECIMAL(38,18)>>",
        "STRUCT<>",
        "STRUCT<a: INT, b: ARRAY<STRING>>",
        "STRUCT<a INT NOT NULL COMMENT 'x, > y', `b c`: STRUCT<d: MAP<INT,INT>>>",
        "ARRAY < INT /* , */ >",
        "STRUCT<primary: INT, comment: STRING, not: INT>",
    ],
)
def test_types_are_kept_as_written(type_text: str) -> None:
    found = table(f"CREATE TABLE t (a {type_text} NOT NULL COMMENT 'c', b {type_text}, c {type_text} PRIMARY KEY)")
    assert [c.type_text for c in found.columns_ddl] == [type_text] * 3
    assert [c.not_null for c in found.columns_ddl] == [True, False, True]
    assert one(AlterColumnType, f"ALTER TABLE t ALTER COLUMN a TYPE {type_text}").type_text == type_text


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a INT, b INT", ()),
        ("a INT PRIMARY KEY NOT NULL, b INT", ("a",)),
        ("a INT NOT NULL PRIMARY KEY COMMENT 'k', b INT", ("a",)),
        ("a INT CONSTRAINT pk PRIMARY KEY, b INT", ("a",)),
        ("a INT, b INT, PRIMARY KEY (b, A)", ("b", "a")),
        ("PRIMARY KEY (a), a INT, b INT", ("a",)),
        ("a INT, b INT, CONSTRAINT pk PRIMARY KEY (a)", ("a",)),
        ("a INT, b INT, primary key (`a`)", ("a",)),
    ],
)
def test_primary_keys(columns: str, key: tuple[str, ...]) -> None:
    found = table(f"CREATE TABLE IF NOT EXISTS t ({columns})")
    assert found.if_not_exists
    assert found.primary_key == key
    assert {c.name for c in found.columns_ddl if c.not_null} == set(key)


def test_sequence_by() -> None:
    assert table("CREATE TABLE t (id INT PRIMARY KEY, Seq BIGINT) SEQUENCE BY seq").sequence_by == "seq"


def test_columns_may_be_called_like_keywords() -> None:
    found = table("CREATE TABLE t (primary INT, key INT, constraint INT, comment INT, check INT, `not` INT, from INT)")
    assert [c.name for c in found.columns_ddl] == [
        "primary",
        "key",
        "constraint",
        "comment",
        "check",
        "not",
        "from",
    ]


def test_create_view() -> None:
    found = view("CREATE VIEW V AS\n  SELECT 1 AS x -- end\n")
    assert (found.name, found.spelled, found.query) == ("v", "V", "SELECT 1 AS x")
    assert (found.query_line, found.query_column) == (2, 3)
    assert (found.materialized, found.or_replace, found.if_not_exists, found.policy) == (
        False,
        False,
        False,
        "auto",
    )
    assert (found.columns, found.comment) == ((), None)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("CREATE OR REPLACE VIEW v", {"or_replace": True}),
        ("CREATE VIEW IF NOT EXISTS v", {"if_not_exists": True}),
        ("CREATE MATERIALIZED VIEW v", {"materialized": True}),
        (
            "create or replace materialized view `V`",
            {"materialized": True, "or_replace": True, "spelled": "V"},
        ),
        ("CREATE MATERIALIZED VIEW v REFRESH POLICY AUTO", {"policy": "auto"}),
        ("CREATE MATERIALIZED VIEW v REFRESH POLICY incremental", {"policy": "incremental"}),
        ("CREATE MATERIALIZED VIEW v COMMENT 'as' REFRESH POLICY FULL", {"policy": "full", "comment": "as"}),
        ("CREATE VIEW v (A, `b c`)", {"columns": ("a", "b c"), "columns_spelled": ("A", "b c")}),
        ("CREATE VIEW v /* AS SELECT 2 */ COMMENT 'AS SELECT 3'", {"comment": "AS SELECT 3"}),
    ],
)
def test_view_heads(head: str, expected: dict[str, object]) -> None:
    found = view(f"{head} AS SELECT a AS b FROM t")
    assert found.name == "v"
    assert found.query == "SELECT a AS b FROM t"
    assert {field: getattr(found, field) for field in expected} == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'AS' AS `as` FROM t",
        "WITH x AS (SELECT ';' AS a) SELECT * FROM x",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "VALUES (1), (2)",
        "TABLE t",
        "FROM t SELECT a",
        "SELECT version AS of FROM t",
        "SELECT /*+ BROADCAST(d) */ a -- why\n, b /* x */ FROM t",
    ],
)
def test_a_views_query_is_exact(query: str) -> None:
    assert view(f"CREATE VIEW v AS {query};").query == query
    explained = one(Explain, f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}")
    assert isinstance(explained.target, CreateView)
    assert explained.target.query == query
    assert explained.target.sql == f"CREATE MATERIALIZED VIEW v AS {query}"
    assert explained.target.column == 9


@pytest.mark.parametrize("sql", ["EXPLAIN v", "EXPLAIN VIEW V", "explain materialized view `v`"])
def test_explain_by_name(sql: str) -> None:
    assert one(Explain, sql).target == "v"


@pytest.mark.parametrize("name", ["view", "create", "extended", "materialized", "table"])
def test_explain_of_names_like_keywords(name: str) -> None:
    assert one(Explain, f"EXPLAIN {name}").target == name


def test_explain_query() -> None:
    found = one(ExplainQuery, "EXPLAIN SELECT * FROM t VERSION AS OF 3")
    assert found.query.sql == "SELECT * FROM t VERSION AS OF 3"
    assert found.query.time_travel[0].relation == "t"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DROP TABLE T", ("table", "t", False)),
        ("DROP VIEW IF EXISTS v", ("view", "v", True)),
        ("DROP MATERIALIZED VIEW v", ("materialized view", "v", False)),
        ("drop table if", ("table", "if", False)),
    ],
)
def test_drop(sql: str, expected: tuple[str, str, bool]) -> None:
    found = one(Drop, sql)
    assert (found.kind, found.name, found.if_exists) == expected


@pytest.mark.parametrize("what", ["TABLE t", "VIEW IF EXISTS v", "FLOW f", "EVENT STORE s", "PROJECTION p"])
def test_drop_may_cascade(what: str) -> None:
    for behavior, cascade in (("", False), (" RESTRICT", False), (" CASCADE", True)):
        (found,) = parse(f"DROP {what}{behavior}")
        assert isinstance(found, Drop | DropFlow | DropEventStore)
        assert found.cascade is cascade


def test_alter_table() -> None:
    added = one(AddColumn, "ALTER TABLE T ADD COLUMN C ARRAY<INT> COMMENT 'x'")
    assert (added.table, added.definition.name, added.definition.spelled) == ("t", "c", "C")
    assert (added.definition.type_text, added.definition.comment) == ("ARRAY<INT>", "x")
    renamed = one(RenameColumn, "ALTER TABLE t RENAME COLUMN A TO B")
    assert (renamed.old, renamed.new, renamed.new_spelled) == ("a", "b", "B")
    dropped = one(DropColumn, "ALTER TABLE t DROP COLUMN c")
    assert (dropped.column_name, dropped.if_exists) == ("c", False)
    altered = one(AlterColumnType, "ALTER TABLE t ALTER COLUMN c TYPE DECIMAL(20,2)")
    assert (altered.column_name, altered.type_text) == ("c", "DECIMAL(20,2)")


@pytest.mark.parametrize(
    ("sql", "columns", "query", "values"),
    [
        ("INSERT INTO T VALUES (1, ';'), (2, 'b')", (), None, "(1, ';'), (2, 'b')"),
        ("INSERT INTO TABLE t VALUES (1)", (), None, "(1)"),
        ("INSERT INTO t (A, `b`) VALUES (1, 2)", ("a", "b"), None, "(1, 2)"),
        ("INSERT INTO t SELECT 1", (), "SELECT 1", None),
        ("INSERT INTO t (a) SELECT 1", ("a",), "SELECT 1", None),
        ("INSERT INTO t (SELECT 1)", (), "(SELECT 1)", None),
        ("INSERT INTO t (a) (SELECT 1)", ("a",), "(SELECT 1)", None),
        ("INSERT INTO t (TABLE s)", (), "(TABLE s)", None),
        ("INSERT INTO t (values, from) VALUES (1, 2)", ("values", "from"), None, "(1, 2)"),
        (
            "INSERT INTO t WITH x AS (SELECT 1) SELECT * FROM x",
            (),
            "WITH x AS (SELECT 1) SELECT * FROM x",
            None,
        ),
        ("INSERT INTO t TABLE s", (), "TABLE s", None),
        ("INSERT INTO t FROM s SELECT a", (), "FROM s SELECT a", None),
    ],
)
def test_insert(sql: str, columns: tuple[str, ...], query: str | None, values: str | None) -> None:
    found = one(Insert, sql)
    assert (found.table, found.columns, found.query, found.values) == ("t", columns, query, values)
    assert sql[found.query_column - 1 :] == (query or f"VALUES {values}")


def test_insert_into_a_table_called_table() -> None:
    assert one(Insert, "INSERT INTO table VALUES (1)").table == "table"
    assert one(Insert, "INSERT INTO TABLE table VALUES (1)").table == "table"


@pytest.mark.parametrize(
    ("sql", "alias", "assignments", "where"),
    [
        ("UPDATE t SET a = 1", None, (("a", "1"),), None),
        (
            "UPDATE T SET A = b + 1, `c` = f(x, y) WHERE a = 'WHERE'",
            None,
            (("a", "b + 1"), ("c", "f(x, y)")),
            "a = 'WHERE'",
        ),
        ("UPDATE t AS x SET x.a = x.b WHERE x.a > 0", "x", (("a", "x.b"),), "x.a > 0"),
        ("UPDATE t X SET t.a = array(1, 2)[0]", "x", (("a", "array(1, 2)[0]"),), None),
        (
            "UPDATE t SET a = CASE WHEN b = 1 THEN 2 END, c = (SELECT max(v) FROM s WHERE s.id = 1)",
            None,
            (("a", "CASE WHEN b = 1 THEN 2 END"), ("c", "(SELECT max(v) FROM s WHERE s.id = 1)")),
            None,
        ),
        ("UPDATE t SET a = b IS DISTINCT FROM c WHERE d", None, (("a", "b IS DISTINCT FROM c"),), "d"),
    ],
)
def test_update(sql: str, alias: str | None, assignments: tuple[tuple[str, str], ...], where: str | None) -> None:
    found = one(Update, sql)
    written = tuple((name, expression.text) for name, expression in found.assignments)
    assert (found.table, found.alias, written) == ("t", alias, assignments)
    assert (found.where.text if found.where else None) == where


@pytest.mark.parametrize(
    ("sql", "alias", "where"),
    [
        ("DELETE FROM t", None, None),
        ("DELETE FROM T WHERE a IN (SELECT b FROM s WHERE c)", None, "a IN (SELECT b FROM s WHERE c)"),
        ("DELETE FROM t AS x WHERE x.a = 1", "x", "x.a = 1"),
        ("DELETE FROM t x WHERE x.a = 1", "x", "x.a = 1"),
    ],
)
def test_delete(sql: str, alias: str | None, where: str | None) -> None:
    found = one(Delete, sql)
    assert (found.table, found.alias, found.where.text if found.where else None) == ("t", alias, where)


def test_expressions_of_changes_know_where_they_were_written() -> None:
    found = one(Update, "\n UPDATE t SET a = b +\n1,\n  c = d\n WHERE\n   e > 0")
    assert [(one.line, one.column) for _, one in found.assignments] == [(2, 19), (4, 7)]
    assert found.where is not None
    assert (found.where.line, found.where.column) == (6, 4)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "with x as (select 1) select * from x",
        "WITH insert AS (SELECT 1) SELECT * FROM insert",
        "VALUES (1)",
        "TABLE t",
        "FROM t",
        "(SELECT 1)",
        "SELECT 'CREATE TABLE t'",
    ],
)
def test_queries(sql: str) -> None:
    found = one(Query, sql)
    assert (found.sql, found.plain_sql, found.time_travel) == (sql, sql, ())


@pytest.mark.parametrize("what", ["tables", "views", "sources", "flows", "changefeeds"])
def test_show(what: str) -> None:
    assert one(Show, f"SHOW {what}").what == what


@pytest.mark.parametrize(
    ("sql", "name", "extended"),
    [
        ("DESCRIBE X", "x", False),
        ("DESC x", "x", False),
        ("DESCRIBE TABLE x", "x", False),
        ("DESCRIBE EVENT STORE x", "x", False),
        ("DESCRIBE event", "event", False),
        ("DESC TABLE EXTENDED x", "x", True),
        ("DESCRIBE EXTENDED x", "x", True),
        ("DESCRIBE MATERIALIZED VIEW x", "x", False),
        ("DESC table", "table", False),
        ("DESC extended", "extended", False),
        ("DESC TABLE extended", "extended", False),
    ],
)
def test_describe(sql: str, name: str, extended: bool) -> None:
    found = one(Describe, sql)
    assert (found.name, found.extended) == (name, extended)


def test_a_script() -> None:
    script = "-- a table\nCREATE TABLE t (id INT);\n;\n INSERT INTO t VALUES (1); SELECT *\n FROM t -- end"
    found = parse(script)
    assert [(type(s), s.line, s.column) for s in found] == [
        (CreateTable, 2, 1),
        (Insert, 4, 2),
        (Query, 4, 28),
    ]
    assert found[2].sql == "SELECT *\n FROM t"
    assert parse("") == parse(" ; -- nothing") == []


WORDS = st.sampled_from(
    sorted(
        keywords(
            """CREATE TABLE VIEW MATERIALIZED t a INT PRIMARY KEY NOT NULL COMMENT AS SELECT FROM WHERE INSERT
            INTO VALUES UPDATE SET DELETE EXPLAIN DROP ALTER ADD COLUMN TYPE RENAME TO OF VERSION TIMESTAMP
            FOR 1 's' `q` ( ) , < > . = STRUCT ARRAY INTERVAL DAY SEQUENCE BY REFRESH POLICY WITH SHOW DESC ;
            - CASE END [ ]"""
        )
    )
)


@given(st.lists(WORDS, max_size=14).map(" ".join))
def test_any_text_is_read_or_refused_with_a_place(sql: str) -> None:
    try:
        found = parse(sql)
    except StatementError as error:
        positions = [(error.line, error.column)]
        assert error.hint, sql  # noqa: PT017
    else:
        positions = [(statement.line, statement.column) for statement in found]
    assert all(line == 1 and column is not None and 1 <= column <= len(sql) + 1 for line, column in positions)


def test_create_source() -> None:
    found = one(
        CreateSource,
        "CREATE SOURCE IF NOT EXISTS S INTO T FROM DELTA 'it''s/here' WITH (version = 3, MODE = 'Snapshot')",
    )
    assert (found.name, found.table, found.connector, found.location) == ("s", "t", "delta", "it's/here")
    assert found.options == (("mode", "snapshot"), ("version", 3))
    assert found.if_not_exists


@pytest.mark.parametrize(
    ("sql", "verb", "if_exists"),
    [
        ("DROP SOURCE s", "drop", False),
        ("DROP SOURCE IF EXISTS S", "drop", True),
        ("PAUSE SOURCE s", "pause", False),
        ("RESUME SOURCE `s`", "resume", False),
    ],
)
def test_a_source_by_its_name(sql: str, verb: str, if_exists: bool) -> None:
    found = one(SourceAction, sql)
    assert (found.verb, found.name, found.if_exists) == (verb, "s", if_exists)
