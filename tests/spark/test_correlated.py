"""Correlated subqueries that compare: the newest price at the time of a trade, and its like."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

TABLES = """
    CREATE TABLE px (sym STRING, ts TIMESTAMP, price DECIMAL(10,4), PRIMARY KEY (sym, ts));
    CREATE TABLE tr (tid BIGINT PRIMARY KEY, sym STRING, ts TIMESTAMP, qty INT)
"""
MATCH = "FROM px WHERE px.sym = tr.sym AND px.ts <= tr.ts"
NEWEST = f"{MATCH} ORDER BY px.ts DESC LIMIT 1"
VIEWS = {
    "newest": f"SELECT tr.tid, p.price FROM tr, LATERAL (SELECT price {NEWEST}) p",
    "newest_or_none": f"SELECT tr.tid, p.price, p.ts FROM tr LEFT JOIN LATERAL (SELECT price, ts {NEWEST}) p",
    "newest_scalar": f"SELECT tid, (SELECT price {NEWEST}) AS price FROM tr",
    "second": f"SELECT tr.tid, p.price FROM tr, LATERAL (SELECT price {MATCH} ORDER BY px.ts DESC LIMIT 1 OFFSET 1) p",
    "all_before": f"SELECT tr.tid, p.price FROM tr, LATERAL (SELECT price {MATCH}) p",
    "by_aggregate": f"SELECT tid, (SELECT max_by(price, ts) {MATCH}) AS price, (SELECT count(*) {MATCH}) AS n FROM tr",
    "few_after": "SELECT tid FROM tr WHERE qty > (SELECT count(*) FROM px WHERE px.sym = tr.sym AND px.ts > tr.ts)",
}


def random_changes(rng: Random) -> dict[str, list[Any]]:
    def minute() -> str:
        return f"2025-01-01 10:{rng.randrange(12):02d}:00"

    prices: list[Any] = []
    trades: list[Any] = []
    for _ in range(5):
        price = {"sym": rng.choice("AB"), "ts": minute()}
        is_new = rng.random() < 0.7
        prices.append(
            {"insert": {**price, "price": rng.choice([None, "1", "2.5", "7"])}} if is_new else {"delete": price}
        )
        trade = {
            "tid": rng.randrange(9),
            "sym": rng.choice(["A", "B", None]),
            "ts": rng.choice([None, minute(), minute()]),
        }
        is_new = rng.random() < 0.7
        trades.append({"insert": {**trade, "qty": rng.randrange(4)}} if is_new else {"delete": {"tid": trade["tid"]}})
    return {"px": prices, "tr": trades}


@pytest.mark.slow
def test_what_compares_with_an_outer_row_is_followed_by_equal_columns(home: Any) -> None:
    home.execute(TABLES)
    home.execute(";".join(f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items()))
    for name in VIEWS:
        assert home.explain(name).incremental, home.explain(name)
    rng = Random(3)
    for _ in range(3):
        home.apply(random_changes(rng))
        # No two prices of a symbol have the same time, so plain Spark has one answer, too.
        for name, query in VIEWS.items():
            served, expected = home.query(f"SELECT * FROM {name}"), home.query(query)
            assert sorted(map(repr, served.to_pylist())) == sorted(map(repr, expected.to_pylist())), name


NOT_IN = {
    "outside": "SELECT id, x FROM l WHERE x NOT IN (SELECT x FROM r)",
    "filtered": "SELECT id FROM l WHERE x NOT IN (SELECT z FROM r WHERE z IS NOT NULL) AND y > 0",
    "computed": "SELECT id FROM l WHERE x + 1 NOT IN (SELECT MAX(z) FROM r GROUP BY x)",
    "its_own": "SELECT id FROM l WHERE x NOT IN (SELECT y FROM l)",
    "twice": "SELECT id FROM l WHERE x NOT IN (SELECT x FROM r) AND y NOT IN (SELECT z FROM r)",
    "matched": "SELECT id FROM l WHERE x NOT IN (SELECT x FROM r WHERE r.z = l.y)",
    "counted": "SELECT COUNT(*) AS n FROM l WHERE x NOT IN (SELECT x FROM r)",
}


@pytest.mark.slow
def test_not_in_follows_nulls_and_empty_lists(home: Any) -> None:
    home.execute("CREATE TABLE l (id INT PRIMARY KEY, x INT, y INT); CREATE TABLE r (id INT PRIMARY KEY, x INT, z INT)")
    home.execute(";".join(f"CREATE VIEW {name} AS {query}" for name, query in NOT_IN.items()))
    for name in NOT_IN:
        assert home.explain(name).incremental, home.explain(name)
    rng = Random(5)
    for _ in range(4):
        changes: dict[str, list[Any]] = {"l": [], "r": []}
        for name, other, ids in (("l", "y", 7), ("r", "z", 3)):
            for _ in range(3):
                row = {"id": rng.randrange(ids), "x": rng.choice([None, 1, 2, 2]), other: rng.choice([None, 1, 2, 3])}
                changes[name].append({"insert": row} if rng.random() < 0.6 else {"delete": {"id": row["id"]}})
        home.apply(changes)
        verdict = home.verify()
        assert verdict.ok, verdict
