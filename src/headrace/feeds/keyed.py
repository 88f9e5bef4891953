"""The events of a batch by key, for sinks that hold the newest row of each key and find a row by its key alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from headrace.feeds.batch import Batch
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.json_events import key_texts

# Of each key the sequences of its parked events that no later event of the key has overtaken.
Parked = Mapping[str, Collection[int]]


def keys_of(batch: Batch) -> list[str]:
    """Return the key of each event."""
    return [text.decode() for text in key_texts(batch)]


def refused_by_key(delivered: DeliveredSequences, sequences: Collection[int]) -> dict[str, list[int]]:
    """Return those of some sequences whose events were refused, by key."""
    found: dict[str, list[int]] = {}
    for number in sequences:
        if number in delivered.refused:
            found.setdefault(delivered.refused[number], []).append(number)
    return found


@dataclass
class KeyedEvents:
    """The events of a batch that are still to take effect, by key, and those of them that the sink refuses.

    Of each key the newest event takes effect. If that is refused, the one before it does.
    """

    batch: Batch
    parked: Parked
    # The indexes of each key's events in their order; the last one is to be written.
    events: dict[str, list[int]]
    refused: dict[int, str] = field(default_factory=dict[int, str])
    written: dict[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def of(batch: Batch, delivered: DeliveredSequences, parked: Parked) -> KeyedEvents:
        """Return the events that have not been delivered, and those that were parked and are sent after all."""
        numbers, lacking = batch.sequences, delivered.lacks(batch.sequences)
        events: dict[str, list[int]] = {}
        for index, key in enumerate(keys_of(batch)):
            if lacking[index] or numbers[index] in parked.get(key, ()):
                events.setdefault(key, []).append(index)
        return KeyedEvents(batch, parked, events, written={key: some[-1] for key, some in events.items()})

    def refuse(self, key: str, reason: str) -> int | None:
        """Refuse the event of a key that is to be written; return the one before it, which is written instead."""
        index = self.written.pop(key)
        self.refused[index] = reason
        earlier = [one for one in self.events[key] if one < index]
        if not earlier:
            return None
        self.written[key] = earlier[-1]
        return earlier[-1]

    def refuse_all(self, reason_of: Callable[[int], str | None], keys: Collection[str] | None = None) -> None:
        """Refuse every event that is to be written and has a reason to be refused, of all keys or of some."""
        for key in self.events if keys is None else keys:
            index = self.written.get(key)
            while index is not None and (reason := reason_of(index)) is not None:
                index = self.refuse(key, reason)

    def delivered(self, before: DeliveredSequences, keys: Collection[str]) -> DeliveredSequences:
        """Return the delivered sequences once the events of some keys are written."""
        numbers = self.batch.sequences
        come = sorted(numbers[index] for key in keys for index in self.events[key])
        # A parked event that is refused again stays parked.
        refused = {
            numbers[index]: key
            for key in keys
            for index in self.events[key]
            if index in self.refused and numbers[index] not in self.parked.get(key, ())
        }
        newest = {key: numbers[self.written[key]] for key in keys if key in self.written}
        return before.with_events(come, refused, newest)

    def still_parked(self, key: str) -> list[int]:
        """Return the sequences of a key's parked events that what is written of the key does not overtake."""
        newest = self.batch.sequences[self.written[key]] if key in self.written else -1
        return [one for one in self.parked.get(key, ()) if one > newest]
