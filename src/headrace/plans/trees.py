"""Spark's plans and expressions, read as trees.

To ask the JVM is a message there and back, and a plan has hundreds of parts: a question is asked about all children at
once, and its answer is kept with the node, which never changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar

from py4j.java_gateway import JavaObject
from pyspark.sql.types import DataType, DecimalType, LongType, StructType

from headrace.ir.nodes import Column

Java = Any
T = TypeVar("T")

RELATION_MARK = "headrace.relation"
COLUMN_MARK = "headrace.column"

SOURCE = files("headrace.plans").joinpath("trees.java").read_text()

_READER = "_headrace_reader"


@dataclass(frozen=True)
class Part:
    """Something that a plan is made of: what, its name or class, its line from 1 and its position there from 0."""

    what: str
    name: str
    line: int | None
    position: int | None


def read_by(reader: Java) -> None:
    """Have an object made of the source beside answer for all objects of its gateway."""
    # Kept with the gateway, and gone with it when its JVM has ended.
    setattr(reader._gateway_client, _READER, reader)


def _reader(java: Java) -> Java:
    return getattr(java._gateway_client, _READER)


def _once(java: Java, name: str, ask: Callable[[], T]) -> T:
    """What is known of an object, asked for the first time only."""
    known: dict[str, Any] = java.__dict__
    if name not in known:
        known[name] = ask()
    return known[name]


def _objects(answer: str, client: object) -> list[Java]:
    """The objects of an answer, which says the number and the kind of each."""
    words = answer.split()
    found: list[Java] = []
    for number, kind in zip(words[::2], words[1::2], strict=True):
        one: Java = JavaObject(number, client)
        one.__dict__["_headrace_kind"] = kind
        found.append(one)
    return found


def items(sequence: Java) -> list[Java]:
    """A Scala sequence as a Python list."""
    answer = _reader(sequence).items(sequence)
    if answer is None:
        return [sequence.apply(i) for i in range(sequence.size())]
    return _objects(answer, sequence._gateway_client)


def kind_of(node: Java) -> str:
    """The simple class name of a plan or an expression."""
    return _once(node, "_headrace_kind", lambda: _reader(node).kind(node))


def children(node: Java) -> list[Java]:
    """The children of a plan or an expression."""
    return list(_parts(node, "children"))


def expressions_of(plan: Java) -> list[Java]:
    """The expressions of a plan's own node."""
    return list(_parts(plan, "expressions"))


def columns_of(plan: Java) -> list[Java]:
    """The columns that a plan gives, as Spark's."""
    return list(_parts(plan, "output"))


def _parts(node: Java, what: str) -> list[Java]:
    ask = getattr(_reader(node), what)
    return _once(node, f"_headrace_{what}", lambda: _objects(ask(node), node._gateway_client))


def column(java: Java) -> Column:
    """A resolved attribute, or anything that has its face, as a value."""
    number, nullable, kind, name = _once(java, "_headrace_attribute", lambda: _reader(java).attribute(java)).split(
        "\n", 3
    )
    return Column(int(number), name, _type_of(kind), nullable == "true")


def id_of(java: Java) -> int:
    """Spark's id of a column."""
    return _once(java, "_headrace_id", lambda: java.exprId().id())


def mark_of(column: Java) -> tuple[str, int] | None:
    """The relation and the index that a column is marked with, if it is one of ours."""

    def ask() -> tuple[str, int] | None:
        answer = _reader(column).mark(column, RELATION_MARK, COLUMN_MARK)
        if answer is None:
            return None
        index, relation = answer.split("\n", 1)
        return relation, int(index)

    return _once(column, "_headrace_mark", ask)


def column_index(column: Java) -> int:
    """Which column of its relation a marked one is."""
    mark = mark_of(column)
    assert mark is not None
    return mark[1]


def data_type(java: Java) -> DataType:
    """A Spark type as PySpark's object of it."""
    return _type_of(java.json())


def _type_of(text: str) -> DataType:
    field = {"name": "x", "type": json.loads(text), "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType


def may_be_null_for_size(function: Java) -> bool:
    """Whether a sum or an average gives NULL where it overflows: try_sum and try_avg of types that can."""
    (one,) = children(function)
    lenient = str(function.prettyName()).startswith("try_")
    return lenient and isinstance(data_type(one.dataType()), (LongType, DecimalType))


def references(expression: Java) -> set[int]:
    """The ids of all attributes that an expression reads."""
    found = _once(expression, "_headrace_references", lambda: _reader(expression).references(expression))
    return {int(one) for one in found.split()}


def conjuncts(condition: Java | None) -> list[Java]:
    """The parts of a condition that all must hold."""
    if condition is None:
        return []
    if kind_of(condition) == "And":
        left, right = children(condition)
        return conjuncts(left) + conjuncts(right)
    return [condition]


def optional(option: Java) -> Java | None:
    """A Scala Option as a value or None."""
    return option.get() if option.isDefined() else None


def walk(expression: Java) -> Iterable[Java]:
    """The expression and all of its parts, top first."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def survey(plan: Java, optioned: str = "") -> list[Part]:
    """Everything that a plan is made of, each once: nodes, expressions and what a parsed query names.

    Functions that take a map of options are told as name:index; the options given to them are among the parts.
    """
    return [Part(*told) for told in json.loads(_reader(plan).survey(plan, optioned))]
