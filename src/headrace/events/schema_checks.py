"""How event data are held against a schema, at a cost that grows with the data and with nothing else.

A schema of a few lines can ask for a check that never ends: references that double at every step, lists whose parts are
each compared with each, patterns that go back again and again. So every keyword costs something of a budget, parts
of a list are told apart by their form, and patterns are those of RE2, whose time is that of the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import jsonschema
import pyarrow as pa
import pyarrow.compute as pc
from jsonschema.validators import extend

# What the check of one append may cost: so much at all, for each event, and for each letter of its data.
_FOR_ALL, _FOR_EVENT, _FOR_LETTER = 100_000, 500, 20
# So many letters of a text a pattern is tried on.
_MOST_MATCHED = 1_000
_LETTER = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9A-Fa-f]{4})")

Found = Iterator[jsonschema.ValidationError]
Keyword = Callable[[Any, Any, Any, Any], Found | None]
_match: Any = pc.__dict__["match_substring_regex"]
_budget: ContextVar[list[int] | None] = ContextVar("headrace_schema_budget", default=None)


class BadPattern(Exception):
    """A pattern that cannot be read."""


class TooMuchWork(Exception):
    """A check costs more than data of this size may."""


@contextmanager
def bounded(events: int, letters: int) -> Generator[None, None, None]:
    """Inside, checks cost together no more than so many events with so many letters may."""
    token = _budget.set([_FOR_ALL + events * _FOR_EVENT + letters * _FOR_LETTER])
    try:
        yield
    finally:
        _budget.reset(token)


def matching(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Which texts a pattern is found in; `BadPattern` if it is none of RE2."""
    try:
        found: Any = _match(pa.array(texts, pa.string()), _LETTER.sub(r"\1\\x{\2}", pattern))
    except pa.ArrowInvalid as error:
        raise BadPattern(str(error).removeprefix("Invalid regular expression: ")) from None
    return found.to_pylist()


def _pattern(_: Any, pattern: str, instance: object, __: object) -> Found:
    if not isinstance(instance, str):
        return
    if len(instance) > _MOST_MATCHED:
        yield jsonschema.ValidationError(f"a text of {len(instance):,} letters is too long for a pattern")
    elif not matching(pattern, [instance])[0]:
        yield jsonschema.ValidationError(f"{instance[:100]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: object, _: object) -> Found:
    if not isinstance(instance, dict):
        return
    entries = cast("dict[str, Any]", instance)
    for pattern, schema in patterns.items():
        for name, matches in zip(entries, matching(pattern, list(entries)), strict=True):
            if matches:
                yield from validator.descend(entries[name], schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, schema: Any, instance: object, parent: Mapping[str, Any]) -> Found:
    if not isinstance(instance, dict):
        return
    entries = cast("dict[str, Any]", instance)
    known = set(parent.get("properties", {}))
    for pattern in parent.get("patternProperties", {}):
        known |= {name for name, one in zip(entries, matching(pattern, list(entries)), strict=True) if one}
    others = [name for name in entries if name not in known]
    if isinstance(schema, Mapping):
        for name in others:
            yield from validator.descend(entries[name], schema, path=name)
    elif schema is False and others:
        yield jsonschema.ValidationError(f"Additional properties are not allowed ({others[0][:100]!r} was unexpected)")


def _unique_items(_: Any, wanted: object, instance: object, __: object) -> Found:
    if wanted is True and isinstance(instance, list):
        parts = cast("list[Any]", instance)
        if len({_form(one) for one in parts}) != len(parts):
            yield jsonschema.ValidationError("a list has non-unique elements")


def _form(value: Any) -> Any:
    """A value that is equal to that of another exactly if JSON has them equal: 1 is 1.0, and is not true."""
    if isinstance(value, dict):
        return "object", frozenset((name, _form(one)) for name, one in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return "list", tuple(_form(one) for one in cast("list[Any]", value))
    return ("truth", value) if isinstance(value, bool) else value


def _paid(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Found | None:
        left = _budget.get()
        if left is not None:
            left[0] -= 1 + _size(value) + _size(instance)
            if left[0] < 0:
                raise TooMuchWork
        return keyword(validator, value, instance, schema)

    return check


def _size(value: Any) -> int:
    return len(cast("Sequence[Any]", value)) if isinstance(value, list | dict) else 0


_OURS: Mapping[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
_known: Mapping[str, Keyword] = cast("Any", jsonschema.Draft202012Validator).VALIDATORS
_extend: Any = extend
CHECKER: Any = _extend(
    jsonschema.Draft202012Validator, {name: _paid(keyword) for name, keyword in {**_known, **_OURS}.items()}
)
