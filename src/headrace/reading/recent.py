"""The deltas of the newest epochs, kept in memory for those who follow close behind."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from datetime import datetime

from headrace.ledger.ledger import Entry
from headrace.state.delta import Delta

_BYTES = 32 * 1024 * 1024
_EPOCHS = 256


class Recent:
    """What the newest epochs changed in the relations that are followed; all else is read from the ledger."""

    def __init__(self, newest: int, room: int = _BYTES, epochs: int = _EPOCHS) -> None:
        self._room = room
        self._epochs = epochs
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque()
        self._size = 0
        # Nothing is missing of an epoch after `_begins` up to `_newest`, where its relation is kept since before it.
        self._begins = self._newest = newest
        self._kept_since: dict[str, int] = {}
        self._asked_at: dict[str, int] = {}

    def add(self, epoch: int, committed_at: datetime, deltas: Mapping[str, Delta]) -> None:
        """Take what an epoch changed; the oldest goes where there is no more room."""
        with self._lock:
            if epoch != self._newest + 1:
                self._entries.clear()
                self._size, self._begins = 0, epoch - 1
            self._newest = epoch
            for name in [one for one, asked in self._asked_at.items() if asked < epoch - self._epochs]:
                del self._asked_at[name], self._kept_since[name]
            for name in self._asked_at:
                if name in deltas and len(deltas[name]):
                    entry = Entry(epoch, committed_at, name, deltas[name].rows, deltas[name].weights)
                    self._entries.append(entry)
                    self._size += _size(entry)
            while self._entries and (self._size > self._room or self._entries[0].epoch <= epoch - self._epochs):
                oldest = self._entries.popleft()
                self._size -= _size(oldest)
                self._begins = oldest.epoch

    def ask_for(self, name: str, epoch: int) -> None:
        """Keep what changes in a relation after an epoch; one that nobody asks for again is not kept for long."""
        with self._lock:
            asked = self._asked_at[name] = max(self._newest, epoch)
            self._kept_since.setdefault(name, asked)

    def between(self, name: str, after: int, until: int) -> list[Entry] | None:
        """A relation's deltas after an epoch, up to and including another; None if not all of them are here."""
        with self._lock:
            if after < max(self._begins, self._kept_since.get(name, self._newest)) or until > self._newest:
                return None
            return [entry for entry in self._entries if entry.relation == name and after < entry.epoch <= until]


def _size(entry: Entry) -> int:
    return entry.rows.nbytes + entry.weights.nbytes
