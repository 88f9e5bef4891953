"""Filters, projections, unions and joins say of every change exactly what a recompute would show."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BooleanType, IntegerType, LongType

from headrace.rules.filter_project import FilterProject
from headrace.rules.inner_join import InnerJoin
from headrace.rules.inner_join_rule import Edge
from headrace.rules.inner_join_thresholds import Threshold
from headrace.rules.outer_join import OuterJoin
from headrace.rules.union import UnionAll
from tests.driven_rules import Bench, Epoch, Home, Model, Rows, column, epochs, plan, repeated, scan

INT, LONG = IntegerType(), LongType()
few = settings(max_examples=40, deadline=None)
SMALL = st.one_of(st.none(), st.integers(0, 3))
PAIRS = st.tuples(SMALL, SMALL)

R, S = scan("r", 1, INT, INT), scan("s", 11, INT, INT)


def counted(rows: Any) -> Rows:
    return Counter(rows)


@pytest.mark.thorough
@few
@given(epochs(r=PAIRS))
def test_steps_map_each_row_alone(history: list[Epoch]) -> None:
    bench = Bench("SELECT CAST(x0 + 1 AS INT), x2 FROM t0 WHERE x1 > 0")
    node = FilterProject(plan(), (column(21, INT),), R, (plan(),))
    home = Home(
        bench,
        bench.build(node),
        [R],
        lambda m: counted((None if a is None else a + 1,) for a, b in repeated(m["r"]) if b is not None and b > 0),
    )
    for epoch in history:
        home.step(epoch)


def test_nothing_is_asked_where_nothing_changed() -> None:
    bench = Bench("SELECT x0, x2 FROM t0")
    node = FilterProject(plan(), (column(21, INT),), R, (plan(),))
    home = Home(bench, bench.build(node), [R], lambda m: Counter())
    home.step({("r", (1, 1)): 0})
    assert bench.asked[0].runs == 0


@few
@given(epochs(r=PAIRS, s=PAIRS))
def test_a_union_is_the_sum_of_its_inputs(history: list[Epoch]) -> None:
    bench = Bench()
    rule = bench.build(UnionAll(plan(), R.output, (R, S)))
    home = Home(bench, rule, [R, S], lambda m: m["r"] + m["s"])
    for epoch in history:
        home.step(epoch)


def test_a_row_that_leaves_one_input_and_comes_into_the_other_is_no_change() -> None:
    bench = Bench()
    rule = bench.build(UnionAll(plan(), R.output, (R, S)))
    home = Home(bench, rule, [R, S], lambda m: m["r"] + m["s"])
    home.step({("r", (1, 1)): 2})
    home.step({("r", (1, 1)): 0, ("s", (1, 1)): 2})
    assert home.out == {(1, 1): 2}


T = scan("t", 21, INT, INT)
CHAIN = InnerJoin(
    plan(),
    (*R.output, *S.output, *T.output),
    (R, S, T),
    (),
    (Edge(0, 1, (2,), (11,), False), Edge(1, 2, (12,), (21,), True)),
    (),
    frozenset(),
)
CHAIN_SQL = """
SELECT r.x0, r.x1, s.x0, s.x1, t.x0, t.x1, r.x2 * s.x2 * t.x2 AS before, r.x3 * s.x3 * t.x3 AS after
FROM t0 r JOIN t1 s ON r.x1 = s.x0 JOIN t2 t ON s.x1 IS NOT DISTINCT FROM t.x0
WHERE r.x2 * s.x2 * t.x2 <> r.x3 * s.x3 * t.x3
"""


def chained(model: Model) -> Rows:
    every = product(repeated(model["r"]), repeated(model["s"]), repeated(model["t"]))
    return counted((*r, *s, *t) for r, s, t in every if r[1] is not None and r[1] == s[0] and s[1] == t[0])


@pytest.mark.thorough
@few
@given(epochs(r=PAIRS, s=PAIRS, t=PAIRS))
def test_three_inputs_joined_by_keys(history: list[Epoch]) -> None:
    bench = Bench(CHAIN_SQL)
    home = Home(bench, bench.build(CHAIN), [R, S, T], chained)
    for epoch in history:
        home.step(epoch)
    assert bench.reasons == []


def test_a_join_reads_only_what_a_change_can_meet() -> None:
    bench = Bench(CHAIN_SQL)
    home = Home(bench, bench.build(CHAIN), [R, S, T], chained, bound=50)
    for start in range(0, 1000, 40):
        home.step({("s", (i, i)): 1 for i in range(start, start + 40)})
    home.step({("r", (1, 7)): 1, ("t", (7, 1)): 1})
    assert home.out == {(1, 7, 7, 7, 7, 1): 1}
    assert home.refills == 0


@few
@given(epochs(r=PAIRS, s=PAIRS))
def test_a_self_join_through_a_union_keeps_its_own_input(history: list[Epoch]) -> None:
    """An input that is no relation lies in a hidden store, which the rule below it keeps."""
    both = UnionAll(plan(), (column(31, INT), column(32, INT)), (R, S))
    node = InnerJoin(
        plan(), (*both.output, *T.output), (both, T), (), (Edge(0, 1, (32,), (21,), False),), (), frozenset()
    )
    bench = Bench(
        "SELECT a.x0, a.x1, b.x0, b.x1, a.x2 * b.x2 AS p, a.x3 * b.x3 AS q FROM t0 a JOIN t1 b ON a.x1 = b.x0"
    )
    home = Home(
        bench,
        bench.build(node),
        [R, S, T],
        lambda m: counted(
            (*a, *b)
            for a, b in product(repeated(m["r"] + m["s"]), repeated(m["t"]))
            if a[1] is not None and a[1] == b[0]
        ),
    )
    home.step({("t", (i, j)): 1 for i in range(3) for j in range(2)})
    for epoch in history:
        home.step(epoch)


VALUE = scan("value", 11, INT)
OVER = plan("GreaterThan", _headrace_references="1 11")
MOVING = InnerJoin(plan(), R.output, (R, VALUE), (OVER,), (), (Threshold(0, 1, ">", plan(), 1, OVER),), frozenset({1}))


@pytest.mark.thorough
@few
@given(st.lists(st.tuples(st.dictionaries(PAIRS, st.integers(0, 2), max_size=5), SMALL), min_size=1, max_size=6))
def test_a_moving_value_lets_rows_through(history: list[tuple[dict[Any, int], int | None]]) -> None:
    bench = Bench(
        "SELECT x0, x1 FROM t0",
        "SELECT a.x0, a.x1, a.x2 * b.x1 AS p, a.x3 * b.x2 AS q FROM t0 a JOIN t1 b ON a.x0 > b.x0",
    )
    home = Home(
        bench,
        bench.build(MOVING),
        [R, VALUE],
        lambda m: counted(
            r
            for r, (limit,) in product(repeated(m["r"]), repeated(m["value"]))
            if r[0] is not None and limit is not None and r[0] > limit
        ),
    )
    held: int | None = 0
    home.step({("value", (held,)): 1})
    for rows, limit in history:
        home.step({**{("r", row): n for row, n in rows.items()}, ("value", (held,)): 0, ("value", (limit,)): 1})
        held = limit


def test_a_value_that_moves_a_little_reads_a_little() -> None:
    bench = Bench(
        "SELECT x0, x1 FROM t0",
        "SELECT a.x0, a.x1, a.x2 * b.x1 AS p, a.x3 * b.x2 AS q FROM t0 a JOIN t1 b ON a.x0 > b.x0",
    )
    naive = lambda m: counted(r for r in repeated(m["r"]) for (v,) in m["value"] if r[0] > v)  # noqa: E731
    home = Home(bench, bench.build(MOVING), [R, VALUE], naive, bound=20)
    home.step({("value", (100,)): 1})
    for start in range(0, 200, 10):
        home.step({("r", (i, 0)): 1 for i in range(start, start + 10)})
    home.step({("value", (100,)): 0, ("value", (104,)): 1})
    assert home.refills == 0


MATCHES = {
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
}


def matched(kind: str, null_safe: bool, model: Model) -> Rows:
    left, right = repeated(model["r"]), repeated(model["s"])

    def meet(a: Any, b: Any) -> bool:
        return a[0] == b[0] and (null_safe or a[0] is not None)

    if kind in ("semi", "anti"):
        return counted(a for a in left if any(meet(a, b) for b in right) == (kind == "semi"))
    if kind == "existence":
        return counted((*a, any(meet(a, b) for b in right)) for a in left)
    rows = [(*a, *b) for a in left for b in right if meet(a, b)]
    if kind in ("left", "full"):
        rows += [(*a, None, None) for a in left if not any(meet(a, b) for b in right)]
    if kind in ("right", "full"):
        rows += [(None, None, *b) for b in right if not any(meet(a, b) for a in left)]
    return counted(rows)


def match_query(kind: str, null_safe: bool) -> str:
    equal = "a.x0 IS NOT DISTINCT FROM b.x0" if null_safe else "a.x0 = b.x0"
    on = f"{equal} AND a.x3 = b.x3"
    if kind == "existence":
        exists = f"EXISTS (SELECT 1 FROM t1 b WHERE {on})"
        return f"SELECT a.x0, a.x1, {exists}, a.x2, a.x3 FROM t0 a"
    if kind in ("semi", "anti"):
        return f"SELECT a.x0, a.x1, a.x2, a.x3 FROM t0 a {MATCHES[kind]} t1 b ON {on}"
    return f"SELECT a.x0, a.x1, b.x0, b.x1, a.x2, a.x3, b.x2, b.x3 FROM t0 a {MATCHES[kind]} t1 b ON {on}"


@pytest.mark.thorough
@pytest.mark.parametrize("null_safe", [False, True], ids=["equal", "null-safe"])
@pytest.mark.parametrize("kind", [*MATCHES, "existence"])
@settings(max_examples=15, deadline=None)
@given(history=epochs(r=PAIRS, s=PAIRS))
def test_outer_semi_and_anti_joins(kind: str, null_safe: bool, history: list[Epoch]) -> None:
    output = R.output if kind in ("semi", "anti") else (*R.output, *S.output)
    output = (*R.output, column(31, BooleanType())) if kind == "existence" else output
    node = OuterJoin(plan(), output, kind, R, S, (1,), (11,), null_safe, None)
    bench = Bench(match_query(kind, null_safe))
    rule = bench.build(node)
    home = Home(bench, rule, [R, S], lambda m: matched(kind, null_safe, m))
    for epoch in history:
        home.step(epoch)
