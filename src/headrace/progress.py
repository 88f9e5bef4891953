"""How far long work has come, for whoever listens; without a listener nothing is said."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Step:
    """One relation is so far: rows of a table, parts of the work of a view."""

    kind: Literal["table", "view"]
    relation: str
    done: int
    total: int


Listener = Callable[[Step], None]


def silent(step: Step) -> None:
    """Say nothing."""


class Progress:
    """Passes steps on to all who listen at the time."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()

    @contextmanager
    def heard_by(self, listener: Listener) -> Generator[None]:
        """Inside, one more listens."""
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

    def tell(self, step: Step) -> None:
        """Tell all who listen."""
        for listener in self._listeners:
            listener(step)
