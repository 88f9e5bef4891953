"""Schemas of event types: registered by version, checked at append, and bounded in what they may ask.

A schema may not reach outside itself. What a check may cost grows with what is sent, and with nothing else
(events/schema_checks.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import jsonschema
from jsonschema.protocols import Validator
from referencing import Registry

from headrace.errors import EventsRejected, EventTypeRefused, Rejection
from headrace.events.event import Append
from headrace.events.schema_checks import CHECKER, BadPattern, TooMuchWork, bounded, matching

_MOST_SCHEMA = 256 * 1024
_MOST_NODES = 5_000
_MOST_PATTERN = 200


@dataclass(frozen=True)
class EventType:
    """One version of an event type: its schema, if it has one, and the fields of it that are encrypted."""

    event_type: str
    schema_version: int
    schema: str | None
    encrypted: tuple[str, ...] = ()
    # The field whose value names whom the encrypted ones are about; empty for the aggregate itself.
    subject: str = ""


Types = Mapping[tuple[str, int], EventType]


def checked_schema(schema: object) -> str:
    """A schema as text, or an error that says why it cannot be one."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise _refused(f"it is no JSON: {str(error)[:200]}") from None
    if not isinstance(schema, Mapping):
        raise _refused("a schema is an object")
    content = cast("Mapping[str, Any]", schema)
    try:
        text = json.dumps(content, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(f"it is no JSON: {str(error)[:200]}") from None
    if len(text) > _MOST_SCHEMA:
        raise _refused(f"it has {len(text):,} letters, of {_MOST_SCHEMA:,} at most")
    words: set[str] = set()
    ids = {value for name, value in _walk(content) if name == "$id" and isinstance(value, str)}
    for number, (name, value) in enumerate(_walk(content)):
        words.add(name)
        if number > _MOST_NODES:
            raise _refused(f"it has more than {_MOST_NODES:,} parts")
        if name in ("$ref", "$dynamicRef", "$schema", "$id") and not isinstance(value, str | Mapping):
            raise _refused(f"{name} is no text")
        if name in ("$ref", "$dynamicRef") and isinstance(value, str):
            whole = value.partition("#")[0]
            if whole and whole not in ids:
                raise _refused(f"{name} {value[:60]!r} is neither within the schema nor an $id of it")
        if name == "pattern" and isinstance(value, str):
            _refuse_pattern(value)
        if name == "patternProperties" and isinstance(value, Mapping):
            for pattern in cast("Mapping[str, Any]", value):
                _refuse_pattern(pattern)
    if {"patternProperties", "unevaluatedProperties"} <= words:
        raise _refused("patternProperties and unevaluatedProperties do not go together here")
    try:
        jsonschema.Draft202012Validator.check_schema(content)
    except jsonschema.SchemaError as error:
        raise _refused(f"{error.message[:300]}") from None
    return text


def refuse_unfit(store: str, types: Types, closed: bool, append: Append) -> None:
    """Refuse events that are not as their schema says; of a store that is closed, also those of unknown types."""
    with bounded(len(append.events), sum(len(one.data) for one in append.events)):
        _refuse_unfit(store, types, closed, append)


def _refuse_unfit(store: str, types: Types, closed: bool, append: Append) -> None:
    rejections: list[Rejection] = []
    for index, event in enumerate(append.events):
        found = types.get((event.event_type, event.schema_version))
        if found is None:
            versions = sorted(version for name, version in types if name == event.event_type)
            if versions:
                listed = ", ".join(map(str, versions))
                reason = f"{event.event_type} has no schema version {event.schema_version}; there is {listed}"
                rejections.append(Rejection(store, index, f"{append.where}{reason}"))
            elif closed:
                known = ", ".join(sorted({name for name, _ in types})[:20]) or "none"
                reason = f"the event type {event.event_type} is not registered; those that are: {known}"
                rejections.append(Rejection(store, index, f"{append.where}{reason}"))
            continue
        if found.schema is None:
            continue
        fault = _fault(found.schema, json.loads(event.data))
        if fault is not None:
            reason = f"{event.event_type} version {event.schema_version}: {fault}"
            rejections.append(Rejection(store, index, f"{append.where}{reason}"))
    if rejections:
        raise EventsRejected(rejections)


def _fault(schema: str, data: Any) -> str | None:
    """What is wrong with an event's data, the first of it."""
    try:
        error = next(_validator(schema).iter_errors(data), None)
    except TooMuchWork:
        return "the schema asks for too much work, for data of this size"
    except RecursionError:
        return "the data are nested deeper than the schema can follow"
    except Exception as unresolved:
        return f"the schema cannot be followed: {str(unresolved)[:200]}"
    if error is None:
        return None
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"event_data{where}: {error.message[:300]}"


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Validator:
    # An empty registry: what a schema refers to is in it or nowhere.
    registry: Any = Registry()
    return CHECKER(json.loads(schema), registry=registry)


def _walk(schema: Any) -> Iterator[tuple[str, Any]]:
    level: list[Any] = [schema]
    for _ in range(100):
        below: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                entries = cast("Mapping[str, Any]", one)
                yield from entries.items()
                below.extend(entries.values())
            elif isinstance(one, list):
                below.extend(cast("Sequence[Any]", one))
        if not below:
            return
        level = below
    raise _refused("it is nested too deeply")


def _refuse_pattern(pattern: str) -> None:
    if len(pattern) > _MOST_PATTERN:
        raise _refused(f"the pattern {pattern[:40]!r}... is longer than {_MOST_PATTERN} letters")
    try:
        matching(pattern, [""])
    except BadPattern as error:
        raise _refused(f"the pattern {pattern[:60]!r} cannot be read: {error}") from None


def _refused(why: str) -> EventTypeRefused:
    return EventTypeRefused(
        "the schema of an event type is refused",
        detail=f"{why[:1].upper()}{why[1:]}.",
        hint="give a JSON Schema (2020-12) that refers only to itself, with plain patterns",
    )
