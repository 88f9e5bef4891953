"""Every rule makes the deltas that its golden file shows; `python -m tests.golden.regenerate` asks Spark for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from tests.golden.cases import Case, feed, load, plain_names, renamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = load()


@pytest.fixture(scope="module")
def golden_home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One home for all cases; each brings names of its own. Even the smallest partition is read by pieces."""
    import headrace
    from headrace.rules import window_pieces

    with (
        mock.patch.object(window_pieces, "FEW", 0),
        headrace.open(str(tmp_path_factory.mktemp("golden") / "home"), spark=spark) as hr,
    ):
        yield hr


@pytest.mark.parametrize(
    ("number", "case"), [pytest.param(n, case, id=f"{case.file}: {case.title}") for n, case in enumerate(CASES)]
)
def test_a_rule_makes_the_deltas_of_its_golden_file(golden_home: Any, number: int, case: Case) -> None:
    own = renamed(case, number)
    golden_home.execute(own.sql)
    assert plain_names(str(golden_home.explain(own.view)), number) == case.explain
    for number, step in enumerate(own.steps, start=1):
        since = golden_home.epoch
        golden_home.apply(step.calls())
        assert feed(golden_home, own.view, since) == step.delta, f"step {number}"
