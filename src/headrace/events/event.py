"""One event as it is given, checked and brought into the form in which it is kept."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal, cast

from headrace.capture.exact_json import DEEPEST, Digits, canonical, json_text, read_kept, refuse_depth
from headrace.capture.messages import Undecodable
from headrace.epoch.digest import digest
from headrace.errors import EventsRejected, Rejection
from headrace.json_forms import json_form

NAME_LENGTH = 255
ID_LENGTH = 1024
MOST_EVENTS = 100_000
# The name under which a value lies that was encrypted; no event may bring it.
SEALED = "$sealed"
_KNOWN = frozenset({"event_id", "event_type", "event_data", "metadata", "schema_version"})
_FORM = (
    '{"event_type": "CustomerCreated", "event_data": {...}, "metadata": {...}, "event_id": "...", "schema_version": 1}'
)
_PARTS = ("aggregate_type", "aggregate_id", "events", "expected")
_APPEND = '{"aggregate_type": "Customer", "aggregate_id": "c1", "events": [...], "expected": "any"}'
Expected = int | Literal["any", "none"]


class _Bad(Exception):
    """Why an event is refused."""


@dataclass(frozen=True)
class Event:
    """An event without its numbers; data and metadata are JSON texts."""

    event_id: str
    event_type: str
    data: str
    metadata: str
    schema_version: int
    # Whether the id was given: one that was made here has never been there before.
    given: bool


@dataclass(frozen=True)
class Append:
    """Events of one aggregate, and the version that it must have before them."""

    aggregate_type: str
    aggregate_id: str
    events: tuple[Event, ...]
    expected: Expected = "any"
    # Which it is of several, for what is said of it.
    where: str = ""


def read_append(
    store: str,
    aggregate_type: object,
    aggregate_id: object,
    events: object,
    expected: object,
    most_bytes: int,
    marks: Mapping[str, object] | None = None,
    where: str = "",
) -> Append:
    """An append as it is kept, or `EventsRejected` with every reason against it.

    The marks, such as a correlation id, go into the metadata of each event that has none of that name.
    """
    try:
        kind = _name(aggregate_type, "aggregate_type", NAME_LENGTH)
        name = _name(_as_id(aggregate_id), "aggregate_id", ID_LENGTH)
        wanted = _expected(expected)
        if not isinstance(events, Sequence) or isinstance(events, str | bytes):
            raise _Bad(f"events come as a list, each {_FORM}")
        listed = cast("Sequence[object]", events)
        if not 0 < len(listed) <= MOST_EVENTS:
            raise _Bad(f"an append has 1 to {MOST_EVENTS} events, not {len(listed)}")
    except _Bad as bad:
        raise EventsRejected.of_the_call(store, f"{where}{bad}") from None
    read: list[Event] = []
    rejections: list[Rejection] = []
    for index, one in enumerate(listed):
        try:
            read.append(_event(one, most_bytes, marks))
        except _Bad as bad:
            rejections.append(Rejection(store, index, f"{where}{bad}"))
    ids = {one.event_id for one in read}
    if not rejections and len(ids) != len(read):
        rejections.append(Rejection(store, 0, f"{where}two events of one append have the same event_id"))
    if rejections:
        raise EventsRejected(rejections)
    return Append(kind, name, tuple(read), wanted, where)


def number_or_text(given: str) -> int | str:
    """A version or a position where the text is one, else the text, such as any, none or a time."""
    return int(given) if given.isascii() and given.isdigit() else given


def read_appends(store: str, appends: object, most_bytes: int) -> list[Append]:
    """Several appends; what is wrong with one says which of them it is."""
    if not isinstance(appends, Sequence) or isinstance(appends, str | bytes) or not appends:
        raise EventsRejected.of_the_call(store, "there is nothing to append", hint=f"give a list of {_APPEND}")
    listed = cast("Sequence[object]", appends)
    read: list[Append] = []
    for number, one in enumerate(listed, 1):
        if not isinstance(one, Mapping):
            raise EventsRejected.of_the_call(store, f"append {number} is no object", hint=f"write {_APPEND}")
        parts = cast("Mapping[str, Any]", one)
        unknown = [str(name)[:60] for name in parts if name not in _PARTS]
        if unknown:
            reason = f"append {number} has an unknown part {unknown[0]!r}"
            raise EventsRejected.of_the_call(store, reason, hint=f"write {_APPEND}")
        where = f"append {number}: " if len(listed) > 1 else ""
        about = parts.get("aggregate_type"), parts.get("aggregate_id"), parts.get("events")
        read.append(read_append(store, *about, parts.get("expected", "any"), most_bytes, where=where))
    return read


@dataclass(frozen=True)
class Keyed:
    """What a call is known by that may be sent again: its key, among those of its kind, and what it was sent with."""

    key: str
    digest: str


def keyed(key: str, space: Sequence[str], content: str) -> Keyed:
    """A key of one space; none of its parts can pass for the end of another."""
    told = key.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    parts = [part.encode("utf-8", "surrogatepass") for part in (*space, key)]
    return Keyed(f"{told}/{digest(*parts)}", digest(content.encode("utf-8", "surrogatepass")))


def append_content(append: Append) -> str:
    """What an append brings, as a text that is the same when it comes again."""
    events = [
        [one.event_id if one.given else None, one.event_type, read_kept(one.data), read_kept(one.metadata)]
        for one in append.events
    ]
    return canonical(events)


def with_ids(append: Append, key: str) -> Append:
    """The same with ids that follow from a key, where none were given: sent again, they are the same."""
    events = [
        one if one.given else replace(one, event_id=key_id(key, index), given=True)
        for index, one in enumerate(append.events)
    ]
    return replace(append, events=tuple(events))


def key_id(key: str, index: int) -> str:
    """The id of an event that was sent under a key, by its index among those."""
    return str(uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_OID, key), str(index)))


def _event(given: object, most_bytes: int, marks: Mapping[str, object] | None) -> Event:
    if not isinstance(given, Mapping):
        raise _Bad(f"an event is an object: {_FORM}")
    event = cast("Mapping[str, Any]", given)
    unknown = [str(name)[:60] for name in event if name not in _KNOWN]
    if unknown:
        raise _Bad(f"unknown field {unknown[0]!r}; an event is {_FORM}")
    event_type = _name(event.get("event_type"), "event_type", NAME_LENGTH)
    metadata = _object(event.get("metadata"), "metadata")
    if marks:
        metadata = {**marks, **metadata}
    version = event.get("schema_version", metadata.get("schema_version", 1))
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 2**31:
        raise _Bad("schema_version is a whole number from 1")
    if "schema_version" in event:
        metadata = {**metadata, "schema_version": version}
    event_id = event.get("event_id")
    name = str(uuid.uuid4()) if event_id is None else _name(_as_id(event_id), "event_id", NAME_LENGTH)
    data = _text(_object(event.get("event_data"), "event_data"), "event_data")
    about = _text(metadata, "metadata")
    size = len(data) + len(about)
    if size > most_bytes // 4:
        # A letter takes up to four bytes.
        size = len(data.encode()) + len(about.encode())
    if size > most_bytes:
        raise _Bad(f"event_data and metadata have {size:,} bytes, and event_bytes allows {most_bytes:,}")
    return Event(name, event_type, data, about, version, event_id is not None)


def _as_id(given: object) -> object:
    if isinstance(given, uuid.UUID) or (isinstance(given, int) and not isinstance(given, bool)):
        return str(given)
    return given


def _name(given: object, what: str, longest: int) -> str:
    if not isinstance(given, str) or not given:
        raise _Bad(f"{what} is a text that is not empty, got {str(given)[:60]!r}")
    if len(given) > longest:
        raise _Bad(f"{what} is longer than {longest} letters")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise _Bad(f"{what} holds half a surrogate pair, which is no text") from None
    return given


def _expected(given: object) -> Expected:
    if given in ("any", "none"):
        return cast("Expected", given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**63:
        raise _Bad(f"expected is 'any', 'none' or the version that the aggregate must have, got {str(given)[:60]!r}")
    return given


def _object(given: object, what: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _Bad(f"{what} is an object, got {str(given)[:60]!r}")
    return dict(cast("Mapping[str, Any]", given))


class _Exact(Exception):
    """A number is among the values that only the exact way writes with its digits."""


def _text(value: dict[str, Any], what: str) -> str:
    """A document as JSON text, numbers with the digits that they have."""
    try:
        try:
            if not _names_are_texts(value):
                raise _Bad(f"the names in {what} are texts")
            text = _encoder.encode(value)
        except _Exact:
            text = json_text(_plain(value, what))
        text.encode()
        if text.count("{") + text.count("[") > DEEPEST:
            refuse_depth(json.loads(text))
    except UnicodeEncodeError:
        raise _Bad(f"{what} holds half a surrogate pair, which is no text") from None
    except (RecursionError, Undecodable):
        raise _Bad(f"{what} is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise _Bad(f"{what} is no JSON: {str(error)[:200]}") from None
    if SEALED in text and _names_sealed(read_kept(text)):
        raise _Bad(f"{what} names {SEALED}, which stands for encrypted values")
    return text


def _names_are_texts(value: Any) -> bool:
    """Whether all names are: 1 and "1" would be one name in JSON. Raises _Exact where a number has digits to keep."""
    if type(value) is Digits:
        raise _Exact
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, Any]", value)
        return all(type(name) is str and _names_are_texts(part) for name, part in entries.items())
    if isinstance(value, list | tuple):
        return all(map(_names_are_texts, cast("Sequence[Any]", value)))
    return True


def _names_sealed(value: Any) -> bool:
    """Whether an object in a document has the name that stands for encrypted values."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return SEALED in entries or any(map(_names_sealed, entries.values()))
    return isinstance(value, list) and any(map(_names_sealed, cast("list[Any]", value)))


def _form(value: object) -> Any:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no number of JSON")
        raise _Exact
    if isinstance(value, datetime | date | time | bytes | uuid.UUID):
        return json_form(value)
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def _plain(value: Any, what: str) -> Any:
    """A document with nothing in it that the exact way does not write as JSON."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, Any]", value)
        if not all(type(name) is str for name in entries):
            raise _Bad(f"the names in {what} are texts")
        return {name: _plain(part, what) for name, part in entries.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, what) for part in cast("Sequence[Any]", value)]
    if isinstance(value, float) and type(value) is not Digits and not math.isfinite(value):
        raise ValueError(f"{value} is no number of JSON")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no number of JSON")
        return value
    return _form(value)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_form)
