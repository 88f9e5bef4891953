"""Subscriptions: a function is given every event in order; what it cannot take is parked, and can be replayed.

An event is given again if the process ends before how far it is was committed: at least once, in order. Its position
and its id tell whether it was there before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from headrace.capture.exact_json import read_kept
from headrace.epoch.batch import Batch, WorkedOut
from headrace.epoch.calls import Call
from headrace.epoch.digest import digest
from headrace.epoch.loop import Loop
from headrace.errors import HeadraceError
from headrace.events.followers import Follower, Opened
from headrace.events.outbox import OF_ROWS, CallFor, reason_of
from headrace.events.reading import read_events
from headrace.events.tables import beside

Handle = Callable[[dict[str, Any]], object]
# Given a row of an outbox, returns it as it should have been; with nothing returned it stays as it is.
Mend = Callable[[dict[str, Any]], object]
_REASON = 10_000
_PAUSE_SECONDS = 0.05
_STOPPED = "stopped"


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

    def take(rows: Sequence[dict[str, Any]], stopped: threading.Event) -> tuple[Mapping[str, Sequence[object]], int]:
        parked: list[object] = []
        last = int(rows[0]["position"]) - 1
        for row in rows:
            if stopped.is_set():
                break
            if aggregate_type is None or row["aggregate_type"] == aggregate_type:
                reason = _tried(handle, opened, row, attempts, stopped)
                if reason == _STOPPED:
                    break
                if reason is not None:
                    parked.append({"insert": _row(name, row, reason, attempts, loop)})
            last = int(row["position"])
        return {beside(store, "parked"): parked} if parked else {}, last

    return Follower(loop, store, name, take, since, chunk=100)


def _tried(
    handle: Handle, opened: Opened, row: Mapping[str, Any], attempts: int, stopped: threading.Event | None = None
) -> str | None:
    """Why an event could not be taken, None if it was. Each try is given an event of its own to do with as it likes."""
    reason = ""
    # In a thread of ours nothing but the try ends by what would end a program.
    caught = Exception if stopped is None else BaseException
    for attempt in range(attempts):
        if attempt and stopped is not None and stopped.wait(_PAUSE_SECONDS * 2**attempt):
            return _STOPPED
        try:
            handle(opened(row))
            return None
        except caught as error:
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
        row = rows.to_pylist(maps_as_pydicts="strict")[0]
        reason = _tried(handle, opened, row, 1)
        if reason is None:
            taken += 1
            key = {"subscription": name, "event_id": one["event_id"]}
            loop.submit(Call({table: [{"delete": key}]}))
        else:
            left += 1
            loop.submit(Call({table: [{"insert": _row(name, row, reason, one["attempts"] + 1, loop)}]}))
    return taken, left


def replay_outbox(loop: Loop, store: str, name: str, call_for: CallFor, mend: Mend | None) -> tuple[int, int]:
    """Append the parked rows of an outbox again, oldest first, each as it is or as it is mended; how many became
    events, and how many stay."""
    taken = left = 0
    table = beside(store, "parked")
    for one in parked_events(loop, store, name):
        gone = {table: [{"delete": {"subscription": name, "event_id": one["event_id"]}}]}
        row = read_kept(one["outbox_row"])
        try:
            mended = _mended(mend, row)
            loop.receipt_of(loop.enter(call_for([mended], gone)))
            taken += 1
        except (*OF_ROWS, _NotMended) as error:
            left += 1
            told = reason_of(error) if isinstance(error, HeadraceError) else str(error)[:_REASON]
            again = {**one, "reason": told, "attempts": one["attempts"] + 1, "parked_at": loop.core.tick()}
            loop.submit(Call({table: [{"insert": again}]}))
    return taken, left


def _mended(mend: Mend | None, row: dict[str, Any]) -> dict[str, Any]:
    if mend is None:
        return row
    try:
        made = mend(dict(row))
        return row if made is None else dict(cast("Mapping[str, Any]", made))
    except Exception as error:
        raise _NotMended(f"{type(error).__name__}: {error}") from error


class _NotMended(Exception):
    """The function that was to mend a row failed."""


def forget_subscription(loop: Loop, store: str, name: str) -> None:
    """Forget how far a subscription is, and what it has parked, also what is committed just before this."""
    table, parked = beside(store, "subscriptions"), beside(store, "parked")

    def within(batch: Batch) -> WorkedOut:
        names, ids = batch.before(parked).all((0, 2)).rows.columns
        held = [one for of, one in zip(names.to_pylist(), ids.to_pylist(), strict=True) if of == name]
        changes: dict[str, Sequence[object]] = {table: [{"delete": {"subscription": name}}]}
        if held:
            changes[parked] = [{"delete": {"subscription": name, "event_id": one}} for one in held]
        return WorkedOut(changes, {}, {})

    loop.submit(Call({}, digest=digest(table.encode(), name.encode()), within=within))
