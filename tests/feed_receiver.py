"""A sink in memory, as bad as a test wants it: it fails, is slow, refuses events, and tells all that it was told."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.json_events import event_texts
from headrace.feeds.sink import Delivery, EventsRefused, SinkEnded, SinkUnavailable, Target
from headrace.feeds.sinks import SINKS


class Receiver:
    """A place that events go to; each is kept with its sequence, in the order of its arrival."""

    keyword = "WEBHOOK"
    options: Mapping[str, str] = {"password": "A secret.", "note": "Anything."}
    secrets: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.told: list[dict[str, Any]] = []
        self.resolved: list[tuple[Mark, int]] = []
        self.targets: list[Target] = []
        self.forgotten: list[str] = []
        self.batches = 0
        self.sizes: list[int] = []
        self.marks: list[Mark] = []
        # How often a batch fails, before or after a part of it has arrived, and how long each takes.
        self.failing = 0.0
        self.slow = 0.0
        self.down = False
        self.retry_after: float | None = None
        self.ended = ""
        self.refuses: Callable[[dict[str, Any]], str | None] = lambda _: None
        self.dice = random.Random(1)

    def check(self, target: Target) -> None:
        """Anything will do."""

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Anything will do."""

    def open(self, target: Target) -> Delivery:
        self.targets.append(target)
        if self.down:
            raise SinkUnavailable(f"{target.location} is down", self.retry_after)
        return Door(self)

    def forget(self, target: Target) -> None:
        self.forgotten.append(target.feed)

    def events(self) -> list[dict[str, Any]]:
        with self.lock:
            return list(self.told)


class Door:
    """An open receiver."""

    tells_resets = True
    keeps_marks = keeps_epochs_whole = False

    def __init__(self, receiver: Receiver) -> None:
        self._to = receiver

    def known_mark(self) -> Mark | None:
        return None

    def deliver(self, batch: Batch) -> None:
        to = self._to
        if to.slow:
            time.sleep(to.slow)
        if to.ended:
            raise SinkEnded(to.ended)
        with to.lock:
            to.batches += 1
            to.sizes.append(len(batch))
            to.marks.append(batch.after)
            if to.down:
                raise SinkUnavailable("it is down", to.retry_after)
            events = [json.loads(one) for one in event_texts(batch)]
            fails = to.dice.random() < to.failing
            if fails:
                # A part arrives, as of a batch that a server took and did not answer.
                to.told += events[: to.dice.randrange(len(events) + 1)]
                raise SinkUnavailable("it failed")
            refused: dict[int, str] = {}
            held: set[int] = set()
            blocked: set[str] = set()
            for index, event in enumerate(events):
                key = json.dumps(event["key"])
                reason = to.refuses(event)
                if key in blocked:
                    held.add(index)
                elif reason is not None:
                    refused[index] = reason
                    blocked.add(key)
                else:
                    to.told.append(event)
            if refused:
                raise EventsRefused(refused, frozenset(held))

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        with self._to.lock:
            self._to.resolved.append((mark, len(self._to.told)))

    def begin_scan(self, columns: Any) -> None:
        """A log needs no beginning."""

    def end_scan(self, mark: Mark) -> None:
        """A log needs no end."""

    def give_up(self, sequences: Any) -> None:
        """A log has no list of missing events."""

    def close(self) -> None:
        """Nothing is open."""


class MarkingReceiver(Receiver):
    """A receiver that keeps the position of the feed with its events, as a database does."""

    mark: Mark | None = None

    def open(self, target: Target) -> Delivery:
        super().open(target)
        return MarkingDoor(self)


class MarkingDoor(Door):
    """An open receiver that keeps the position."""

    keeps_marks = True

    def __init__(self, receiver: MarkingReceiver) -> None:
        super().__init__(receiver)
        self._marks = receiver

    def known_mark(self) -> Mark | None:
        return self._marks.mark

    def deliver(self, batch: Batch) -> None:
        super().deliver(batch)
        self._marks.mark = batch.after


def in_place_of_webhooks(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """A receiver in the place of webhooks."""
    one = Receiver()
    monkeypatch.setitem(SINKS, "webhook", one)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("headrace.feeds.blocked._FIRST_PAUSE", 0.01)
    return one


def create(hr: Any, more: str = "", name: str = "f") -> None:
    """Make a feed of table t to the receiver."""
    hr.execute(f"CREATE CHANGEFEED {name} FOR TABLE t INTO WEBHOOK 'https://x/' WITH (flush_interval_ms = 5{more})")


def numbers(receiver: Receiver) -> list[int]:
    """The sequences that a receiver was told, in order."""
    return [one["sequence"] for one in receiver.events()]
