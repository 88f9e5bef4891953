"""The key of a view's rows, from the shape of its query alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, ShortType, StringType

from headrace.catalog.derived_key import derived_key
from headrace.ir.nodes import Column, Node, Tree
from headrace.rules.aggregate import Aggregate
from headrace.rules.filter_project import FilterProject
from headrace.rules.inner_join import InnerJoin
from headrace.rules.outer_join import OuterJoin
from headrace.rules.scan import Scan
from headrace.rules.union import UnionAll
from tests.driven_rules import HANDLES, Bench, Listed, column, handle, plan

ID, CITY, AMOUNT = column(1, IntegerType()), column(2, IntegerType()), column(3, IntegerType())
ORDERS = Scan(plan(), (ID, CITY, AMOUNT), "orders", (0, 1, 2))
KEYS = {"orders": (0,), "lines": (0, 2), "log": ()}


def alias(number: int, of: Column | None = None) -> Any:
    """A column under a name of its own; without one, what is worked out of others."""
    child = handle("Add") if of is None else HANDLES.java(of)
    return handle("Alias", _headrace_id=number, child=lambda: child)


def project(*columns: Any) -> Tree:
    listed = [HANDLES.java(one) if isinstance(one, Column) else one for one in columns]
    return HANDLES.tree(handle("Project", projectList=lambda: Listed(*listed)))


def over(child: Node, output: tuple[Column, ...], *steps: Tree) -> FilterProject:
    return FilterProject(plan(), output, child, steps)


def key(node: Node, *names: str) -> tuple[str, ...]:
    return derived_key(Bench(), node, names, lambda relation: KEYS.get(relation, ()))


def test_a_relation_keeps_its_key_under_the_names_of_the_view() -> None:
    assert key(ORDERS, "number", "town", "sum") == ("number",)
    assert key(Scan(plan(), (AMOUNT, ID), "orders", (2, 0)), "amount", "id") == ("id",)


def test_a_key_of_several_columns_needs_all_of_them() -> None:
    assert key(Scan(plan(), (AMOUNT, ID), "lines", (2, 0)), "b", "a") == ("a", "b")
    assert key(Scan(plan(), (ID, CITY), "lines", (0, 1)), "a", "b") == ()


@pytest.mark.parametrize("relation", ["log", "the clock"])
def test_a_relation_without_a_key_gives_none(relation: str) -> None:
    assert key(Scan(plan(), (ID,), relation, (0,)), "id") == ()


def test_a_filter_leaves_the_key_as_it_is() -> None:
    assert key(over(ORDERS, ORDERS.output, plan("Filter")), "id", "city", "amount") == ("id",)


def test_a_projection_may_rename_the_key_and_must_keep_it() -> None:
    renamed = column(9, IntegerType())
    steps = project(alias(9, ID), AMOUNT), plan("Filter")
    assert key(over(ORDERS, (renamed, AMOUNT), *steps), "number", "amount") == ("number",)
    assert key(over(ORDERS, (AMOUNT,), project(AMOUNT)), "amount") == ()
    worked_out = column(10, IntegerType())
    assert key(over(ORDERS, (worked_out,), project(alias(10))), "id") == ()


def test_a_key_is_followed_through_one_projection_after_the_other() -> None:
    steps = project(alias(11, ID)), project(alias(12, column(11, IntegerType())))
    assert key(over(ORDERS, (column(12, IntegerType()),), *steps), "n") == ("n",)


@pytest.mark.parametrize("kind", ["Generate", "Expand"])
def test_steps_that_repeat_rows_leave_no_key(kind: str) -> None:
    assert key(over(ORDERS, ORDERS.output, plan(kind)), "id", "city", "amount") == ()


def aggregate(groups: tuple[Column, ...], *results: Any) -> Aggregate:
    output = (*groups, column(51, LongType()))
    trees = tuple(HANDLES.tree(HANDLES.java(one) if isinstance(one, Column) else one) for one in results)
    return Aggregate(plan(), output, ORDERS, groups, (), trees)


def test_groups_are_the_key_of_a_group_by() -> None:
    assert key(aggregate((CITY, AMOUNT), CITY, AMOUNT, alias(51)), "city", "amount", "n") == ("city", "amount")
    assert key(aggregate((), alias(51)), "n") == ()


def test_groups_may_be_renamed_or_left_out() -> None:
    named = Aggregate(plan(), (column(52, IntegerType()),), ORDERS, (CITY,), (), aggregate((), alias(52, CITY)).results)
    assert key(named, "town") == ("town",)
    unnamed = Aggregate(plan(), (column(53, LongType()),), ORDERS, (CITY,), (), aggregate((), alias(53)).results)
    assert key(unnamed, "n") == ()


def test_any_other_operator_tells_no_key() -> None:
    assert key(UnionAll(plan(), ORDERS.output, (ORDERS, ORDERS)), "id", "city", "amount") == ()


LOAN, MEMBER, FEE = column(21, IntegerType()), column(22, IntegerType()), column(23, IntegerType())
LOANS = Scan(plan(), (LOAN, MEMBER, FEE), "orders", (0, 1, 2))
NUMBER, NAME = column(31, IntegerType()), column(32, IntegerType())
MEMBERS = Scan(plan(), (NUMBER, NAME), "orders", (0, 1))
RATIO, SHARE = column(41, DoubleType()), column(42, DoubleType())


def read(one: Column | Any) -> Any:
    """A column, or an expression, as a condition reads it."""
    if isinstance(one, Column):
        return handle("AttributeReference", _headrace_id=one.id, _headrace_references=str(one.id), dataType=typed(one))
    return one


def typed(one: Column) -> Any:
    return lambda: SimpleNamespace(json=one.type.json)


def cast(one: Column, to: DataType) -> Any:
    return handle(
        "Cast",
        _headrace_children=[read(one)],
        _headrace_references=str(one.id),
        dataType=lambda: SimpleNamespace(json=to.json),
    )


def equal(a: Column | Any, b: Column | Any, kind: str = "EqualTo") -> Tree:
    sides = [read(a), read(b)]
    ids = " ".join(one._headrace_references for one in sides)
    return HANDLES.tree(handle(kind, _headrace_children=sides, _headrace_references=ids))


def inner(conditions: tuple[Tree, ...], *inputs: Node, singles: frozenset[int] = frozenset()) -> InnerJoin:
    output = tuple(one for node in inputs for one in node.output)
    return InnerJoin(plan("Join"), output, inputs, conditions, (), (), singles)


def outer(kind: str, condition: Tree, left: Node = LOANS, right: Node = MEMBERS) -> OuterJoin:
    output = left.output if kind in ("semi", "anti") else (*left.output, *right.output)
    return OuterJoin(plan("Join"), output, kind, left, right, (), (), False, condition)


def named(node: Node) -> tuple[str, ...]:
    """The key of an operator whose columns go by their ids."""
    return key(node, *(str(one.id) for one in node.output))


OF_MEMBER = equal(NUMBER, MEMBER)


def test_the_key_of_a_join_is_that_of_the_side_whose_rows_match_at_most_once() -> None:
    assert named(inner((OF_MEMBER,), LOANS, MEMBERS)) == ("21",)
    assert named(inner((equal(MEMBER, NUMBER),), MEMBERS, LOANS)) == ("21",)
    # Of no use where the key is not among the columns of the view.
    assert named(over(inner((OF_MEMBER,), LOANS, MEMBERS), (NAME,), project(NAME))) == ()
    assert named(over(inner((OF_MEMBER,), LOANS, MEMBERS), (NAME, LOAN), project(NAME, LOAN))) == ("21",)


def test_a_join_by_other_columns_has_no_key() -> None:
    assert named(inner((equal(NAME, MEMBER),), LOANS, MEMBERS)) == ()
    assert named(inner((), LOANS, MEMBERS)) == ()
    assert named(inner((equal(NUMBER, MEMBER, "EqualNullSafe"),), LOANS, MEMBERS)) == ()
    assert named(inner((equal(NUMBER, MEMBER, "GreaterThan"),), LOANS, MEMBERS)) == ()


def test_all_columns_of_a_key_must_be_equal_to_given_ones() -> None:
    lines = Scan(plan(), (NUMBER, NAME, column(33, IntegerType())), "lines", (0, 1, 2))
    assert named(inner((OF_MEMBER,), LOANS, lines)) == ()
    assert named(inner((OF_MEMBER, equal(FEE, column(33, IntegerType()))), LOANS, lines)) == ("21",)
    # A column that is equal to another of its own side is fixed by nothing.
    assert named(inner((OF_MEMBER, equal(NAME, column(33, IntegerType()))), LOANS, lines)) == ()


def test_joins_of_joins_are_followed_from_one_side_to_the_next() -> None:
    town, mayor = column(51, IntegerType()), column(52, IntegerType())
    towns = Scan(plan(), (town, mayor), "orders", (0, 1))
    assert named(inner((OF_MEMBER, equal(NAME, town)), LOANS, MEMBERS, towns)) == ("21",)
    assert named(inner((OF_MEMBER,), LOANS, MEMBERS, towns)) == ()
    value = Scan(plan(), (town,), "log", (0,))
    assert named(inner((OF_MEMBER,), LOANS, MEMBERS, value, singles=frozenset({2}))) == ("21",)
    assert named(outer("left", equal(NAME, town), inner((OF_MEMBER,), LOANS, MEMBERS), towns)) == ("21",)


def test_of_a_join_of_two_keys_the_one_that_is_shown_is_taken() -> None:
    both = inner((equal(LOAN, NUMBER),), LOANS, MEMBERS)
    assert named(both) == ("21",)
    assert named(over(both, (NUMBER,), project(NUMBER))) == ("31",)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("left", ("21",)), ("right", ()), ("full", ()), ("semi", ("21",)), ("anti", ("21",))],
)
def test_an_outer_join_keeps_the_key_of_the_side_that_it_preserves(kind: str, expected: tuple[str, ...]) -> None:
    assert named(outer(kind, OF_MEMBER)) == expected
    mirrored = {"left": "right", "right": "left"}.get(kind)
    if mirrored is not None:
        assert named(outer(mirrored, OF_MEMBER, MEMBERS, LOANS)) == expected


def test_groups_are_a_key_to_join_by() -> None:
    sums = aggregate((CITY,), CITY, alias(51))
    assert named(inner((equal(CITY, MEMBER),), LOANS, sums)) == ("21",)
    assert named(inner((equal(AMOUNT, MEMBER),), LOANS, sums)) == ()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (cast(NUMBER, LongType()), ("21",)),
        # A cast that is not exact, and 0.0, which equals -0.0.
        (cast(NUMBER, ShortType()), ()),
        (cast(NUMBER, StringType()), ()),
        (cast(NUMBER, DoubleType()), ()),
    ],
)
def test_only_exact_comparisons_tell_keys_apart(expression: Any, expected: tuple[str, ...]) -> None:
    assert named(inner((equal(expression, MEMBER),), LOANS, MEMBERS)) == expected
    ratios = Scan(plan(), (RATIO, SHARE), "orders", (0, 1))
    assert named(inner((equal(RATIO, MEMBER),), LOANS, ratios)) == ()
