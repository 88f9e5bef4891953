"""What an aggregate was at a version, a position or a time: its events folded one after the other.

    state = fold(fold(fold(None, event 1), event 2), ...)

Without a fold of its own, a type's events are merged: the fields of each event's data replace those of before, and
`<type>Deleted` ends it. A snapshot is such a state kept; what it gives is what all events give.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import CodeType
from typing import Any

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
MERGED = "merged"


@dataclass
class Code:
    """What a program has registered of a store: how types are folded, and how old events become newer ones."""

    folds: dict[str, tuple[Fold, str]] = field(default_factory=dict[str, tuple[Fold, str]])
    upcasters: dict[tuple[str, int], Upcast] = field(default_factory=dict[tuple[str, int], Upcast])

    def folded_by(self, aggregate_type: str) -> str:
        """What tells one way to fold from another: snapshots are of one way."""
        name = self.folds[aggregate_type][1] if aggregate_type in self.folds else MERGED
        if not self.upcasters:
            return name
        parts = [f"{kind}:{version}:{fingerprint(one)}" for (kind, version), one in sorted(self.upcasters.items())]
        return f"{name}+{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}"

    def upcast(self, event: dict[str, Any]) -> None:
        """Bring an event's data to the newest version that upcasters lead to."""
        version = event["metadata"].get("schema_version", 1)
        while (found := self.upcasters.get((event["event_type"], version))) is not None:
            event["event_data"] = dict(found(event["event_data"]))
            version += 1
            event["metadata"] = {**event["metadata"], "schema_version": version}


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
    begun = Reached(None)
    if snapshots:
        begun = _newest_snapshot(relations, store, code, aggregate_type, aggregate_id, most, latest)
    custom = code.folds.get(aggregate_type)
    events = events_by_version(relations[store][0], aggregate_type, aggregate_id, begun.version + 1, last, most, latest)
    state: State | None = None if begun.state is None else dict(begun.state)
    ended_by = f"{aggregate_type}Deleted"
    read, opened, row = 0, False, None
    for row in events:
        read += 1
        event = as_event(row)
        if custom is not None and SEALED in str(row["event_data"]):
            event["event_data"] = unsealed(keys, event["event_data"])
            opened = True
        if code.upcasters:
            code.upcast(event)
        if custom is not None:
            state = custom[0](state, event)
        elif event["event_type"] == ended_by:
            state = None
        elif state is None:
            state = dict(event["event_data"])
        else:
            state.update(event["event_data"])
    if row is None:
        return begun
    return Reached(
        state, row["event_version"], row["position"], row["created_at"], read, begun.snapshot_at, opened or begun.opened
    )


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
    return json.loads(kept) if isinstance(kept, str) else dict(kept)


def snapshot_row(
    code: Code, aggregate_type: str, aggregate_id: str, reached: Reached, now: datetime
) -> dict[str, Any] | None:
    """The row that keeps a state, or None where what would be read back is not the same."""
    if reached.version == 0 or reached.opened:
        return None
    try:
        text = json.dumps(reached.state, allow_nan=False, ensure_ascii=False)
        if not _alike(json.loads(text), reached.state):
            return None
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return {
        "aggregate_type": aggregate_type,
        "aggregate_id": aggregate_id,
        "version": reached.version,
        "folded_by": code.folded_by(aggregate_type),
        "position": reached.position,
        "created_at": reached.at,
        "state": text,
        "taken_at": now,
    }


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are the same in kind too: 1 is neither 1.0 nor True."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    return one == other


def _newest_snapshot(
    relations: Relations,
    store: str,
    code: Code,
    aggregate_type: str,
    aggregate_id: str,
    most: float,
    latest: datetime | None,
) -> Reached:
    folded_by = code.folded_by(aggregate_type)
    name = beside(store, "snapshots")
    if name not in relations:
        return Reached(None)
    best: tuple[Any, ...] | None = None
    for row in rows_by(relations[name][0], (0, 1), [(aggregate_type, aggregate_id)]):
        fits = row[3] == folded_by and row[4] <= most and (latest is None or row[5] <= latest)
        if fits and (best is None or row[2] > best[2]):
            best = row
    if best is None:
        return Reached(None)
    return Reached(json.loads(best[6]), best[2], best[4], best[5], 0, best[7])


def fingerprint(function: Callable[..., Any]) -> str:
    """What tells a function from another of the same name whose text is another."""
    code = getattr(function, "__code__", None)
    hashed = hashlib.sha256(f"{function.__module__}.{getattr(function, '__qualname__', '')}".encode())
    if isinstance(code, CodeType):
        _add_code(hashed, code)
    return hashed.hexdigest()[:16]


def _add_code(hashed: Any, code: CodeType) -> None:
    hashed.update(code.co_code)
    hashed.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(hashed, constant)
        else:
            hashed.update(repr(constant).encode())


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
