"""What other processes may ask of the event stores of a home, as values that go over a socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from headrace.events.states import as_event
from headrace.events.store import EventStore
from headrace.json_forms import json_form

Deed = Literal["append", "read", "state", "forget"]


def events_verb(store_of: Callable[[str | None], EventStore]) -> Callable[..., dict[str, Any]]:
    """The verb that does one of these."""

    def asked(
        deed: Deed,
        store: str | None = None,
        aggregate_type: str | None = None,
        aggregate_id: str | None = None,
        events: Sequence[dict[str, Any]] = (),
        expected: str | int = "any",
        key: str | None = None,
        since: int = 0,
        limit: int = 1000,
        as_of: str | int | None = None,
    ) -> dict[str, Any]:
        chosen = store_of(store)
        if deed == "read":
            rows, more = chosen.page(aggregate_type, aggregate_id, since, limit)
            return {"events": [json_form(as_event(row)) for row in rows], "more": more}
        kind, name = aggregate_type or "", aggregate_id or ""
        if deed == "append":
            return chosen.append(kind, name, events, expected, key=key).to_json()
        if deed == "forget":
            return {"forgotten": chosen.forget(kind, name)}
        state, reached = chosen.shown_state(kind, name, as_of)
        return {"state": json_form(state), "version": reached.version, "position": reached.position}

    return asked
