"""AS OF clauses: whose they are, where they end, and what stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import QueryError, StatementError
from headrace.reading.as_of import relations_of
from headrace.sql.statements import Query, parse
from headrace.sql.syntax import TimeTravel
from headrace.sql.time_travel import blank, find_time_travel
from headrace.sql.tokens import scan


def read_time_travel(sql: str) -> tuple[tuple[TimeTravel, ...], str]:
    """The AS OF clauses of a query, and the query without them."""
    clauses = find_time_travel(sql, scan(sql))
    return clauses, blank(sql, clauses)


def found_in(sql: str) -> list[tuple[str | None, str, str]]:
    clauses, plain = read_time_travel(sql)
    assert len(plain) == len(sql)
    assert plain.count("\n") == sql.count("\n")
    assert " AS OF " not in plain.upper()
    return [(clause.relation, clause.kind, clause.expression) for clause in clauses]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM t VERSION AS OF 3", [("t", "version", "3")]),
        ("SELECT * FROM t version as of '3' x WHERE x.a", [("t", "version", "'3'")]),
        ("SELECT * FROM t FOR VERSION AS OF 3", [("t", "version", "3")]),
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 3", [("t", "version", "3")]),
        ("SELECT * FROM t FOR SYSTEM_TIME AS OF '2025-01-01' AS x", [("t", "timestamp", "'2025-01-01'")]),
        ("SELECT * FROM `My T` VERSION AS OF 3 JOIN s ON true", [("`My T`", "version", "3")]),
        ("SELECT * FROM a.b VERSION AS OF 3", [("a.b", "version", "3")]),
        ("FROM t VERSION AS OF 3 SELECT a", [("t", "version", "3")]),
        ("TABLE t VERSION AS OF 3", [("t", "version", "3")]),
        (
            "SELECT * FROM a VERSION AS OF 1 x JOIN b VERSION AS OF 2 ON true, c TIMESTAMP AS OF now()",
            [("a", "version", "1"), ("b", "version", "2"), ("c", "timestamp", "now()")],
        ),
        ("SELECT * FROM (a VERSION AS OF 1 JOIN b USING (id))", [("a", "version", "1")]),
        ("SELECT * FROM a, (SELECT * FROM b VERSION AS OF 1) x", [("b", "version", "1")]),
        ("WITH x AS (SELECT * FROM t VERSION AS OF 1) SELECT * FROM x", [("t", "version", "1")]),
        ("SELECT (SELECT max(a) FROM s VERSION AS OF 4) FROM t", [("s", "version", "4")]),
        ("SELECT * FROM a, b VERSION AS OF 5", [("b", "version", "5")]),
        ("SELECT * FROM t WHERE a > 3 VERSION AS OF 5", [(None, "version", "5")]),
        ("SELECT a FROM t GROUP BY a, b VERSION AS OF 5", [(None, "version", "5")]),
        ("SELECT a FROM t ORDER BY a LIMIT 3 TIMESTAMP AS OF '2025'", [(None, "timestamp", "'2025'")]),
        ("SELECT * FROM a JOIN b ON a.id = b.id VERSION AS OF 5", [(None, "version", "5")]),
        ("SELECT * FROM a JOIN b USING (id)\nVERSION\nAS OF\n5", [(None, "version", "5")]),
        ("SELECT * FROM t AS x VERSION AS OF 5", [(None, "version", "5")]),
        ("SELECT a FROM t WHERE a IS DISTINCT FROM b VERSION AS OF 5", [(None, "version", "5")]),
        ("SELECT a FROM t LATERAL VIEW explode(m) AS k, v VERSION AS OF 5", [(None, "version", "5")]),
        ("(SELECT 1) UNION (SELECT 2) VERSION AS OF 5", [(None, "version", "5")]),
    ],
)
def test_whose(sql: str, expected: list[tuple[str | None, str, str]]) -> None:
    assert found_in(sql) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "'2025-01-01'",
        "TIMESTAMP '2025-01-01 10:00:00'",
        "current_timestamp() - INTERVAL 1 DAY",
        "now() - INTERVAL '1' HOUR",
        "now() - INTERVAL '1 02:03' DAY TO MINUTE",
        "now() - INTERVAL -1 DAY 2 HOURS",
        "date_sub(current_date(), 1)",
        "CAST('2025-01-01' AS TIMESTAMP)",
        "'2025-01-01'::timestamp",
        "(SELECT max(ts) FROM s)",
        "CASE WHEN true THEN now() ELSE CASE WHEN false THEN now() END END",
        "array(now())[0]",
        "current_date",
    ],
)
@pytest.mark.parametrize(
    "after", ["", " x", " AS x", ", s", " JOIN s ON true", " WHERE a", " GROUP BY a", " UNION ALL SELECT 1"]
)
def test_a_time_ends_before_what_follows(expression: str, after: str) -> None:
    sql = f"SELECT * FROM t TIMESTAMP AS OF {expression}{after}"
    assert found_in(sql) == [("t", "timestamp", expression)]
    assert read_time_travel(sql)[1] == "SELECT * FROM t " + " " * len(f"TIMESTAMP AS OF {expression}") + after


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT version AS of FROM t",
        "SELECT version AS of, 1 FROM t",
        "SELECT timestamp AS of",
        "SELECT (SELECT version AS of) FROM t",
        "SELECT 'x VERSION AS OF 3' FROM t -- VERSION AS OF 3",
        "SELECT * FROM t /* VERSION AS OF 3 */",
        "SELECT * FROM version AS of WHERE a",
        "SELECT * FROM version AS of (a, b)",
        "SELECT * FROM `VERSION` AS `OF`",
    ],
)
def test_what_only_looks_like_it(sql: str) -> None:
    assert read_time_travel(sql) == ((), sql)


@pytest.mark.parametrize(
    ("sql", "message", "column"),
    [
        ("SELECT * FROM t AS x VERSION AS OF 5 WHERE a", "AS OF is out of place", 22),
        ("SELECT * FROM (SELECT 1) VERSION AS OF 5 x", "AS OF is out of place", 26),
        ("SELECT * FROM t VERSION AS OF x", "expected the number of an epoch, found 'x'", 31),
        ("SELECT * FROM t VERSION AS OF -1", "expected the number of an epoch, found '-'", 31),
        ("SELECT * FROM t TIMESTAMP AS OF now() -", "expected a time", 40),
        ("SELECT * FROM t TIMESTAMP AS OF now() - INTERVAL DAY", "the length of the interval", 50),
    ],
)
def test_errors(sql: str, message: str, column: int) -> None:
    with pytest.raises(StatementError) as error:
        read_time_travel(sql)
    assert message in error.value.message
    assert (error.value.line, error.value.column) == (1, column)
    assert "VERSION AS OF 12" in error.value.hint


def test_offsets_are_those_of_the_querys_own_text() -> None:
    (_, query) = parse("SELECT 1;\n SELECT a\nFROM t VERSION AS OF\n 3 WHERE b")
    assert isinstance(query, Query)
    (clause,) = query.time_travel
    assert query.sql[clause.start : clause.end] == "VERSION AS OF\n 3"
    assert query.plain_sql == "SELECT a\nFROM t              \n   WHERE b"


def test_a_number_that_no_epoch_has_is_an_error_of_the_query() -> None:
    query = parse(f"SELECT * FROM t VERSION AS OF {'9' * 5000}")[0]
    assert isinstance(query, Query)
    home: Any = None
    with pytest.raises(QueryError, match="needs the number of an epoch"):
        relations_of(home, query, None, lambda _: pa.table({"x": ["9" * 5000]}))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM t VERSION AS OF 3", ()),
        ("SELECT * FROM t", ()),
        ("SELECT * FROM T AS now JOIN t VERSION AS OF 3 AS before ON now.a = before.a", ("t",)),
        ("SELECT * FROM t VERSION AS OF 3 JOIN `My S` ON true", ("my s",)),
        ("SELECT * FROM t VERSION AS OF 3, s, u FOR VERSION AS OF 3", ("s",)),
        ("SELECT * FROM (s JOIN t VERSION AS OF 3 USING (id))", ("s",)),
        ("SELECT (SELECT max(a) FROM s) FROM t VERSION AS OF 3", ("s",)),
        ("SELECT * FROM t VERSION AS OF 3 WHERE a IN (SELECT a FROM s)", ("s",)),
        ("WITH t AS (SELECT a, b FROM t VERSION AS OF 3) SELECT a, b FROM t GROUP BY a, b", ()),
        ("SELECT a, b FROM t VERSION AS OF 3 JOIN range(3) r ON f(a, b) WHERE a IS DISTINCT FROM b", ()),
        ("SELECT * FROM t VERSION AS OF 3 JOIN s ON true VERSION AS OF 3", ()),
    ],
)
def test_relations_without_one_of_their_own(sql: str, expected: tuple[str, ...]) -> None:
    (query,) = parse(sql)
    assert isinstance(query, Query)
    assert tuple(name for name in query.undated if name != "select") == expected


def test_a_query_that_would_read_two_epochs_is_refused() -> None:
    home: Any = SimpleNamespace(
        newest=lambda: (7, {"t": None, "s": None}), relations_at=lambda epoch, go_on: {"at": epoch}
    )

    def read(sql: str, epoch: int | None = None) -> object:
        (query,) = parse(sql)
        assert isinstance(query, Query)
        return relations_of(home, query, epoch, lambda _: pa.table({}))

    with pytest.raises(QueryError, match="one query reads one epoch") as refused:
        read("SELECT * FROM t JOIN s VERSION AS OF 3 ON true")
    assert refused.value.detail == "It names epoch 3 for some of its relations, and none for t."
    assert read("SELECT * FROM t JOIN s VERSION AS OF 7 ON true") == (7, {"at": 7})
    assert read("SELECT * FROM t JOIN s VERSION AS OF 3 ON true", 3) == (3, {"at": 3})
    assert read("SELECT * FROM t JOIN s ON true VERSION AS OF 3") == (3, {"at": 3})
    assert read("WITH x AS (SELECT * FROM t VERSION AS OF 3) SELECT * FROM x") == (3, {"at": 3})
