"""The judge: what is served and what is expected, compared as multisets, floating-point values to some digits."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

from headrace.errors import WorkFailed
from headrace.progress import Step
from headrace.reading import judge
from headrace.reading.judge import Difference, Verdict, compare, recompute

EXACT = [LongType(), StringType()]
INEXACT = [LongType(), DoubleType()]
NESTED = [StructType([StructField("x", ArrayType(DoubleType()))])]


def columns(rows: list[tuple[Any, ...]], types: list[Any]) -> pa.Table:
    kinds = {LongType: pa.int64(), StringType: pa.string(), DoubleType: pa.float64()}
    found = [
        pa.array([row[index] for row in rows], kinds.get(type(kind)) or pa.struct([("x", pa.list_(pa.float64()))]))
        for index, kind in enumerate(types)
    ]
    return pa.table(found, names=[f"c{index}" for index in range(len(types))])


def differences(
    served: list[tuple[Any, ...]], expected: list[tuple[Any, ...]], types: list[Any], digits: int = 9
) -> set[tuple[Any, int, int]]:
    kinds: list[DataType] = types
    found = compare("v", columns(served, types), columns(expected, types), kinds, digits)
    assert {one.view for one in found} <= {"v"}
    return {(one.row, one.served, one.expected) for one in found}


@pytest.mark.parametrize("types", [EXACT, INEXACT])
def test_rows_in_another_order_are_the_same(types: list[Any]) -> None:
    one, two = ((1, "a"), (2, "b")) if types is EXACT else ((1, 0.5), (2, 1.5))
    none = (None, None)
    assert differences([one, two, two, none], [two, none, one, two], types) == set()


@pytest.mark.parametrize(("types", "value"), [(EXACT, "a"), (INEXACT, 0.1)])
def test_each_row_that_is_too_many_or_missing_is_told(types: list[Any], value: Any) -> None:
    row, other = (1, value), (2, value)
    assert differences([row, row], [row], types) == {(row, 1, 0)}
    assert differences([row], [row, row], types) == {(row, 0, 1)}
    assert differences([row], [other], types) == {(row, 1, 0), (other, 0, 1)}
    assert differences([(1, None)], [row], types) == {((1, None), 1, 0), (row, 0, 1)}
    assert differences([], [row], types) == {(row, 0, 1)}


def test_floating_point_values_are_compared_to_so_many_digits() -> None:
    third, near = (1, 1 / 3), (1, 1 / 3 + 1e-12)
    assert differences([third], [near], INEXACT) == set()
    assert differences([third], [near], INEXACT, digits=15) == {(third, 1, 0), (near, 0, 1)}
    assert differences([(1, 1.0)], [(1, 1.0001)], INEXACT) != set()
    assert differences([(1, 1e300)], [(1, 1.0000000001e300)], INEXACT) == set()


def test_values_on_either_side_of_a_rounding_step_are_close() -> None:
    below, above = (1, 1.2349999), (1, 1.2350001)
    assert differences([below], [above], INEXACT, digits=3) == set()
    assert len(differences([(2, 1.2349999)], [above], INEXACT, digits=3)) == 2


def test_one_row_is_close_to_one_other_only() -> None:
    below, above = (1, 1.2349999), (1, 1.2350001)
    assert differences([below, below], [above], INEXACT, digits=3) == {(below, 1, 0)}
    assert differences([below], [above, above], INEXACT, digits=3) == {(above, 0, 1)}


def test_what_is_no_number_is_equal_to_itself_alone() -> None:
    nan, infinite = (1, math.nan), (1, math.inf)
    assert differences([nan, infinite], [infinite, nan], INEXACT) == set()
    assert differences([(1, -0.0)], [(1, 0.0)], INEXACT) == set()
    assert len(differences([nan], [infinite], INEXACT)) == 2
    assert len(differences([infinite], [(1, -math.inf)], INEXACT)) == 2
    assert len(differences([infinite], [(1, 1.0)], INEXACT)) == 2


def test_floating_point_values_inside_others_are_rounded_too() -> None:
    row, near, far = ({"x": [0.1, 2.0]},), ({"x": [0.1 + 1e-13, 2.0]},), ({"x": [0.2, 2.0]},)
    assert differences([row], [near], NESTED) == set()
    found = compare("v", columns([row], NESTED), columns([far], NESTED), list(NESTED), 9)
    assert [(one.row, one.served) for one in found] == [(row, 1), (far, 0)]
    assert len(compare("v", columns([row], NESTED), columns([({"x": [0.1]},)], NESTED), list(NESTED), 9)) == 2


@pytest.mark.parametrize("types", [EXACT, INEXACT])
def test_of_many_differences_some_are_shown(types: list[Any]) -> None:
    rows = [(number, None) for number in range(50)]
    assert len(differences(rows, [], types)) == 20


def test_a_verdict_says_what_was_found() -> None:
    assert str(Verdict(checked=("v", "w"))) == "every view equals its full recompute: 2 verified"
    wrong = Verdict((Difference("v", (1, "a"), 1, 0),), ("v",))
    assert not wrong.ok
    assert str(wrong) == "v: (1, 'a') is served 1 times, expected 0"


class Frames:
    """Tables as they are given; a view is recomputed by its name, by its text or by its plan."""

    def __init__(self, recomputed: dict[str, pa.Table], collect: Callable[[], object] = lambda: None) -> None:
        self._recomputed = recomputed
        self._collect = collect
        self.frames = self
        self.ways: dict[str, str] = {}
        self.large: dict[str, bool] = {}

    def frame(self, sql: str, relations: Any, known_columns: Any, **_: Any) -> str:
        assert known_columns == f"seen by {sql}"
        self.ways[sql] = "text"
        return sql

    def bind(self, plan: str, relation: Any) -> str:
        self.ways[plan] = "plan"
        return plan

    def rows(self, held: Any, schema: Any, large: bool) -> pa.Table:
        return held.rows

    def collect(self, expected: str, schema: Any, large: bool) -> pa.Table:
        self.large[expected] = large
        self._collect()
        return self._recomputed[expected]


def served(name: str, *ids: int, ties: bool = False, clock: bool = False, size: int = 0) -> tuple[Any, Any]:
    resolved = SimpleNamespace(ties=ties, uses_clock=clock, plan=name, sql=name, reads=())
    schema = StructType([StructField("id", LongType())])
    held = SimpleNamespace(count=size or len(ids), rows=columns([(one,) for one in ids], [LongType()]))
    return SimpleNamespace(name=name, resolved=resolved, schema=schema), (held, schema)


def judged(frames: Frames, *given: tuple[Any, Any]) -> Verdict:
    views, relations = [view for view, _ in given], {view.name: held for view, held in given}
    settings: Any = SimpleNamespace(small_bound=1000, verify_digits=9)
    queries: Any = frames
    known_columns: Any = {view.name: f"seen by {view.name}" for view in views}
    steps: list[tuple[str, int]] = []

    def tell(step: Step) -> None:
        steps.append((step.relation, step.done))

    verdict = recompute(queries, views, relations, known_columns, settings, tell)
    assert sorted(steps) == sorted((view.name, done) for view in views for done in (0, 1))
    return verdict


def test_each_view_is_recomputed_and_told_in_order() -> None:
    one, two = columns([(1,)], [LongType()]), columns([(2,)], [LongType()])
    frames = Frames({"a": one, "b": one, "c": two})
    verdict = judged(frames, served("a", 1), served("b", 2), served("c", 1))
    assert verdict.checked == ("a", "b", "c")
    assert [one.view for one in verdict.differences] == ["b", "b", "c", "c"]
    assert {(one.view, one.row, one.served) for one in verdict.differences} == {
        ("b", (2,), 1),
        ("b", (1,), 0),
        ("c", (1,), 1),
        ("c", (2,), 0),
    }


def test_what_fails_while_a_view_is_recomputed_is_told_as_work_that_failed() -> None:
    def fail() -> None:
        raise Py4JError("the answer from Java was empty")

    with pytest.raises(WorkFailed, match="a could not be worked out") as told:
        judged(Frames({}, fail), served("a", 1))
    assert told.value.transient


def test_a_view_is_recomputed_from_its_text_unless_ties_or_the_clock_were_settled() -> None:
    empty = columns([], [LongType()])
    frames = Frames(dict.fromkeys("abc", empty))
    assert judged(frames, served("a"), served("b", ties=True), served("c", clock=True)).ok
    assert frames.ways == {"a": "text", "b": "plan", "c": "plan"}


def test_views_that_read_many_rows_are_recomputed_one_at_a_time() -> None:
    busy, met = threading.Lock(), []

    def alone() -> None:
        met.append(busy.acquire(blocking=False))
        time.sleep(0.05)
        busy.release()

    frames = Frames(dict.fromkeys("abcd", columns([], [LongType()])), alone)
    many = judge._FEW_ROWS + 1  # pyright: ignore[reportPrivateUsage]
    judged(frames, *(served(name, size=many) for name in "abcd"))
    assert met == [True] * 4
    assert frames.large == dict.fromkeys("abcd", True)


def test_views_that_read_few_rows_are_recomputed_side_by_side() -> None:
    both = threading.Barrier(2)
    frames = Frames(dict.fromkeys("ab", columns([], [LongType()])), lambda: both.wait(90))
    judged(frames, served("a"), served("b"))
    assert frames.large == {"a": False, "b": False}
