"""Windows that read pieces of their partitions equal Spark's recompute after every epoch, for fixed seeds.

Every partition is taken for a large one, so that even few rows are read by pieces.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.epoch import work
from headrace.rules import window_pieces

TABLE = """
    CREATE TABLE t (
        id BIGINT PRIMARY KEY, g INT, o INT, v INT, n DECIMAL(9, 2), d DOUBLE, s STRING, ts TIMESTAMP, day DATE
    )
"""
FIRST = "the first"
REACH = "within reach"
ONWARD = "from the first change on"

# Each view with the reach that EXPLAIN must name.
VIEWS = {
    "newest": (
        FIRST,
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY o DESC) r FROM t) WHERE r = 1",
    ),
    "best": (
        FIRST,
        "SELECT id, r AS place FROM (SELECT id, rank() OVER (PARTITION BY g ORDER BY n DESC NULLS LAST) AS r FROM t) "
        "WHERE 3 >= r AND id % 7 <> 1",
    ),
    "levels": (
        FIRST,
        "SELECT id, g, r FROM (SELECT *, dense_rank() OVER (PARTITION BY g ORDER BY s) AS r FROM t) WHERE r < 3",
    ),
    "followed": (
        FIRST,
        "SELECT id, nx, hi, r FROM (SELECT id, lead(d, 2) OVER w AS nx, max(d) OVER w AS hi, row_number() OVER w AS r "
        "FROM t WINDOW w AS (PARTITION BY g ORDER BY ts, id)) WHERE r <= 2",
    ),
    "neighbours": (
        REACH,
        "SELECT id, lag(v) OVER w AS a, lead(d, 2) OVER w AS b, v - lag(v, 2, 0) OVER w AS c, lag(s, -1) OVER w AS e "
        "FROM t WINDOW w AS (PARTITION BY g ORDER BY o)",
    ),
    "moving": (
        REACH,
        "SELECT id, avg(v) OVER w AS a, sum(d) OVER w AS b, max(s) OVER w AS c, first_value(v) OVER w AS e, "
        "count(n) OVER (PARTITION BY g ORDER BY ts DESC, id ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING) AS f "
        "FROM t WINDOW w AS (PARTITION BY g ORDER BY ts DESC, id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    ),
    "near": (
        REACH,
        "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a, "
        "avg(d) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 3 PRECEDING AND 2 PRECEDING) AS b FROM t",
    ),
    "lately": (
        REACH,
        "SELECT id, count(*) OVER (PARTITION BY g ORDER BY ts RANGE BETWEEN INTERVAL 90 MINUTES PRECEDING AND CURRENT "
        "ROW) AS a, min(v) OVER (PARTITION BY g ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL 1 HOUR FOLLOWING) "
        "AS b, lag(v) OVER (PARTITION BY g ORDER BY ts) AS c FROM t",
    ),
    "monthly": (
        REACH,
        "SELECT id, sum(n) OVER (PARTITION BY g ORDER BY day DESC RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT "
        "ROW) AS a FROM t",
    ),
    "priced": (
        REACH,
        "SELECT id, count(v) OVER (PARTITION BY g ORDER BY n RANGE BETWEEN 1.5 PRECEDING AND 0.25 FOLLOWING) AS a "
        "FROM t",
    ),
    "statement_lines": (
        ONWARD,
        "SELECT id, row_number() OVER w AS a, sum(v) OVER w AS b, sum(n) OVER w AS c, count(d) OVER w AS e, "
        "rank() OVER w AS f, avg(n) OVER w AS h, lag(v) OVER w AS i FROM t WINDOW w AS (PARTITION BY g ORDER BY o)",
    ),
    "by_rows": (
        ONWARD,
        "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY o ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS a, "
        "avg(v) OVER (PARTITION BY g ORDER BY o ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING) AS b, "
        "sum(v) OVER (PARTITION BY g ORDER BY o) AS c FROM t",
    ),
    "everywhere": (ONWARD, "SELECT id, sum(v) OVER (ORDER BY o) AS a, row_number() OVER (ORDER BY o, id) AS b FROM t"),
    "shifted": (
        ONWARD,
        "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS a, "
        "count(v) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS b FROM t",
    ),
    "chosen": (
        ONWARD,
        "SELECT id, count(*) OVER (PARTITION BY g, k ORDER BY d DESC) AS a FROM "
        "(SELECT id, g, o % 2 AS k, d FROM t WHERE v > -5)",
    ),
    "twice": (
        REACH,
        "SELECT id, lag(x) OVER (PARTITION BY g ORDER BY o, id) AS y FROM "
        "(SELECT id, g, o, v + lead(v) OVER (PARTITION BY g ORDER BY o, id) AS x FROM t)",
    ),
}


def row(rng: random.Random, number: int, order: int | None) -> dict[str, Any]:
    """A row at a place of the order, with ties, NULLs and NaN in the others."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.12 else value

    return {
        "id": number,
        "g": maybe(rng.randrange(2)),
        "o": order,
        "v": maybe(rng.randint(-9, 9)),
        "n": maybe(f"{rng.randint(-300, 300) / 100:.2f}"),
        "d": maybe(rng.choice(["NaN", 0.0, -0.0, 1.5, -2.25, 0.1])),
        "s": maybe(rng.choice(["a", "b", "", "é", "a ", "B"])),
        "ts": maybe(f"2025-11-01 {rng.randrange(8, 20):02d}:{rng.choice([0, 30, 59]):02d}:00"),
        "day": maybe(f"2025-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"),
    }


def steps(rng: random.Random, size: int) -> Sequence[tuple[str, list[dict[str, Any]]]]:
    """Appends, inserts in the middle, ties, deletes, moves, NULLs: each an epoch of its own."""
    some = rng.sample(range(size), 6)
    return [
        ("append", [{"insert": row(rng, size + 1, 1000)}]),
        ("one in the middle", [{"insert": row(rng, size + 3, size // 4)}]),
        ("the front and ties", [{"insert": row(rng, size + 4 + i, (-1, 9, 9, 9)[i])} for i in range(4)]),
        ("NULL order, another group", [{"insert": row(rng, i, None)} for i in (some[0], size + 9)]),
        ("deletes", [{"delete": {"id": i}} for i in some[1:5]]),
        ("a move from the end to the front", [{"insert": row(rng, size + 1, -5)}]),
        ("many", [{"insert": row(rng, rng.randrange(2 * size), rng.randrange(size // 2))} for _ in range(9)]),
    ]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_windows_read_by_pieces_equal_a_recompute(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(window_pieces, "FEW", 0)
    rng = random.Random(seed)
    size = 60
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute(TABLE)
        first = [{"insert": row(rng, i, rng.randrange(size // 2))} for i in range(size)]
        hr.apply({"t": first[: size // 2]})
        # The slow seeds have every view, and are judged after every step.
        for name in list(VIEWS)[:: 1 if seed > 1 else 2]:
            reach, sql = VIEWS[name]
            hr.execute(f"CREATE VIEW {name} AS {sql}")
            plan = hr.explain(name)
            assert plan.incremental, name
            assert reach in str(plan), f"{name}: {plan}"
        hr.apply({"t": first[size // 2 :]})
        listed = list(steps(rng, size))
        for index, (what, changes) in enumerate(listed, 1):
            hr.apply({"t": changes})
            if seed > 1 or index % 3 == 0 or index == len(listed):
                verdict = hr.verify()
                assert verdict.ok, (what, verdict.differences)


LARGE = {
    "top": "SELECT id, o FROM (SELECT *, rank() OVER (PARTITION BY g ORDER BY o DESC) AS r FROM t) WHERE r <= 3",
    "steps": "SELECT id, v - lag(v) OVER (PARTITION BY g ORDER BY o) AS x FROM t WHERE v IS NOT NULL",
    "averages": "SELECT id, avg(v) OVER (PARTITION BY g ORDER BY o ROWS 3 PRECEDING) AS x FROM t",
    "lines": "SELECT id, row_number() OVER w AS a, sum(v) OVER w AS b FROM t WINDOW w AS (PARTITION BY g ORDER BY o)",
    "all_lines": "SELECT id, count(v) OVER (ORDER BY o) AS a FROM t",
}


@pytest.mark.slow
def test_a_large_partition_is_never_read_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 2_000

    def put(number: int, order: int, value: int) -> dict[str, Any]:
        return {"insert": {"id": number, "g": 1, "o": order, "v": value}}

    def refuse(*_: object) -> None:
        raise AssertionError("more rows were read than the bound allows")

    with headrace.open(tmp_path / "home", spark=spark, small_bound=60) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY, g INT, o INT, v INT)")
        hr.execute(f"INSERT INTO t SELECT CAST(id AS INT), 1, CAST(id AS INT), CAST(id % 7 AS INT) FROM range({rows})")
        for name, sql in LARGE.items():
            hr.execute(f"CREATE VIEW {name} AS {sql}")
        monkeypatch.setattr(work, "refill", refuse)
        hr.apply({"t": [put(rows, rows, 5)]})
        hr.apply({"t": [put(rows + 1, rows - 2, 6), {"delete": {"id": rows - 1}}]})
        hr.apply({"t": [put(rows, rows + 1, 4)]})
        for name in ("lines", "all_lines"):
            hr.execute(f"DROP VIEW {name}")
        # Nothing but neighbours feels a change in the middle, or a move across half of the partition.
        hr.apply({"t": [put(rows + 2, rows // 2, 3)]})
        hr.apply({"t": [put(7, rows // 2 + 90, 3)]})
        assert hr.verify().ok
