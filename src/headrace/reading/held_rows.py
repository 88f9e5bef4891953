"""What a relation holds, piece by piece, under the names of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from headrace.state.state import At, Piece, State


class HeldRows:
    """The rows of a state, each as often as it is there; it keeps no rows of its own."""

    def __init__(self, state: State, names: Sequence[str]) -> None:
        self._state = state
        self._names = list(names)

    @cached_property
    def count(self) -> int:
        """How many rows there are."""
        return self._state.count

    def piece(self, at: At, most: int) -> Piece:
        """The next rows, at most so many."""
        piece = self._state.piece(at, most)
        return Piece(piece.rows.rename_columns(self._names), piece.after)
