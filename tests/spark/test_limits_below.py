"""A LIMIT below other operators, ordered by what is not selected, in views that are made over rows."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

TABLES = """
    CREATE TABLE dim (k INT PRIMARY KEY, name STRING, w INT);
    CREATE TABLE l (id INT PRIMARY KEY, x INT)
"""
FIRST = "SELECT w FROM dim ORDER BY k LIMIT 2"
VIEWS = {
    "joined": f"SELECT a.w, l.id FROM ({FIRST}) a JOIN l ON l.x = a.w",
    "compared": f"SELECT a.w FROM ({FIRST}) a WHERE a.w < (SELECT sum(id) FROM l WHERE l.x = a.w)",
    "grouped": f"SELECT w, count(*) AS n, max(w) AS m FROM ({FIRST}) GROUP BY w",
    "there": f"SELECT id FROM l WHERE x IN ({FIRST})",
    "not_there": f"SELECT id FROM l WHERE x NOT IN (SELECT w FROM ({FIRST}) WHERE w IS NOT NULL)",
    "windowed": f"SELECT w, rank() OVER (PARTITION BY w % 2 ORDER BY w) AS r FROM ({FIRST})",
    "distinct_ones": f"SELECT DISTINCT w FROM ({FIRST})",
    "skipped": "SELECT a.w, l.id FROM (SELECT w FROM dim ORDER BY name DESC, k LIMIT 2 OFFSET 1) a JOIN l ON l.x = a.w",
    "twice": f"SELECT a.w, b.w AS v FROM ({FIRST}) a "
    "LEFT JOIN (SELECT w FROM dim ORDER BY k DESC LIMIT 1) b ON a.w = b.w",
}


@pytest.mark.slow
def test_a_limit_below_another_operator_cuts_what_is_filled_too(home: Any) -> None:
    home.execute(TABLES)
    rng = Random(4)

    def changes() -> dict[str, list[Any]]:
        dims = [{"k": rng.randrange(8), "name": rng.choice("abc"), "w": rng.choice([None, 0, 1, 2])} for _ in range(4)]
        rows = [{"id": rng.randrange(9), "x": rng.choice([None, 0, 1, 2])} for _ in range(4)]
        dropped = [{"delete": {"k": rng.randrange(8)}}, {"delete": {"k": rng.randrange(8)}}]
        return {"dim": [*({"insert": one} for one in dims), *dropped], "l": [{"insert": one} for one in rows]}

    for _ in range(3):
        home.apply(changes())
    home.execute(";".join(f"CREATE VIEW {name} AS {sql}" for name, sql in VIEWS.items()))
    for _ in range(5):
        home.apply(changes())
        verdict = home.verify()
        assert verdict.ok, str(verdict)
