"""Whoever follows a store: a thread that goes through its events by position, and is never further than it has said.

How far it is lies in a table beside the store. So it goes on after any crash where it was, however long ago that was:
events stay, whatever of the log has expired.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.epoch.batch import Batch, Changes, WorkedOut
from headrace.epoch.calls import Call, Outdated
from headrace.epoch.digest import digest
from headrace.epoch.loop import Loop
from headrace.errors import HeadraceError
from headrace.events.append import rows_by
from headrace.events.reading import read_events
from headrace.events.states import as_event
from headrace.events.tables import beside

_log = logging.getLogger("headrace.events")
_LOOK_SECONDS = 1.0
_LONGEST_PAUSE = 10.0
CHUNK = 2_000

# Takes some events and says what else is changed in the epoch that keeps how far it is.
Take = Callable[[Sequence[dict[str, Any]]], Mapping[str, Sequence[object]]]
Opened = Callable[[dict[str, Any]], dict[str, Any]]


class Follower:
    """One thread that follows a store from where it was."""

    def __init__(
        self, loop: Loop, store: str, name: str, take: Take, opened: Opened, since: int = 0, chunk: int = CHUNK
    ) -> None:
        self._loop = loop
        self._store = store
        self._take = take
        self._opened = opened
        self._since = since
        self._chunk = chunk
        self.name = name
        # Why the last try failed; what passes by itself is tried again.
        self.error: str | None = None
        self._stopped = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"headrace-events-{name}"[:60], daemon=True)

    @property
    def position(self) -> int:
        """The last event that it is through with, as the home keeps it."""
        found = self._loop.core.newest_of_names([beside(self._store, "subscriptions")])
        rows = [row for state, _ in found.values() for row in rows_by(state, (0,), [(self.name,)])]
        return int(rows[0][1]) if rows else self._since

    def start(self) -> None:
        """Follow in the background from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Follow no more; what is under way comes to its end."""
        self._stopped.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(30)

    def wait_for(self, position: int, seconds: float = 30.0) -> bool:
        """Wait until it is through with a position; whether it is."""
        until = time.monotonic() + seconds
        while self.position < position:
            if time.monotonic() >= until or self._stopped.is_set():
                return False
            self._loop.core.following.wait(self._loop.core.epoch, 0.1)
        return True

    def step(self) -> int:
        """Take the next events; how many there were. What it leads to is committed with how far it is."""
        with self._turn:
            core = self._loop.core
            position = self.position
            found = core.newest_of_names([self._store])
            if not found:
                return 0
            state, schema = found[self._store]
            rows = read_events(state, schema, None, None, position, position + self._chunk)
            events = [self._opened(as_event(row)) for row in rows.to_pylist(maps_as_pydicts="strict")]
            if not events:
                return 0
            self.submit(self._take(events), position, events[-1]["position"])
            return len(events)

    def submit(self, changes: Changes, before: int, after: int) -> None:
        """Commit changes together with how far it is; `Outdated` where another of its name was quicker."""
        table = beside(self._store, "subscriptions")
        mark = (table, self.name)

        def within(batch: Batch) -> WorkedOut:
            rows = rows_by(batch.before(table), (0,), [(self.name,)])
            known = batch.notes.get(mark, int(rows[0][1]) if rows else self._since)
            if known != before:
                raise Outdated
            return WorkedOut({**changes, **self.kept_at(after)}, {}, {mark: after})

        self._loop.submit(
            Call({}, digest=digest(table.encode(), self.name.encode(), str(after).encode()), within=within)
        )

    def kept_at(self, position: int) -> dict[str, Sequence[object]]:
        """The change that keeps how far it is."""
        row = {"subscription": self.name, "position": position, "updated_at": self._loop.core.tick()}
        return {beside(self._store, "subscriptions"): [{"insert": row}]}

    def _run(self) -> None:
        core, failures = self._loop.core, 0
        while not self._stopped.is_set() and not core.closed:
            epoch = core.epoch
            try:
                taken = self.step()
                self.error, failures = None, 0
                if not taken:
                    core.following.wait(epoch, _LOOK_SECONDS)
            except Outdated:
                continue
            except Exception as error:
                if core.closed or self._stopped.is_set():
                    return
                failures += 1
                told = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
                if told != self.error:
                    _log.warning(
                        "%s of event store %s: %s", self.name, self._store, told, extra={"relation": self._store}
                    )
                self.error = told
                self._stopped.wait(min(0.1 * 2**failures, _LONGEST_PAUSE))
