"""What other processes may ask of the event stores of a home, as values that go over a socket.

Documents go as texts of JSON, so that their numbers keep their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from headrace.capture.exact_json import json_text, read_json
from headrace.epoch.receipt import Receipt
from headrace.events.reading import Wanted
from headrace.events.states import as_event
from headrace.events.store import EventStore, open_store_of
from headrace.events.tables import is_beside

Deed = Literal["append", "read", "state", "forget"]


def told_receipt(store: str, receipt: Receipt) -> dict[str, Any]:
    """A receipt of an append, with the counts of what was asked for: not of what is kept beside the store."""
    answer = receipt.to_json()
    applied = {name: count for name, count in receipt.applied.items() if not is_beside(store, name)}
    return {**answer, "applied": applied}


def told_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """An event as it goes over a wire, by json_text: its numbers have the digits that were sent."""
    return {**as_event(row), "created_at": told_time(row["created_at"])}


def told_time(at: datetime | None) -> str | None:
    """A time with Z for its zone: a + in an address is a space to who reads it."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def events_verb(store_of: Callable[[str | None], EventStore]) -> Callable[..., dict[str, Any]]:
    """The verb that does one of these."""

    def asked(
        deed: Deed,
        store: str | None = None,
        aggregate_type: str | None = None,
        aggregate_id: str | None = None,
        events: str | Sequence[dict[str, Any]] = (),
        expected: str | int = "any",
        key: str | None = None,
        since: int = 0,
        limit: int = 1000,
        as_of: str | int | None = None,
    ) -> dict[str, Any]:
        chosen = store_of(store)
        within = open_store_of(chosen)
        if deed == "read":
            rows, more = within.find(Wanted(aggregate_type, aggregate_id, since=since, limit=limit))
            return {"events": json_text([told_event(row) for row in rows]), "more": more}
        kind, name = aggregate_type or "", aggregate_id or ""
        if deed == "append":
            listed = read_json(events) if isinstance(events, str) else events
            return told_receipt(chosen.name, chosen.append(kind, name, listed, expected, key=key))
        if deed == "forget":
            return {"forgotten": chosen.forget(kind, name)}
        state, reached = within.shown_state(kind, name, as_of)
        answer = {
            "state": None if state is None else json_text(state),
            "version": reached.version,
            "position": reached.position,
        }
        return answer if reached.version else {**answer, "types": within.aggregate_types()}

    return asked
