"""Every row of a change that a view fails on by itself, and how many tries that takes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.epoch.guilty_rows import GuiltyRows
from headrace.errors import ViewEvaluationError
from headrace.state.delta import Delta, consolidate
from tests.thinned import thinned

Row = dict[str, Any]


class View:
    """Fails on rows, and counts how often it is tried."""

    def __init__(self, fails: Callable[[Row], bool], expression: str = "", quotes: bool = False) -> None:
        self._fails, self._expression, self._quotes = fails, expression, quotes
        self.tries = 0

    def __call__(self, part: Delta) -> ViewEvaluationError | None:
        self.tries += 1
        rows = part.rows.rename_columns(["id", "s"]).to_pylist()
        bad = next((row for row in rows if self._fails(row)), None)
        if bad is None:
            return None
        said = f"The value '{bad['s']}' is no number." if self._quotes else "Division by zero."
        return ViewEvaluationError("no", view="v", expression=self._expression, detail=f"In 'f': {said}")


def change(count: int, text: Callable[[int], str | None]) -> Delta:
    rows = pa.table(
        [pa.array(range(count), pa.int64()), pa.array([text(one) for one in range(count)], pa.string())],
        names=["c0", "c1"],
    )
    weights = np.ones(count, dtype=np.int64)
    # What goes is never guilty.
    weights[::7] = -1
    return consolidate(rows, weights)


def found(view: View, delta: Delta) -> set[int]:
    return {row["id"] for row, _ in GuiltyRows(["id", "s"], delta, view).find()}


@pytest.mark.parametrize("count", [1, 2, 511, 5000])
@pytest.mark.parametrize("share", thinned([0.01, 0, 1, 0.3], 2))
@pytest.mark.parametrize("quotes", [True, False])
def test_all_are_found_and_nobody_else(count: int, share: float, quotes: bool) -> None:
    chosen = set(random.Random(count).sample(range(count), math.ceil(count * share)))
    view = View(lambda row: row["id"] in chosen, quotes=quotes)
    assert found(view, change(count, lambda one: f"text {one}")) == {one for one in chosen if one % 7}


def test_what_a_failure_quotes_is_tried_first() -> None:
    view = View(lambda row: row["id"] % 100 == 50, quotes=True)
    assert len(found(view, change(10_000, lambda one: f"text {one}"))) == 86
    # Twice for each, and once for each part.
    assert view.tries < 2 * 86 + 2 * 20


def test_rows_that_are_alike_are_tried_once_each() -> None:
    view = View(lambda row: row["s"] == "bad", expression="CAST(s AS INT)")
    assert len(found(view, change(10_000, lambda one: "bad" if one % 100 == 50 else str(one)))) == 86
    assert view.tries < 86 + 60


def test_a_wrong_guess_costs_a_try() -> None:
    view = View(lambda row: row["id"] == 4321, expression="f(s)", quotes=True)
    assert found(view, change(10_000, lambda _: "same")) == {4321}
    assert view.tries < 60


def test_none_is_found_where_only_some_together_fail() -> None:
    class Together(View):
        def __call__(self, part: Delta) -> ViewEvaluationError | None:
            self.tries += 1
            return ViewEvaluationError("no", view="v") if len(part) > 1 else None

    view = Together(lambda _: False)
    assert found(view, change(100, str)) == set()
