"""State: what a relation holds at one epoch, by what rules, fills and readers ask of it.

Whoever reads a state knows nothing of how it is held: today as sorted runs in memory and in mapped files of this
process (snapshot.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.state.arranged import Arrangement, Order
from headrace.state.delta import Delta, Weights
from headrace.state.hashing import Hashes
from headrace.state.run import Key


@dataclass(frozen=True)
class At:
    """How far one has read: so many rows were told, up to a row of a part, and of that row so many."""

    told: int = 0
    part: int = 0
    row: int = 0
    times: int = 0


BEGIN = At()


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows, and where the others follow; None after the last."""

    rows: pa.Table
    after: At | None


class Stretch(Protocol):
    """Many signed rows that never change; what is made of them, such as a file, is there for as long as they are."""

    @property
    def delta(self) -> Delta:
        """The rows."""
        ...


@dataclass(frozen=True, eq=False)
class Stretches:
    """Long stretches that are read as they are, but for some identities, and the rows that are there in their stead.

    Those that were made for it alone are there for as long as somebody keeps them.
    """

    long: tuple[Stretch, ...]
    replaced: tuple[Hashes, Hashes] | None
    rows: pa.Table
    weights: Weights
    made: bool = False


class State(Protocol):
    """One relation at one epoch. It never changes."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        ...

    @property
    def size(self) -> int:
        """How many signed rows it takes to hold it: at least the number of distinct rows."""
        ...

    @property
    def count(self) -> int:
        """How many rows the relation has, counted with their multiplicity."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held at all, not even rows that cancel each other."""
        ...

    @property
    def made_of(self) -> tuple[object, ...]:
        """What it is made of, in order: a state made of the same objects holds the same rows."""
        ...

    def lookup(self, key: Key, wanted: Hashes, columns: Sequence[int] | None = None) -> Delta:
        """The rows of the wanted key hashes; with columns, only those, under the identity of the whole row."""
        ...

    def between(self, column: int, low: float, high: float, columns: Sequence[int] | None = None) -> Delta:
        """The rows whose column lies in the closed range; NULLs never do."""
        ...

    def all(self, columns: Sequence[int] | None = None) -> Delta:
        """Every row: only for what has no key to look up by."""
        ...

    def parts(self) -> Iterator[Delta]:
        """All signed rows, oldest first, no more at a time than may be held at once; their sum is the state."""
        ...

    def piece(self, at: At, most: int) -> Piece:
        """The next rows of all, each as often as it is there, at most so many."""
        ...

    def multiplicity(self, low: Hashes, high: Hashes) -> Weights:
        """How often each of the given row identities is there."""
        ...

    def arranged(self, order: Order) -> Arrangement:
        """Its rows by partition and order, to read slices of partitions."""
        ...

    def extreme(self, groups: int, low: np.uint64, high: np.uint64, largest: bool) -> Any:
        """The extreme value of the group with these two hashes: the columns before the value are the group's."""
        ...

    def stretches(self, longest: int) -> Stretches:
        """Its rows for whoever reads them whole: stretches of more rows than this, and what is beside them."""
        ...

    def plus(self, delta: Delta) -> State:
        """What it is after a delta."""
        ...
