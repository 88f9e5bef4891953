"""Literals, NULLs and constants in every position: a maintained view says what Spark says, at every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ViewEvaluationError
from tests.judge.oracle import small_session

VIEWS = (
    "SELECT NULL IN (SELECT x FROM t) AS r",
    "SELECT NULL NOT IN (SELECT x FROM t) AS r",
    "SELECT CAST(NULL AS INT) + 1 IN (SELECT x FROM t) AS r",
    "SELECT nullif(1, 1) NOT IN (SELECT x FROM t) AS r, id FROM u",
    "SELECT n IN (SELECT x FROM t) AS r FROM (SELECT NULL AS n, id FROM u)",
    "SELECT id, CASE WHEN true THEN NULL ELSE 1 END IN (SELECT x FROM t) AS r FROM u",
    "SELECT id, coalesce(NULL IN (SELECT x FROM t), true) AS r FROM u",
    "SELECT id, (NULL IN (SELECT x FROM t)) IS NULL AS r FROM u",
    "SELECT id FROM u WHERE (NULL IN (SELECT x FROM t)) IS NULL",
    "SELECT id FROM u WHERE NOT (y IN (SELECT x FROM t) OR y > 100)",
    "SELECT id FROM u WHERE NOT (y NOT IN (SELECT x FROM t) AND y < 100)",
    "SELECT id FROM u WHERE NULL NOT IN (SELECT x FROM t)",
    "SELECT id, 1 IN (SELECT x FROM t) AS r, y IN (SELECT x FROM t) AS s, 1 NOT IN (SELECT x FROM t) AS q FROM u",
    "SELECT id, y IN (SELECT NULL FROM t) AS r FROM u",
    "SELECT id FROM u WHERE y NOT IN (SELECT NULL FROM t)",
    "SELECT id, y IN (SELECT x FROM t WHERE false) AS r FROM u",
    "SELECT id, y NOT IN (SELECT x FROM t LIMIT 0) AS r FROM u",
    "SELECT id, (1, NULL) IN (SELECT id, x FROM t) AS r FROM u",
    "SELECT id, (id, NULL) NOT IN (SELECT id, x FROM t) AS r FROM u",
    "SELECT id FROM u WHERE (id, y) NOT IN (SELECT id, x FROM t)",
    "SELECT id, EXISTS (SELECT NULL FROM t) AS r, EXISTS (SELECT 1 WHERE false) AS s FROM u",
    "SELECT id FROM u WHERE EXISTS (SELECT 1 FROM t WHERE CAST(NULL AS BOOLEAN))",
    "SELECT id FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.x = NULL)",
    "SELECT u.id, t.x FROM u LEFT JOIN t ON CAST(NULL AS BOOLEAN)",
    "SELECT u.id, t.x FROM u FULL JOIN t ON false",
    "SELECT u.id, t.x FROM u LEFT JOIN t ON true",
    "SELECT u.id, t.x FROM u JOIN t ON u.y <=> t.x AND 1 = 1",
    "SELECT u.id FROM u LEFT ANTI JOIN t ON CAST(NULL AS BOOLEAN)",
    "SELECT u.id, t.x FROM (SELECT id, CAST(NULL AS INT) AS k FROM u) u "
    "FULL JOIN (SELECT x, 1 AS k FROM t) t ON u.k = t.k",
    "SELECT u.id, t.x FROM (SELECT id, 1 AS k FROM u) u LEFT JOIN (SELECT x, 1 AS k FROM t) t ON u.k = t.k",
    "SELECT CASE WHEN CAST(NULL AS BOOLEAN) THEN 1 WHEN y IN (SELECT x FROM t) THEN 2 ELSE 3 END AS r FROM u",
    "SELECT y, count(*) AS c FROM u GROUP BY y HAVING CAST(NULL AS BOOLEAN)",
    "SELECT count(*) AS c, sum(y) AS s FROM u HAVING count(*) > 1 OR CAST(NULL AS BOOLEAN)",
    "SELECT y, count(*) AS c FROM u GROUP BY y HAVING (NULL IN (SELECT x FROM t)) IS NULL",
    "SELECT 1 AS k, count(*) AS c FROM u GROUP BY 1",
    "SELECT NULL AS k, max(y) AS m FROM u GROUP BY NULL",
    "SELECT count(NULL) AS a, sum(NULL) AS b, max(1) AS c, count(1) AS d, avg(2) AS e, count(DISTINCT 1) AS f FROM u",
    "SELECT y, count(DISTINCT NULL) AS a, sum(1) AS b, min(NULL) AS c, collect_list(1) AS d FROM u GROUP BY y",
    "SELECT DISTINCT 1 AS a, NULL AS b FROM u",
    "SELECT y, sum(1) OVER (PARTITION BY 1 ORDER BY id) AS s, "
    "row_number() OVER (PARTITION BY NULL ORDER BY id) AS n FROM u",
    "SELECT id FROM u ORDER BY id LIMIT 0",
    "SELECT count(*) AS c FROM (SELECT id FROM u LIMIT 0)",
    "SELECT 1 AS a UNION ALL SELECT y FROM u UNION ALL SELECT NULL",
    "SELECT NULL AS a UNION SELECT y FROM u",
    "SELECT y FROM u INTERSECT SELECT * FROM VALUES (NULL), (1)",
    "SELECT * FROM VALUES (1, NULL), (2, 'a') AS v(a, b) LEFT JOIN u ON u.y = v.a",
    "SELECT v.a, count(u.id) AS c FROM VALUES (1), (NULL) AS v(a) LEFT JOIN u ON u.y <=> v.a GROUP BY v.a",
    "SELECT id, y BETWEEN NULL AND 3 AS a, NULL BETWEEN y AND 3 AS b, y <=> NULL AS c, NULL <=> NULL AS d FROM u",
    "SELECT id FROM u WHERE CAST(NULL AS BOOLEAN)",
    "SELECT id, y IN (1, NULL) AS a, y NOT IN (1, NULL) AS b, NULL IN (1, 2) AS c FROM u",
    "SELECT id FROM u WHERE y NOT IN (1, NULL)",
    "SELECT (SELECT max(x) FROM t WHERE false) AS a, id FROM u",
    "SELECT id, (SELECT count(*) FROM t WHERE t.x = u.y AND CAST(NULL AS BOOLEAN)) AS c FROM u",
    "SELECT id, y IN (SELECT x FROM t WHERE t.id = u.id) AS r, NULL IN (SELECT x FROM t WHERE t.id = u.id) AS s FROM u",
    "SELECT id, NULL NOT IN (SELECT x FROM t WHERE t.id = u.id) AS s FROM u",
    "SELECT max(NULL IN (SELECT x FROM t)) AS m FROM u",
    "SELECT (SELECT NULL IN (SELECT x FROM t)) AS r",
    "SELECT id FROM u WHERE EXISTS (SELECT 1 FROM t WHERE (NULL IN (SELECT y FROM u)) IS NULL)",
    "SELECT NOT (NULL IN (SELECT x FROM t)) AS r, (NULL IN (SELECT x FROM t)) OR true AS s, id FROM u",
)
# What IN looks for, or what it looks in, is a constant only by what lies below.
FROM_BELOW = (
    "SELECT n IN (SELECT x FROM t) AS r FROM (SELECT CAST(NULL AS INT) AS n)",
    "SELECT id, n IN (SELECT x FROM t) AS r, n NOT IN (SELECT x FROM t) AS s FROM (SELECT NULL AS n, id FROM u)",
    "SELECT n NOT IN (SELECT x FROM t) AS r FROM (SELECT n + 1 AS n FROM (SELECT CAST(NULL AS INT) AS n, id FROM u))",
    "SELECT n IN (SELECT x FROM t) AS r FROM (SELECT id, NULL AS n FROM u GROUP BY id)",
    "SELECT n NOT IN (SELECT x FROM t) AS r FROM (SELECT DISTINCT CAST(NULL AS INT) AS n FROM u)",
    "SELECT s.n IN (SELECT x FROM t) AS r FROM u CROSS JOIN (SELECT CAST(NULL AS INT) AS n) s",
    "SELECT id, s.n IN (SELECT x FROM t) AS r FROM u LEFT JOIN (SELECT id, CAST(NULL AS INT) AS n FROM u) s USING (id)",
    "SELECT a IN (SELECT x FROM t) AS r FROM (SELECT NULL AS a UNION ALL SELECT y FROM u)",
    "SELECT a NOT IN (SELECT x FROM t) AS r FROM (SELECT NULL AS a FROM u UNION ALL SELECT CAST(NULL AS INT) FROM t)",
    "SELECT a IN (SELECT x FROM t) AS r FROM (SELECT NULL AS a UNION SELECT y FROM u)",
    "SELECT u.id, s.x IN (SELECT x FROM t) AS r FROM u LEFT JOIN t s ON false",
    "SELECT u.id, s.x IN (SELECT x FROM t) AS r FROM u LEFT JOIN t s ON 1 = 0",
    "SELECT u.id, s.x NOT IN (SELECT x FROM t) AS r FROM u LEFT JOIN (SELECT * FROM t WHERE false) s ON u.id = s.id",
    "SELECT u.id, s.x IN (SELECT x FROM t) AS r FROM u LEFT JOIN (SELECT * FROM t LIMIT 0) s ON u.id = s.id",
    "SELECT u.id, t.x IN (SELECT y FROM u) AS r FROM u LEFT JOIN t ON u.id = t.id",
    "SELECT a IN (SELECT x FROM t) AS r FROM VALUES (NULL), (1) AS v(a)",
    "SELECT n IN (SELECT x FROM t) AS r FROM (SELECT CAST(NULL AS INT) AS n FROM VALUES (1), (2) AS v(a))",
    "SELECT n IN (SELECT x FROM t) AS r FROM (SELECT CAST(NULL AS INT) AS n, id FROM u ORDER BY id LIMIT 2)",
    "SELECT n IN (SELECT x FROM t) AS r FROM (SELECT max(y) FILTER (WHERE false) AS n FROM u)",
    "SELECT n.b IN (SELECT x FROM t) AS r FROM (SELECT struct(y AS a, CAST(NULL AS INT) AS b) AS n FROM u)",
    "SELECT n IN (SELECT x FROM t) AS r, c FROM (SELECT NULL AS n, count(*) OVER (PARTITION BY y) AS c FROM u)",
    "WITH w AS (SELECT NULL AS n, id FROM u) SELECT id, b.n IN (SELECT x FROM t) AS r FROM w a JOIN w b USING (id)",
    "SELECT id FROM (SELECT id, NULL AS n FROM u) WHERE (n IN (SELECT x FROM t)) IS NULL",
    "SELECT id FROM (SELECT id, NULL AS n FROM u) WHERE n NOT IN (SELECT x FROM t)",
    "SELECT id, y IN (SELECT n FROM (SELECT CAST(NULL AS INT) AS n FROM t)) AS r FROM u",
    "SELECT id, y NOT IN (SELECT n FROM (SELECT CAST(NULL AS INT) AS n FROM t)) AS r FROM u",
    "SELECT (id, n) IN (SELECT id, x FROM t) AS r FROM (SELECT id, CAST(NULL AS INT) AS n FROM u)",
    "SELECT id, (SELECT max(n IN (SELECT x FROM t)) FROM (SELECT NULL AS n FROM t)) AS r FROM u",
    "SELECT y IN (SELECT x FROM t) AS r FROM u WHERE y IS NULL",
    "SELECT y IN (SELECT x FROM t) AS r FROM u WHERE y <=> NULL",
)
STEPS: tuple[dict[str, list[dict[str, Any]]], ...] = (
    {"u": [{"insert": {"id": 1, "y": 1}}, {"insert": {"id": 2, "y": None}}, {"insert": {"id": 3, "y": 3}}]},
    {"t": [{"insert": {"id": 1, "x": 1}}]},
    {"t": [{"insert": {"id": 2, "x": None}}, {"insert": {"id": 3, "x": 3}}], "u": [{"insert": {"id": 4, "y": 1}}]},
    {"t": [{"delete": {"id": 2}}], "u": [{"delete": {"id": 2}}]},
    {"t": [{"delete": {"id": 1}}, {"delete": {"id": 3}}], "u": [{"insert": {"id": 5, "y": None}}]},
    {"u": [{"delete": {"id": one}} for one in (1, 3, 4, 5)]},
)


@pytest.mark.parametrize("views", [VIEWS[::16], pytest.param(VIEWS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_maintained_constants_are_sparks(home: Any, views: Sequence[str]) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE TABLE u (id INT PRIMARY KEY, y INT)")
    for number, sql in enumerate(views):
        home.execute(f"CREATE VIEW v{number} AS {sql}")
    assert not home.verify().differences
    for step in STEPS:
        home.apply(step)
        wrong = {one.view for one in home.verify().differences}
        assert not [views[int(name[1:])] for name in sorted(wrong)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "views", [FROM_BELOW[::16], pytest.param(FROM_BELOW, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_constants_from_below_are_sparks(home: Any, spark: SparkSession, views: Sequence[str]) -> None:
    """Each query is asked alone, over tables of which Spark knows no more than their columns.

    Whether IN says NULL or FALSE for a NULL on its left is up to what Spark's optimizer folds: as part of a larger
    query, or over rows that are written out, the same text may say something else.
    """
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE TABLE u (id INT PRIMARY KEY, y INT)")
    home.execute("; ".join(f"CREATE VIEW v{number} AS {sql}" for number, sql in enumerate(views)))
    plain = small_session(spark)
    # Without a row in t, with one, and with a NULL.
    for step in STEPS[:3]:
        home.apply(step)
        for table in ("t", "u"):
            rows = home.query(f"SELECT * FROM {table}").to_pylist()
            frame = plain.createDataFrame([tuple(row.values()) for row in rows], "id INT, n INT")
            frame.toDF("id", "x" if table == "t" else "y").createOrReplaceTempView(table)
        maintained = _rows_of(home, [f"v{number}" for number in range(len(views))])
        expected = [sorted(str(tuple(row)) for row in plain.sql(sql).collect()) for sql in views]
        compared = zip(views, maintained, expected, strict=True)
        assert not [(sql, got, wanted) for sql, got, wanted in compared if got != wanted]
        assert not home.verify().differences


def test_an_expression_over_constants_that_fails_is_told_as_the_views(home: Any) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, x INT)")
    with pytest.raises(ViewEvaluationError, match="view v cannot be computed"):
        home.execute(
            "CREATE VIEW v AS SELECT a IN (SELECT x FROM t) AS r FROM (SELECT 1 / a AS a FROM VALUES (0) AS v(a))"
        )


def _rows_of(home: Any, views: Sequence[str]) -> list[list[str]]:
    """The rows of each view."""
    return [sorted(str(tuple(row.values())) for row in home.query(f"TABLE {view}").to_pylist()) for view in views]
