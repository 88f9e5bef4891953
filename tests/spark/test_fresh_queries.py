"""Rules make the same deltas where none of their queries is kept, and leaves are sent along as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from headrace.plans import prepared
from headrace.plans.catalyst import Catalyst
from headrace.plans.fresh import FreshQuery
from tests.golden.cases import Case, feed, load, renamed
from tests.thinned import thinned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first two cases of each rule.
CASES = [case for number, case in enumerate(load()) if [one.file for one in load()[:number]].count(case.file) < 2]

# Groups are worked out without Spark, and so are views that only choose columns.
ONLY_COLUMNS = ("a view of a view", "columns that are not chosen do not count")


@pytest.fixture(scope="module")
def home_of_fresh_queries(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import headrace

    with (
        mock.patch.object(Catalyst, "is_local", False),
        mock.patch.object(prepared, "directly", return_value=None),
        headrace.open(str(tmp_path_factory.mktemp("fresh") / "home"), spark=spark) as hr,
    ):
        yield hr


@pytest.mark.parametrize(
    ("number", "case"), thinned(enumerate(CASES), 3), ids=[f"{case.file}: {case.title}" for case in CASES]
)
def test_a_rule_makes_the_same_deltas_by_fresh_queries(home_of_fresh_queries: Any, number: int, case: Case) -> None:
    hr, own = home_of_fresh_queries, renamed(case, number)
    hr.execute(own.sql)
    with mock.patch.object(FreshQuery, "run", autospec=True, side_effect=FreshQuery.run) as asked:
        for place, step in enumerate(own.steps, start=1):
            since = hr.epoch
            hr.apply(step.calls())
            assert feed(hr, own.view, since) == step.delta, f"step {place}"
    assert asked.call_count or case.file.startswith("aggregate") or case.title in ONLY_COLUMNS
