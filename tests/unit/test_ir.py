"""Operators are values: equal when they say the same, readable when shown, and without a door to the JVM."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql.types import IntegerType, StringType

import headrace.ir
from headrace.ir.nodes import Column, Node, Tree, inputs_of
from headrace.plans.handles import Handles
from headrace.rules.all import RULES
from headrace.rules.filter_project import FilterProject
from headrace.rules.outer_join import OuterJoin
from headrace.rules.scan import Scan
from headrace.rules.union import UnionAll
from tests.driven_rules import handle

ID, NAME = Column(1, "id", IntegerType(), False), Column(2, "name", StringType(), True)


def scan(relation: str = "people") -> Scan:
    return Scan(Tree(0, "LocalRelation"), (ID, NAME), relation, (0, 1))


def test_operators_that_say_the_same_are_equal() -> None:
    assert scan() == scan()
    assert hash(scan()) == hash(scan())
    assert scan() != scan("towns")
    assert FilterProject(Tree(1, "Filter"), (ID,), scan(), (Tree(1, "Filter"),)) != scan()
    assert replace(ID, type=StringType()) != ID
    with pytest.raises(FrozenInstanceError):
        scan().relation = "towns"  # pyright: ignore


def test_an_operator_shows_what_it_is() -> None:
    assert repr(scan()) == (
        "Scan(plan=Tree(number=0, kind='LocalRelation'), output=(Column(id=1, name='id', type=IntegerType(), "
        "nullable=False), Column(id=2, name='name', type=StringType(), nullable=True)), relation='people', "
        "columns=(0, 1))"
    )


def test_the_inputs_of_an_operator_come_in_the_order_of_its_fields() -> None:
    left, right = scan("l"), scan("r")
    joined = OuterJoin(Tree(2, "Join"), (ID,), "left", left, right, (1,), (1,), False, None)
    assert inputs_of(joined) == (left, right)
    assert inputs_of(UnionAll(Tree(3, "Union"), (ID,), (joined, right))) == (joined, right)
    assert inputs_of(left) == ()


@pytest.mark.parametrize("node", [operator.node for operator in RULES], ids=lambda node: node.__name__)
def test_every_operator_is_a_frozen_value_that_names_no_object_of_spark(node: Any) -> None:
    assert is_dataclass(node)
    assert issubclass(node, Node)
    assert node.__dataclass_params__.frozen
    assert node.__dataclass_params__.eq
    assert [one.name for one in fields(node) if "Java" in str(one.type) or "Any" in str(one.type)] == []


def test_nothing_that_operators_are_made_of_imports_spark_but_for_its_types() -> None:
    (folder,) = headrace.ir.__path__
    found: set[str] = set()
    for path in Path(folder).glob("*.py"):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.ImportFrom):
                found.add(one.module or "")
            elif isinstance(one, ast.Import):
                found.update(name.name for name in one.names)
    assert found == {"__future__", "dataclasses", "pyspark.sql.types"}


def test_trees_and_columns_lead_back_to_sparks_own_objects() -> None:
    handles = Handles()
    first, second = handle("Filter"), handle("Filter")
    told = f"7\nfalse\n{IntegerType().json()}\nid"
    attribute = handle("AttributeReference", _headrace_attribute=told)
    trees = handles.trees([first, second])
    assert [tree.kind for tree in trees] == ["Filter", "Filter"]
    assert trees[0] != trees[1]
    assert handles.javas(trees) == [first, second]
    column = handles.column(attribute)
    assert column == Column(7, "id", IntegerType(), False)
    assert handles.java(column) is attribute
    assert not any(isinstance(value, JavaObject) for value in vars(column).values())
