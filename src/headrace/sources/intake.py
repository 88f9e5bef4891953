"""From what a source brought to one call of the epoch loop: changes of tables, and what is kept about them.

Every change has one of three ends, applied, stale or dead, so that received = applied + stale + dead for all that is
committed. The position goes into the same epoch: either all of it is there, or the same records are read again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.capture.connector import Arrival, Position, laid_over
from headrace.capture.messages import (
    Decode,
    Message,
    NoChange,
    Origin,
    RowChange,
    SchemaChange,
    TransactionBoundary,
    Truncation,
    Undecodable,
)
from headrace.capture.options import UNAVAILABLE_VALUE
from headrace.capture.record import Record
from headrace.epoch.batch import Changes, Verdicts
from headrace.epoch.calls import Call
from headrace.errors import Rejection, SourceError
from headrace.intake.positions import Captured, Emptied, SourcePosition, numbered, sortable
from headrace.json_forms import json_form
from headrace.sources.positions import Positions
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, raw_name

_log = logging.getLogger("headrace.sources")
# A larger record is a dead letter, of which so much is kept: one of a gigabyte must not take the home down with it.
MOST_BYTES = 10_000_000
_REASON = 10_000


@dataclass(frozen=True)
class Progress:
    """How far a source is, and what became of all that it brought."""

    position: Position = field(default_factory=dict[str, Any])
    received: int = 0
    applied: int = 0
    stale: int = 0
    dead: int = 0
    # Of the dead ones, how many were let go; the others are among the dead letters.
    discarded: int = 0
    # How many rows of what came are kept.
    recorded: int = 0
    source_at: datetime | None = None
    # When an epoch last brought something of it; told by the row that is kept.
    committed_at: datetime | None = field(default=None, compare=False)

    def row(self, source: str, now: datetime) -> dict[str, Any]:
        """The row that keeps it."""
        return {
            "source": source,
            "position": json.dumps(self.position, sort_keys=True),
            "received": self.received,
            "applied": self.applied,
            "stale": self.stale,
            "dead": self.dead,
            "discarded": self.discarded,
            "recorded": self.recorded,
            "source_at": self.source_at,
            "updated_at": now,
        }

    @staticmethod
    def of_row(row: Mapping[str, Any]) -> Progress:
        """The progress that a row keeps."""
        counts = {name: row[name] for name in ("received", "applied", "stale", "dead", "discarded", "recorded")}
        position, committed_at = json.loads(row["position"] or "{}"), row.get("updated_at")
        return Progress(position, **counts, source_at=row["source_at"], committed_at=committed_at)


class NoTable(Undecodable):
    """A record is of a table that is not there."""

    def __init__(self, table: str, topic: str) -> None:
        super().__init__(f"there is no table {table} for the records of {topic}", "schema")
        self.table = table


@dataclass(frozen=True)
class Letter:
    """A record that cannot be applied, and why; how many changes it stands for, one if they cannot be told."""

    arrival: Arrival
    number: int
    table: str | None
    stage: str
    reason: str
    changes: int = 1


class Torn(Exception):
    """Some changes of records were refused and others taken; a record is applied whole or not at all."""

    def __init__(self, letters: Sequence[Letter]) -> None:
        super().__init__(f"{len(letters)} records are refused in part")
        self.letters = tuple(letters)


class Whence(NamedTuple):
    """The record that a change came from, which of its changes it is, and where it is in its source."""

    arrival: Arrival
    number: int
    position: SourcePosition | None = None


@dataclass
class Decoded:
    """Records that belong into one epoch, in their order: each change with the record that it came from."""

    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    messages: list[tuple[Arrival, Message]] = field(default_factory=list[tuple[Arrival, Message]])
    changes: dict[str, list[object]] = field(default_factory=dict[str, list[object]])
    origins: dict[str, list[Whence]] = field(default_factory=dict[str, list[Whence]])
    letters: list[Letter] = field(default_factory=list[Letter])
    # How much of a letter's payload is kept.
    most_bytes: int = MOST_BYTES
    # Records that tell of other columns, and those of tables that are not there: by their index among all.
    schema_changes: dict[int, SchemaChange] = field(default_factory=dict[int, SchemaChange])
    without_table: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def received(self) -> int:
        """How many changes came, those that could not be read included."""
        return sum(map(len, self.changes.values())) + sum(one.changes for one in self.letters)

    @property
    def captured(self) -> dict[str, Sequence[object]]:
        """The changes of each table as intake takes them: with their positions, where they have some."""
        return {name: _captured(listed, self.origins[name]) for name, listed in self.changes.items()}


def decode(
    arrivals: Sequence[Arrival],
    table_of: Callable[[Arrival], str],
    decode_of: Callable[[str], Decode],
    *,
    most_bytes: int = MOST_BYTES,
    positions: Positions | None = None,
    truncates: bool = True,
) -> Decoded:
    """What the records mean; those that mean nothing, or are too large, become dead letters, and stop nobody.

    With `positions`, changes that are older than the last of their key in the source are stale. Without `truncates`,
    what empties a table is left out.
    """
    decoded = Decoded(list(arrivals), most_bytes=most_bytes)
    for index, arrival in enumerate(arrivals):
        table = ""
        if isinstance(arrival.message, NoChange | TransactionBoundary):
            # Of no table.
            decoded.messages.append((arrival, arrival.message))
            continue
        try:
            table, missing = _table(arrival, table_of)
            refuse_large(arrival.record, most_bytes)
            message = arrival.message or decode_of(table)(arrival.record)
            # What is no change of a row needs no table.
            if missing is not None and not isinstance(message, (SchemaChange, TransactionBoundary, NoChange)):
                decoded.without_table[index] = missing.table
                raise missing
        except Undecodable as error:
            decoded.letters.append(Letter(arrival, 0, table or None, error.stage, error.reason))
            continue
        decoded.messages.append((arrival, message))
        if isinstance(message, SchemaChange):
            decoded.schema_changes[index] = message
        if isinstance(message, Truncation) and not truncates:
            _log.warning("a TRUNCATE of table %s is not taken", table, extra={"relation": table})
            continue
        first = None if positions is None else positions.of(message, arrival.record)
        changes = (Emptied(),) if isinstance(message, Truncation) else message.changes
        for number, change in enumerate(changes):
            decoded.changes.setdefault(table, []).append(change)
            position = first._replace(number=number) if first is not None and number else first
            decoded.origins.setdefault(table, []).append(Whence(arrival, number, position))
    return decoded


def _table(arrival: Arrival, table_of: Callable[[Arrival], str]) -> tuple[str, NoTable | None]:
    try:
        return table_of(arrival), None
    except NoTable as missing:
        return "", missing


def refuse_large(record: Record, most_bytes: int) -> None:
    """Refuse a record that is larger than its source takes."""
    size = len(record.value or b"")
    if size > most_bytes:
        raise Undecodable(
            f"the record has {size:,} bytes, and max_record_bytes is {most_bytes:,}: no more of it is kept here", "size"
        )


def without_records(decoded: Decoded, letters: Sequence[Letter]) -> Decoded:
    """The same without some records, each of which is one dead letter now, whatever it would have changed."""
    gone = {id(one.arrival) for one in letters}
    counts = dict.fromkeys(gone, 0)
    changes: dict[str, list[object]] = {}
    origins: dict[str, list[Whence]] = {}
    for table, listed in decoded.changes.items():
        changes[table], origins[table] = [], []
        for change, origin in zip(listed, decoded.origins[table], strict=True):
            if id(origin[0]) in gone:
                counts[id(origin[0])] += 1
            else:
                changes[table].append(change)
                origins[table].append(origin)
    dead = [replace(one, changes=counts[id(one.arrival)]) for one in letters]
    return replace(decoded, changes=changes, origins=origins, letters=[*decoded.letters, *dead])


def call_for(source: str, decoded: Decoded, before: Progress, *, raw: bool) -> tuple[Call, Callable[[], Progress]]:
    """The call that takes the records into an epoch, and how far the source is once it has been committed."""
    now = datetime.now(UTC)
    reached = [before]

    def after(verdicts: Verdicts) -> Changes:
        letters = [*decoded.letters, *_refused(decoded, verdicts.rejections)]
        applied, stale = sum(verdicts.applied.values()), sum(verdicts.stale.values())
        dead = sum(one.changes for one in letters)
        rows = raw_rows(decoded, now) if raw else []
        progress = advanced(before, decoded, applied, stale, dead)
        reached[0] = progress = replace(progress, recorded=before.recorded + len(rows))
        kept: dict[str, Sequence[object]] = {PROGRESS: [{"insert": progress.row(source, now)}]}
        if letters:
            kept[DEAD_LETTERS] = [{"insert": letter_row(source, letter, now, decoded.most_bytes)} for letter in letters]
        if rows:
            kept[raw_name(source)] = [{"insert": row} for row in rows]
        return kept

    # In the order of a table's name where records of several come together: an epoch has no order among tables.
    return Call(decoded.captured, after=after), lambda: reached[0]


def _captured(changes: Sequence[object], origins: Sequence[Whence]) -> Sequence[object]:
    positions = [one.position for one in origins]
    plain = all(one is None for one in positions) and not any(isinstance(one, Emptied) for one in changes)
    return changes if plain else Captured(changes, positions)


def call_to_begin(source: str, position: Position, before: Progress) -> tuple[Call, Callable[[], Progress]]:
    """The call that commits where a source begins, and how far it is then."""
    begun = replace(before, position=position)
    kept: Changes = {PROGRESS: [{"insert": begun.row(source, datetime.now(UTC))}]}
    return Call({}, after=lambda _: kept), lambda: begun


def advanced(before: Progress, decoded: Decoded, applied: int, stale: int, dead: int) -> Progress:
    """The progress after records, given what became of them."""
    advance: dict[str, Any] = {}
    for arrival in decoded.arrivals:
        advance.update(arrival.advance)
    times = [at for _, message in decoded.messages if (at := _source_at(message)) is not None]
    return replace(
        before,
        position=laid_over(before.position, advance),
        received=before.received + decoded.received,
        applied=before.applied + applied,
        stale=before.stale + stale,
        dead=before.dead + dead,
        source_at=max([*times, *([before.source_at] if before.source_at else [])], default=None),
    )


def _refused(decoded: Decoded, rejections: Sequence[Rejection]) -> list[Letter]:
    """The records that were refused, a letter each; `Torn` if some of their changes were taken."""
    refused: dict[int, list[Rejection]] = {}
    for one in rejections:
        refused.setdefault(id(decoded.origins[one.table][one.index][0]), []).append(one)
    letters: list[Letter] = []
    torn: list[Letter] = []
    for listed in refused.values():
        first = listed[0]
        of_record = _changes_of_record(decoded.origins[first.table], first.index)
        reason = "; ".join(dict.fromkeys(one.reason for one in listed))
        arrival = decoded.origins[first.table][first.index][0]
        letter = Letter(arrival, 0, first.table, "contract", reason, of_record)
        (letters if len(listed) == of_record else torn).append(letter)
    if torn:
        raise Torn(torn)
    return letters


def _changes_of_record(origins: Sequence[Whence], index: int) -> int:
    """How many changes the record of one has; they stand together."""
    arrival = origins[index][0]
    first, last = index, index
    while first > 0 and origins[first - 1][0] is arrival:
        first -= 1
    while last + 1 < len(origins) and origins[last + 1][0] is arrival:
        last += 1
    return last + 1 - first


def letter_row(source: str, letter: Letter, now: datetime, most_bytes: int) -> dict[str, Any]:
    """The row that keeps a dead letter."""
    record = letter.arrival.record
    payload = payload_text(record.value, most_bytes)
    return {
        # The same record has the same id each time: refused again after a replay, it is one letter.
        "id": f"{source}:{record.event_id}:{letter.number}",
        "source": source,
        "table": letter.table,
        "position": record.event_id,
        "stage": letter.stage,
        "reason": letter.reason[:_REASON],
        "payload": payload,
        "changes": letter.changes,
        "arrived_at": now,
        "key": payload_text(record.key, most_bytes),
    }


def payload_text(value: bytes | None, most_bytes: int = MOST_BYTES) -> str | None:
    """Bytes as text, so many at most; those that are none are hexadecimal digits behind \\x, as PostgreSQL writes."""
    if value is None:
        return None
    cut = value[:most_bytes]
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        # One that was cut within a letter is text up to there.
        if len(value) <= most_bytes or error.start < len(cut) - 3:
            return "\\x" + cut.hex()
        text = cut[: error.start].decode()
    # What looks like digits already would be read back as the bytes that they stand for.
    return "\\x" + cut.hex() if text.startswith("\\x") else text


def payload_bytes(text: str | None) -> bytes | None:
    """The bytes that a text stands for."""
    if text is None:
        return None
    try:
        return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()
    except ValueError:
        raise SourceError(
            "the payload of a dead letter is neither text nor bytes",
            hint="write bytes as \\x and two hexadecimal digits for each",
        ) from None


def raw_rows(decoded: Decoded, now: datetime) -> list[dict[str, Any]]:
    """What the raw table keeps of records: each change of a row as it came."""
    rows: list[dict[str, Any]] = []
    for arrival, message in decoded.messages:
        if not isinstance(message, RowChange):
            continue
        rows.append(
            {
                "event_id": arrival.record.event_id,
                "operation": message.operation,
                "before": _image(message.before),
                "after": _image(message.after, message.kept),
                "source_at": message.origin.committed_at,
                "position": message.origin.position.text or arrival.record.event_id,
                "arrived_at": now,
                "log_order": _log_order(message.origin),
            }
        )
    return rows


def _image(row: Mapping[str, Any] | None, kept: Collection[str] = ()) -> str | None:
    """An image of a row as JSON; what the record did not have, and what therefore stays, is marked as Debezium does."""
    if row is None:
        return None
    marked = {**row, **{name: UNAVAILABLE_VALUE for name in kept if name not in row}} if kept else row
    text = json.dumps(marked, default=json_form, ensure_ascii=False)
    # A source of one's own may bring half of a surrogate pair, which is text only where it is escaped.
    return text if is_text(text) else json.dumps(marked, default=json_form)


def is_text(text: str) -> bool:
    """Whether a text can be kept as one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _log_order(origin: Origin) -> str | None:
    order = sortable(origin.position.order)
    return f"{numbered(f'{origin.connector}:{origin.server}:{origin.table}')} {order}" if order else None


def _source_at(message: Message) -> datetime | None:
    return message.origin.committed_at if isinstance(message, RowChange) else None
