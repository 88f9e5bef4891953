"""Which calls may have left Spark without memory: for a while each is tried alone, and one that did it alone is known.

Of calls that share an epoch nobody can tell who needed the memory. Told to come again, they would come together again,
and end Spark again. So each has an epoch of its own for a while: whoever is guilty hears it, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.epoch.bulk import Bulk
from headrace.epoch.calls import Call
from headrace.epoch.column_changes import ColumnChanges
from headrace.epoch.digest import digest, digest_of
from headrace.errors import MemoryExceeded, SparkLost, WorkFailed
from headrace.state.hashing import identity

# How long calls are tried one by one after an epoch for which there was not enough memory.
_APART_SECONDS = 120.0
# How long the same changes are refused without being tried, and of how many calls that is remembered.
_REFUSED_SECONDS = 300.0
_MOST = 1000


class Suspects:
    """What the epochs of a home have shown of the memory that calls need; asked in turn."""

    def __init__(self) -> None:
        self._apart_until = 0.0
        # By how many changes a call has, and what they are: until when they are refused.
        self._refused: dict[tuple[int, str], float] = {}

    @property
    def apart(self) -> bool:
        """Whether each call has an epoch of its own for now."""
        return time.monotonic() < self._apart_until

    def judge(self, calls: Sequence[Call], error: BaseException) -> MemoryExceeded | None:
        """What the calls hear whose epoch ended so; None if that is what they have heard."""
        if not isinstance(error, WorkFailed) or not error.of_memory:
            return None
        now = time.monotonic()
        self._apart_until = now + _APART_SECONDS
        known = {_known_by(call) for call in calls}
        # Several only where one was sent more than once under one key.
        if len(known) != 1 or not isinstance(error, SparkLost) or not error.alone:
            return None
        self._refused = {one: until for one, until in self._refused.items() if until > now}
        while len(self._refused) >= _MOST:
            del self._refused[next(iter(self._refused))]
        self._refused[known.pop()] = now + _REFUSED_SECONDS
        return _exceeded("Alone in an epoch, they left Spark without memory; it is started again.")

    def refusal(self, call: Call) -> MemoryExceeded | None:
        """Why a call is not tried, if its changes are known to need too much."""
        size = _size(call)
        if not any(size == one for one, _ in self._refused):
            return None
        left = self._refused.get(_known_by(call), 0.0) - time.monotonic()
        if left <= 0:
            return None
        return _exceeded(f"They left Spark without memory before, and are not tried again for {left:.0f} seconds.")

    def forget(self) -> None:
        """Try everything again: what is made of changes may be another now."""
        self._refused.clear()


def definition_exceeds() -> MemoryExceeded:
    """What is heard of a definition that alone left Spark without memory."""
    return MemoryExceeded(
        "this definition needs more memory than Spark has",
        detail="Alone, it left Spark without memory; it is started again. Nothing of the definition was done.",
        hint="define it over fewer rows, or give Spark more memory (HEADRACE_SPARK_MEMORY)",
    )


def _size(call: Call) -> int:
    return sum(map(len, call.changes.values()))


def _known_by(call: Call) -> tuple[int, str]:
    """What tells a call from one with other changes."""
    if call.digest:
        return _size(call), call.digest
    listed: dict[str, Sequence[object]] = {}
    for name, changes in call.changes.items():
        if not isinstance(changes, Bulk):
            listed[name] = changes.others if isinstance(changes, ColumnChanges) else changes
    parts = [digest_of(listed).encode()]
    for name, changes in call.changes.items():
        if isinstance(changes, ColumnChanges):
            rows = identity(changes.rows.columns, changes.rows.num_rows)
            parts += [name.encode(), changes.deleted.tobytes(), *(half.tobytes() for half in rows)]
        elif isinstance(changes, Bulk):
            removed, added = (identity(rows.columns, rows.num_rows) for rows in (changes.removed, changes.added))
            parts += [name.encode(), *(half.tobytes() for half in (*removed, *added))]
    return _size(call), digest(*parts)


def _exceeded(detail: str) -> MemoryExceeded:
    return MemoryExceeded(
        "these changes need more memory than Spark has",
        detail=f"{detail} Nothing of this call was done.",
        hint="send fewer changes at once, change the view that makes so much of them, "
        "or give Spark more memory (HEADRACE_SPARK_MEMORY)",
    )
