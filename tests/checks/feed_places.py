"""Where the feeds of a check go: real sinks that can be made to fail, to be slow and to be down, and one of our own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.json_events import event_texts
from headrace.feeds.sink import Delivery, EventsRefused, Sink, SinkUnavailable, Target

FILTER = "n % 2 = 0"
# What a table has no key for is known by all its columns.
KEYS_OF = {"t": ("id",), "v": ("s",), "b": ("x", "y"), "u": ("login",)}
# The key whose events a sink refuses in that mood.
UNWANTED = 3
# A message of Kafka may have so many bytes, and a large row has more.
MOST_BYTES = 2_500
LARGE = "x" * 3_000


@dataclass(frozen=True)
class Addresses:
    """Where the real servers of a seed are, each with a place of the seed's own; none where it has none of a kind."""

    bootstrap: str = ""
    topic: str = ""
    postgres: str = ""
    schema: str = ""
    redis: str = ""
    # The URL of a receiver of webhooks, which appends events to the file that the path of a request names.
    hooks: str = ""
    dynamodb: str = ""


@dataclass(frozen=True)
class Place:
    """A feed of a check: what it tells of, and where to."""

    name: str
    relation: str
    sink: str
    location: str
    options: str = ""
    # Whether no event may come to it twice.
    exact: bool = False


def places_of(folder: Path, servers: Addresses, spark: bool) -> list[Place]:
    """The feeds of a seed. Views and filters are Spark's."""
    keyed = "v" if spark else "t"
    places = [
        Place("log", "t", "LOG", str(folder / "log")),
        Place("files", keyed, "FILES", str(folder / "files"), exact=True),
    ]
    if spark:
        places.append(Place("some", "t", "LOG", str(folder / "some"), f", filter = '{FILTER}', filter_exits = true"))
    else:
        places.append(Place("bag", "b", "LOG", str(folder / "bag")))
    if servers.bootstrap:
        broker, once = f"{servers.bootstrap}/{servers.topic}", ", exactly_once = true"
        places.append(Place("kafka", "t", "KAFKA", f"{broker}-kafka"))
        places.append(Place("once", keyed, "KAFKA", f"{broker}-once", once, exact=True))
    if servers.postgres:
        # The locations have a password, and so they are told by reference.
        places.append(Place("postgres", keyed, "POSTGRES", "env:FEEDS_POSTGRES"))
        if not spark:
            # Rows without a key are only added: one that came twice would stand there twice.
            places.append(Place("heap", "b", "POSTGRES", "env:FEEDS_HEAP", ", mode = 'insert'", exact=True))
            # By a key that is not that of the relation: rows hand their logins on.
            places.append(Place("logins", "u", "POSTGRES", "env:FEEDS_LOGINS", ", keys = 'login'"))
    if servers.redis:
        places.append(Place("redis", keyed, "REDIS", servers.redis, f", key_prefix = '{servers.schema}:'"))
    if servers.hooks:
        local = ", allow_insecure = true, allow_private = true"
        places.append(Place("hook", keyed, "WEBHOOK", f"{servers.hooks}{folder / 'hook'}", local))
    if servers.dynamodb:
        endpoint = f", endpoint_url = '{servers.dynamodb}'"
        places.append(Place("items", keyed, "DYNAMODB", f"dynamodb://eu-north-1/{servers.schema}", endpoint))
    return places


def plug_in(folder: Path, servers: Addresses) -> None:
    """Have the sinks of this process heed the moods of a seed."""
    from headrace.feeds import sinks

    if servers.postgres:
        os.environ["FEEDS_POSTGRES"] = f"{servers.postgres}/{servers.schema}.rows"
        os.environ["FEEDS_HEAP"] = f"{servers.postgres}/{servers.schema}.heap"
        os.environ["FEEDS_LOGINS"] = f"{servers.postgres}/{servers.schema}.logins"
    os.environ |= {"AWS_ACCESS_KEY_ID": "moto", "AWS_SECRET_ACCESS_KEY": "moto"}
    known: dict[str, Sink] = sinks.SINKS  # pyright: ignore[reportAssignmentType]
    known["log"] = LogSink()
    for name in ("kafka", "postgres", "redis", "dynamodb"):
        known[name] = MoodySink(known[name], folder)


def mood_of(path: Path) -> str:
    """How the receiver of a feed is."""
    with suppress(OSError):
        return Path(f"{path}.mood").read_text()
    return "well"


class MoodySink:
    """A real sink; before and after what it really does, its answers may be late or lost."""

    def __init__(self, sink: Sink, folder: Path) -> None:
        self._sink = sink
        self._folder = folder
        self.keyword, self.options, self.secrets = sink.keyword, sink.options, sink.secrets

    def check(self, target: Target) -> None:
        self._sink.check(target)

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        self._sink.look_up(location, options)

    def open(self, target: Target) -> Delivery:
        if mood_of(self._folder / target.feed) == "down":
            raise SinkUnavailable("it is down")
        delivery: Any = MoodyDelivery(self._sink.open(target), self._folder / target.feed)
        return delivery

    def forget(self, target: Target) -> None:
        self._sink.forget(target)


class MoodyDelivery:
    """An open sink with moods."""

    def __init__(self, delivery: Delivery, path: Path) -> None:
        self._delivery = delivery
        self._path = path
        self._dice = Random()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    def deliver(self, batch: Batch) -> None:
        self._moodily(lambda: self._delivery.deliver(batch))

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        self._moodily(lambda: self._delivery.resolved(mark, epoch_committed_at))

    def begin_scan(self, columns: Any) -> None:
        self._moodily(lambda: self._delivery.begin_scan(columns))

    def end_scan(self, mark: Mark) -> None:
        self._moodily(lambda: self._delivery.end_scan(mark))

    def _moodily(self, do: Callable[[], None]) -> None:
        mood = mood_of(self._path)
        if mood == "slow":
            time.sleep(self._dice.uniform(0, 0.1))
        if mood == "down" or (mood == "fails" and self._dice.random() < 0.3):
            raise SinkUnavailable("it failed before it had anything")
        do()
        if mood == "fails" and self._dice.random() < 0.3:
            raise SinkUnavailable("it has all of it, and its answer was lost")


class LogSink:
    """A receiver that outlives whoever tells it: a file to which each event is appended as it arrives."""

    keyword = "LOG"
    options: Mapping[str, str] = {}
    secrets: frozenset[str] = frozenset()

    def check(self, target: Target) -> None:
        """Any file will do."""

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Anything will do."""

    def open(self, target: Target) -> Delivery:
        if mood_of(Path(target.location)) == "down":
            raise SinkUnavailable("it is down")
        return LogDelivery(target.location)

    def forget(self, target: Target) -> None:
        """The log stays."""


class LogDelivery:
    """An open log."""

    tells_resets = True
    keeps_marks = keeps_epochs_whole = False

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._dice = Random()

    def known_mark(self) -> Mark | None:
        return None

    def deliver(self, batch: Batch) -> None:
        mood = mood_of(self._path)
        if mood == "slow":
            time.sleep(self._dice.uniform(0, 0.1))
        refused: dict[int, str] = {}
        held: set[int] = set()
        blocked: set[str] = set()
        cut = self._dice.randrange(len(batch) + 1) if mood == "fails" and self._dice.random() < 0.6 else None
        for index, text in enumerate(event_texts(batch)):
            if index == cut:
                break
            event = json.loads(text)
            key = json.dumps(event["key"])
            if key in blocked:
                held.add(index)
            elif mood == "refuses" and event["key"] and event["key"].get("id") == UNWANTED:
                refused[index] = "it is not wanted"
                blocked.add(key)
            else:
                os.write(self._file, text + b"\n")
        if cut is not None or mood == "down":
            raise SinkUnavailable("it failed in the middle")
        if refused:
            raise EventsRefused(refused, frozenset(held))

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        os.write(self._file, json.dumps({"resolved": mark.epoch, "upto": mark.sequence}).encode() + b"\n")

    def begin_scan(self, columns: Any) -> None:
        """A log needs no beginning."""

    def end_scan(self, mark: Mark) -> None:
        """A log needs no end."""

    def give_up(self, sequences: Sequence[int]) -> None:
        """A log has no list of missing events."""

    def close(self) -> None:
        os.close(self._file)
