"""Subscriptions: a function is given every event in order; what it cannot take is parked, and can be replayed.

An event is given again if the process ends before how far it is was committed: at least once, in order. Its position
and its id tell whether it was there before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.events.append import rows_by
from headrace.events.followers import Follower, Opened
from headrace.events.reading import read_events
from headrace.events.states import as_event
from headrace.events.tables import beside

Handle = Callable[[dict[str, Any]], object]
_REASON = 10_000
_PAUSE_SECONDS = 0.05


def subscription(
    loop: Loop,
    store: str,
    name: str,
    handle: Handle,
    opened: Opened,
    aggregate_type: str | None,
    since: int,
    attempts: int,
) -> Follower:
    """A follower that gives each event to a function, so many times at most, and parks what it fails on."""

    def take(events: Sequence[dict[str, Any]]) -> Mapping[str, Sequence[object]]:
        parked: list[object] = []
        for event in events:
            if aggregate_type is not None and event["aggregate_type"] != aggregate_type:
                continue
            reason = _tried(handle, event, attempts)
            if reason is not None:
                parked.append({"insert": _row(name, event, reason, attempts, loop)})
        return {beside(store, "parked"): parked} if parked else {}

    return Follower(loop, store, name, take, opened, since, chunk=100)


def _tried(handle: Handle, event: dict[str, Any], attempts: int) -> str | None:
    """Why an event could not be taken, None if it was."""
    reason = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(_PAUSE_SECONDS * 2**attempt)
        try:
            handle(event)
            return None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
    return reason[:_REASON]


def _row(name: str, event: Mapping[str, Any], reason: str, attempts: int, loop: Loop) -> dict[str, Any]:
    return {
        "subscription": name,
        "position": event["position"],
        "event_id": event["event_id"],
        "reason": reason,
        "attempts": attempts,
        "parked_at": loop.core.tick(),
    }


def parked_events(loop: Loop, store: str, name: str | None) -> list[dict[str, Any]]:
    """What is parked, of one subscription or of all, in the order of positions."""
    state, schema = loop.core.newest_of_names([beside(store, "parked")])[beside(store, "parked")]
    held = state.all().rows.rename_columns(schema.names).to_pylist()
    return sorted((one for one in held if name in (None, one["subscription"])), key=lambda one: one["position"])


def replay_parked(loop: Loop, store: str, name: str, handle: Handle, opened: Opened) -> tuple[int, int]:
    """Give parked events to a function again, oldest first; how many it took, and how many stay."""
    taken = left = 0
    table = beside(store, "parked")
    for one in parked_events(loop, store, name):
        state, schema = loop.core.newest_of_names([store])[store]
        rows = read_events(state, schema, None, None, one["position"] - 1, one["position"])
        event = opened(as_event(rows.to_pylist(maps_as_pydicts="strict")[0]))
        reason = _tried(handle, event, 1)
        if reason is None:
            taken += 1
            key = {"subscription": name, "event_id": one["event_id"]}
            loop.submit(Call({table: [{"delete": key}]}))
        else:
            left += 1
            loop.submit(Call({table: [{"insert": _row(name, event, reason, one["attempts"] + 1, loop)}]}))
    return taken, left


def forget_subscription(loop: Loop, store: str, name: str) -> None:
    """Forget how far a subscription is, and what it has parked."""
    found = loop.core.newest_of_names([beside(store, "subscriptions")])[beside(store, "subscriptions")][0]
    changes: dict[str, Sequence[object]] = {}
    if rows_by(found, (0,), [(name,)]):
        changes[beside(store, "subscriptions")] = [{"delete": {"subscription": name}}]
    parked = parked_events(loop, store, name)
    if parked:
        keys = [{"subscription": name, "event_id": one["event_id"]} for one in parked]
        changes[beside(store, "parked")] = [{"delete": key} for key in keys]
    if changes:
        loop.submit(Call(changes))
