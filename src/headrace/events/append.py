"""Appending inside an epoch: versions and positions are given out by whoever alone writes, so neither has holes.

An append is a call like any other, whose changes are worked out when its turn has come: from what was committed before
the epoch, and from what the calls before it in the same epoch have noted. Another version than expected rejects that
call alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from headrace.capture.exact_json import canonical, json_text, read_kept
from headrace.catalog.catalog import Table
from headrace.epoch.batch import Batch, Changes, WorkedOut
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.digest import digest
from headrace.epoch.receipt import Receipt
from headrace.errors import EventsRejected, KeyReused, Rejection, VersionConflict
from headrace.events.define import types_in
from headrace.events.erasure import Keys, Sealing
from headrace.events.event import Append, Event, Keyed, key_id
from headrace.events.reading import key_hashes, python_values
from headrace.events.tables import EVENT_ID, beside, store_table
from headrace.state.state import State


@dataclass(frozen=True)
class _Head:
    """How far an aggregate is."""

    version: int
    position: int
    created_at: datetime


@dataclass
class _Numbered:
    """What one call appends, with its numbers, and what it leaves for calls after it."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    # Of each row, the append that brought it, and which of its events it is.
    sent: list[tuple[Append, int]] = field(default_factory=list[tuple[Append, int]])
    heads: dict[tuple[str, str], _Head] = field(default_factory=dict[tuple[str, str], _Head])
    told: dict[str, int | None] = field(default_factory=lambda: dict[str, int | None](version=0, position=0))


def append_call(
    store: str,
    appends: Sequence[Append],
    changes: Changes | None = None,
    *,
    keys: Keys | None = None,
    always: Changes | None = None,
    keyed: Keyed | None = None,
) -> Call:
    """The call that appends events to aggregates, all or none, with changes of ordinary tables in the same epoch.

    Events whose ids are all known already are not appended again, nor are the changes that came with them applied, but
    for those that are to be made always. Values are encrypted when all else of the call is checked, so that no key is
    made for what is refused, and none is forgotten between that and the epoch.
    """
    named = (one.event_id.encode() for append in appends for one in append.events)
    return Call(
        {},
        key=None if keyed is None else keyed.key,
        digest=digest(store.encode(), *named) if keyed is None else keyed.digest,
        quiet=True,
        within=lambda batch: _worked_out(batch, store, appends, changes or {}, always or {}, keys),
    )


def _worked_out(
    batch: Batch, store: str, appends: Sequence[Append], changes: Changes, always: Changes, keys: Keys | None
) -> WorkedOut:
    table = store_table(batch.catalog, store)
    name = table.name
    known = _known(batch, name, [one.event_id for append in appends for one in append.events if one.given])
    heads = _heads(batch, name, appends)
    found = _Numbered()
    sealing = None if keys is None else Sealing(keys)
    position = cast("int | None", batch.notes.get((name, "position")))
    last = batch.before(name).count if position is None else position
    for append in appends:
        ids = [one.event_id for one in append.events]
        repeated = [one for one in ids if one in known]
        if repeated:
            _refuse_other(table, append, known, len(repeated), sealing)
            row = known[ids[-1]]
            found.told = {"version": row["event_version"], "position": row["position"]}
            continue
        head = heads.get((append.aggregate_type, append.aggregate_id))
        version = 0 if head is None else head.version
        _refuse_version(append, version)
        for index, one in enumerate(append.events):
            version, last = version + 1, last + 1
            row = _row(table, append, one, version, last, batch.now)
            found.rows.append(row)
            found.sent.append((append, index))
            known[one.event_id] = row
        created_at = batch.now if head is None else head.created_at
        key = append.aggregate_type, append.aggregate_id
        heads[key] = found.heads[key] = _Head(version, last, created_at)
        found.told = {"version": version, "position": last}
    if not found.rows:
        return WorkedOut(always, found.told, {})
    types = types_in(batch.before(beside(name, "types")))
    if sealing is not None and any(one.encrypted for one in types.values()):
        for row, (append, index) in zip(found.rows, found.sent, strict=True):
            row["event_data"] = sealing.sealed(name, types, append, index)
    return WorkedOut(_changes(name, found, {**changes, **always}, batch.now), found.told, _noted(name, found, last))


def carried_out(core: Core, store: str, asked: Keyed) -> Receipt | None:
    """What became of a call that was made under a key, None if none was; refused, if it was another one."""
    first = core.known(asked.key)
    if first is not None:
        if first.digest not in ("", asked.digest):
            raise KeyReused(asked.key)
        return first
    # Its receipt may have expired with its epoch: its events are there, one after the other.
    state, schema = core.newest_of_names([store])[store]
    found: list[dict[str, Any]] = []
    while rows := rows_by(state, (EVENT_ID,), [(key_id(asked.key, len(found)),)]):
        found.append(dict(zip(schema.names, rows[0], strict=True)))
    if not found:
        return None
    last = found[-1]
    return Receipt(core.epoch, {store: len(found)}, version=last["event_version"], position=last["position"])


def _changes(name: str, found: _Numbered, changes: Changes, now: datetime) -> Changes:
    aggregates = [
        {
            "insert": {
                "aggregate_type": kind,
                "aggregate_id": one,
                "version": head.version,
                "position": head.position,
                "created_at": head.created_at,
                "updated_at": now,
            }
        }
        for (kind, one), head in found.heads.items()
    ]
    return {**changes, name: [{"insert": row} for row in found.rows], beside(name, "aggregates"): aggregates}


def _noted(name: str, found: _Numbered, last: int) -> dict[tuple[str, ...], object]:
    noted: dict[tuple[str, ...], object] = {(name, "position"): last}
    noted |= {(name, "aggregate", *key): head for key, head in found.heads.items()}
    noted |= {(name, "event", row["event_id"]): row for row in found.rows}
    return noted


def _row(table: Table, append: Append, event: Event, version: int, position: int, now: datetime) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "aggregate_id": append.aggregate_id,
        "aggregate_type": append.aggregate_type,
        "event_data": kept_form(table, event.data),
        "metadata": kept_form(table, event.metadata),
        "event_version": version,
        "created_at": now,
        "position": position,
    }


def kept_form(table: Table, text: str) -> Any:
    """A document as the store keeps it: JSON text, or a map of texts, in which all but texts themselves are JSON."""
    if (table.events or {}).get("data") != "map":
        return text
    content: dict[str, Any] = read_kept(text)
    return {
        name: value if value is None or isinstance(value, str) else json_text(value) for name, value in content.items()
    }


def _heads(batch: Batch, name: str, appends: Sequence[Append]) -> dict[tuple[str, str], _Head]:
    """How far the aggregates are: what calls of this epoch have noted, else what was committed."""
    heads: dict[tuple[str, str], _Head] = {}
    wanted: set[tuple[str, str]] = set()
    for append in appends:
        key = append.aggregate_type, append.aggregate_id
        noted = batch.notes.get((name, "aggregate", *key))
        if noted is None:
            wanted.add(key)
        else:
            heads[key] = cast("_Head", noted)
    for row in rows_by(batch.before(beside(name, "aggregates")), (0, 1), sorted(wanted)):
        heads[row[0], row[1]] = _Head(row[2], row[3], row[4])
    return heads


def _known(batch: Batch, name: str, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The events of these ids that are there already, by id."""
    known: dict[str, Mapping[str, Any]] = {}
    for one in ids:
        noted = batch.notes.get((name, "event", one))
        if noted is not None:
            known[one] = cast("Mapping[str, Any]", noted)
    names = batch.catalog.table(name).schema.names
    for row in rows_by(batch.before(name), (EVENT_ID,), [(one,) for one in ids if one not in known]):
        known[row[EVENT_ID]] = dict(zip(names, row, strict=True))
    return known


def rows_by(
    state: State, key: tuple[int, ...], wanted: Sequence[tuple[Any, ...]], columns: Sequence[int] | None = None
) -> list[tuple[Any, ...]]:
    """The rows of these keys, as Python values, or some columns of them, which begin with those of the key.

    A hash may be that of another key too, whose rows are left out.
    """
    if not wanted or state.is_empty:
        return []
    found = state.lookup(key, key_hashes(state, key, wanted), columns)
    asked = set(wanted)
    values = [python_values(column) for column in found.rows.columns]
    rows = zip(*values, strict=True)
    return [row for row in rows if tuple(row[index] for index in key) in asked]


def _refuse_version(append: Append, version: int) -> None:
    expected = 0 if append.expected == "none" else append.expected
    if expected != "any" and expected != version:
        raise VersionConflict(append.aggregate_type, append.aggregate_id, append.expected, version)


def _refuse_other(
    table: Table, append: Append, known: Mapping[str, Mapping[str, Any]], count: int, sealing: Sealing | None
) -> None:
    """Refuse events that are there in part, or with other content; the same ones again are no error."""
    if count < len(append.events):
        index = next(i for i, one in enumerate(append.events) if one.event_id in known)
        reason = f"event_id {append.events[index].event_id!r} is there already, but not all events of this append are"
        raise EventsRejected(
            [Rejection(table.name, index, f"{append.where}{reason}")],
            hint="repeat an append with all of its events, or give new ids",
        )
    for index, one in enumerate(append.events):
        row = known[one.event_id]
        same = (
            row["aggregate_type"] == append.aggregate_type
            and row["aggregate_id"] == append.aggregate_id
            and row["event_type"] == one.event_type
            and _same(table, row["event_data"], one.data, sealing)
            and _same(table, row["metadata"], one.metadata, sealing)
        )
        if not same:
            reason = f"{append.where}event_id {one.event_id!r} stands for another event, of {row['aggregate_type']} "
            raise EventsRejected(
                [Rejection(table.name, index, f"{reason}{row['aggregate_id']} at version {row['event_version']}")],
                hint="an event_id stands for one event; give a new one",
            )


def _same(table: Table, kept: Any, given: str, sealing: Sealing | None) -> bool:
    """Whether a document that is kept is the one that is given, to the digit."""
    if kept == kept_form(table, given):
        return True
    if not isinstance(kept, str):
        return False
    return (
        canonical(read_kept(kept)) == canonical(read_kept(given)) if sealing is None else sealing.is_same(kept, given)
    )
