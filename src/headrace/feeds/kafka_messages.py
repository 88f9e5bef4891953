"""Events as messages of Kafka: key, value, headers, and which of them are too large."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.json_events import event_texts, key_texts

Headers = list[tuple[str, bytes]]

# What a batch of one record and the record itself have beside key, value and headers, at most.
_OVERHEAD = 120


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages of a batch, by the index of their event; a key that is None goes to every partition."""

    sequences: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes]
    # Made when they are sent: tens of thousands of lists at once would keep the collector of garbage busy.
    headers: Callable[[int], Headers]
    # Whether a message without a value follows: what compaction takes for a deletion.
    ends: Sequence[bool]

    def __len__(self) -> int:
        return len(self.values)

    def size(self, index: int) -> int:
        """How many bytes the broker counts for a message alone, before it is compressed, or a few more."""
        headers = sum(len(name) + len(value) + 10 for name, value in self.headers(index))
        return len(self.keys[index] or b"") + len(self.values[index]) + headers + _OVERHEAD


def messages_of(batch: Batch, tombstones: bool) -> Messages:
    """The messages of a batch: a key is the table's name, a colon, and the event's key as JSON."""
    start = f"{batch.form.table}:".encode()
    resets = [operation == "RESET" for operation in batch.operations]
    feed, kind = ("feed", batch.form.feed.encode()), ("content-type", b"application/json")
    operations = {name: ("operation", name.encode()) for name in set(batch.operations)}
    numbers = batch.epochs.tolist()
    epochs = {epoch: ("epoch", b"%d" % epoch) for epoch in set(numbers)}

    def headers(index: int) -> Headers:
        operation, epoch = operations[batch.operations[index]], epochs[numbers[index]]
        return [("sequence", b"%d" % batch.sequences[index]), epoch, operation, feed, kind]

    return Messages(
        batch.sequences,
        [None if reset else start + key for reset, key in zip(resets, key_texts(batch), strict=True)],
        event_texts(batch),
        headers,
        [tombstones and operation == "DELETE" for operation in batch.operations],
    )


def resolved_message(feed: str, table: str, mark: Mark, committed_at: float) -> Messages:
    """What says that all up to an epoch was told."""
    at = datetime.fromtimestamp(committed_at, UTC).isoformat()
    told = {"resolved": mark.epoch, "sequence": mark.sequence, "timestamp": at, "table": table, "feed": feed}
    value = json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
    headers: Headers = [
        ("sequence", b"%d" % mark.sequence),
        ("epoch", b"%d" % mark.epoch),
        ("operation", b"RESOLVED"),
        ("feed", feed.encode()),
        ("content-type", b"application/json"),
    ]
    return Messages((mark.sequence,), (None,), (value,), lambda _: headers, (False,))


@dataclass(frozen=True)
class Sorted:
    """Events that can be sent, those refused for their own fault, and those that wait for one of these."""

    sent: Sequence[int]
    refused: dict[int, str]
    held: frozenset[int]


def sorted_by_size(messages: Messages, most: int) -> Sorted:
    """Refuse what is larger than a topic takes, before anything is sent: so no later event of its key overtakes it."""
    sizes = [len(value) for value in messages.values]
    # Keys are short; only what comes near is counted exactly.
    if max(sizes, default=0) < most // 2 and max((len(key or b"") for key in messages.keys), default=0) < most // 4:
        return Sorted(range(len(messages)), {}, frozenset())
    refused = {
        index: f"it has {messages.size(index):,} bytes, and the topic takes {most:,} at most (max.message.bytes)"
        for index in range(len(messages))
        if messages.size(index) > most
    }
    return without(messages, refused)


def without(messages: Messages, refused: dict[int, str]) -> Sorted:
    """What is left of messages without refused ones and the later ones of their keys."""
    if not refused:
        return Sorted(range(len(messages)), {}, frozenset())
    blocked: set[bytes] = set()
    sent: list[int] = []
    held: set[int] = set()
    for index, key in enumerate(messages.keys):
        if key in blocked:
            held.add(index)
        elif index in refused:
            blocked.add(cast(bytes, key))
        else:
            sent.append(index)
    return Sorted(sent, {index: reason for index, reason in refused.items() if index not in held}, frozenset(held))
