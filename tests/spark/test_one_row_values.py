"""Scalar subqueries, EXISTS and the clock may stand anywhere in a query, and what they give is followed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.face import home_of

VIEWS = {
    "share": "SELECT g, sum(v) / (SELECT sum(v) FROM t) AS x FROM t GROUP BY g",
    "past": "SELECT g, count_if(ts <= now()) AS n, max(v) AS m FROM t GROUP BY g",
    "today": "SELECT current_date() AS d, count(*) AS n FROM t",
    "beside": "SELECT sum(v) AS s, (SELECT max(w) FROM u) AS m FROM t",
    "inside": "SELECT g, sum(v * (SELECT max(w) FROM u)) AS s, EXISTS (SELECT 1 FROM u WHERE w > 5) AS e "
    "FROM t GROUP BY g HAVING sum(v) > (SELECT min(w) FROM u)",
    "by_it": "SELECT v > (SELECT avg(w) FROM u) AS high, count(*) AS n FROM t GROUP BY v > (SELECT avg(w) FROM u)",
    "left_join": "SELECT t.id, u.k FROM t LEFT JOIN u ON t.g = u.g AND u.w > (SELECT avg(w) FROM u)",
    "full_join": "SELECT t.id, u.k FROM t FULL JOIN u ON t.g = u.g AND t.v > (SELECT min(w) FROM u)",
    "right_join": "SELECT t.id, u.k FROM t RIGHT JOIN u ON t.g = u.g AND t.ts > now() - INTERVAL 1 DAY",
    "running": "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id) / (SELECT sum(v) FROM t) AS x FROM t",
    "windowed": "SELECT id, sum(v * (SELECT max(w) FROM u)) OVER (PARTITION BY g) AS s FROM t",
    "first_three": "SELECT id FROM t ORDER BY abs(v - (SELECT max(w) FROM u)), id LIMIT 3",
    "exploded": "SELECT id, x FROM t LATERAL VIEW explode(array(v, (SELECT max(w) FROM u))) e AS x",
    "clock_within": "SELECT (SELECT count(*) FROM t WHERE ts <= now()) AS n",
    "repeated": "SELECT n AS a, n AS b FROM (SELECT count(*) AS n FROM t GROUP BY g UNION ALL SELECT 5) x "
    "INTERSECT ALL SELECT v, v FROM t",
    "left_over": "SELECT n AS a, n AS b FROM (SELECT count(*) AS n FROM t GROUP BY g UNION ALL SELECT 5) x "
    "EXCEPT ALL SELECT v, v FROM t",
    "listed": "SELECT g, listagg(CAST(v AS STRING), ',') AS l, "
    "string_agg(CAST(id AS STRING), ',') WITHIN GROUP (ORDER BY v DESC) AS m FROM t GROUP BY g",
}


def random_changes(rng: Random) -> dict[str, list[Any]]:
    """A few rows of few keys and values, so that groups empty and subqueries find nothing."""
    changes: dict[str, list[Any]] = {"t": [], "u": []}
    for _ in range(6):
        row = {"id": rng.randrange(9), "g": rng.choice(["a", "b", None]), "v": rng.choice([None, 1, 2, 5, 9])}
        row["ts"] = rng.choice(["2024-01-01", "2100-01-01", None])
        changes["t"].append({"delete": {"id": row["id"]}} if rng.random() < 0.4 else {"insert": row})
    row = {"k": rng.randrange(4), "g": rng.choice(["a", "b", None]), "w": rng.choice([None, 1, 4, 7])}
    changes["u"].append({"delete": {"k": row["k"]}} if rng.random() < 0.5 else {"insert": row})
    return changes


@pytest.mark.slow
def test_values_of_one_row_are_followed_wherever_they_stand(home: Any) -> None:
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, v INT, ts TIMESTAMP)")
    home.execute("CREATE TABLE u (k INT PRIMARY KEY, g STRING, w INT)")
    home.execute(";".join(f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items()))
    rng = Random(7)
    for _ in range(5):
        home.apply(random_changes(rng))
        verdict = home.verify()
        assert verdict.ok, verdict
    home.apply({"t": [{"delete": {"id": i}} for i in range(9)]})
    assert home.verify().ok


def test_a_clock_inside_a_subquery_moves_the_view(home: Any) -> None:
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, ts TIMESTAMP)")
    home.execute("CREATE VIEW due AS SELECT (SELECT count(*) FROM t WHERE ts <= now()) AS n")
    assert home_of(home).core.catalog.get("due").resolved.uses_clock


def test_update_of_columns_with_odd_names(home: Any) -> None:
    home.execute("CREATE TABLE odd (`a b` INT PRIMARY KEY, s STRUCT<`x y`: INT, z: STRING>, `q``r` INT)")
    home.apply({"odd": [{"insert": {"a b": 1, "s": {"x y": 2, "z": "t"}, "q`r": 3}}]})
    home.execute("UPDATE odd SET `q``r` = `q``r` + 1 WHERE `a b` = 1")
    assert home.query("SELECT * FROM odd").to_pylist() == [{"a b": 1, "s": {"x y": 2, "z": "t"}, "q`r": 4}]
