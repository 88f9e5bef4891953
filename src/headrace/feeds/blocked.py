"""Refused events: each is tried again with growing pauses, and later events of its key wait for it."""

from __future__ import annotations

import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.cursor import key_identities
from headrace.feeds.sink import EventsRefused

KeyIdentity = tuple[int, int]
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


def pause_after(attempts: int) -> float:
    """Return a random pause in seconds, below a bound that doubles with each attempt."""
    return random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(attempts - 1, 16)))


@dataclass(frozen=True, eq=False)
class WaitingEvent:
    """One event of a batch; the batch has waiting events only."""

    batch: Batch
    index: int

    @property
    def sequence(self) -> int:
        """Return the number of the event."""
        return self.batch.sequences[self.index]


@dataclass
class WaitingKey:
    """The waiting events of one key in order, the refused one first."""

    events: deque[WaitingEvent]
    due_at: float
    reason: str


@dataclass(frozen=True)
class GivenUp:
    """An event that the sink refused too often, which is to be parked."""

    batch: Batch
    reason: str
    attempts: int


@dataclass
class Blocked:
    """All keys with a refused event; attempts are counted by sequence, also while the sink is opened again."""

    max_retries: int
    attempts: dict[int, int] = field(default_factory=dict[int, int])
    keys: dict[KeyIdentity, WaitingKey] = field(default_factory=dict[KeyIdentity, WaitingKey])
    count: int = 0
    # The positions before all waiting events, smallest first; those of events that wait no more are left in place.
    _marks: list[tuple[int, Mark]] = field(default_factory=list[tuple[int, Mark]])
    _waiting: set[int] = field(default_factory=set[int])

    @property
    def next_at(self) -> float | None:
        """Return the time of the next attempt; None if no event waits."""
        return min((one.due_at for one in self.keys.values()), default=None)

    def clear(self) -> None:
        """Forget all waiting events: they are read from the log again."""
        self.keys.clear()
        self._marks.clear()
        self._waiting.clear()
        self.count = 0

    def first_mark(self) -> Mark | None:
        """Return the position before the first waiting event; None if no event waits."""
        while self._marks and self._marks[0][0] not in self._waiting:
            heapq.heappop(self._marks)
        return self._marks[0][1] if self._marks else None

    def parted(self, batch: Batch) -> Batch | None:
        """Return the events of a batch that can be delivered; those of blocked keys wait from now on."""
        if not self.keys:
            return batch
        keys = key_identities(batch.rows, batch.key)
        held = [index for index, key in enumerate(keys) if key in self.keys]
        if not held:
            return batch
        for index, event in zip(held, _waiting_events(batch, held), strict=True):
            self._put(self.keys[keys[index]], [event])
        rest = [index for index in range(len(batch)) if keys[index] not in self.keys]
        return batch.part(np.asarray(rest)) if rest else None

    def refuse(self, batch: Batch, refused: EventsRefused) -> None:
        """Block the keys of events that a sink refused."""
        keys = key_identities(batch.rows, batch.key)
        indexes = refused.undelivered
        for index, event in zip(indexes, _waiting_events(batch, indexes), strict=True):
            waiting = self.keys.get(keys[index])
            if waiting is None:
                reason = refused.refused.get(index, "an earlier event of its key was refused")
                waiting = self.keys[keys[index]] = WaitingKey(deque(), self._due(event.sequence), reason)
            self._put(waiting, [event])

    def retry(self, deliver: Callable[[Batch], None], park: Callable[[Sequence[GivenUp]], None]) -> None:
        """Deliver what is due; an event that was refused too often is parked, and those behind it are delivered."""
        now = time.monotonic()
        due = [key for key, one in self.keys.items() if one.due_at <= now]
        while due:
            due = [key for key in due if self._retry_key(key, deliver)]
            if due:
                park([self._given_up(self.keys[key]) for key in due])

    def _retry_key(self, key: KeyIdentity, deliver: Callable[[Batch], None]) -> bool:
        """Deliver the events of a key, as far as the sink accepts them; return whether the next is to be parked."""
        waiting = self.keys[key]
        while waiting.events:
            first = waiting.events[0]
            if self.attempts.get(first.sequence, 0) > self.max_retries:
                return True
            taken = self._take(waiting, 1 if first.sequence in self.attempts else len(first.batch))
            try:
                deliver(first.batch.part(np.asarray([one.index for one in taken])))
            except EventsRefused as refused:
                left = [taken[index] for index in refused.undelivered]
                self._put(waiting, left, first=True)
                waiting.reason = next(iter(refused.refused.values()), waiting.reason)
                waiting.due_at = self._due(left[0].sequence)
                if self.attempts[left[0].sequence] <= self.max_retries:
                    return False
            else:
                self.attempts.pop(first.sequence, None)
        del self.keys[key]
        return False

    def _given_up(self, waiting: WaitingKey) -> GivenUp:
        (event,) = self._take(waiting, 1)
        return GivenUp(event.batch.part(np.asarray([event.index])), waiting.reason, self.attempts.pop(event.sequence))

    def _take(self, waiting: WaitingKey, most: int) -> list[WaitingEvent]:
        """Remove the first events of a key that are of one batch."""
        taken = [waiting.events.popleft()]
        while len(taken) < most and waiting.events and waiting.events[0].batch is taken[0].batch:
            taken.append(waiting.events.popleft())
        self._waiting.difference_update(one.sequence for one in taken)
        self.count -= len(taken)
        return taken

    def _put(self, waiting: WaitingKey, events: Sequence[WaitingEvent], first: bool = False) -> None:
        """Add events of a key behind the others, or before them."""
        if first:
            waiting.events.extendleft(reversed(events))
        else:
            waiting.events.extend(events)
        for event in events:
            self._waiting.add(event.sequence)
            heapq.heappush(self._marks, (event.sequence, event.batch.mark_before(event.index)))
        self.count += len(events)

    def _due(self, sequence: int) -> float:
        attempts = self.attempts[sequence] = self.attempts.get(sequence, 0) + 1
        if attempts > self.max_retries:
            return time.monotonic()
        return time.monotonic() + pause_after(attempts)


def _waiting_events(batch: Batch, indexes: Sequence[int]) -> list[WaitingEvent]:
    part = batch.part(np.asarray(indexes))
    return [WaitingEvent(part, index) for index in range(len(part))]
