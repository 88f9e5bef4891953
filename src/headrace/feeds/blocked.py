"""Keys that wait: an event that its sink refuses is tried again and again, and later ones of its key wait for it."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.cursor import key_identities
from headrace.feeds.sink import EventsRefused

KeyIdentity = tuple[int, int]
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


def pause_after(attempts: int) -> float:
    """How long to wait after so many attempts: twice as long each time, anywhere up to that."""
    return random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(attempts - 1, 16)))


@dataclass
class Waiting:
    """The events of one key, the refused one first."""

    events: deque[Batch]
    due_at: float
    reason: str


@dataclass
class Blocked:
    """All keys that wait; attempts are remembered by sequence, also while the sink is opened anew."""

    max_retries: int
    attempts: dict[int, int] = field(default_factory=dict[int, int])
    keys: dict[KeyIdentity, Waiting] = field(default_factory=dict[KeyIdentity, Waiting])

    @property
    def count(self) -> int:
        """How many events wait."""
        return sum(len(one.events) for one in self.keys.values())

    @property
    def next_at(self) -> float | None:
        """When the next is to be tried."""
        return min((one.due_at for one in self.keys.values()), default=None)

    def first_mark(self, but: Batch | None = None) -> Mark | None:
        """Where a feed is that has told all before the first event that waits."""
        marks = [one.mark_before(0) for waiting in self.keys.values() for one in waiting.events if one is not but]
        return min(marks, key=lambda mark: mark.sequence, default=None)

    def parted(self, batch: Batch) -> Batch | None:
        """What of a batch can be delivered: events of keys that wait are put behind those."""
        if not self.keys:
            return batch
        keys = key_identities(batch.rows, batch.key)
        held = [index for index, key in enumerate(keys) if key in self.keys]
        if not held:
            return batch
        for index in held:
            self.keys[keys[index]].events.append(part_of(batch, [index]))
        rest = [index for index in range(len(batch)) if keys[index] not in self.keys]
        return part_of(batch, rest) if rest else None

    def refuse(self, batch: Batch, refused: EventsRefused) -> None:
        """Have keys wait whose events a sink refused."""
        keys = key_identities(batch.rows, batch.key)
        for index in sorted({*refused.refused, *refused.held}):
            waiting = self.keys.get(keys[index])
            if waiting is None:
                reason = refused.refused.get(index, "an earlier event of its key was refused")
                waiting = self.keys[keys[index]] = Waiting(deque(), self._due(batch.sequences[index]), reason)
            waiting.events.append(part_of(batch, [index]))

    def retry(self, deliver: Callable[[Batch], None], park: Callable[[Batch, str, int], None]) -> None:
        """Try what is due; an event that was tried often enough is parked, and those behind it go on."""
        now = time.monotonic()
        for key in [key for key, one in self.keys.items() if one.due_at <= now]:
            waiting = self.keys[key]
            while waiting.events:
                one = waiting.events[0]
                sequence = one.sequences[0]
                if self.attempts.get(sequence, 0) > self.max_retries:
                    park(one, waiting.reason, self.attempts.pop(sequence))
                else:
                    try:
                        deliver(one)
                    except EventsRefused as refused:
                        waiting.reason = next(iter(refused.refused.values()), waiting.reason)
                        waiting.due_at = self._due(sequence)
                        if self.attempts[sequence] <= self.max_retries:
                            break
                        continue
                    self.attempts.pop(sequence, None)
                waiting.events.popleft()
            if not waiting.events:
                del self.keys[key]

    def _due(self, sequence: int) -> float:
        attempts = self.attempts[sequence] = self.attempts.get(sequence, 0) + 1
        if attempts > self.max_retries:
            return time.monotonic()
        return time.monotonic() + pause_after(attempts)


def part_of(batch: Batch, indexes: Sequence[int]) -> Batch:
    """Some events of a batch, at least one."""
    chosen = pa.array(indexes, pa.int64())
    made: Mapping[str, list[bytes]] = {name: [texts[one] for one in indexes] for name, texts in batch.made.items()}
    sequences, places = batch.sequences, batch.places
    return replace(
        batch,
        first_sequence=sequences[indexes[0]],
        operations=[batch.operations[one] for one in indexes],
        epochs=[batch.epochs[one] for one in indexes],
        committed_at=[batch.committed_at[one] for one in indexes],
        rows=batch.rows.take(chosen),
        old_rows=batch.old_rows.take(chosen),
        made=dict(made),
        numbers=[sequences[one] for one in indexes],
        places=None if places is None else [places[one] for one in indexes],
    )
