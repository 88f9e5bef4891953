"""An outbox: rows that an application wrote beside its own tables become events, each exactly once.

A row is that of Debezium's outbox: id, aggregatetype, aggregateid, type, payload; whatever else it has goes into the
metadata. The event's id is the row's, so whatever is read again changes nothing, and how far it was read is kept in
the epoch of the events. Followed is the raw table of a source, which has a row also of what was deleted right after it
was written, or any table with those columns. What is no event, or one that a view cannot take, is parked with its row,
and the others go on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from headrace.capture.exact_json import json_text, read_json, read_kept
from headrace.capture.messages import Undecodable
from headrace.epoch.calls import Call, Outdated
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.errors import (
    ChangesRejected,
    EpochExpired,
    EventsRejected,
    HeadraceError,
    MemoryExceeded,
    Rejection,
    RelationNameError,
    ViewEvaluationError,
)
from headrace.events.append import rows_by
from headrace.events.followers import Follower
from headrace.events.tables import beside
from headrace.json_forms import json_form
from headrace.reading.following import Changes, Position, Reset
from headrace.sql.syntax import AlterTable, DropColumn, RenameColumn
from headrace.state.state import BEGIN, At

COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")
PREFIX = "outbox:"
_PIECE = 2_000
_LONGEST_ID, _LONGEST_REASON = 1_000, 10_000
_ORDER = "_order"
# The topic, the partition and the offset of what a source keeps.
_RECORD = re.compile(r"(.*)-(\d+)-(\d+)", re.DOTALL)
# What is wrong with rows, and not with the machine: they are parked, and the others go on.
OF_ROWS = (ChangesRejected, ViewEvaluationError, MemoryExceeded)
Row = dict[str, Any]
# The call of events of rows, with changes that are made whatever becomes of them.
CallFor = Callable[[Sequence[Row], Mapping[str, Sequence[object]]], Call]


def refuse_no_outbox(names: Sequence[str], relation: str) -> None:
    """Refuse a relation whose rows are neither those of an outbox nor what a source keeps of one."""
    known = {name.lower() for name in names}
    if not ({"operation", "after"} <= known or set(COLUMNS) <= known):
        raise RelationNameError(
            f"{relation} is no outbox",
            detail=f"It has the columns {', '.join(names)[:300]}.",
            hint=f"name the raw table of a source, or a table with {', '.join(COLUMNS)}",
        )


def refuse_column_gone(core: Core, statement: AlterTable) -> None:
    """Refuse to take a column away, or its name, by which rows of a followed outbox become events."""
    if isinstance(statement, RenameColumn):
        column = statement.old
    elif isinstance(statement, DropColumn):
        column = statement.column_name
    else:
        return
    if column.lower() not in COLUMNS:
        return
    for store in [one.name for one in core.catalog.tables() if one.events is not None]:
        followed = f"{PREFIX}{statement.table}"
        held = core.newest_of_names([beside(store, "subscriptions")])
        if any(rows_by(state, (0,), [(followed,)]) for state, _ in held.values()):
            raise RelationNameError(
                f"column {column} of {statement.table} makes events of its rows",
                detail=f"Event store {store} follows {statement.table} as an outbox.",
                hint=f'unsubscribe("{followed}") from the store first',
            )


class OutboxFollower(Follower):
    """Follows an outbox by the epochs of its table; its position is the last epoch that it is through with."""

    def __init__(self, loop: Loop, store: str, relation: str, call_for: CallFor) -> None:
        super().__init__(loop, store, f"{PREFIX}{relation}", lambda _, __: ({}, 0))
        self._relation = relation
        self._call_for = call_for

    def begin(self) -> None:
        """Keep that the outbox is followed, so that it is after each opening of the home."""
        found = self._loop.core.newest_of_names([beside(self._store, "subscriptions")])
        if not any(rows_by(state, (0,), [(self.name,)]) for state, _ in found.values()):
            self._loop.submit(Call(self.kept_at(0)))

    def step(self) -> int:
        """Take what came after the last epoch that it is through with."""
        with self._turn:
            following, done = self._loop.core.following, self.position
            relation = self._loop.core.catalog.get(self._relation)
            # A column may have gone since: rows without it would become events without their content.
            refuse_no_outbox(relation.schema.names, relation.name)
            try:
                step = following.step(following.begin(self._relation, done or None))
            except EpochExpired:
                # All that is there is read again, and what was taken before is known by its id.
                step = following.step(Position(self._relation))
            if isinstance(step, Reset):
                return self._take_all(step)
            if not isinstance(step, Changes):
                return 0
            rows = [row for one in step.epochs for row in inserted_rows(one.table.to_pylist(maps_as_pydicts="strict"))]
            self.append_rows(rows, step.position.epoch or 0)
            return len(rows)

    def _take_all(self, reset: Reset) -> int:
        taken, at = 0, cast("At | None", BEGIN)
        rows: list[Row] = []
        while at is not None:
            piece = reset.content.piece(at, 50_000)
            at = piece.after
            rows.extend(inserted_rows(piece.rows.to_pylist(maps_as_pydicts="strict")))
        rows.sort(key=lambda row: row[_ORDER])
        taken = len(rows)
        self.append_rows(rows, reset.position.epoch or 0)
        return taken

    def append_rows(self, rows: Sequence[Row], epoch: int) -> None:
        """Append in pieces; only the last says how far it is, and all before it change nothing when they come again."""
        pieces = [rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE)] or [[]]
        for index, piece in enumerate(pieces):
            if self.is_stopped:
                return
            kept = self.kept_at(epoch) if index == len(pieces) - 1 else {}
            self._append_piece(piece, kept, epoch)

    def _append_piece(self, piece: Sequence[Row], kept: Mapping[str, Sequence[object]], epoch: int) -> None:
        """Append what can be, and keep with it how far it is and what is parked."""
        parked: list[object] = []
        good = list(piece)
        try:
            call = self._call_for(piece, kept) if piece else Call(kept)
        except EventsRejected:
            # What is no event is told apart before any epoch.
            good = []
            for row in piece:
                try:
                    self._call_for([row], {})
                except EventsRejected as error:
                    parked.append(self._parked(row, epoch, error))
                else:
                    good.append(row)
            kept = {**kept, beside(self._store, "parked"): parked}
            call = self._call_for(good, kept) if good else Call(kept)
        try:
            self._commit(call, len(good))
        except OF_ROWS as error:
            if not good:
                raise
            self._append_halves(good, epoch, error, parked)
            left = {**kept, beside(self._store, "parked"): parked} if parked else kept
            if left:
                self._commit(Call(left), 0)

    def _append_halves(self, rows: Sequence[Row], epoch: int, error: HeadraceError, parked: list[object]) -> None:
        """Append those of some rows, which failed together, that do not fail alone; in their order."""
        if len(rows) == 1:
            parked.append(self._parked(rows[0], epoch, error))
            return
        middle = len(rows) // 2
        for half in (rows[:middle], rows[middle:]):
            try:
                self._commit(self._call_for(half, {}), len(half))
            except OF_ROWS as again:
                self._append_halves(half, epoch, again, parked)

    def _commit(self, call: Call, rows: int) -> None:
        if self._forgotten:
            raise Outdated
        # Which row a view fails on shows by halves, while others go on; of the one row it is told.
        call.asks_row = rows == 1
        self._loop.receipt_of(self._loop.enter(call))

    def _parked(self, row: Row, epoch: int, error: HeadraceError) -> dict[str, object]:
        kept = {
            "subscription": self.name,
            "position": epoch,
            "event_id": row_id(row),
            "reason": reason_of(error),
            "attempts": 1,
            "parked_at": self._loop.core.tick(),
            "outbox_row": row_text(row),
        }
        return {"insert": kept}


def reason_of(error: HeadraceError) -> str:
    """Why a row could not become an event, as it is kept beside it."""
    return (f"{error.message}. {error.detail}" if error.detail else error.message)[:_LONGEST_REASON]


def row_text(row: Mapping[str, Any]) -> str:
    """A row of an outbox as it is kept where it could not become an event."""
    return json_text({name: json_form(value) for name, value in row.items() if name != _ORDER})


def row_id(row: Mapping[str, Any]) -> str:
    """What names a row among those that are parked: its id; of one that has none, what follows from its content."""
    found = next((value for name, value in row.items() if name.lower() == "id"), None)
    if found is None:
        return f"no id {hashlib.sha256(row_text(row).encode('utf-8', 'replace')).hexdigest()[:16]}"
    return str(found)[:_LONGEST_ID]


def inserted_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows of an outbox that were written, in the order of the source's log, or of their ids."""
    found: list[Row] = []
    for row in rows:
        # Neither the update nor the deletion of a row is an event.
        if row.get("_change_type", "insert") != "insert":
            continue
        if "operation" in row and "after" in row:
            if row["operation"] not in ("create", "read", "snapshot") or row["after"] is None:
                continue
            found.append({**read_kept(row["after"]), _ORDER: _raw_order(row)})
        else:
            plain = {name: value for name, value in row.items() if not name.startswith("_")}
            found.append({**plain, _ORDER: _plain_order(row)})
    return iter(sorted(found, key=lambda row: row[_ORDER]))


def _raw_order(row: Row) -> tuple[Any, ...]:
    """The order of the source's log; of what has one place in it, such as all rows of a snapshot, that of the topic."""
    name = row.get("event_id") or ""
    parts = _RECORD.fullmatch(name)
    record = (parts[1], int(parts[2]), int(parts[3])) if parts else (name, 0, 0)
    return (row.get("log_order") or "", *record)


def _plain_order(row: Row) -> tuple[Any, ...]:
    """The order of ids: numbers as numbers, and before texts."""
    found = next((value for name, value in row.items() if name.lower() == "id"), None)
    if isinstance(found, int | float | Decimal) and not isinstance(found, bool):
        return (0, found, "")
    return (1, 0, str(found))


def append_of(store: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What is appended of a row; `EventsRejected` if it is no event."""
    lower = {name.lower(): value for name, value in row.items()}
    payload = lower.get("payload")
    if isinstance(payload, str):
        try:
            payload = read_json(payload)
        except Undecodable:
            reason = f"the payload of outbox row {str(lower.get('id'))[:60]} is no JSON"
            raise EventsRejected([Rejection(store, 0, reason)]) from None
    others = {name: value for name, value in lower.items() if name not in COLUMNS and name != _ORDER}
    event = {
        "event_id": lower.get("id"),
        "event_type": lower.get("type"),
        "event_data": payload if isinstance(payload, dict | None) else {"payload": payload},
        "metadata": {"outbox": json_form(others)} if others else {},
    }
    if event["event_id"] is None:
        raise EventsRejected([Rejection(store, 0, "an outbox row has no id")])
    return {
        "aggregate_type": lower.get("aggregatetype"),
        "aggregate_id": lower.get("aggregateid"),
        "events": [event],
    }
