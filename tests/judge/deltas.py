"""The adversarial sequence of each case, together."""

from __future__ import annotations

from collections.abc import Iterator

from tests.judge.cases import Case
from tests.judge.deltas_groups import GROUP_DELTAS
from tests.judge.deltas_joins import JOIN_DELTAS
from tests.judge.deltas_windows import WINDOW_DELTAS
from tests.judge.model import Model
from tests.judge.steps import Step

DELTAS = GROUP_DELTAS | JOIN_DELTAS | WINDOW_DELTAS


def delta_steps(case: Case, model: Model) -> Iterator[Step]:
    """The case's own sequence, after a step that empties its tables where they are not."""
    leftovers = model.clear(sorted(case.tables))
    if leftovers:
        yield Step("empty the tables", leftovers)
    yield from DELTAS[case.id]
