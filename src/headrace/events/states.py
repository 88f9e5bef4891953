"""What an aggregate was at a version, a position or a time: its events folded one after the other.

    state = fold(fold(fold(None, event 1), event 2), ...)

Without a fold of its own, a type's events are merged: the fields of each event's data replace those of before, and
`<type>Deleted` ends it. A snapshot is such a state kept (snapshots.py); what it gives is what all events give.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.capture.exact_json import read_kept
from headrace.errors import HeadraceError
from headrace.events.append import rows_by
from headrace.events.erasure import Keys, unsealed
from headrace.events.event import SEALED
from headrace.events.reading import events_by_version
from headrace.events.tables import beside
from headrace.reading.queries import Relations

State = dict[str, Any]
Fold = Callable[[State | None, Mapping[str, Any]], State | None]
Upcast = Callable[[dict[str, Any]], dict[str, Any]]
Upcasters = Mapping[tuple[str, int], Upcast]
MERGED = "merged"


@dataclass(frozen=True)
class Way:
    """How the events of a type become a state, as it was registered when somebody began to fold them."""

    fold: Fold | None
    upcasters: Upcasters
    # What tells it from another way; None if nothing does, and then no snapshot is of it.
    folded_by: str | None


@dataclass
class Code:
    """What a program has registered of a store: how types are folded, and how old events become newer ones."""

    folds: dict[str, tuple[Fold, str | None]] = field(default_factory=dict[str, tuple[Fold, str | None]])
    upcasters: dict[tuple[str, int], tuple[Upcast, str | None]] = field(
        default_factory=dict[tuple[str, int], tuple[Upcast, str | None]]
    )

    def way(self, aggregate_type: str) -> Way:
        """How a type is folded from here on, whatever is registered meanwhile."""
        fold, name = self.folds.get(aggregate_type, (None, MERGED))
        if not self.upcasters:
            return Way(fold, {}, name)
        held = sorted(dict(self.upcasters).items())
        upcasters = {key: one for key, (one, _) in held}
        told = [f"{kind}:{version}:{known}" for (kind, version), (_, known) in held if known is not None]
        if name is None or len(told) < len(held):
            return Way(fold, upcasters, None)
        return Way(fold, upcasters, f"{name}+{hashlib.sha256(' '.join(told).encode()).hexdigest()[:16]}")

    def upcast(self, event: dict[str, Any]) -> None:
        """Bring an event's data to the newest version that upcasters lead to."""
        if self.upcasters:
            upcast(event, {key: one for key, (one, _) in dict(self.upcasters).items()})


def upcast(event: dict[str, Any], upcasters: Upcasters) -> None:
    """Bring an event's data to the newest version that these lead to."""
    version = schema_version(event)
    while (found := upcasters.get((event["event_type"], version))) is not None:
        event["event_data"] = dict(found(event["event_data"]))
        version += 1
        # A store of maps keeps all but texts as JSON text.
        kept = str(version) if isinstance(event["metadata"].get("schema_version"), str) else version
        event["metadata"] = {**event["metadata"], "schema_version": kept}


def schema_version(event: Mapping[str, Any]) -> int:
    """The version of the schema that an event was checked against."""
    return int(event["metadata"].get("schema_version") or 1)


@dataclass(frozen=True)
class Reached:
    """An aggregate's state, as of which version, position and time, and how many events were read for it."""

    state: State | None
    version: int = 0
    position: int = 0
    at: datetime | None = None
    read: int = 0
    # When the snapshot was taken from which it was reached.
    snapshot_at: datetime | None = None
    # Whether it holds what was encrypted, which no snapshot may.
    opened: bool = False
    # The way by which it was folded, as `Way.folded_by`.
    folded_by: str | None = None


def reach(
    relations: Relations,
    store: str,
    code: Code,
    keys: Keys,
    aggregate_type: str,
    aggregate_id: str,
    as_of: int | datetime | None = None,
    snapshots: bool = True,
) -> Reached:
    """The state of an aggregate, as of a position or a time; encrypted values of merged ones are still encrypted."""
    heads = rows_by(relations[beside(store, "aggregates")][0], (0, 1), [(aggregate_type, aggregate_id)])
    if not heads:
        return Reached(None)
    last = int(heads[0][2])
    most = float(as_of) if isinstance(as_of, int) else math.inf
    latest = as_of if isinstance(as_of, datetime) else None
    way = code.way(aggregate_type)
    begun = Reached(None)
    if snapshots and way.folded_by is not None:
        begun = newest_snapshot(relations, store, way.folded_by, aggregate_type, aggregate_id, most, latest)
    events = events_by_version(relations[store][0], aggregate_type, aggregate_id, begun.version + 1, last, most, latest)
    state: State | None = None if begun.state is None else dict(begun.state)
    ended_by = f"{aggregate_type}Deleted"
    read, opened, row = 0, False, None
    for row in events:
        read += 1
        event = as_event(row)
        if SEALED in str(row["event_data"]) and (way.fold is not None or _is_upcast(event, way.upcasters)):
            event["event_data"] = unsealed(keys, event["event_data"])
            opened = True
        if way.upcasters:
            upcast(event, way.upcasters)
        if way.fold is not None:
            state = way.fold(state, event)
        elif event["event_type"] == ended_by:
            state = None
        elif state is None:
            state = dict(event["event_data"])
        else:
            state.update(event["event_data"])
    if row is None:
        return begun
    reached = row["event_version"], row["position"], row["created_at"]
    return Reached(state, *reached, read, begun.snapshot_at, opened, way.folded_by)


def _is_upcast(event: Mapping[str, Any], upcasters: Upcasters) -> bool:
    return bool(upcasters) and (event["event_type"], schema_version(event)) in upcasters


def shown(reached: Reached, code: Code, keys: Keys, aggregate_type: str) -> State | None:
    """The state as a caller sees it: encrypted values as they were, None where their key is gone."""
    if reached.state is None or aggregate_type in code.folds:
        return reached.state
    return unsealed(keys, reached.state)


def as_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """An event with its documents read."""
    return {**row, "event_data": document(row["event_data"]), "metadata": document(row["metadata"])}


def document(kept: Any) -> dict[str, Any]:
    """A document as the store keeps it: JSON text, or a map of texts."""
    return read_kept(kept) if isinstance(kept, str) else dict(kept)


def newest_snapshot(
    relations: Relations,
    store: str,
    folded_by: str,
    aggregate_type: str,
    aggregate_id: str,
    most: float,
    latest: datetime | None,
) -> Reached:
    """The newest state of this way that is kept, up to a position or a time; none of the others is read."""
    name = beside(store, "snapshots")
    if name not in relations:
        return Reached(None)
    state = relations[name][0]
    best: tuple[Any, ...] | None = None
    for row in rows_by(state, (0, 1), [(aggregate_type, aggregate_id)], (0, 1, 2, 3, 4, 5, 7)):
        fits = row[3] == folded_by and row[4] <= most and (latest is None or row[5] <= latest)
        if fits and (best is None or row[2] > best[2]):
            best = row
    if best is None:
        return Reached(None)
    _, _, version, _, position, created_at, taken_at = best
    found = rows_by(state, (0, 1, 2), [(aggregate_type, aggregate_id, version)])
    return Reached(read_kept(found[0][6]), version, position, created_at, 0, taken_at, folded_by=folded_by)


def moment(as_of: object) -> int | datetime | None:
    """What `as_of` names: a position, or a time, which a text of ISO 8601 may be; times without a zone are refused."""
    if as_of is None or (isinstance(as_of, int) and not isinstance(as_of, bool) and as_of >= 0):
        return as_of
    given = as_of
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            given = None
    if not isinstance(given, datetime):
        raise HeadraceError(
            f"as_of is a position or a time, not {str(as_of)[:60]!r}",
            hint="give a position such as 42, or a time such as 2026-11-17T20:00:00Z",
        )
    if given.tzinfo is None:
        raise HeadraceError(
            "the time of as_of has no zone",
            hint="give it with one, such as datetime.now(timezone.utc) or ...T20:00:00Z",
        )
    return given
