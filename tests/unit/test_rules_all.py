"""The tuple of operators: none is forgotten, each is proven, and a new one needs nothing beside its own file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType

from headrace import rules
from headrace.ir.nodes import Node
from headrace.plans.trees import children, kind_of
from headrace.rules.all import RULES
from headrace.rules.base import Epoch, Rule
from headrace.rules.context import NoRule, Operator, RuleContext
from headrace.rules.scan import Scan
from headrace.state.delta import Delta
from tests.driven_rules import HANDLES, Bench, handle, scan

GOLDEN = Path(__file__).parents[1] / "golden"
# Those that are no operator of their own, but large enough to have golden files.
PARTS = {"aggregate_values", "inner_join_thresholds", "remembered"}


def modules() -> dict[str, Any]:
    (folder,) = rules.__path__
    return {path.stem: import_module(f"headrace.rules.{path.stem}") for path in Path(folder).glob("*.py")}


def test_every_file_with_an_operator_is_in_the_tuple() -> None:
    found = {name: one.OPERATOR for name, one in modules().items() if hasattr(one, "OPERATOR")}
    assert {id(one) for one in found.values()} == {id(one) for one in RULES}
    assert {one.node.__module__ for one in RULES} == {f"headrace.rules.{name}" for name in found}


def test_every_operator_has_a_golden_file_of_its_name() -> None:
    operators = {one.node.__module__.rpartition(".")[2] for one in RULES}
    assert {path.stem for path in GOLDEN.glob("*.md")} == operators | PARTS
    assert modules().keys() >= PARTS


@dataclass(frozen=True)
class Twice(Node):
    """Each row once more."""

    child: Node


@dataclass(frozen=True)
class TwiceRule:
    """Δ(2 R) = 2 ΔR"""

    types: tuple[Any, ...]
    child: Rule

    def delta(self, epoch: Epoch) -> Delta:
        below = self.child.delta(epoch)
        return Delta(below.rows, 2 * below.weights, below.low, below.high)


def lower(context: RuleContext, plan: Any) -> Twice | None:
    if kind_of(plan) != "Twice":
        return None
    (child,) = children(plan)
    below = context.lower(child)
    return Twice(context.handles.tree(plan), below.output, below)


TWICE = Operator(
    Twice,
    lower,
    lambda context, node, _: TwiceRule(node.types, context.build(node.child)),
    lambda *_: "twice: the delta doubled",
)


def a_relation(name: str) -> Any:
    known = scan(name, 1, IntegerType())
    column = HANDLES.java(known.output[0])
    column.__dict__["_headrace_mark"] = (name, 0)
    return handle("LogicalRDD", _headrace_children=[], _headrace_output=[column])


def test_an_operator_is_lowered_built_and_explained_by_what_its_file_brings() -> None:
    bench = Bench()
    bench.operators = (*RULES, TWICE)
    plan = handle("Twice", _headrace_children=[a_relation("r")])
    node = bench.lower(plan)
    assert isinstance(node, Twice)
    assert isinstance(bench.build(node), TwiceRule)
    assert list(bench.sentences(node)) == ["  twice: the delta doubled", "    r: its delta, columns a1"]


def test_a_plan_that_no_operator_knows_has_no_rule() -> None:
    plan = handle("Twice", _headrace_children=[a_relation("r")], nodeName=lambda: "Twice")
    with pytest.raises(NoRule, match="no rule follows the operator Twice"):
        Bench().lower(plan)


def test_the_first_operator_that_knows_a_plan_takes_it() -> None:
    below = scan("r", 1, IntegerType())
    greedy = replace(TWICE, lower=lambda *_: Twice(below.plan, below.output, below))
    for operators, taken in (((greedy, *RULES), Twice), ((*RULES, greedy), Scan)):
        bench = Bench()
        bench.operators = operators
        assert type(bench.lower(a_relation("r"))) is taken
