"""MongoDB's extended JSON, version 1 strict and version 2, canonical and relaxed: each wrapped value as what it is."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, cast
from uuid import UUID

from headrace.capture.exact_json import read_json, refuse_depth
from headrace.capture.messages import Undecodable
from headrace.intake.numeric import NUMBER_TEXT
from headrace.intake.reasons import BadValue, shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPECIAL = {"NaN": Decimal("NaN"), "Infinity": Decimal("Infinity"), "-Infinity": Decimal("-Infinity")}
_UUID_TYPES = (3, 4)


def read_extended(text: str, what: str) -> Any:
    """The value that a text of extended JSON stands for."""
    try:
        content = read_json(text)
        refuse_depth(content)
    except Undecodable as unreadable:
        raise Undecodable(f"{what} is no document: {unreadable.reason}", "text") from None
    try:
        return unwrapped(content)
    except BadValue as bad:
        raise Undecodable(bad.within(what).reason, "values") from None


def unwrapped(value: Any) -> Any:
    """A value of extended JSON with everything inside it: numbers, times, bytes and ids without their wrappings."""
    if isinstance(value, list):
        return [unwrapped(part) for part in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    content = cast("dict[str, Any]", value)
    if len(content) <= 2:
        for name in content:
            unwrap = _WRAPPINGS.get(name)
            if unwrap is not None and (len(content) == 1 or (name, *content) in _LEGACY):
                return unwrap(content[name], content)
    return {name: unwrapped(part) for name, part in content.items()}


def _text(value: Any, _: Mapping[str, Any]) -> Any:
    if type(value) is not str:
        raise BadValue(f"expected text in a wrapped value, got {shown(value)}")
    return value


def _integer(value: Any, _: Mapping[str, Any]) -> int:
    if type(value) is int:
        return value
    if type(value) is str and len(value) <= 30 and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    raise BadValue(f"expected a whole number in a wrapped value, got {shown(value)}")


def _number(value: Any, _: Mapping[str, Any]) -> Any:
    if type(value) is int or isinstance(value, Decimal):
        return value
    if type(value) is str:
        special = _SPECIAL.get(value)
        if special is not None:
            return special
        if len(value) <= 100 and NUMBER_TEXT.fullmatch(value):
            try:
                return Decimal(value)
            except InvalidOperation:
                pass
    raise BadValue(f"expected a number in a wrapped value, got {shown(value)}")


def _date(value: Any, _: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        value = unwrapped(value)
    if type(value) is str:
        # As text it is ISO 8601, which the intake reads.
        return value
    if type(value) is not int:
        raise BadValue(f"expected milliseconds or a time in a wrapped date, got {shown(value)}")
    try:
        return _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        raise BadValue(f"{shown(value)} milliseconds are outside of the years 1 to 9999") from None


def _binary(value: Any, content: Mapping[str, Any]) -> Any:
    kind = content.get("$type", 0)
    if isinstance(value, dict):
        inner = cast("dict[str, Any]", value)
        value, kind = inner.get("base64"), inner.get("subType", 0)
    try:
        data = base64.b64decode(value, validate=True)
        number = int(kind, 16) if isinstance(kind, str) and len(kind) <= 8 else kind
    except (binascii.Error, TypeError, ValueError):
        raise BadValue(f"expected base64 in a wrapped binary, got {shown(value)}") from None
    return str(UUID(bytes=data)) if number in _UUID_TYPES and len(data) == 16 else data


def _whole(_: Any, content: Mapping[str, Any]) -> Any:
    """What has no value of its own stays as it is written."""
    return dict(content)


_WRAPPINGS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "$oid": _text,
    "$symbol": _text,
    "$uuid": _text,
    "$code": _whole,
    "$numberInt": _integer,
    "$numberLong": _integer,
    "$numberDouble": _number,
    "$numberDecimal": _number,
    "$date": _date,
    "$binary": _binary,
    "$undefined": lambda _value, _content: None,
    "$timestamp": _whole,
    "$regex": _whole,
    "$regularExpression": _whole,
    "$minKey": _whole,
    "$maxKey": _whole,
    "$dbPointer": _whole,
}
# Wrappings of two names, by the first and then in their order.
_LEGACY = frozenset(
    {
        ("$binary", "$binary", "$type"),
        ("$binary", "$type", "$binary"),
        ("$regex", "$regex", "$options"),
        ("$code", "$code", "$scope"),
    }
)
