"""Linear steps: operators that act on each row alone, applied to signed rows by carrying columns through."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import Java, columns_of, items, kind_of

LINEAR = frozenset({"Project", "Filter", "Generate", "Expand"})


def apply_steps(catalyst: Catalyst, steps: Sequence[Java], plan: Java, carried: Sequence[Java]) -> Java:
    """The steps over a plan, bottom first, with the carried attributes kept as the last columns."""
    for step in steps:
        plan = _apply_step(catalyst, step, plan, carried)
    return plan


def _apply_step(catalyst: Catalyst, step: Java, plan: Java, carried: Sequence[Java]) -> Java:
    kind = kind_of(step)
    if kind == "Project":
        return catalyst.project([*items(step.projectList()), *carried], plan)
    if kind == "Filter":
        return catalyst.filter(step.condition(), plan)
    if kind == "Expand":
        projections = [catalyst.seq([*items(one), *carried]) for one in items(step.projections())]
        return catalyst.plan_class("Expand")(
            catalyst.seq(projections), catalyst.seq([*columns_of(step), *carried]), plan
        )
    if kind == "Generate":
        # The generator's own columns come after the child's; the carried ones are put last again.
        generated = catalyst.plan_class("Generate")(
            step.generator(),
            step.unrequiredChildIndex(),
            step.outer(),
            step.qualifier(),
            step.generatorOutput(),
            plan,
        )
        return catalyst.project([*columns_of(step), *carried], generated)
    raise AssertionError(f"{kind} is not a linear step")
