"""How a rule with state reads one of its inputs: as slices of a store, looked up by key.

An input that is a relation, or linear steps over one that keep the keys, is read from the relation's own store and
the steps are applied inside the query. Any other input is kept in a hidden store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType

from headrace.ir.nodes import FilterProject, Node, Scan
from headrace.plans.catalyst import Catalyst
from headrace.plans.query import Leaf, LeafShape
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Attribute, Java, columns_of, id_of, kind_of
from headrace.rules.base import Epoch, Rule, RuleContext, check_bound, types_of
from headrace.state.delta import Delta, combine, empty, project, project_and_sum
from headrace.state.hashing import Hashes, key_hashes
from headrace.state.run import Key
from headrace.state.state import State

SIDE = IntegerType()
WEIGHT = LongType()


@dataclass(frozen=True, eq=False)
class Input:
    """One input of a rule with state."""

    store: str
    rule: Rule | None
    columns: tuple[int, ...]
    attributes: tuple[Attribute, ...]
    steps: tuple[Java, ...]

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
        """The rows before this epoch whose key columns (places among those read) hash to one of those wanted."""
        return self.before(epoch).lookup(self.stored(key), wanted, self.columns)

    def stored(self, key: Sequence[int]) -> Key:
        """Places among the columns read, as places in the store."""
        return tuple(self.columns[place] for place in key)

    def all(self, epoch: Epoch) -> Delta:
        """Every row before this epoch."""
        snapshot = self.before(epoch)
        check_bound(epoch, snapshot.size)
        return snapshot.all(self.columns)

    def places(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Where columns stand among those read."""
        known = {a.id: i for i, a in enumerate(self.attributes)}
        return tuple(known[i] for i in ids)


def make_input(context: RuleContext, node: Node, keys: Sequence[int], build: object, *, filtered: bool = True) -> Input:
    """The cheapest way to read an operator's output by these key columns.

    Unless told otherwise, the store may hold rows that a filter inside the query takes out.
    """
    if isinstance(node, Scan):
        return Input(node.relation, None, node.columns, node.output, ())
    if isinstance(node, FilterProject) and isinstance(node.child, Scan):
        source = node.child
        simple = all(kind_of(step) in (("Project", "Filter") if filtered else ("Project",)) for step in node.steps)
        if simple and set(keys) <= {a.id for a in source.output} and _keeps(node, keys):
            return Input(source.relation, None, source.columns, source.output, node.steps)
    hidden = context.store(types_of(node), node.plan)
    rule: Rule = build(context, node)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
    return Input(hidden.name, rule, tuple(range(len(node.output))), node.output, ())


def _keeps(node: FilterProject, keys: Sequence[int]) -> bool:
    return all(set(keys) <= {id_of(c) for c in columns_of(step)} for step in node.steps)


def shape_of(one: Input, *extra: str) -> LeafShape:
    """The leaf of an input with extra columns: sides are small integers, weights long ones."""
    return LeafShape(one.attributes, tuple((name, SIDE if name == "side" else WEIGHT) for name in extra))


def read_leaf(catalyst: Catalyst, one: Input, leaf: Leaf, carried: Sequence[Java]) -> Java:
    """An input's leaf with its steps applied."""
    return apply_steps(catalyst, one.steps, leaf.plan, carried)


def hashes_of(delta: Delta, key: Sequence[int]) -> Hashes:
    """The key hash of each row of an input's delta."""
    return key_hashes(delta.rows, tuple(key)) if key else np.zeros(len(delta), dtype=np.uint64)


def has_null_key(delta: Delta, key: Sequence[int]) -> np.ndarray:
    """Which rows have a NULL among their key columns."""
    alone = np.zeros(len(delta), dtype=bool)
    for place in key:
        column = delta.rows.column(place)
        if column.null_count:
            alone |= np.asarray(column.is_null())
    return alone


def matchable(delta: Delta, key: Sequence[int], null_safe: bool) -> Hashes:
    """The key hashes of the rows that can match any: a NULL does so only where it equals NULL."""
    hashes = hashes_of(delta, key)
    return hashes if null_safe else hashes[~has_null_key(delta, key)]


def sided(before: Delta, change: Delta | None) -> tuple[Delta, Delta]:
    """The rows before and after a change, each with its multiplicity."""
    if change is None or len(change) == 0:
        return before, before
    after = combine(
        pa.concat_tables([before.rows, change.rows]).combine_chunks(),
        np.concatenate([before.weights, change.weights]),
        np.concatenate([before.low, change.low]),
        np.concatenate([before.high, change.high]),
    )
    return before, after


def repeated(rows: Delta) -> pa.Table:
    """Rows, each as often as its weight says, with their side, which alone tells how many there are without columns."""
    return side_table(empty(rows.rows.schema), rows, repeat=True, weigh=False)


def side_table(before: Delta, after: Delta, *, repeat: bool, weigh: bool) -> pa.Table:
    """Rows before (side 0) and after (side 1), with weights as a column or as repeated rows."""
    rows = pa.concat_tables([before.rows, after.rows])
    sides = np.concatenate([np.zeros(len(before), dtype=np.int32), np.ones(len(after), dtype=np.int32)])
    weights = np.concatenate([before.weights, after.weights])
    if repeat and bool(np.any(weights != 1)):
        places = np.repeat(np.arange(len(weights)), weights)
        rows, sides, weights = (
            rows.take(pa.array(places)),
            sides[places],
            np.ones(len(places), dtype=np.int64),
        )
    columns = [*rows.columns, pa.chunked_array([pa.array(weights)])] if weigh else list(rows.columns)
    columns.append(pa.chunked_array([pa.array(sides)]))
    return pa.table(columns, names=[f"x{i}" for i in range(len(columns))])
