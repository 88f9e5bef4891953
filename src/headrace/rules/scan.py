"""Columns of a table or of another view.   Δ(π R) = π(ΔR)

Choosing columns of a relation needs no query at all, and nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import DataType

from headrace.ir.nodes import Node
from headrace.plans.trees import Java, children, column_index, columns_of, id_of, kind_of
from headrace.rules.base import Epoch
from headrace.rules.context import Above, Operator, RuleContext
from headrace.sql.one_row import CLOCK
from headrace.sql.resolve import relation_of
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, empty, project_and_sum


@dataclass(frozen=True)
class Scan(Node):
    """Some columns of a relation, by their positions there."""

    relation: str
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ScanRule:
    """The delta of a relation."""

    types: tuple[DataType, ...]
    relation: str
    columns: tuple[int, ...]

    def delta(self, epoch: Epoch) -> Delta:
        """The relation's delta, narrowed."""
        delta = project_and_sum(epoch.delta_of(self.relation), self.columns)
        return delta if len(delta) else empty(arrow_schema(self.types))


def lower(context: RuleContext, plan: Java) -> Scan | None:
    """A leaf that stands for a relation."""
    name = None if children(plan) else relation_of(plan)
    if name is None:
        return None
    columns = tuple(column_index(column) for column in columns_of(plan))
    return Scan(context.handles.tree(plan), context.handles.output(plan), name, columns)


def select_columns(context: RuleContext, node: Node, plan: Java, columns: Sequence[Java]) -> Scan | None:
    """A projection of a relation that only chooses among its columns, which needs no step."""
    if not isinstance(node, Scan) or not columns or any(kind_of(one) != "AttributeReference" for one in columns):
        return None
    positions = {column.id: position for column, position in zip(node.output, node.columns, strict=True)}
    chosen = tuple(positions[id_of(one)] for one in columns)
    return Scan(context.handles.tree(plan), context.handles.output(plan), node.relation, chosen)


def build(context: RuleContext, node: Scan, above: Above) -> ScanRule:
    """A rule without state."""
    return ScanRule(node.types, node.relation, node.columns)


def sentence(context: RuleContext, node: Scan, above: Node | None) -> str:
    """For EXPLAIN."""
    return f"{node.relation}: its delta, columns {', '.join(column.name for column in node.output)}"


def is_single(context: RuleContext, node: Scan) -> bool:
    """Of all relations, the clock alone always has one row."""
    return node.relation == CLOCK


OPERATOR = Operator(Scan, lower, build, sentence, is_single=is_single)
