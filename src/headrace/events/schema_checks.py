"""How event data are held against a schema, at a cost that grows with the data and with nothing else.

A schema of a few lines can ask for a check that never ends: references that double at every step, lists whose parts are
each compared with each, patterns that go back again and again. So every keyword costs something of a budget, parts
of a list are told apart by their form, and patterns are those of RE2, whose time is that of the text's length.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, cast

import jsonschema
import pyarrow as pa
import pyarrow.compute as pc
from jsonschema.validators import extend

# What the check of one append may cost, in about a microsecond each: at all, for each event, for each letter of data.
_FOR_ALL, _FOR_EVENT, _FOR_LETTER = 300_000, 500, 10
# What a keyword costs by itself, and for each part of what it says and of what it is held against.
_KEYWORD, _PART = 5, 4
# To find what a reference means takes longer, and so do keywords that begin anew for each part.
_COSTS: Mapping[str, tuple[int, int]] = {
    "$ref": (40, 0),
    "$dynamicRef": (60, 0),
    "items": (_KEYWORD, 8),
    "contains": (10, 20),
    "oneOf": (10, 15),
    "anyOf": (10, 8),
    "if": (20, 4),
    "not": (20, 4),
}
# So many letters of what is said of a fault are written in a microsecond.
_WRITTEN = 50
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


def _pay_matches(pattern: str, texts: Collection[str]) -> None:
    _pay(_to_read(pattern) + sum(1 + len(one) // 10 for one in texts))


@lru_cache(maxsize=10_000)
def _to_read(pattern: str) -> int:
    """What it costs to read a pattern: some are short and stand for many states."""

    def seconds() -> float:
        began = time.perf_counter()
        matching(pattern, [""])
        return time.perf_counter() - began

    return int(min(seconds() for _ in range(3)) * 1_000_000)


def _pattern(_: Any, pattern: str, instance: object, __: object) -> Found:
    if not isinstance(instance, str):
        return
    if len(instance) > _MOST_MATCHED:
        yield jsonschema.ValidationError(f"a text of {len(instance):,} letters is too long for a pattern")
        return
    _pay_matches(pattern, [instance])
    if not matching(pattern, [instance])[0]:
        yield jsonschema.ValidationError(f"{instance[:100]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: object, _: object) -> Found:
    if not isinstance(instance, dict):
        return
    entries = cast("dict[str, Any]", instance)
    for pattern, schema in patterns.items():
        _pay_matches(pattern, entries)
        for name, matches in zip(entries, matching(pattern, list(entries)), strict=True):
            if matches:
                yield from validator.descend(entries[name], schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, schema: Any, instance: object, parent: Mapping[str, Any]) -> Found:
    if not isinstance(instance, dict):
        return
    entries = cast("dict[str, Any]", instance)
    known = set(parent.get("properties", {}))
    for pattern in parent.get("patternProperties", {}):
        _pay_matches(pattern, entries)
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


def _compared(keyword: Keyword) -> Keyword:
    """A keyword that compares an instance with all that it says, however deep that goes."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Found | None:
        level = [value]
        while level:
            _pay(3 * len(level))
            level = [part for one in level for part in _inside(one)]
        return keyword(validator, value, instance, schema)

    return check


def _inside(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _form(value: Any) -> Any:
    """A value that is equal to that of another exactly if JSON has them equal: 1 is 1.0, and is not true."""
    _pay(1)
    if isinstance(value, dict):
        return "object", frozenset((name, _form(one)) for name, one in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return "list", tuple(_form(one) for one in cast("list[Any]", value))
    return ("truth", value) if isinstance(value, bool) else value


def _unevaluated_properties(validator: Any, schema: Any, instance: object, parent: Mapping[str, Any]) -> Found:
    if not isinstance(instance, dict):
        return
    entries = cast("dict[str, Any]", instance)
    known = _evaluated(validator, entries, parent, _names_of)
    for name in [name for name in entries if name not in known]:
        for _ in validator.descend(entries[name], schema, path=name):
            yield jsonschema.ValidationError(f"Unevaluated properties are not allowed ({name[:100]!r} was unexpected)")
            return


def _unevaluated_items(validator: Any, schema: Any, instance: object, parent: Mapping[str, Any]) -> Found:
    if not isinstance(instance, list):
        return
    parts = cast("list[Any]", instance)
    known = _evaluated(validator, parts, parent, _indexes_of)
    for index in [index for index in range(len(parts)) if index not in known]:
        for _ in validator.descend(parts[index], schema, path=index):
            yield jsonschema.ValidationError(f"Unevaluated items are not allowed (item {index} was unexpected)")
            return


def _evaluated(validator: Any, instance: Any, schema: Any, of: Callable[[Any, Any, Any], set[Any]]) -> set[Any]:
    """The parts of an instance that a schema says something of, with all that it refers to and that holds of it."""
    if not isinstance(schema, Mapping):
        return set()
    said = cast("Mapping[str, Any]", schema)
    _pay(_COSTS["if"][0] + _PART * (len(said) + len(instance)))
    found = of(validator, instance, said)
    for name in ("$ref", "$dynamicRef"):
        if name in said:
            _pay(_COSTS[name][0])
            resolved = validator._resolver.lookup(said[name])
            there = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
            found |= _evaluated(there, instance, resolved.contents, of)
    below: list[Any] = []
    for name in ("allOf", "anyOf", "oneOf"):
        below += [one for one in said.get(name, ()) if _holds(validator, instance, one)]
    if "if" in said:
        holds = _holds(validator, instance, said["if"])
        below += [said["if"], said.get("then", True)] if holds else [said.get("else", True)]
    if isinstance(instance, dict):
        below += [one for name, one in said.get("dependentSchemas", {}).items() if name in instance]
    for one in below:
        found |= _evaluated(validator, instance, one, of)
    return found


def _names_of(validator: Any, instance: dict[str, Any], said: Mapping[str, Any]) -> set[str]:
    if "additionalProperties" in said:
        return set(instance)
    found = set(cast("Mapping[str, Any]", said.get("properties", {}))) & set(instance)
    if "unevaluatedProperties" in said:
        inner = said["unevaluatedProperties"]
        found |= {name for name, value in instance.items() if _holds(validator, value, inner)}
    return found


def _indexes_of(validator: Any, instance: list[Any], said: Mapping[str, Any]) -> set[int]:
    if "items" in said:
        return set(range(len(instance)))
    found = set(range(len(cast("Sequence[Any]", said.get("prefixItems", ())))))
    for name in ("contains", "unevaluatedItems"):
        if name in said:
            found |= {index for index, value in enumerate(instance) if _holds(validator, value, said[name])}
    return found


def _holds(validator: Any, instance: Any, schema: Any) -> bool:
    _pay(_KEYWORD)
    return next(validator.descend(instance, schema), None) is None


def _pay(cost: int) -> None:
    left = _budget.get()
    if left is not None:
        left[0] -= cost
        if left[0] < 0:
            raise TooMuchWork


def _paid(name: str, keyword: Keyword) -> Keyword:
    once, part = _COSTS.get(name, (_KEYWORD, _PART))

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Found:
        _pay(once + part * (_size(value) + _size(instance)))
        for error in keyword(validator, value, instance, schema) or ():
            # It may tell all that it is about.
            _pay(len(error.message) // _WRITTEN)
            yield error

    return check


def _size(value: Any) -> int:
    return len(cast("Sequence[Any]", value)) if isinstance(value, list | dict) else 0


_known: Mapping[str, Keyword] = cast("Any", jsonschema.Draft202012Validator).VALIDATORS
_OURS: Mapping[str, Keyword] = {
    "const": _compared(_known["const"]),
    "enum": _compared(_known["enum"]),
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
}
_extend: Any = extend
CHECKER: Any = _extend(
    jsonschema.Draft202012Validator, {name: _paid(name, keyword) for name, keyword in {**_known, **_OURS}.items()}
)
