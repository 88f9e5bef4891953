"""What every rule works with: the epoch it runs in, and what it may bring to the driver there."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql.types import DataType, LongType

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

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types of its columns."""
        ...

    def delta(self, epoch: Epoch) -> Delta:
        """The operator's net change in this epoch."""
        ...


def is_floating(kind: DataType) -> bool:
    """Whether values of a type may differ in their last bits when they are computed again."""
    return "float" in kind.simpleString() or "double" in kind.simpleString()


def check_bound(epoch: Epoch, rows: int) -> None:
    """Stop before more rows than the bound are brought to the driver."""
    if rows > epoch.bound:
        raise TooLarge
