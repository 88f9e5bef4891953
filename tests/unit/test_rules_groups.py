"""GROUP BY, windows and LIMIT say of every change exactly what a recompute would show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DataType, DecimalType, DoubleType, IntegerType, LongType, StringType

from headrace.epoch.work import Work
from headrace.errors import ViewEvaluationError
from headrace.ir.nodes import Column, Tree
from headrace.rules import limit, window_pieces
from headrace.rules.aggregate import Aggregate
from headrace.rules.aggregate_calls import AggregateCall
from headrace.rules.aggregate_whole import WholeAggregate
from headrace.rules.limit import Limit
from headrace.rules.scan import Scan
from headrace.rules.window import Window
from headrace.rules.window_reach import FirstRows, FrameReach, OrderBy, WindowReach
from headrace.rules.window_running import Running
from tests.driven_rules import (
    HANDLES,
    Bench,
    Epoch,
    Home,
    Model,
    Row,
    Rows,
    column,
    delta_of,
    epochs,
    handle,
    netted,
    plan,
    repeated,
    rows_of,
    scan,
)

INT, LONG, MONEY = IntegerType(), LongType(), DecimalType(10, 2)
few = settings(max_examples=40, deadline=None)
SMALL = st.one_of(st.none(), st.integers(0, 3))
PRICES = st.one_of(st.none(), st.sampled_from([Decimal("-1.50"), Decimal("0.01"), Decimal("2.00"), Decimal("7.25")]))
SALES = st.tuples(SMALL, st.one_of(st.none(), st.integers(-3, 3)), PRICES)

R = scan("r", 1, INT, INT, MONEY)


def call(number: int, name: str, result: DataType, inputs: tuple[int, ...], *buffers: DataType, distinct: bool = False):
    """An aggregate with the buffers that Spark's has."""
    java = handle("AggregateExpression")
    java.__dict__["semanticEquals"] = lambda other: other is java
    columns = tuple(column(100 * number + i, kind) for i, kind in enumerate(buffers))
    return AggregateCall(HANDLES.tree(java), name, name.lower(), distinct, inputs, result, columns)


CALLS = (
    call(1, "Count", LONG, (), LONG),
    call(2, "Count", LONG, (1,), LONG),
    call(3, "Count", LONG, (1,), LONG, distinct=True),
    call(4, "Sum", LONG, (1,), LONG),
    call(5, "Min", INT, (1,), INT),
    call(6, "Max", MONEY, (2,), MONEY),
    call(7, "Average", DecimalType(14, 6), (2,), DecimalType(20, 2), LONG),
)
TYPES = (LONG, LONG, LONG, LONG, INT, MONEY, DecimalType(14, 6))
RESULTS = tuple(column(51 + i, kind) for i, kind in enumerate(TYPES))


def aggregated(rows: list[Row]) -> Row:
    numbers = [b for _, b, _ in rows if b is not None]
    prices = [c for _, _, c in rows if c is not None]
    mean = None
    if prices:
        mean = (sum(prices, Decimal(0)) / len(prices)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return (
        len(rows),
        len(numbers),
        len(set(numbers)),
        sum(numbers) if numbers else None,
        min(numbers, default=None),
        max(prices, default=None),
        mean,
    )


def by_group(model: Model) -> Rows:
    groups: dict[Any, list[Row]] = {}
    for row in repeated(model["r"]):
        groups.setdefault(row[0], []).append(row)
    return Counter((key, *aggregated(rows)) for key, rows in groups.items())


def tree_of(one: Column) -> Tree:
    """A column that stands as a result of its own."""
    return HANDLES.tree(HANDLES.java(one))


def grouped(calls: tuple[AggregateCall, ...] = CALLS, results: tuple[Column, ...] = RESULTS, of: Scan = R) -> Aggregate:
    """An aggregate by the first column."""
    key = of.output[0]
    return Aggregate(plan(), (key, *results), of, (key,), calls, (tree_of(key), *(one.tree for one in calls)))


@few
@given(epochs(r=SALES))
def test_groups_keep_their_aggregates(history: list[Epoch]) -> None:
    bench = Bench("SELECT 'no query is needed for these'")
    home = Home(bench, bench.build(grouped()), [R], by_group)
    for epoch in history:
        home.step(epoch)
    assert bench.asked[0].runs == 0


def test_a_group_without_rows_is_gone_and_one_of_nulls_is_not() -> None:
    bench = Bench("")
    home = Home(bench, bench.build(grouped()), [R], by_group)
    home.step({("r", (1, 5, Decimal(1))): 1, ("r", (1, None, None)): 1})
    home.step({("r", (1, 5, Decimal(1))): 0})
    assert home.out == {(1, 1, 0, 0, None, None, None, None): 1}
    home.step({("r", (1, None, None)): 0})
    assert home.out == {}
    assert all(store.snapshot().size == 0 or len(store.snapshot().all()) == 0 for store in home.stores.values())


def test_a_sum_that_does_not_fit_is_told_with_its_view() -> None:
    wide = scan("r", 1, INT, LONG, MONEY)
    summed = call(9, "Sum", LONG, (1,), LONG)
    bench = Bench("")
    rule = bench.build(grouped((summed,), (column(51, LONG),), wide))
    home = Home(bench, rule, [wide], lambda m: Counter((k, b) for k, b, _ in repeated(m["r"])))
    home.step({("r", (1, 2**62, None)): 1})
    with pytest.raises(ViewEvaluationError, match="a sum in view v overflows"):
        home.step({("r", (1, 2**62, Decimal(1))): 2})


@pytest.mark.thorough
@few
@given(epochs(r=SALES))
def test_an_aggregate_of_everything_always_has_a_row(history: list[Epoch]) -> None:
    counted = (CALLS[0], CALLS[3], CALLS[4])
    node = Aggregate(plan(), (RESULTS[0], RESULTS[3], RESULTS[4]), R, (), counted, tuple(one.tree for one in counted))
    bench = Bench("")
    rule = bench.build(node)
    state = len(bench.stores) - 1
    # Rows, then what is summed and counted of b, then the least of it.
    fills: dict[int, Callable[[Model], Rows]] = {state: lambda _: Counter([(0, Decimal(0), 0, None)])}

    def naive(model: Model) -> Rows:
        whole = aggregated(repeated(model["r"]))
        return Counter([(whole[0], whole[3], whole[4])])

    home = Home(bench, rule, [R], naive, fills)
    for epoch in history:
        home.step(epoch)


def listed(rows: list[Row]) -> str:
    return "/".join(sorted("-" if b is None else str(b) for _, b, _ in rows))


def collected(output: tuple[Column, ...], keys: tuple[int, ...], is_inexact: bool = False) -> WholeAggregate:
    """An aggregate of r that has no partial results."""
    return WholeAggregate(plan(), output, R, keys, (plan("Aggregate"),), "collected", is_inexact, bool(keys))


LISTED = "array_to_string(list_sort(list(coalesce(CAST(x1 AS VARCHAR), '-'))), '/')"


@few
@given(epochs(r=SALES))
def test_touched_groups_are_computed_anew(history: list[Epoch]) -> None:
    node = collected((R.output[0], column(51, StringType())), (1,))
    bench = Bench(f"SELECT x0, {LISTED}, x3 FROM t0 GROUP BY x0, x3")

    def naive(model: Model) -> Rows:
        groups: dict[Any, list[Row]] = {}
        for row in repeated(model["r"]):
            groups.setdefault(row[0], []).append(row)
        return Counter((key, listed(rows)) for key, rows in groups.items())

    home = Home(bench, bench.build(node), [R], naive)
    for epoch in history:
        home.step(epoch)
    assert bench.reasons == []


@few
@given(epochs(r=SALES))
def test_without_a_key_all_is_computed_anew_and_that_is_told(history: list[Epoch]) -> None:
    node = collected((column(51, StringType()),), ())
    bench = Bench(f"SELECT coalesce({LISTED}, '') FROM t0")
    home = Home(
        bench,
        bench.build(node),
        [R],
        lambda m: Counter([(listed(repeated(m["r"])),)]),
    )
    for epoch in history:
        home.step(epoch)
    assert bench.reasons == ["collected: a change reads the whole input"]


def test_what_was_given_out_is_taken_back_to_the_last_bit() -> None:
    """Each computation of this query is a little off; a recompute would take back what was never given."""
    node = collected((R.output[0], column(51, DoubleType())), (1,), is_inexact=True)
    bench = Bench("SELECT x0, avg(x1) + random() * 1e-12, x0 FROM t0 GROUP BY x0")
    rule = bench.build(node)
    home = Home(bench, rule, [R], lambda m: Counter())
    work_out: Rows = Counter()
    model: Counter[Row] = Counter()
    for change in ({(1, 2, None): 1}, {(1, 3, None): 1, (2, 1, None): 1}, {(1, 2, None): -1}, {(2, 1, None): -1}):
        work = Work(home.stores, 1000)
        work.record("r", delta_of(home.stores["r"].schema, Counter(change)))
        work_out = netted(work_out, rows_of(rule.delta(work)))
        model = netted(model, Counter(change))
        for name, delta in work.deltas.items():
            home.stores[name].apply(delta)
        groups = {row[0] for row in model}
        assert sorted(key for key, _ in work_out) == sorted(groups)
        assert set(work_out.values()) <= {1}


P = scan("p", 1, INT, INT, LONG)
ORDERED = (OrderBy(2, False, True, INT), OrderBy(3, False, True, LONG))
POINTS = st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 2))
OVER = "OVER (PARTITION BY x3, x0 ORDER BY x1 NULLS FIRST, x2 NULLS FIRST ROWS UNBOUNDED PRECEDING)"
LAG = "lag(x2, 2) OVER (PARTITION BY x3, x0 ORDER BY x1, x2)"


def partitions(model: Model) -> list[list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in repeated(model["p"]):
        found.setdefault(row[0], []).append(row)
    return [sorted(rows) for rows in found.values()]


def lagged(model: Model) -> Rows:
    return Counter(
        (*row, rows[i - 2][2] if i >= 2 else None) for rows in partitions(model) for i, row in enumerate(rows)
    )


def summed_up(model: Model) -> Rows:
    return Counter(
        (*row, sum(one[2] for one in rows[: i + 1])) for rows in partitions(model) for i, row in enumerate(rows)
    )


def first_two(model: Model) -> Rows:
    return Counter((*row, i + 1) for rows in partitions(model) for i, row in enumerate(rows) if i < 2)


BACK = WindowReach(ORDERED, ((FrameReach(rows_behind=2),),), None)
SUM = Running("sum", 3, LONG)
ONWARD = WindowReach(ORDERED, ((FrameReach(from_start=True, running=SUM),),), None)
FIRST = WindowReach(ORDERED, ((FrameReach(from_start=True, running=Running("rows")),),), FirstRows(2, False))
WINDOWS = {
    "lag": (BACK, f"SELECT x0, x1, x2, v, x3 FROM (SELECT *, {LAG} AS v FROM t0) WHERE x4", lagged),
    # Before the slice: the number of values (x5) and their sum (x6).
    "running sum": (
        ONWARD,
        "SELECT x0, x1, x2, CAST(v + coalesce(x6, 0) AS BIGINT), x3 "
        f"FROM (SELECT *, sum(x2) {OVER} AS v FROM t0) WHERE x4",
        summed_up,
    ),
    "first rows": (
        FIRST,
        f"SELECT x0, x1, x2, v, x3 FROM (SELECT *, row_number() {OVER.replace('ROWS UNBOUNDED PRECEDING', '')} AS v "
        "FROM t0) WHERE x4 AND v <= 2",
        first_two,
    ),
}


def windowed(reach: WindowReach) -> Window:
    output = (*P.output, column(51, LONG))
    return Window(plan("Window"), output, P, (1,), (plan("Project"),), "window", is_inexact=False, reach=reach)


@pytest.mark.thorough
@pytest.mark.parametrize("large", [0, 3, 256])
@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=15, deadline=None)
@given(history=epochs(p=POINTS))
def test_windows_read_pieces_of_their_partitions(name: str, large: int, history: list[Epoch]) -> None:
    reach, sql, naive = WINDOWS[name]
    bench = Bench(sql)
    home = Home(bench, bench.build(windowed(reach)), [P], naive)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(window_pieces, "FEW", large)
        home.step({("p", (0, i, i % 3)): 1 for i in range(12)})
        for epoch in history:
            home.step(epoch)


def test_a_change_at_the_end_of_a_large_partition_reads_its_end() -> None:
    reach, sql, naive = WINDOWS["running sum"]
    bench = Bench(sql)
    home = Home(bench, bench.build(windowed(reach)), [P], naive, bound=50)
    for start in range(0, 600, 20):
        home.step({("p", (0, i, 1)): 1 for i in range(start, start + 20)})
    assert home.refills <= 13, "up to 256 rows a partition is read whole"
    held = home.refills
    home.step({("p", (0, 595, 1)): 0})
    home.step({("p", (0, 600, 7)): 1})
    assert home.refills == held


TOP = Limit(plan(), P.output, P, (plan(),), 2, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("spare", [0, 200])
@few
@given(history=epochs(p=POINTS))
def test_the_first_rows_of_an_order(spare: int, history: list[Epoch]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limit, "_SPARE", spare)
        bench = Bench("SELECT * FROM t0 ORDER BY x1, x2, x0")
        rule = bench.build(TOP)

        def in_order(model: Model) -> list[Row]:
            return sorted(repeated(model["p"]), key=lambda row: (row[1], row[2], row[0]))

        home = Home(
            bench,
            rule,
            [P],
            lambda m: Counter(in_order(m)[1:3]),
            {0: lambda m: Counter(in_order(m)[: 6 + spare]), 1: lambda m: Counter([(len(in_order(m)),)])},
        )
        home.step({("p", (0, i, 0)): 1 for i in range(12)})
        for epoch in history:
            home.step(epoch)
        assert spare == 0 or home.refills == 0
