"""What is asked about a plan in one go is what the plan itself says."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import (
    children,
    column,
    columns_of,
    expressions_of,
    items,
    kind_of,
    references,
    survey,
    walk,
)

SQL = (
    "SELECT id % 3 AS `a\nb`, count(*) AS n, named_struct('x\n\"y', 1) AS s FROM range(9) WHERE id > 1 GROUP BY id % 3"
)


@pytest.fixture
def catalyst(spark: SparkSession) -> Catalyst:
    return Catalyst(spark)


def _nodes(plan: Any) -> list[Any]:
    return [node for one in walk(plan) for node in (one, *(part for e in expressions_of(one) for part in walk(e)))]


def test_every_node_is_what_it_says_itself(catalyst: Catalyst) -> None:
    plan = catalyst.analyze(catalyst.parse_query(SQL))
    nodes = _nodes(plan)
    kinds = {kind_of(node) for node in nodes}
    assert {"Aggregate", "Filter", "Range", "AttributeReference", "CreateNamedStruct"} <= kinds
    for node in nodes:
        assert kind_of(node) == node.getClass().getSimpleName()
        below = [node.children().apply(i) for i in range(node.children().size())]
        assert [one.toString() for one in children(node)] == [one.toString() for one in below]
    for java in columns_of(plan):
        found = column(java)
        assert (found.id, found.name, found.nullable) == (java.exprId().id(), java.name(), java.nullable())
        assert catalyst.java_type(found.type).equals(java.dataType())


def test_references_are_those_of_all_parts(catalyst: Catalyst) -> None:
    plan = catalyst.analyze(catalyst.parse_query(SQL))
    (source,) = [one for one in walk(plan) if kind_of(one) == "Range"]
    (condition,) = [e for one in walk(plan) if kind_of(one) == "Filter" for e in expressions_of(one)]
    assert references(condition) == {column.exprId().id() for column in columns_of(source)}


def test_a_node_is_asked_once(catalyst: Catalyst) -> None:
    plan = catalyst.analyze(catalyst.parse_query(SQL))
    assert [id(one) for one in children(plan)] == [id(one) for one in children(plan)]
    children(plan).clear()
    assert len(children(plan)) == 1


def test_values_in_a_sequence_are_values(catalyst: Catalyst) -> None:
    words = catalyst.java_class("org.apache.spark.api.python.PythonUtils").toSeq(["a", "b c", None])
    assert items(words) == ["a", "b c", None]
    assert items(catalyst.seq([])) == []
    pair = [catalyst.literal(1), catalyst.literal("two")]
    assert [str(one.toString()) for one in items(catalyst.seq(pair))] == ["1", "two"]


def test_a_survey_tells_names_of_any_characters(catalyst: Catalyst) -> None:
    names = ["a\x1fb", "a\x1e\x1f1\x1f2", 'c"\\d', "e\nf\tg\r", "\U0001f600 \u00e9", "relation"]
    sql = " UNION ALL ".join(f"SELECT * FROM `{name}`" for name in names)
    parts = survey(catalyst.parse_query(sql))
    assert [part.name for part in parts if part.what == "relation"] == names
    first = next(part for part in parts if part.what == "relation")
    assert (first.line, first.position) == (1, sql.index("`"))


def test_classes_with_the_same_methods_are_told_apart(catalyst: Catalyst) -> None:
    """In one thread, because the gateway remembers methods for each."""
    first = catalyst.compiled("First", 'public String tell(Object one) { return "first"; }')
    second = catalyst.compiled("Second", 'public String tell(Object one) { return "second " + one; }')
    assert [first.tell("x"), second.tell("x"), first.tell("x")] == ["first", "second x", "first"]
