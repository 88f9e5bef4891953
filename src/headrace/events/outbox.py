"""An outbox: rows that an application wrote beside its own tables become events, each exactly once.

A row is that of Debezium's outbox: id, aggregatetype, aggregateid, type, payload; whatever else it has goes into the
metadata. The event's id is the row's, so whatever is read again changes nothing, and how far it was read is kept in
the epoch of the events. Followed is the raw table of a source, which has a row also of what was deleted right after it
was written, or any table with those columns. What is no event is parked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.errors import EpochExpired, EventsRejected, Rejection, RelationNameError
from headrace.events.append import rows_by
from headrace.events.followers import Follower
from headrace.events.tables import beside
from headrace.json_forms import json_form
from headrace.reading.following import Changes, Position, Reset
from headrace.state.state import BEGIN, At

COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")
PREFIX = "outbox:"
_PIECE = 2_000
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


class OutboxFollower(Follower):
    """Follows an outbox by the epochs of its table; its position is the last epoch that it is through with."""

    def __init__(self, loop: Loop, store: str, relation: str, call_for: CallFor) -> None:
        super().__init__(loop, store, f"{PREFIX}{relation}", lambda _: {}, lambda event: event)
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
        rows.sort(key=lambda row: row["_order"])
        taken = len(rows)
        self.append_rows(rows, reset.position.epoch or 0)
        return taken

    def append_rows(self, rows: Sequence[Row], epoch: int) -> None:
        """Append in pieces; only the last says how far it is, and all before it change nothing when they come again."""
        pieces = [rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE)] or [[]]
        for index, piece in enumerate(pieces):
            kept = self.kept_at(epoch) if index == len(pieces) - 1 else {}
            if not piece:
                self._loop.submit(Call(kept))
                continue
            try:
                self._submit(piece, kept)
            except EventsRejected:
                # Which of them it was shows when each is tried alone.
                for row in piece:
                    self._append_one(row, epoch)
                self._loop.submit(Call(kept))

    def _append_one(self, row: Row, epoch: int) -> None:
        try:
            self._submit([row], {})
        except EventsRejected as error:
            parked = {
                "subscription": self.name,
                "position": epoch,
                "event_id": str(row.get("id")),
                "reason": error.detail[:10_000],
                "attempts": 1,
                "parked_at": self._loop.core.tick(),
            }
            self._loop.submit(Call({beside(self._store, "parked"): [{"insert": parked}]}))

    def _submit(self, rows: Sequence[Row], kept: Mapping[str, Sequence[object]]) -> None:
        call = self._call_for(rows, kept)
        self._loop.receipt_of(self._loop.enter(call))


def inserted_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows of an outbox that were written, in the order of the source's log, or of their ids."""
    found: list[Row] = []
    for row in rows:
        if row.get("_change_type", "insert") not in ("insert", "update_postimage"):
            continue
        if "operation" in row and "after" in row:
            if row["operation"] not in ("create", "read", "snapshot") or row["after"] is None:
                continue
            order = (row.get("log_order") or "", row.get("position") or "", row.get("event_id") or "")
            found.append({**json.loads(row["after"]), "_order": order})
        else:
            plain = {name: value for name, value in row.items() if not name.startswith("_")}
            found.append({**plain, "_order": ("", "", str(row.get("id")))})
    return iter(sorted(found, key=lambda row: row["_order"]))


def append_of(store: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What is appended of a row; `EventsRejected` if it is no event."""
    lower = {name.lower(): value for name, value in row.items()}
    payload = lower.get("payload")
    if isinstance(payload, str):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            reason = f"the payload of outbox row {str(lower.get('id'))[:60]} is no JSON"
            raise EventsRejected([Rejection(store, 0, reason)]) from None
    others = {name: value for name, value in lower.items() if name not in COLUMNS and name != "_order"}
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
