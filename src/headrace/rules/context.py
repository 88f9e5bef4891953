"""Where the rules of one view are made: an operator's file brings its part (Operator), and the context leads through
the tree, from Spark's plan to operators, from operators to rules, and to the sentences of EXPLAIN."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import Column, Node, Tree, inputs_of
from headrace.plans.catalyst import Catalyst
from headrace.plans.handles import Handles
from headrace.plans.prepared import PreparedQuery
from headrace.plans.query import Build, LeafShape, Query
from headrace.plans.trees import Java, kind_of
from headrace.rules.base import Rule
from headrace.state.arrow_types import arrow_schema

N = TypeVar("N", bound=Node)

# They move, order or name rows, and leave what a relation holds as it is.
_SAME_ROWS = frozenset({"Sort", "SubqueryAlias", "View", "Repartition", "RepartitionByExpression", "ResolvedHint"})


class NoRule(Exception):
    """An operator that no rule follows; the reason is for EXPLAIN."""


@dataclass(frozen=True)
class Above:
    """The steps above an operator that its own query takes along, and the columns that come out of them."""

    steps: tuple[Tree, ...]
    output: tuple[Column, ...]

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types of the columns that come out."""
        return tuple(column.type for column in self.output)


@dataclass(frozen=True)
class Operator(Generic[N]):
    """What the file of an operator brings.

    `lower` reads the operator off Spark's plan, and gives None for a plan that is not its own; `build` makes its rule;
    `sentence` tells EXPLAIN about it, given the operator above. One that ends in a query may take the steps of a
    filter or a projection above it along; one that `is_single` never gives more than one row.
    """

    node: type[N]
    lower: Callable[[RuleContext, Java], Node | None]
    build: Callable[[RuleContext, N, Above], Rule]
    sentence: Callable[[RuleContext, N, Node | None], str]
    takes_steps: Callable[[N], bool] = lambda _: False
    is_single: Callable[[RuleContext, N], bool] = lambda *_: False


@dataclass(frozen=True, eq=False)
class HiddenStore:
    """State that a rule keeps beside its inputs.

    Its first content is what `finish` makes of a DataFrame of the plan, columns c0, c1, ...; `weighted` says that a
    last column holds the multiplicity of each row. Of a store that `stands_for` a plan that plan's output can be told:
    it is in the first columns, or in those of what `gives` makes of a DataFrame of the store's rows. Whatever lies
    above the plan is then filled from the store, so that both hold the very same values, computed once.
    """

    name: str
    types: tuple[DataType, ...]
    plan: Java
    finish: Callable[[Any], Any]
    weighted: bool
    stands_for: Java | None = None
    gives: Callable[[Any], Any] = lambda frame: frame

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return arrow_schema(self.types)


@dataclass
class RuleContext:
    """The rules of one view in the making: Spark's objects behind its operators, names for its stores and queries, and
    the reasons that its rules give.

    The files of its queries lie in a folder of its own, so that a view of the same name has others.
    """

    catalyst: Catalyst
    scratch: InitVar[Path]
    view: str
    operators: tuple[Operator[Any], ...]
    # Relations whose rows only ever come, such as event stores.
    growing: frozenset[str] = frozenset()
    folder: Path = field(init=False)
    handles: Handles = field(default_factory=Handles)
    stores: list[HiddenStore] = field(default_factory=list[HiddenStore])
    queries: list[Query] = field(default_factory=list[Query])
    reasons: list[str] = field(default_factory=list[str])

    def __post_init__(self, scratch: Path) -> None:
        self.folder = scratch / secrets.token_hex(8)

    def clear(self) -> None:
        """Remove the files of all its queries: nobody follows the view any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """Begin anew, as if nothing had been built: no rule was found after all."""
        self.clear()
        self.handles = Handles()
        for built in (self.stores, self.queries, self.reasons):
            built.clear()

    def lower(self, plan: Java) -> Node:
        """The operators of a plan, or NoRule with the reason."""
        for operator in self.operators:
            node = operator.lower(self, plan)
            if node is not None:
                return node
        if kind_of(plan) in _SAME_ROWS:
            return self.lower(plan.child())
        raise NoRule(f"no rule follows the operator {plan.nodeName()}")

    def build(self, node: Node) -> Rule:
        """The rule of an operator, with the rules of all operators below it."""
        return self.operator(node).build(self, node, Above((), node.output))

    def is_single(self, node: Node) -> bool:
        """Whether an operator never gives more than one row."""
        return self.operator(node).is_single(self, node)

    def operator(self, node: Node) -> Operator[Any]:
        """Whose node it is."""
        return next(operator for operator in self.operators if operator.node is type(node))

    def sentences(self, node: Node, depth: int = 1, above: Node | None = None) -> Iterator[str]:
        """What EXPLAIN says, operator by operator, each further in than the one that reads it."""
        yield "  " * depth + self.operator(node).sentence(self, node, above)
        for one in inputs_of(node):
            yield from self.sentences(one, depth + 1, node)

    def java(self, one: Tree | Column) -> Java:
        """Spark's own object of a plan, an expression or a column."""
        return self.handles.java(one)

    def javas(self, several: Iterable[Tree | Column]) -> list[Java]:
        """Spark's own objects."""
        return self.handles.javas(several)

    def query(self, shapes: Sequence[LeafShape], build: Build) -> Query:
        """A query of this view, planned once where that can be."""
        self.folder.mkdir(exist_ok=True)
        prepared = PreparedQuery(self.catalyst, self.folder, f"query-{len(self.queries)}", shapes, build)
        self.queries.append(prepared)
        return prepared

    def store(
        self,
        types: Sequence[DataType],
        plan: Java,
        finish: Callable[[Any], Any] = lambda frame: frame,
        weighted: bool = False,
        stands_for: Java | None = None,
        gives: Callable[[Any], Any] = lambda frame: frame,
    ) -> HiddenStore:
        """A hidden store of this view."""
        name = f"{self.view}#{len(self.stores)}"
        hidden = HiddenStore(name, tuple(types), plan, finish, weighted, stands_for, gives)
        self.stores.append(hidden)
        return hidden
