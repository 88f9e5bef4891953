"""What may be read of a home: its newest epoch, its relations at any kept one, and how they change.

Routes, feeds and everything else that only reads is given this, and not the home.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from pyspark.sql.types import StructType

from headrace.catalog.catalog import Catalog
from headrace.reading.following import Following, Newest
from headrace.reading.history import GoOn, always
from headrace.reading.queries import Relations
from headrace.state.state import State


class Readings(Protocol):
    """The committed epochs of a home, for readers of any thread."""

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        ...

    @property
    def catalog(self) -> Catalog:
        """All relations of the newest epoch, as a value."""
        ...

    @property
    def following(self) -> Following:
        """The one way to follow a relation."""
        ...

    def newest(self) -> tuple[int, dict[str, tuple[State, StructType]]]:
        """The newest epoch, and all relations that a query may read at it."""
        ...

    def newest_of(self, name: str) -> Newest:
        """One relation as it is at the newest epoch, if it is there."""
        ...

    def relations_at(self, epoch: int, go_on: GoOn = always) -> Relations:
        """Every relation at an earlier epoch, under the columns of that epoch."""
        ...

    def epoch_at(self, moment: datetime) -> int:
        """The newest epoch that was committed at or before a moment."""
        ...
