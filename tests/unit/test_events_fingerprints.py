"""What tells one fold from another: its code and all that it was made with, and nothing by chance."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from headrace.events.fingerprints import fingerprint

RATE = 2
_log = logging.getLogger("tests.fingerprints")


def having(constant: object) -> Callable[..., Any]:
    """A function whose code has this constant."""

    def fold(state: Any, event: Any) -> Any:
        return state if event["event_type"] in ("here", "is", "the constant") else None

    constants = tuple(constant if isinstance(one, tuple) else one for one in fold.__code__.co_consts)
    return FunctionType(fold.__code__.replace(co_consts=constants), globals(), "fold")


def test_a_set_counts_by_what_is_in_it_and_not_by_its_order() -> None:
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert repr(one) != repr(other)
    assert fingerprint(having(one)) == fingerprint(having(other))
    assert fingerprint(having(one)) != fingerprint(having(frozenset([0, 9])))


def closing(rate: object) -> Callable[..., Any]:
    return lambda state, event: rate


def defaulting(given: object) -> Callable[..., Any]:
    def fold(state: Any, event: Any, rate: object = given, *, other: object = given) -> Any:
        return rate, other

    return fold


def plain(rate: object, state: Any, event: Any) -> Any:
    return rate


def part(rate: object) -> Callable[..., Any]:
    return functools.partial(plain, rate)


@pytest.mark.parametrize("made", [closing, defaulting, part])
def test_what_a_function_was_made_with_counts(made: Callable[[object], Callable[..., Any]]) -> None:
    values: list[Any] = [1, 2, 1.0, True, None, "1", b"1", [1], (1,), {"a": 1}, {"a": 2}, {1}, plain, closing, int]
    found = [fingerprint(made(value)) for value in values]
    assert None not in found
    assert len(set(found)) == len(values)
    assert found == [fingerprint(made(value)) for value in values]
    assert fingerprint(made({"a": 1, "b": 2})) == fingerprint(made({"b": 2, "a": 1}))


class Rates:
    """Something with neither code nor a value that another process could compare."""

    def __init__(self, rate: int) -> None:
        self.rate = rate

    def fold(self, state: Any, event: Any) -> Any:
        return self.rate

    def __call__(self, state: Any, event: Any) -> Any:
        return self.rate


def test_what_cannot_be_told_apart_is_told() -> None:
    for one in (Rates(1), Rates(1).fold, closing(Rates(1)), part(Rates(1)), [].append):
        assert fingerprint(one) is None


def uses_others(state: Any, event: Any) -> Any:
    _log.debug("folded")
    return plain(RATE, state, event)


def test_constants_and_functions_of_its_own_module_count(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fingerprint(uses_others)
    assert first is not None
    monkeypatch.setitem(globals(), "RATE", 3)
    second = fingerprint(uses_others)
    monkeypatch.setitem(globals(), "plain", closing)
    assert len({first, second, fingerprint(uses_others)}) == 3


def calls_itself(state: Any, event: Any) -> Any:
    return calls_itself(state, event)


def test_a_function_may_call_itself() -> None:
    def inner(state: Any, event: Any) -> Any:
        return inner(state, event)

    assert fingerprint(inner) is not None
    assert fingerprint(calls_itself) == fingerprint(calls_itself)
