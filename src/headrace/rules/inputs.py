"""How a rule with state reads one of its inputs: as slices of a store, looked up by key.

An input that is a relation, or filters and projections over one that keep the keys, is read from the relation's own
store and the steps are applied inside the query. Any other input is kept in a hidden store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql.types import IntegerType

from headrace.ir.nodes import Column, Node, Tree
from headrace.plans.query import Leaf, LeafShape
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, columns_of, id_of
from headrace.rules.base import LONG, Epoch, Rule, check_bound
from headrace.rules.context import RuleContext
from headrace.rules.filter_project import FilterProject
from headrace.rules.scan import Scan
from headrace.state.delta import Delta, project, project_and_sum
from headrace.state.hashing import Hashes, key_hashes
from headrace.state.run import Key
from headrace.state.state import State

SIDE = IntegerType()


@dataclass(frozen=True, eq=False)
class Input:
    """One input of a rule with state: the store it is read from, and what is read of it."""

    store: str
    rule: Rule | None
    columns: tuple[int, ...]
    output: tuple[Column, ...]
    steps: tuple[Tree, ...]

    def changed(self, epoch: Epoch) -> Delta | None:
        """The input's change, its columns narrowed to those read, under the identity of the whole row.

        None when nothing that is read has changed.
        """
        if self.rule is None:
            delta = epoch.delta_of(self.store)
        else:
            known = epoch.recorded(self.store)
            delta = self.rule.delta(epoch) if known is None else known
            if known is None:
                epoch.record(self.store, delta)
        if len(delta) == 0 or len(project_and_sum(delta, self.columns)) == 0:
            return None
        return project(delta, self.columns)

    def before(self, epoch: Epoch) -> State:
        """The store as it was before this epoch."""
        return epoch.before(self.store)

    def lookup(self, epoch: Epoch, key: Sequence[int], wanted: Hashes) -> Delta:
        """The rows before this epoch whose key columns (positions among those read) hash to one of those wanted."""
        return self.before(epoch).lookup(self.stored(key), wanted, self.columns)

    def stored(self, key: Sequence[int]) -> Key:
        """Positions among the columns read, as positions in the store."""
        return tuple(self.columns[position] for position in key)

    def all(self, epoch: Epoch) -> Delta:
        """Every row before this epoch."""
        snapshot = self.before(epoch)
        check_bound(epoch, snapshot.size)
        return snapshot.all(self.columns)

    def positions(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Where columns stand among those read."""
        known = {column.id: position for position, column in enumerate(self.output)}
        return tuple(known[i] for i in ids)


def make_input(context: RuleContext, node: Node, keys: Sequence[int], *, filtered: bool = True) -> Input:
    """The cheapest way to read an operator's output by these key columns.

    Unless told otherwise, the store may hold rows that a filter inside the query takes out.
    """
    if isinstance(node, Scan):
        return Input(node.relation, None, node.columns, node.output, ())
    if isinstance(node, FilterProject) and isinstance(node.child, Scan):
        scan = node.child
        simple = all(step.kind in (("Project", "Filter") if filtered else ("Project",)) for step in node.steps)
        if simple and scan.ids.issuperset(keys) and _keeps(context, node, keys):
            return Input(scan.relation, None, scan.columns, scan.output, node.steps)
    hidden = context.store(node.types, context.java(node.plan))
    return Input(hidden.name, context.build(node), tuple(range(len(node.output))), node.output, ())


def _keeps(context: RuleContext, node: FilterProject, keys: Sequence[int]) -> bool:
    return all(set(keys) <= {id_of(one) for one in columns_of(context.java(step))} for step in node.steps)


def shape_of(one: Input, *extra: str) -> LeafShape:
    """The leaf of an input with extra columns: sides are small integers, weights long ones."""
    return LeafShape(one.output, tuple((name, SIDE if name == "side" else LONG) for name in extra))


def read_leaf(context: RuleContext, one: Input, leaf: Leaf, carried: Sequence[Java]) -> Java:
    """An input's leaf with its steps applied."""
    return apply_steps(context.catalyst, context.javas(one.steps), leaf.plan, carried)


def hashes_of(delta: Delta, key: Sequence[int]) -> Hashes:
    """The key hash of each row of an input's delta."""
    return key_hashes(delta.rows, tuple(key)) if key else np.zeros(len(delta), dtype=np.uint64)


def has_null_key(delta: Delta, key: Sequence[int]) -> np.ndarray:
    """Which rows have a NULL among their key columns."""
    found = np.zeros(len(delta), dtype=bool)
    for position in key:
        column = delta.rows.column(position)
        if column.null_count:
            found |= np.asarray(column.is_null())
    return found


def matchable(delta: Delta, key: Sequence[int], null_safe: bool) -> Hashes:
    """The key hashes of the rows that can match any: a NULL does so only where it equals NULL."""
    hashes = hashes_of(delta, key)
    return hashes if null_safe else hashes[~has_null_key(delta, key)]
