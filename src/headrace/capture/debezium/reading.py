"""A database that a connector of Debezium reads: first its tables as they are, then each change of them.

A position is what the connector itself calls its offset. It is confirmed to the database only when an epoch has it: so
the log is kept for us until then. With it goes a number, which is the next record's; the topics that have come; and,
where the connector needs it to read its log, how its tables came to be what they are.

Whoever is killed within the first reading of the tables begins it anew, from empty tables: what was deleted in between
would else stay for ever, since no log tells of it.
"""

from __future__ import annotations

import base64
import json
import math
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace.capture.connector import GONE, Arrival, Description, Lag, Position
from headrace.capture.debezium.failures import failed
from headrace.capture.debezium.frames import FrameReader, Sent
from headrace.capture.debezium.jars import class_path
from headrace.capture.debezium.process import Engine, EngineFailed
from headrace.capture.debezium.tables import found_of, refuse, warning
from headrace.capture.messages import Message, NoChange, TransactionBoundary, Truncation
from headrace.capture.record import Record
from headrace.storage.scratch import Scratch

_HISTORY_FILE = "schema.history.internal.file.filename"
# Milliseconds between heartbeats while rows of a table are read between its changes.
_BEAT_BETWEEN = "1000"
# How often is looked whether the tables are still there.
_LOOK_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """How a connector is run: its task, its settings, and what is asked of the database before it begins."""

    connector: str
    task: str
    config: Mapping[str, str]
    database: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Before it begins anew, and before it goes on from an offset.
    before_first: Sequence[str] = ()
    before_next: Callable[[Mapping[str, Any]], Sequence[str]] = lambda _: ()
    keeps_history: bool = False
    # The tables that are named, and what asks the database for those of them that it has.
    tables: Sequence[str] = ()
    looking: str = ""


class DebeziumReading:
    """A connector that runs in a process of its own."""

    def __init__(self, description: Description, position: Position, plan: Plan) -> None:
        self._name = description.name
        self._prefix = plan.config["topic.prefix"]
        self._frames = FrameReader()
        self._waiting: deque[Arrival] = deque()
        self._topics: set[str] = set(position.get("topics", ()))
        self._number = int(position.get("number", 0))
        self._inside = False
        # A transaction that has begun and of which nothing has come that is of a table.
        self._opening: tuple[Sent, TransactionBoundary] | None = None
        self._begun = False
        self._tables = plan.tables
        # Whether the connector may begin; it waits for that once it has told what tables there are.
        self._admitted = False
        self._looked_at = time.monotonic()
        self._warning: str | None = None
        self._confirmed: Any = None
        offset: Mapping[str, Any] = position.get("offset") or {}
        self._begins = begins = not offset or is_unfinished(offset)
        asked = position.get("asked")
        self._asked = bool(asked)
        if begins:
            self._waiting.extend(self._emptied(topic) for topic in sorted(self._topics))
        config = dict(plan.config)
        self._beat_seconds = int(config["heartbeat.interval.ms"]) / 1000 or math.inf
        self._beat_at = -math.inf
        if position.get("again"):
            config["snapshot.mode"] = "initial"
        if asked or is_between(offset):
            # A chunk of rows between the changes ends with the next change or heartbeat, whichever comes first.
            config["heartbeat.interval.ms"] = _BEAT_BETWEEN
        jars, scratch = class_path(plan.connector), Scratch()
        if plan.keeps_history:
            file = scratch.path / "history"
            file.write_text("" if begins else unpacked(str(position.get("history", ""))))
            config[_HISTORY_FILE] = str(file)
            self._frames.history = file.read_text() or None
        self._history = self._frames.history
        self._offset: Mapping[str, Any] | None = None if begins else offset
        told = {
            "verb": "run",
            "task": plan.task,
            "config": config,
            "offset": self._offset,
            "database": plan.database,
            "tables": plan.looking,
            "before": list(plan.before_first if begins else plan.before_next(offset)),
        }
        self._engine = Engine(self._name, jars, told, scratch)
        # Told once it has begun: until then it listens for nothing else.
        self._signal: Mapping[str, Any] | None = None
        if asked and not begins and not is_between(offset):
            self._signal = {"id": asked["id"], "type": "execute-snapshot", "data": _wanted(asked)}

    @property
    def pid(self) -> int | None:
        """The process of the connector."""
        return self._engine.pid

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        """What has come, in the order of its source."""
        if self._begun and time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._engine.tell({"look": True})
        while len(self._waiting) < most:
            try:
                # What is there already comes along; only for the first is waited.
                batch = self._engine.batch(0.0 if self._waiting else seconds)
            except EngineFailed as error:
                if self._waiting:
                    break
                raise failed(self._name, error) from error
            if batch is None:
                break
            self._begun = self._admitted
            self._waiting.extend(found for sent in self._frames.records(batch) for found in self._arrivals(sent))
            self._look()
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def confirm(self, position: Position) -> None:
        """Let the database forget what is before a position."""
        offset = position.get("offset")
        if offset is not None and offset != self._confirmed:
            self._engine.tell({"confirm": offset})
            self._confirmed = offset

    def lag(self) -> Lag:
        """How many records have come and were not taken; what a log has besides cannot be asked for in records."""
        return Lag(len(self._waiting) if self._begun else None, note=self._warning, is_heard=self._begun)

    def close(self) -> None:
        """End the connector; its database keeps for us what was not confirmed."""
        self._engine.close()

    def _look(self) -> None:
        """See what tables there are, if that was told: refuse to begin with them, or tell what is wrong with them."""
        rows, self._frames.tables = self._frames.tables, None
        if rows is None:
            return
        found = found_of(rows, self._tables)
        if not self._admitted:
            refuse(self._name, self._tables, found, begins=self._begins)
            self._admitted = True
            self._engine.tell({"begin": True})
            if self._signal is not None:
                self._engine.tell({"signal": self._signal})
        self._warning = warning(self._tables, found)

    def _arrivals(self, sent: Sent) -> Iterator[Arrival]:
        """A record, after the beginning of its transaction where it is the first of one; none if nothing is new.

        Each heartbeat of PostgreSQL is a transaction too, with nothing of a table in it: it moves the position only.
        """
        message, opening = self._said_between(sent), self._opening
        if isinstance(message, TransactionBoundary) and message.status == "BEGIN":
            self._opening = sent, message
            return
        if opening is not None and isinstance(message, NoChange):
            return
        self._opening = None
        moves_only = isinstance(message, NoChange) or (opening is not None and message is not None)
        if moves_only and (sent.offset == self._offset or self._is_early(sent.offset)):
            return
        if opening is not None:
            yield self._arrival(*opening, whole=False)
        yield self._arrival(sent, message, whole=not self._inside)

    def _arrival(self, sent: Sent, message: Message | None, *, whole: bool) -> Arrival:
        if message is None:
            self._number += 1
        self._offset = sent.offset
        advance: dict[str, Any] = {"offset": sent.offset, "number": self._number}
        if message is None and sent.topic not in self._topics:
            self._topics.add(sent.topic)
            advance["topics"] = sorted(self._topics)
        if self._asked and is_between(sent.offset):
            # From here on the offset itself tells how far it is.
            self._asked = False
            advance["asked"] = None
        if self._frames.history != self._history:
            self._history = self._frames.history
            advance["history"] = packed(self._history or "")
        at = committed_at(sent.offset)
        record = Record(sent.value, sent.key, topic=sent.topic, offset=self._number, timestamp=at)
        return Arrival(record, advance, message, whole=whole)

    def _is_early(self, offset: Mapping[str, Any]) -> bool:
        """Whether only the position moves on, and did so a moment ago: each time costs an epoch.

        It is told nevertheless as long as rows are read between the changes, and once more when these are over.
        """
        now = time.monotonic()
        if not is_between(offset) and not is_between(self._offset or {}) and now - self._beat_at < self._beat_seconds:
            return True
        self._beat_at = now
        return False

    def _said_between(self, sent: Sent) -> Message | None:
        """What a record says that is of no table; None for all others."""
        if sent.topic == f"{self._prefix}.transaction":
            content = _payload(sent.value)
            self._inside = content.get("status") == "BEGIN"
            return TransactionBoundary("BEGIN" if self._inside else "END", str(content.get("id")))
        if sent.topic == f"{self._prefix}.message":
            return NoChange("message")
        return NoChange("heartbeat") if sent.topic.startswith("__debezium-heartbeat") else None

    def _emptied(self, topic: str) -> Arrival:
        return Arrival(Record(None, topic=topic, offset=self._number), {}, Truncation())


def is_unfinished(offset: Mapping[str, Any]) -> bool:
    """Whether an offset is of a first reading of the tables that had not come to its end."""
    if str(offset.get("snapshot")).lower() == "incremental":
        # A later one, which goes on after the last chunk that came.
        return False
    return bool(offset.get("snapshot")) and not offset.get("snapshot_completed", offset.get("last_snapshot_record"))


def committed_at(offset: Mapping[str, Any]) -> datetime | None:
    """When a record was committed in its database, as far as the offset after it tells."""
    for name, unit in (("ts_usec", 1_000_000), ("ts_sec", 1)):
        value = offset.get(name)
        if isinstance(value, int) and value > 0:
            return datetime.fromtimestamp(value / unit, UTC)
    return None


def is_between(offset: Mapping[str, Any]) -> bool:
    """Whether rows of a table are being read between its changes."""
    return any(name.startswith("incremental_snapshot") for name in offset)


def again(_: Description) -> Position:
    """That a source begins anew: its numbers go on, and its tables are known, to be emptied first."""
    return {"again": True, "offset": GONE, "history": GONE, "asked": GONE}


def with_snapshot(tables: Sequence[str], asked: str) -> Position:
    """That a source is to bring all rows of some tables."""
    return {"asked": {"id": asked, "tables": list(tables)}}


def _wanted(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "INCREMENTAL", "data-collections": list(asked["tables"])}


def packed(text: str) -> str:
    """A long text as a short one."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> str:
    """The text that was packed."""
    return zlib.decompress(base64.b64decode(text)).decode() if text else ""


def _payload(value: bytes | None) -> Mapping[str, Any]:
    content = json.loads(value or b"{}")
    return content.get("payload", content)


def ask(description: Description, plan: Plan, statements: Sequence[str], seconds: float = 60.0) -> None:
    """Run statements in the database of a source, by the driver that its connector has."""
    told = {"verb": "ask", "database": plan.database, "statements": list(statements)}
    engine = Engine(description.name, class_path(plan.connector), told, Scratch())
    try:
        if engine.batch(seconds) is None:
            raise TimeoutError(f"the database of {description.name} gave no answer within {seconds:.0f} seconds")
    except EngineFailed as error:
        raise failed(description.name, error) from error
    finally:
        engine.close()
