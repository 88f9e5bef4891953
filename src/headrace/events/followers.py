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
from headrace.events.tables import beside

_log = logging.getLogger("headrace.events")
_LOOK_SECONDS = 1.0
_LONGEST_PAUSE = 10.0
CHUNK = 2_000

# Takes rows of events, and says what else is changed in the epoch that keeps how far it is, and how far that is: not to
# the last of them where it is to stop before.
Take = Callable[[Sequence[dict[str, Any]], threading.Event], tuple[Mapping[str, Sequence[object]], int]]
# How far a follower is, and by which code.
Kept = tuple[int, str | None]
# From the row of an event to the event with its documents read, decrypted and upcast.
Opened = Callable[[Mapping[str, Any]], dict[str, Any]]


class Follower:
    """One thread that follows a store from where it was."""

    def __init__(
        self, loop: Loop, store: str, name: str, take: Take, since: int = 0, chunk: int = CHUNK, code: str | None = None
    ) -> None:
        self._loop = loop
        self._store = store
        self._take = take
        self._since = since
        self._chunk = chunk
        self._code = code
        self.name = name
        # Why the last try failed; what passes by itself is tried again.
        self.error: str | None = None
        self._stopped = threading.Event()
        self._forgotten = False
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"headrace-events-{name}"[:60], daemon=True)

    @property
    def position(self) -> int:
        """The last event that it is through with, as the home keeps it; of other code that counts for nothing."""
        kept = self.kept()
        return self._since if kept is None or kept[1] != self._code else kept[0]

    @property
    def nothing(self) -> Kept:
        """How far it is where nothing is kept of it."""
        return self._since, self._code

    def kept(self) -> Kept | None:
        """How far whoever has its name is by what the home keeps, and with which code."""
        found = self._loop.core.newest_of_names([beside(self._store, "subscriptions")])
        rows = [row for state, _ in found.values() for row in rows_by(state, (0,), [(self.name,)])]
        return (int(rows[0][1]), rows[0][3]) if rows else None

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to follow no more."""
        return self._stopped.is_set()

    def start(self) -> None:
        """Follow in the background from now on."""
        self._thread.start()

    def end(self, *, forgotten: bool = False) -> None:
        """Tell it to follow no more, and do not wait for it; one that is forgotten commits nothing from now on."""
        self._forgotten = self._forgotten or forgotten
        self._stopped.set()

    def stop(self) -> None:
        """Follow no more; the event that is under way comes to its end."""
        self.end()
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
            if not rows.num_rows:
                return 0
            changes, last = self._take(rows.to_pylist(maps_as_pydicts="strict"), self._stopped)
            if last > position:
                self.submit(changes, position, last)
            return last - position

    def submit(self, changes: Changes, before: int | Kept, after: int) -> None:
        """Commit changes together with how far it is; `Outdated` where another of its name was quicker.

        What it was before is a position of its own code, or what `kept` told where it takes over from other code.
        """
        table = beside(self._store, "subscriptions")
        mark = (table, self.name)
        expected = (before, self._code) if isinstance(before, int) else before

        def within(batch: Batch) -> WorkedOut:
            rows = rows_by(batch.before(table), (0,), [(self.name,)])
            committed = (int(rows[0][1]), rows[0][3]) if rows else self.nothing
            if self._forgotten or batch.notes.get(mark, committed) != expected:
                raise Outdated
            return WorkedOut({**changes, **self.kept_at(after)}, {}, {mark: (after, self._code)})

        self._loop.submit(
            Call({}, digest=digest(table.encode(), self.name.encode(), str(after).encode()), within=within)
        )

    def kept_at(self, position: int) -> dict[str, Sequence[object]]:
        """The change that keeps how far it is."""
        row: dict[str, object] = {"subscription": self.name, "position": position, "updated_at": self._loop.core.tick()}
        row["code"] = self._code
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
            # Also what ends a program: in a thread it would end nothing but this, and nobody would hear of it.
            except BaseException as error:
                # Of a store that was dropped there is nothing to follow, which may be seen here before it is told.
                if core.closed or self._stopped.is_set() or self._store not in core.catalog:
                    return
                failures += 1
                told = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
                if told != self.error:
                    _log.warning(
                        "%s of event store %s: %s", self.name, self._store, told, extra={"relation": self._store}
                    )
                self.error = told
                self._stopped.wait(min(0.1 * 2**failures, _LONGEST_PAUSE))
