"""From what a source brought to one call of the epoch loop: changes of tables, and what is kept about them.

Every change has one of three ends, applied, stale or dead, so that received = applied + stale + dead for all that is
committed. The position goes into the same epoch: either all of it is there, or the same records are read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headrace.capture.connector import Arrival, Position
from headrace.capture.messages import Decode, Message, RowChange, Undecodable
from headrace.epoch.batch import Changes, Verdicts
from headrace.epoch.calls import Call
from headrace.json_forms import json_form
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, raw_name

# A payload is kept whole up to so many characters: one of a gigabyte must not take the home down with it.
_PAYLOAD = 1_000_000


@dataclass(frozen=True)
class Progress:
    """How far a source is, and what became of all that it brought."""

    position: Position = field(default_factory=dict[str, Any])
    received: int = 0
    applied: int = 0
    stale: int = 0
    dead: int = 0
    source_at: datetime | None = None

    def row(self, source: str, now: datetime) -> dict[str, Any]:
        """The row that keeps it."""
        return {
            "source": source,
            "position": json.dumps(self.position, sort_keys=True),
            "received": self.received,
            "applied": self.applied,
            "stale": self.stale,
            "dead": self.dead,
            "source_at": self.source_at,
            "updated_at": now,
        }

    @staticmethod
    def of_row(row: Mapping[str, Any]) -> Progress:
        """The progress that a row keeps."""
        counts = {name: row[name] for name in ("received", "applied", "stale", "dead")}
        return Progress(json.loads(row["position"] or "{}"), **counts, source_at=row["source_at"])


@dataclass(frozen=True)
class Letter:
    """A change or a record that cannot be applied, and why."""

    arrival: Arrival
    number: int
    table: str | None
    stage: str
    reason: str


@dataclass
class Decoded:
    """Records that belong into one epoch, in their order: each change with the record that it came from."""

    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    messages: list[tuple[Arrival, Message]] = field(default_factory=list[tuple[Arrival, Message]])
    changes: dict[str, list[object]] = field(default_factory=dict[str, list[object]])
    origins: dict[str, list[tuple[Arrival, int]]] = field(default_factory=dict[str, list[tuple[Arrival, int]]])
    letters: list[Letter] = field(default_factory=list[Letter])

    @property
    def received(self) -> int:
        """How many changes came, those that could not be read included."""
        return sum(map(len, self.changes.values())) + len(self.letters)


def decode(
    arrivals: Sequence[Arrival], table_of: Callable[[Arrival], str], decode_of: Callable[[str], Decode]
) -> Decoded:
    """What the records mean; those that mean nothing become dead letters, and stop nobody."""
    decoded = Decoded(list(arrivals))
    for arrival in arrivals:
        table = ""
        try:
            table = table_of(arrival)
            message = arrival.message or decode_of(table)(arrival.record)
        except Undecodable as error:
            decoded.letters.append(Letter(arrival, 0, table or None, error.stage, error.reason))
            continue
        decoded.messages.append((arrival, message))
        for number, change in enumerate(message.changes):
            decoded.changes.setdefault(table, []).append(change)
            decoded.origins.setdefault(table, []).append((arrival, number))
    return decoded


def without(decoded: Decoded, table: str, index: int, stage: str, reason: str) -> Decoded:
    """The same without one change, which is a dead letter now."""
    arrival, number = decoded.origins[table][index]
    letter = Letter(arrival, number, table, stage, reason)
    changes = {name: list(listed) for name, listed in decoded.changes.items()}
    origins = {name: list(listed) for name, listed in decoded.origins.items()}
    del changes[table][index], origins[table][index]
    return Decoded(decoded.arrivals, decoded.messages, changes, origins, [*decoded.letters, letter])


def call_for(source: str, decoded: Decoded, before: Progress, *, raw: bool) -> tuple[Call, Callable[[], Progress]]:
    """The call that takes the records into an epoch, and how far the source is once it has been committed."""
    now = datetime.now(UTC)
    reached = [before]

    def after(verdicts: Verdicts) -> Changes:
        rejected = [_rejected(decoded, one.table, one.index, one.reason) for one in verdicts.rejections]
        letters = [*decoded.letters, *rejected]
        applied, stale = sum(verdicts.applied.values()), sum(verdicts.stale.values())
        reached[0] = progress = advanced(before, decoded, applied, stale, len(letters))
        kept: dict[str, Sequence[object]] = {PROGRESS: [{"insert": progress.row(source, now)}]}
        if letters:
            kept[DEAD_LETTERS] = [{"insert": _letter_row(source, letter, now)} for letter in letters]
        if raw and decoded.messages:
            kept[raw_name(source)] = [{"insert": row} for row in _raw_rows(decoded, now)]
        return kept

    # In the order of a table's name where records of several come together: an epoch has no order among tables.
    return Call(dict(decoded.changes), after=after), lambda: reached[0]


def advanced(before: Progress, decoded: Decoded, applied: int, stale: int, dead: int) -> Progress:
    """The progress after records, given what became of them."""
    position = dict(before.position)
    for arrival in decoded.arrivals:
        position.update(arrival.advance)
    times = [at for _, message in decoded.messages if (at := _source_at(message)) is not None]
    return replace(
        before,
        position=position,
        received=before.received + decoded.received,
        applied=before.applied + applied,
        stale=before.stale + stale,
        dead=before.dead + dead,
        source_at=max([*times, *([before.source_at] if before.source_at else [])], default=None),
    )


def _rejected(decoded: Decoded, table: str, index: int, reason: str) -> Letter:
    arrival, number = decoded.origins[table][index]
    return Letter(arrival, number, table, "contract", reason)


def _letter_row(source: str, letter: Letter, now: datetime) -> dict[str, Any]:
    record = letter.arrival.record
    payload = payload_text(record.value)
    return {
        # The same record has the same id each time: refused again after a replay, it is one letter.
        "id": f"{source}:{record.event_id}:{letter.number}",
        "source": source,
        "table": letter.table,
        "position": record.event_id,
        "stage": letter.stage,
        "reason": letter.reason[:_PAYLOAD],
        "payload": payload,
        "arrived_at": now,
    }


def payload_text(value: bytes | None) -> str | None:
    """Bytes as text; those that are none are told as hexadecimal digits behind \\x, as PostgreSQL writes them."""
    if value is None:
        return None
    cut = value[:_PAYLOAD]
    try:
        return cut.decode()
    except UnicodeDecodeError:
        return "\\x" + cut[: _PAYLOAD // 2].hex()


def payload_bytes(text: str | None) -> bytes | None:
    """The bytes that a text stands for."""
    if text is None:
        return None
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()


def _raw_rows(decoded: Decoded, now: datetime) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for arrival, message in decoded.messages:
        if not isinstance(message, RowChange):
            continue
        rows.append(
            {
                "event_id": arrival.record.event_id,
                "operation": message.operation,
                "before": _image(message.before),
                "after": _image(message.after),
                "source_at": message.origin.committed_at,
                "position": message.origin.position.text or arrival.record.event_id,
                "arrived_at": now,
            }
        )
    return rows


def _image(row: Mapping[str, Any] | None) -> str | None:
    return None if row is None else json.dumps(row, default=json_form, ensure_ascii=False)


def _source_at(message: Message) -> datetime | None:
    return message.origin.committed_at if isinstance(message, RowChange) else None
