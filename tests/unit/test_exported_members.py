"""The public face: every name is promised in a list here, found in the package, and documented where it stands."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import headrace

# What a program may use of an open home, and all that help() shows of it.
VERBS = {
    "execute": ["sql"],
    "apply": ["changes", "key"],
    "query": ["sql", "epoch"],
    "changes": ["name", "since", "until"],
    "create_auto_cdc_flow": ["target", "source", "keys", "sequence_by"],
    "events": ["name"],
    "explain": ["name"],
    "verify": ["name"],
    "refresh": [],
    "fold": [],
    "backup": ["destination"],
    "watch": ["listener"],
    "close": [],
}
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


def test_all_names_what_is_there() -> None:
    public = {
        name
        for name, member in vars(headrace).items()
        if not name.startswith("_") and not inspect.ismodule(member) and name != "annotations"
    }
    assert public | {"local"} == set(headrace.__all__)
    assert set(headrace.local.__all__) >= {"start", "Servers"}


def test_every_error_of_the_tree_is_exported() -> None:
    from headrace import errors

    tree = {
        name
        for name, member in vars(errors).items()
        if isinstance(member, type) and issubclass(member, headrace.HeadraceError)
    }
    assert tree <= set(headrace.__all__), "a caller can only catch what it can name"


@pytest.mark.parametrize("name", headrace.__all__)
def test_what_is_exported_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(headrace, name))


@pytest.mark.parametrize("verb", VERBS)
def test_the_verbs_of_a_home_are_as_documented(verb: str) -> None:
    member = getattr(headrace.Headrace, verb)
    assert inspect.getdoc(member)
    taken = [name for name in inspect.signature(member).parameters if name != "self"]
    assert taken[: len(VERBS[verb])] == VERBS[verb]
    needless = list(inspect.signature(member).parameters.values())[1 + len(VERBS[verb]) :]
    assert all(one.default is not inspect.Parameter.empty for one in needless), "more may come, but nobody must give it"


def test_a_home_has_these_verbs_and_nothing_else() -> None:
    public = {name for name in dir(headrace.Headrace) if not name.startswith("_")}
    assert public == {*VERBS, "epoch"}


def test_the_reference_has_each_verb_as_it_is() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    told = re.findall(r"^### (.+)$", page, re.MULTILINE)
    members = {"headrace.open": headrace.open, **{f"hr.{verb}": getattr(headrace.Headrace, verb) for verb in VERBS}}
    assert sorted(told) == sorted([*map(_heading, members, members.values()), "hr.epoch"])
    tree = {name for name in headrace.__all__ if isinstance(getattr(headrace, name), type)}
    assert sorted(name for name in tree - {"Headrace"} if f"{name}`" not in page) == []


def _heading(name: str, member: Any) -> str:
    """A verb with what it takes, without types."""
    parts: list[str] = []
    for one in inspect.signature(member).parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        given = "" if one.default is one.empty else f"={one.default!r}"
        parts.append(f"**{one.name}" if one.kind is one.VAR_KEYWORD else one.name + given)
    return f"{name}({', '.join(part for part in parts if part != 'self')})"


def test_a_home_is_a_context() -> None:
    assert hasattr(headrace.Headrace, "__enter__")
    assert hasattr(headrace.Headrace, "__exit__")


def test_a_home_is_opened_by_its_place_and_little_else() -> None:
    parameters = inspect.signature(headrace.open).parameters
    assert next(iter(parameters)) == "home"
    assert {"spark", "settings", "read_only"} <= set(parameters)
    assert any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()), "settings as keywords"


@pytest.mark.parametrize("part", ["code", "message", "detail", "hint"])
def test_an_error_has_its_parts(part: str) -> None:
    assert hasattr(headrace.HeadraceError("it happened", detail="Here.", hint="look there"), part)


def test_a_receipt_has_its_parts() -> None:
    receipt = headrace.Receipt(1)
    for part in ("epoch", "applied", "stale", "dead", "seconds", "stages"):
        assert hasattr(receipt, part)
