"""What a schema may cost: hostile ones and hostile data end within what the data's size allows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from headrace.errors import EventsRejected
from tests.costs import cost_of
from tests.thinned import thinned
from tests.unit.test_events_states import SmallStore, event

_DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}}


_MANY = [[n] for n in range(20_000)]
_NAMES = {f"k{n}": n for n in range(12_000)}


def doubling(leaf: Any, by: str = "allOf") -> dict[str, Any]:
    """A schema of 40 steps, each of which refers to the next one twice."""
    steps = {f"d{n}": {by: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    return {"$ref": "#/$defs/d0", "$defs": {**steps, "d40": leaf}}


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return store_in(tmp_path)


def store_in(folder: Path) -> SmallStore:
    made = SmallStore(folder)
    made.host.settings.event_bytes = 2_000_000
    return made


def test_every_pattern_is_quick_with_every_text(store: SmallStore) -> None:
    long = "a" * 990
    store.register_schema("X", {"properties": {"a": {"pattern": "^(a+)+$"}, "b": {"pattern": "a*a*a*a*b"}}})
    store.register_schema("Y", {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False})
    # An engine that tries all ways would not end.
    for name, data in (("X", {"a": f"{long}b"}), ("X", {"b": long}), ("Y", {f"{long}b": 1})):
        with pytest.raises(EventsRejected, match=r"match|not allowed"):
            store.append("T", "a", [event(name, **data)])
    store.append("T", "a", [event("X", a=long, b=f"{long}b"), event("Y", **{long: 1})])


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"$ref": "#/$defs/d0", "$defs": _DOUBLING}, {}),
        ({"properties": {"a": {"items": {"enum": list(range(20_000))}}}}, {"a": [19_999] * 2_000}),
    ],
    ids=["references that double", "a long list for each part of a long one"],
)
def test_a_check_that_costs_more_than_its_data_may_is_refused(store: SmallStore, schema: Any, data: Any) -> None:
    store.register_schema("X", schema)
    with pytest.raises(EventsRejected, match="too much work"):
        store.append("T", "a", [event("X", **data)])


@cache
def cost_of_references() -> float:
    """Return the processor time of a check that follows references until it is refused."""
    with TemporaryDirectory() as folder:
        store = store_in(Path(folder))
        store.register_schema("X", doubling({}))
        return cost_of(lambda: refused(store, {"a": "x" * 180_000}))


def refused(store: SmallStore, data: Any) -> None:
    with pytest.raises(EventsRejected, match="too much work"):
        store.append("T", "a", [event("X", **data)])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("schema", "data"),
    thinned(
        [
            (doubling(False, "anyOf"), {"a": "x" * 180_000}),
            (doubling({"properties": {"a": {"items": {}}}}), {"a": _MANY}),
            (doubling({"properties": {"a": {"contains": {"type": "string"}, "minContains": 0}}}), {"a": _MANY}),
            (doubling({"properties": {"a": {"uniqueItems": True}}}), {"a": _MANY}),
            (
                doubling({"properties": {"a": {"const": {"b": _MANY[:800]}}}}),
                {"a": {"b": _MANY[:800]}, "c": "x" * 160_000},
            ),
            ({**doubling({"properties": {"k1": {}}}), "unevaluatedProperties": False}, _NAMES),
            ({"patternProperties": {f"^{n}[a-z]{{100}}": {} for n in range(900)}}, _NAMES),
        ],
        3,
    ),
    ids=["faults", "items", "contains", "unique", "const", "unevaluated", "patterns"],
)
def test_no_keyword_and_no_large_event_makes_a_check_that_does_not_end(
    store: SmallStore, schema: Any, data: Any
) -> None:
    store.register_schema("X", schema)
    # Events of about the same size may cost about the same.
    assert cost_of(lambda: refused(store, data), tries=1) < 10 * cost_of_references()


def test_what_is_not_evaluated_is_told_as_the_standard_has_it(store: SmallStore) -> None:
    store.register_schema(
        "X",
        {
            "$defs": {"named": {"properties": {"name": {"type": "string"}}}},
            "allOf": [{"$ref": "#/$defs/named"}],
            "if": {"properties": {"kind": {"const": "b"}}, "required": ["kind"]},
            "then": {"properties": {"extra": {}}},
            "else": {"properties": {"other": {}}},
            "properties": {"list": {"prefixItems": [{}], "contains": {"type": "string"}, "unevaluatedItems": False}},
            "dependentSchemas": {"name": {"properties": {"nick": {}}}},
            "unevaluatedProperties": {"type": "boolean"},
        },
    )
    for right in (
        {"name": "a", "nick": 1},
        {"kind": "b", "extra": 1},
        {"other": 1},
        {"list": [1, "a", "b"]},
        {"anything": True},
    ):
        store.append("T", "a", [event("X", **right)])
    for wrong in ({"nick": 1}, {"kind": "b", "other": 1}, {"extra": 1}, {"list": [1, "a", 2]}):
        with pytest.raises(EventsRejected, match="Unevaluated"):
            store.append("T", "a", [event("X", **wrong)])


def test_parts_of_a_list_are_told_apart_without_comparing_each_with_each(store: SmallStore) -> None:
    store.register_schema("X", {"properties": {"a": {"uniqueItems": True}}})

    def append(count: int) -> None:
        store.append("T", "a", [event("X", a=[{"n": n} for n in range(count)])])

    # Each with each would cost 256 times as much.
    assert cost_of(lambda: append(16_000)) < 64 * cost_of(lambda: append(1_000))
    store.append("T", "a", [event("X", a=[1, True, "1", [1], [True], {"a": 1}, {"a": True}])])
    for equal in ([1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [[1, {}], [1.0, {}]]):
        with pytest.raises(EventsRejected, match="non-unique"):
            store.append("T", "a", [event("X", a=equal)])


def test_a_large_event_of_a_usual_schema_is_checked(store: SmallStore) -> None:
    line = {"type": "object", "required": ["sku", "n"], "properties": {"sku": {"type": "string"}, "n": {"minimum": 0}}}
    store.register_schema("X", {"properties": {"lines": {"type": "array", "items": line, "maxItems": 100_000}}})
    lines = [{"sku": f"s{n}", "n": n} for n in range(5_000)]
    store.append("T", "a", [event("X", lines=lines)])
    with pytest.raises(EventsRejected, match=r"lines\[5000\]"):
        store.append("T", "a", [event("X", lines=[*lines, {"sku": "x", "n": -1}])])


def test_patterns_know_letters_by_their_numbers_and_names_by_patterns(store: SmallStore) -> None:
    store.register_schema(
        "X", {"properties": {"a": {"pattern": "^\\u00e9+$"}}, "patternProperties": {"^n_": {"type": "integer"}}}
    )
    store.append("T", "a", [event("X", a="éé", n_a=1, other="x")])
    for bad in ({"a": "e"}, {"n_a": "x"}):
        with pytest.raises(EventsRejected):
            store.append("T", "a", [event("X", **bad)])
