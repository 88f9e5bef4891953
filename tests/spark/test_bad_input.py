"""Bad input gives a clear error, nothing of the call is applied, and the home is as before."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.logger import PySparkLogger

import headrace
from headrace import Headrace
from headrace.errors import (
    ChangesRejected,
    HeadraceError,
    HomeClosed,
    QueryError,
    RelationNameError,
    StatementError,
    ViewEvaluationError,
)
from tests.relation_rows import rows_of
from tests.thinned import thinned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETUP = """
CREATE TABLE t (
  id BIGINT PRIMARY KEY, g STRING, v INT, d DECIMAL(6,2), ts TIMESTAMP, b BOOLEAN, n INT NOT NULL,
  xs ARRAY<INT>, small TINYINT
);
CREATE TABLE bag (a INT, s STRING);
CREATE VIEW total AS SELECT g, SUM(v) AS s, COUNT(*) AS c FROM t GROUP BY g;
CREATE VIEW upper_total AS SELECT upper(g) AS g, s FROM total;
"""
RELATIONS = ("t", "bag", "total", "upper_total")
NUMBERS = count(1)


def furnish(hr: Any) -> None:
    """Two tables, a view, a view on it, and a few rows."""
    hr.execute(SETUP)
    hr.apply(
        {
            "t": [{"insert": {"id": 1, "g": "a", "v": 3, "d": "1.50", "n": 0, "xs": [1]}}],
            "bag": [{"insert": {"a": 1, "s": "x"}}],
        }
    )


@pytest.fixture(scope="module")
def shop(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One home for all bad calls: none of them may leave a trace for the next."""
    with headrace.open(str(tmp_path_factory.mktemp("bad") / "home"), spark=spark) as hr:
        furnish(hr)
        yield hr


@pytest.fixture
def own(home: Any) -> Any:
    """A home of the test's own, for tests that define or keep something."""
    furnish(home)
    return home


def picture(hr: Any, since: int) -> dict[str, Any]:
    """Return everything that a bad call must leave alone; of the changes, those after an epoch."""
    # Without Spark: this runs twice in each test.
    seen = {name: rows_of(hr, name) for name in RELATIONS}
    names = sorted(map(repr, hr.execute("SHOW TABLES").to_pylist() + hr.execute("SHOW VIEWS").to_pylist()))
    feeds = {name: hr.changes(name, since).num_rows for name in RELATIONS}
    return {"epoch": hr.epoch, "rows": seen, "names": names, "feeds": feeds}


@contextmanager
def refused(hr: Any, kind: type[HeadraceError], *words: str) -> Iterator[pytest.ExceptionInfo[HeadraceError]]:
    """The call inside fails clearly, changes nothing, and the home goes on working."""
    since = max(0, hr.epoch - 2)
    before = picture(hr, since)
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.code
    assert error.message
    assert error.hint, f"no hint: {error}"
    said = str(error).lower()
    assert all(word.lower() in said for word in words), f"{words} not in: {error}"
    assert picture(hr, since) == before
    number = next(NUMBERS)
    receipt = hr.apply({"t": [{"insert": {"id": 2, "g": "b", "v": number, "n": 1}}]})
    assert hr.query("SELECT s FROM total WHERE g = 'b'").to_pylist() == [{"s": number}]
    assert receipt.epoch == hr.epoch == before["epoch"] + 1


@pytest.mark.parametrize(
    ("sql", "kind", "words"),
    thinned(
        [
            ("SELEC 1", StatementError, ["line 1"]),
            ("CREATE VIEW x AS SELECT FROM WHERE", HeadraceError, []),
            ("CREATE VIEW x AS SELECT (1 FROM t", HeadraceError, []),
            ("CREATE TABLE x (a INT", StatementError, ["line 1"]),
            ("CREATE VIEW x AS SELECT * FROM nowhere", HeadraceError, ["nowhere"]),
            ("CREATE VIEW x AS SELECT nocolumn FROM t", HeadraceError, ["nocolumn"]),
            ("CREATE VIEW x AS SELECT nofunction(v) FROM t", HeadraceError, ["nofunction"]),
            ("CREATE VIEW x AS SELECT v, v FROM t", HeadraceError, ["v"]),
            ("CREATE VIEW x AS SELECT g, v FROM t GROUP BY g", HeadraceError, ["v"]),
            ("CREATE VIEW x AS SELECT id, rand() AS r FROM t", HeadraceError, ["rand"]),
            ("CREATE VIEW x AS SELECT uuid() AS u FROM t", HeadraceError, ["uuid"]),
            ("CREATE VIEW x AS SELECT * FROM t TABLESAMPLE (50 PERCENT)", HeadraceError, ["tablesample"]),
            (
                "CREATE VIEW x AS SELECT histogram_numeric(v, 3) AS h FROM t",
                HeadraceError,
                ["histogram_numeric", "order"],
            ),
            ("CREATE VIEW x AS SELECT g, hll_sketch_agg(v) AS h FROM t GROUP BY g", HeadraceError, ["hll_sketch_agg"]),
            ("CREATE VIEW x AS SELECT (SELECT approx_top_k(v) FROM t) AS k", HeadraceError, ["approx_top_k"]),
            (
                "CREATE VIEW x AS SELECT id, kll_sketch_agg_bigint(v) OVER () AS k FROM t",
                HeadraceError,
                ["kll_sketch_agg"],
            ),
            ("CREATE VIEW x AS SELECT id, current_user() AS u FROM t", HeadraceError, ["current_user"]),
            ("CREATE TABLE x (a FANCYTYPE)", HeadraceError, ["fancytype"]),
            ("CREATE TABLE x (a INT, A INT)", HeadraceError, ["a"]),
            ("CREATE TABLE x (a INT, PRIMARY KEY (b))", HeadraceError, ["b"]),
            ("CREATE TABLE x (a INT) SEQUENCE BY b", HeadraceError, ["b"]),
            ("CREATE TABLE T (a INT)", HeadraceError, ["t"]),
            ("CREATE TABLE total (a INT)", HeadraceError, ["total"]),
            ("CREATE VIEW total AS SELECT 1 AS one", HeadraceError, ["total"]),
            ("CREATE OR REPLACE VIEW total AS SELECT * FROM upper_total", HeadraceError, ["upper_total"]),
            ("CREATE OR REPLACE VIEW total AS SELECT * FROM total", HeadraceError, ["total"]),
            ("CREATE VIEW x AS SELECT * FROM x", HeadraceError, ["x"]),
            ("CREATE OR REPLACE VIEW total AS SELECT g, 1 AS other FROM t", HeadraceError, ["upper_total"]),
            ("DROP TABLE t", HeadraceError, ["total"]),
            ("DROP VIEW total", HeadraceError, ["upper_total"]),
            ("DROP VIEW nowhere", HeadraceError, ["nowhere"]),
            ("DROP VIEW t", HeadraceError, ["t"]),
            ("INSERT INTO nowhere VALUES (1)", HeadraceError, ["nowhere"]),
            ("INSERT INTO total VALUES ('a', 1, 1)", HeadraceError, ["total"]),
            ("INSERT INTO bag VALUES (1)", HeadraceError, []),
            ("INSERT INTO bag VALUES ('one', 'x')", QueryError, ["Column a is INT", "one"]),
            ("INSERT INTO t (id, n, d) VALUES (7, 1, 12345.678)", QueryError, ["Column d is DECIMAL(6,2)"]),
            ("ALTER TABLE t ALTER COLUMN v TYPE SMALLINT", StatementError, ["SMALLINT", "BIGINT", "UPDATE", "CAST"]),
            ("UPDATE t SET nocolumn = 1", HeadraceError, ["nocolumn"]),
            ("UPDATE t SET n = NULL", HeadraceError, ["n"]),
            ("DELETE FROM t WHERE nocolumn = 1", HeadraceError, ["nocolumn"]),
            ("SELECT nocolumn FROM t", HeadraceError, ["nocolumn"]),
            ("SELECT 1 / 0 AS q FROM t", HeadraceError, []),
            ("SELECT * FROM t VERSION AS OF 'abc'", QueryError, ["epoch", "abc"]),
            ("SELECT * FROM t VERSION AS OF 1.5", QueryError, ["epoch", "1.5"]),
            (
                "SELECT * FROM t AS now JOIN t VERSION AS OF 1 ON true",
                QueryError,
                ["one query reads one epoch", "none for t"],
            ),
            ("SELECT * FROM t TIMESTAMP AS OF 'yesterday'", QueryError, ["time", "yesterday"]),
        ],
        3,
    ),
)
def test_bad_statements(shop: Any, sql: str, kind: type[HeadraceError], words: list[str]) -> None:
    with refused(shop, kind, *words):
        shop.execute(sql)


def test_the_place_of_a_mistake_is_named(shop: Any) -> None:
    with refused(shop, StatementError) as caught:
        shop.execute("SELECT 1;\nCREATE TABLE x (\n  a INT,\n  b b b\n)")
    error = caught.value
    assert isinstance(error, StatementError)
    assert error.line == 4
    assert error.column


@pytest.mark.parametrize(
    ("sql", "column"),
    [("DROP VIEW nowhere", 3), ("DELETE FROM t WHERE nocolumn = 1", 23), ("CREATE VIEW x AS TABLE nowhere", 26)],
)
def test_the_statement_that_met_an_error_is_named(shop: Any, sql: str, column: int) -> None:
    with refused(shop, HeadraceError, f"line 3, column {column}") as caught:
        shop.execute(f"SELECT 1;\n\n  {sql}")
    assert (caught.value.line, caught.value.column) == (3, column)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ([{"insert": {"id": 9, "n": 1, "nocolumn": 1}}], "nocolumn"),
        ([{"insert": {"id": 9, "n": 1, "v": "many"}}], "v"),
        ([{"insert": {"id": 9, "n": 1, "v": 1.5}}], "v"),
        ([{"insert": {"id": 9, "n": 1, "v": 2**31}}], "v"),
        ([{"insert": {"id": 9, "n": 1, "v": True}}], "v"),
        ([{"insert": {"id": 9, "n": 1, "v": [1]}}], "v"),
        ([{"insert": {"id": 9, "n": 1, "small": 128}}], "small"),
        ([{"insert": {"id": 9, "n": 1, "d": "1.005"}}], "d"),
        ([{"insert": {"id": 9, "n": 1, "d": "12345.00"}}], "d"),
        ([{"insert": {"id": 9, "n": 1, "d": "a lot"}}], "d"),
        ([{"insert": {"id": 9, "n": 1, "ts": "yesterday"}}], "ts"),
        ([{"insert": {"id": 9, "n": 1, "ts": "2025-02-30T00:00:00Z"}}], "ts"),
        ([{"insert": {"id": 9, "n": 1, "b": "perhaps"}}], "b"),
        ([{"insert": {"id": 9, "n": 1, "g": 7}}], "g"),
        ([{"insert": {"id": 9, "n": 1, "xs": [1, "two"]}}], "xs"),
        ([{"insert": {"id": 9, "n": 1, "xs": {"a": 1}}}], "xs"),
        ([{"insert": {"id": 9, "n": None}}], "n"),
        ([{"insert": {"id": 9}}], "n"),
        ([{"insert": {"id": None, "n": 1}}], "id"),
        ([{"insert": {"n": 1}}], "id"),
        ([{"delete": {"g": "a"}}], "id"),
        ([{"upsert": {"id": 9, "n": 1}}], "insert"),
        ([{"insert": [9, 1]}], ""),
        (["insert"], ""),
        ([{}], ""),
    ],
)
def test_bad_changes(shop: Any, changes: list[Any], word: str) -> None:
    good = {"insert": {"id": 50, "g": "never", "n": 1}}
    with refused(shop, ChangesRejected, word) as caught:
        shop.apply({"bag": [{"insert": {"a": 7, "s": "never"}}], "t": [good, *changes]})
    error = caught.value
    assert isinstance(error, ChangesRejected)
    assert [(each.table, each.index) for each in error.rejections] == [("t", 1)]
    assert error.rejections[0].reason


def test_a_script_that_fails_on_its_way_tells_what_is_carried_out(own: Any) -> None:
    epoch = own.epoch + 1
    with pytest.raises(ChangesRejected) as told:
        own.execute("INSERT INTO bag VALUES (7, 'y'); INSERT INTO t (id, n) VALUES (9, NULL); DELETE FROM bag")
    assert f"1 (epoch {epoch}) is carried out; this is about 2, and no other was run." in told.value.detail
    assert own.query("SELECT a FROM bag ORDER BY a").column("a").to_pylist() == [1, 7]


def test_every_bad_change_is_listed(shop: Any) -> None:
    with refused(shop, ChangesRejected) as caught:
        shop.apply(
            {
                "t": [{"insert": {"id": i, "n": None}} for i in range(3)],
                "bag": [{"delete": {"a": 9, "s": "q"}}],
            }
        )
    error = caught.value
    assert isinstance(error, ChangesRejected)
    assert sorted((each.table, each.index) for each in error.rejections) == [
        ("bag", 0),
        ("t", 0),
        ("t", 1),
        ("t", 2),
    ]


def test_an_unknown_table_is_refused(shop: Any) -> None:
    with refused(shop, HeadraceError, "nowhere"):
        shop.apply({"t": [{"insert": {"id": 50, "n": 1}}], "nowhere": [{"insert": {"a": 1}}]})


def test_a_view_takes_no_changes(shop: Any) -> None:
    with refused(shop, HeadraceError, "total"):
        shop.apply({"total": [{"insert": {"g": "a", "s": 1, "c": 1}}]})


@pytest.mark.parametrize(
    "changes",
    [
        [{"delete": {"a": 2, "s": "x"}}],
        [{"delete": {"a": 1, "s": "x"}}, {"delete": {"a": 1, "s": "x"}}],
        [{"delete": {"a": 1, "s": None}}],
        [{"delete": {"a": 3, "s": "z"}}, {"insert": {"a": 3, "s": "z"}}],
    ],
)
def test_a_delete_of_an_absent_row_without_key_is_rejected(shop: Any, changes: list[Any]) -> None:
    with refused(shop, ChangesRejected, "bag"):
        shop.apply({"bag": changes})


def test_a_division_by_zero_inside_a_view_rejects_the_call(own: Any) -> None:
    own.execute("CREATE VIEW shares AS SELECT id, 12 / v AS share FROM t")
    with refused(own, ViewEvaluationError, "shares") as caught:
        own.apply({"t": [{"insert": {"id": 60, "v": 4, "n": 1}}, {"insert": {"id": 61, "v": 0, "n": 1}}]})
    error = caught.value
    assert isinstance(error, ViewEvaluationError)
    assert error.view == "shares"
    assert own.query("SELECT id FROM shares ORDER BY id").column("id").to_pylist() == [1, 2]


def test_a_division_by_zero_that_is_there_already_refuses_the_view(own: Any) -> None:
    own.apply({"t": [{"insert": {"id": 3, "v": 0, "n": 1}}]})
    with refused(own, HeadraceError):
        own.execute("CREATE VIEW shares AS SELECT id, 12 / v AS share FROM t")


def test_a_zero_that_never_lasts_is_no_error(own: Any) -> None:
    own.execute("CREATE VIEW ratio AS SELECT g, SUM(n) / SUM(v) AS r FROM t WHERE g = 'z' GROUP BY g")
    rows = [{"id": 70, "g": "z", "v": 4, "n": 2}, {"id": 71, "g": "z", "v": -4, "n": 1}]
    own.apply({"t": [{"insert": rows[0]}, {"insert": rows[1]}, {"insert": rows[1] | {"v": 1}}]})
    assert own.query("SELECT r FROM ratio").to_pylist() == [{"r": 0.6}]


def test_the_home_reopens_as_it_was_after_bad_calls(own: Any, spark: Any, tmp_path: Any) -> None:
    with pytest.raises(ChangesRejected):
        own.apply({"t": [{"insert": {"id": 9}}]}, key="bad")
    with pytest.raises(HeadraceError):
        own.execute("CREATE VIEW x AS SELECT * FROM nowhere")
    before = picture(own, 0)
    own.close()
    with headrace.open(str(tmp_path / "home"), spark=spark) as again:
        assert picture(again, 0) == before
        again.apply({"t": [{"insert": {"id": 2, "g": "b", "v": 5, "n": 1}}]}, key="bad")
        assert again.query("SELECT s FROM total WHERE g = 'b'").to_pylist() == [{"s": 5}]


def test_a_closed_home_says_that_it_is_closed(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE VIEW v AS SELECT COUNT(*) AS n FROM t")
        assert repr(hr) == f"<Headrace {tmp_path / 'home'}: open, epoch 2, 1 tables, 1 views>"
    for ask in (
        lambda: hr.query("SELECT * FROM t"),
        lambda: hr.execute("SELECT 1"),
        lambda: hr.apply({"t": [{"insert": {"id": 1}}]}),
        lambda: hr.changes("t"),
        lambda: hr.explain("v"),
        lambda: hr.verify(),
    ):
        with pytest.raises(HomeClosed, match="is closed"):
            ask()


@pytest.mark.parametrize("name", ["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def test_an_error_is_told_once_and_no_stack_is_logged(shop: Any, name: str) -> None:
    said: list[logging.LogRecord] = []
    kept = logging.Handler()
    kept.emit = said.append
    PySparkLogger.getLogger(name).addHandler(kept)
    try:
        for sql in ("INSERT INTO bag VALUES ('x', 'y')", "SELECT 1 / (a - 1) AS b FROM bag"):
            with pytest.raises(HeadraceError):
                shop.execute(sql)
    finally:
        PySparkLogger.getLogger(name).removeHandler(kept)
    assert said == []


def test_no_error_advises_a_setting_that_is_not_offered(home: Headrace) -> None:
    home.execute("CREATE TABLE n (id INT PRIMARY KEY, d INT); CREATE VIEW q AS SELECT id, 10 / d AS r FROM n")
    with pytest.raises(QueryError) as refused:
        home.query("SELECT 1 / 0")
    with pytest.raises(ViewEvaluationError) as failed:
        home.apply({"n": [{"insert": {"id": 1, "d": 0}}]})
    for error in (refused.value, failed.value):
        assert "Division by zero. Use `try_divide`" in error.detail
        assert not {"ansi", "SQLSTATE", "[DIVIDE_BY_ZERO]"}.intersection(error.detail.replace(".", " ").split())


def test_a_dependent_that_no_longer_works_is_told_with_its_own_query_and_reason(home: Headrace) -> None:
    home.execute(
        "CREATE TABLE n (id INT, d INT); CREATE VIEW a AS SELECT id, d FROM n;"
        "CREATE VIEW b AS SELECT id + d AS s FROM a"
    )
    with pytest.raises(RelationNameError, match="view b no longer works with the new a") as error:
        home.execute("CREATE OR REPLACE VIEW a AS SELECT id FROM n")
    assert "'SELECT id + d AS s FROM a': unknown column." in error.value.detail


def test_an_update_lays_no_row_onto_another(home: Headrace) -> None:
    home.execute("CREATE TABLE k (id INT PRIMARY KEY, s STRING); INSERT INTO k VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    with pytest.raises(ChangesRejected, match="1 change rejected") as error:
        home.execute("UPDATE k SET id = 2 WHERE id = 1")
    assert error.value.detail == "k[0]: the key (2) belongs to another row"
    home.execute("UPDATE k SET id = 3 - id WHERE id < 3")
    assert home.query("SELECT * FROM k ORDER BY id").to_pylist() == [
        {"id": 1, "s": "b"},
        {"id": 2, "s": "a"},
        {"id": 3, "s": "c"},
    ]
