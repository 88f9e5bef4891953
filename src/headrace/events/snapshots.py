"""Snapshots: states of aggregates that are kept, so that few events are read again. They may go at any time.

One is taken in the background, one at a time for an aggregate, and only some of the newest stay. That a state cannot be
kept, such as one with a tuple in it or with what was encrypted, is remembered: it is not folded again for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace.capture.exact_json import json_text, read_kept
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.errors import HeadraceError
from headrace.events.append import rows_by
from headrace.events.erasure import Keys
from headrace.events.states import Code, Reached, reach
from headrace.events.tables import beside

# As many are kept of an aggregate: the newest for what it is, the others for what it was not long ago.
KEPT = 4
_REMEMBERED = 10_000


@dataclass(frozen=True)
class Snapshots:
    """Takes the snapshots of one store."""

    code: Code
    keys: Keys
    threads: ThreadPoolExecutor
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _waiting: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    # Of which way and version a state could not be kept.
    _unkept: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict[tuple[str, str], tuple[str, int]])

    def take(self, loop: Loop, store: str, aggregate_type: str, aggregate_id: str) -> bool:
        """Take one now; whether there is one after it."""
        core, table = loop.core, beside(store, "snapshots")
        relations = core.newest_of_names([store, beside(store, "aggregates"), table])
        reached = reach(relations, store, self.code, self.keys, aggregate_type, aggregate_id)
        row = snapshot_row(aggregate_type, aggregate_id, reached, core.tick())
        if row is None:
            self._remember(aggregate_type, aggregate_id, reached)
            return False
        if reached.read:
            held = rows_by(relations[table][0], (0, 1), [(aggregate_type, aggregate_id)], (0, 1, 2))
            old = sorted({one[2] for one in held} - {reached.version})[: -(KEPT - 1)]
            key = {"aggregate_type": aggregate_type, "aggregate_id": aggregate_id}
            gone: Sequence[object] = [{"delete": {**key, "version": version}} for version in old]
            loop.submit(Call({table: [{"insert": row}, *gone]}))
        return True

    def take_later(self, loop: Loop, store: str, aggregate_type: str, aggregate_id: str, version: int) -> None:
        """Take one in the background, unless one is about to be taken, or the state cannot be kept."""
        key = aggregate_type, aggregate_id
        folded_by = self.code.way(aggregate_type).folded_by
        with self._turn:
            unkept = self._unkept.get(key)
            # It is tried again when it has twice the events: what cannot be kept may pass, such as a NaN.
            in_vain = unkept is not None and unkept[0] == folded_by and version < 2 * unkept[1]
            if folded_by is None or in_vain or key in self._waiting:
                return
            self._waiting.add(key)
        try:
            self.threads.submit(self._take_quietly, loop, store, aggregate_type, aggregate_id)
        except RuntimeError:
            # The home is being closed; snapshots are only ever a shortcut.
            self._waiting.discard(key)

    def _take_quietly(self, loop: Loop, store: str, aggregate_type: str, aggregate_id: str) -> None:
        try:
            self.take(loop, store, aggregate_type, aggregate_id)
        except HeadraceError:
            # It was closed, or dropped, or its disk is full: whoever reads next reads all events.
            return
        finally:
            with self._turn:
                self._waiting.discard((aggregate_type, aggregate_id))

    def _remember(self, aggregate_type: str, aggregate_id: str, reached: Reached) -> None:
        if reached.version and reached.folded_by is not None:
            with self._turn:
                if len(self._unkept) >= _REMEMBERED:
                    self._unkept.clear()
                self._unkept[aggregate_type, aggregate_id] = reached.folded_by, reached.version


def is_due(reached: Reached, every: int, seconds: int) -> bool:
    """Whether so many events were read, or so much time has passed since the last snapshot, that one is worth it."""
    if every > 0 and reached.read >= every:
        return True
    old = reached.snapshot_at is None or (datetime.now(UTC) - reached.snapshot_at).total_seconds() >= seconds
    return seconds > 0 and old


def drop_snapshots(loop: Loop, store: str) -> int:
    """Delete all snapshots of a store; how many there were."""
    name = beside(store, "snapshots")
    held = loop.core.newest_of_names([name])[name][0].all((0, 1, 2))
    keys = [held.rows.column(index).to_pylist() for index in range(3)]
    gone = [
        {"delete": {"aggregate_type": kind, "aggregate_id": one, "version": version}}
        for kind, one, version in zip(*keys, strict=True)
    ]
    if gone:
        loop.submit(Call({name: gone}))
    return len(gone)


def snapshot_row(aggregate_type: str, aggregate_id: str, reached: Reached, now: datetime) -> dict[str, Any] | None:
    """The row that keeps a state, or None where what would be read back is not the same."""
    if reached.version == 0 or reached.opened or reached.folded_by is None:
        return None
    try:
        text = json_text(reached.state)
        if not _alike(read_kept(text), reached.state):
            return None
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return {
        "aggregate_type": aggregate_type,
        "aggregate_id": aggregate_id,
        "version": reached.version,
        "folded_by": reached.folded_by,
        "position": reached.position,
        "created_at": reached.at,
        "state": text,
        "taken_at": now,
    }


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are the same in kind too: 1 is neither 1.0 nor True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == other
