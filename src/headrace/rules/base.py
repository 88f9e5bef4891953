"""What every rule works with: the epoch it runs in, and the context that it was built in."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import DataType, LongType

from headrace.ir.nodes import Node
from headrace.plans.catalyst import Catalyst
from headrace.plans.prepared import PreparedQuery
from headrace.plans.query import Build, LeafShape, Query
from headrace.plans.trees import Java
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta
from headrace.state.state import State

LONG = LongType()


class NeedsFill(Exception):
    """A rule cannot tell from its state what has changed; the view is then filled anew by Spark."""


class TooLarge(NeedsFill):
    """A rule would bring more rows to the driver than the bound allows."""


class Epoch(Protocol):
    """One epoch under way: the state before it, the deltas so far, and what rules record."""

    def before(self, store: str) -> State:
        """What a store held at the end of the epoch before."""
        ...

    def delta_of(self, relation: str) -> Delta:
        """The relation's delta in this epoch."""
        ...

    def record(self, store: str, delta: Delta) -> None:
        """Record the delta of a hidden store."""
        ...

    def recorded(self, store: str) -> Delta | None:
        """The delta of a hidden store, if it was already worked out in this epoch."""
        ...

    @property
    def bound(self) -> int:
        """How many rows a rule may bring to the driver."""
        ...


class Rule(Protocol):
    """An operator at work."""

    types: tuple[DataType, ...]

    def delta(self, epoch: Epoch) -> Delta:
        """The operator's net change in this epoch."""
        ...


@dataclass(frozen=True, eq=False)
class HiddenStore:
    """State that a rule keeps beside its inputs.

    Its first content is what `finish` makes of a DataFrame of the plan, columns c0, c1, ...; `weighted` says that a
    last column holds the multiplicity of each row. A store that `stands_for` a plan holds that plan's output in its
    first columns: whatever lies above the plan is then filled from the store, so that both hold the very same values.
    """

    name: str
    types: tuple[DataType, ...]
    plan: Java
    finish: Callable[[Any], Any]
    weighted: bool
    stands_for: Java | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""
        return arrow_schema(self.types)


@dataclass
class RuleContext:
    """Where the rules of one view are built: names for their stores and queries, and the reasons they give.

    The files of its queries lie in a folder of its own, so that a view of the same name has others.
    """

    catalyst: Catalyst
    scratch: InitVar[Path]
    view: str
    folder: Path = field(init=False)
    stores: list[HiddenStore] = field(default_factory=list[HiddenStore])
    queries: list[Query] = field(default_factory=list[Query])
    reasons: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self, scratch: Path) -> None:
        self.folder = scratch / secrets.token_hex(8)

    def clear(self) -> None:
        """Remove the files of all its queries: nobody follows the view any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget(self) -> None:
        """Begin anew, as if nothing had been built: no rule was found after all."""
        self.clear()
        for built in (self.stores, self.queries, self.reasons, self.notes):
            built.clear()

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
    ) -> HiddenStore:
        """A hidden store of this view."""
        name = f"{self.view}#{len(self.stores)}"
        hidden = HiddenStore(name, tuple(types), plan, finish, weighted, stands_for)
        self.stores.append(hidden)
        return hidden


def types_of(node: Node) -> tuple[DataType, ...]:
    """The types of an operator's columns."""
    return tuple(column.type for column in node.output)


def named(catalyst: Catalyst, plan: Java, columns: Sequence[Java]) -> Java:
    """The wanted columns of a plan under plain, distinct names."""
    return catalyst.project([catalyst.alias(c, f"c{i}") for i, c in enumerate(columns)], plan)


def is_floating(kind: DataType) -> bool:
    """Whether values of a type may differ in their last bits when they are computed again."""
    return "float" in kind.simpleString() or "double" in kind.simpleString()


def check_bound(epoch: Epoch, rows: int) -> None:
    """Stop before more rows than the bound are brought to the driver."""
    if rows > epoch.bound:
        raise TooLarge
