"""Which records of a batch cannot be taken, found by taking the batch in pieces, in their order.

A piece that can be taken is committed, with its position. Of one on which a view fails, all rows are searched for that
it fails on by themselves; their records become dead letters, which are committed with the others. Where none is found,
for only some rows together make the view fail, the piece is cut in halves until it is one record. So each such record
costs as many tries as halves can be cut, whatever their number. How large pieces are is remembered from batch to batch:
about one guilty record falls into each, and with none they grow until they are whole batches.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.capture.connector import Arrival
from headrace.errors import MemoryExceeded, ViewEvaluationError
from headrace.sources.guilty import guilty_change, values_of
from headrace.sources.intake import Decoded, Letter, Torn, without_records

# Of so few records it is asked which row a view fails on, which takes as many tries as they can be halved; and so many
# letters are committed even if nothing that can be taken comes between them.
SMALL = 64
# How long values that a view has failed on are remembered, and how many of them.
_SUSPICION_SECONDS = 60.0
_MOST_SUSPICIONS = 1000

# Commits records in one epoch, or raises what stands against them: with the row that a view fails on, if asked.
Commit = Callable[[Decoded, bool], None]
# All changes on which a view fails by themselves: their tables, their places there, and what the view says.
Search = Callable[[Decoded, ViewEvaluationError], Sequence[tuple[str, int, ViewEvaluationError]]]
# The table, and the columns of it that an expression reads, with their values as text.
Suspicion = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class _Search:
    """How far a batch is taken."""

    arrivals: Sequence[Arrival]
    suspects: dict[int, Suspicion]
    # The first record that is not committed, and by their index those after it that are known to be dead.
    start: int = 0
    letters: dict[int, Letter] = field(default_factory=dict[int, Letter])
    # Up to where a piece from here is known to fail; whether it must be halved, for nobody can tell the row.
    failing: int = 0
    halving: bool = False
    # How many guilty ones were searched for since the last commit.
    found: int = 0

    @property
    def at(self) -> int:
        """The first record whose fate is not known."""
        at = self.start
        while at in self.letters:
            at += 1
        return at

    def bury(self, index: int, letter: Letter) -> None:
        """Leave out a record that is known not to be taken; whether there are others is open again."""
        self.letters[index] = letter
        self.failing, self.halving = 0, False


class Pieces:
    """Takes batches into epochs, in pieces while some of their changes are not to be taken."""

    def __init__(
        self,
        decode: Callable[[Sequence[Arrival]], Decoded],
        commit: Commit,
        most: int,
        search: Search | None = None,
    ) -> None:
        self._decode = decode
        self._commit = commit
        self._most = most
        self._search = search
        # How many records are tried together; without a number, all that came.
        self._size: int | None = None
        self._suspicions: dict[Suspicion, float] = {}

    @property
    def whole(self) -> bool:
        """Whether nothing is known that speaks against taking all records at once."""
        self._forget_old()
        return self._size is None and not self._suspicions

    def take(self, decoded: Decoded) -> None:
        """Commit all records, in order, those that cannot be taken as dead letters.

        A transaction is not cut while the guilty ones of its records can be told.
        """
        self._forget_old()
        search = _Search(decoded.arrivals, self._suspects_of(decoded))
        while search.start < len(search.arrivals):
            end = self._end(search)
            all_of_it = (search.start, end) == (0, len(search.arrivals))
            piece = decoded if all_of_it else self._decode(search.arrivals[search.start : end])
            self._take_piece(search, piece, end, decoded)

    def _end(self, search: _Search) -> int:
        """Where the next piece ends."""
        at, count = search.at, len(search.arrivals)
        if at == count or (at - search.start >= SMALL and search.arrivals[at - 1].whole):
            return at
        left = search.failing - at
        if left > 0:
            most = left if left <= SMALL and not search.halving else max(1, left // 2)
        else:
            most = count if self._size is None else self._size
        end = min(count, at + most)
        if at in search.suspects:
            end = at + 1
        else:
            end = next((index for index in range(at, end) if index in search.suspects), end)
        if search.halving:
            return end
        return next((index for index in range(end, count) if search.arrivals[index - 1].whole), count)

    def _take_piece(self, search: _Search, piece: Decoded, end: int, batch: Decoded) -> None:
        tried = [index for index in range(search.start, end) if index not in search.letters]
        piece = without_records(piece, [one for index, one in search.letters.items() if index < end])
        alone = tried[0] if len(tried) == 1 else None
        searched = self._search is not None and alone is None and not search.halving
        ask = not searched and alone is None and not search.halving and (len(tried) <= SMALL or end == search.failing)
        try:
            self._try(piece, ask)
        except ViewEvaluationError as error:
            if not tried:
                # It is none of these records that it fails on.
                raise
            letter = ("view", f"view {error.view}: {error.message}. {error.detail}")
            if searched and self._bury_found(search, piece, error):
                return
            # Nobody can tell the rows: only some of them together fail.
            ask = ask or searched
            guilty = guilty_change(piece, error) if ask and not searched else None
            if guilty is not None:
                table, place = guilty
                change, arrival = piece.changes[table][place], piece.origins[table][place].arrival
                index = next(index for index in tried if search.arrivals[index] is arrival)
                search.bury(index, Letter(arrival, 0, table, *letter))
                self._found(search, len(tried))
                self._suspect(search, batch, error, table, change)
                return
        except MemoryExceeded as error:
            if not tried:
                raise
            # Which of them needs so much nobody can tell.
            ask, letter = True, ("memory", f"{error.message}. {error.detail}")
        else:
            self._passed(search, tried, end)
            return
        if alone is not None:
            arrival = search.arrivals[alone]
            table = next((table for table, listed in piece.changes.items() if listed), None)
            search.bury(alone, Letter(arrival, 0, table, *letter))
            if alone in search.suspects:
                self._suspicions[search.suspects[alone]] = time.monotonic()
            else:
                self._found(search, 1)
            return
        search.failing, search.halving = end, search.halving or ask
        if len(tried) > SMALL:
            self._size = max(SMALL, len(tried) // 2)

    def _bury_found(self, search: _Search, piece: Decoded, error: ViewEvaluationError) -> bool:
        """Leave out all records that a search finds to be guilty; False if it finds none."""
        found = self._search(piece, error) if self._search is not None else []
        index_of = {id(arrival): index for index, arrival in enumerate(search.arrivals)} if found else {}
        for table, place, told in found:
            arrival = piece.origins[table][place].arrival
            reason = f"view {told.view}: {told.message}. {told.detail}"
            search.bury(index_of[id(arrival)], Letter(arrival, 0, table, "view", reason))
        return bool(found)

    def _try(self, piece: Decoded, ask: bool) -> None:
        while True:
            try:
                self._commit(piece, ask)
                return
            except Torn as torn:
                piece = without_records(piece, torn.letters)

    def _found(self, search: _Search, among: int) -> None:
        """Make pieces smaller if a guilty record is not the first of its piece."""
        search.found += 1
        if search.found > 1:
            self._size = max(1, (self._size or among) // 2)

    def _passed(self, search: _Search, tried: Sequence[int], end: int) -> None:
        """Go on behind a piece that is committed."""
        if len(tried) == 1 and tried[0] in search.suspects:
            # The same values can be taken elsewhere: they tell nothing.
            wrong = search.suspects[tried[0]]
            self._suspicions.pop(wrong, None)
            search.suspects = {index: one for index, one in search.suspects.items() if one != wrong}
        size = self._size
        if size is not None and not search.found and end > search.failing and 2 * len(tried) >= size:
            self._size = 2 * size if 2 * size < self._most else None
        search.start, search.found = end, 0
        search.letters = {index: one for index, one in search.letters.items() if index >= end}
        if end >= search.failing:
            search.failing, search.halving = 0, False

    # Suspicion: a change with the values that a view has just failed on is tried alone. It decides where pieces are
    # cut and nothing else, so that a wrong one costs an epoch, and no change.

    def _suspect(self, search: _Search, batch: Decoded, error: ViewEvaluationError, table: str, change: object) -> None:
        words = {word.lower() for word in re.findall(r"\w+", error.expression)}
        read = tuple((name, str(value)) for name, value in values_of(change).items() if name.lower() in words)
        if read and len(self._suspicions) < _MOST_SUSPICIONS:
            self._suspicions[table, read] = time.monotonic()
            search.suspects = self._suspects_of(batch)

    def _suspects_of(self, decoded: Decoded) -> dict[int, Suspicion]:
        """The records of a batch that are suspected, by their index, and of what."""
        if not self._suspicions:
            return {}
        shapes = {(table, tuple(name for name, _ in read)) for table, read in self._suspicions}
        index_of = {id(arrival): index for index, arrival in enumerate(decoded.arrivals)}
        found: dict[int, Suspicion] = {}
        for table, names in shapes:
            for change, origin in zip(decoded.changes.get(table, ()), decoded.origins.get(table, ()), strict=True):
                values = values_of(change)
                if all(name in values for name in names):
                    suspicion = table, tuple((name, str(values[name])) for name in names)
                    if suspicion in self._suspicions:
                        found[index_of[id(origin.arrival)]] = suspicion
        return found

    def _forget_old(self) -> None:
        if self._suspicions:
            oldest = time.monotonic() - _SUSPICION_SECONDS
            self._suspicions = {one: at for one, at in self._suspicions.items() if at >= oldest}
