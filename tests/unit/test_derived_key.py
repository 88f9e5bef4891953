"""The key of a view's rows, from the shape of its query alone."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType

from headrace.catalog.derived_key import derived_key
from headrace.ir.nodes import Column, Node, Tree
from headrace.rules.aggregate import Aggregate
from headrace.rules.filter_project import FilterProject
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
