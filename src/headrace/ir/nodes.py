"""What operators are made of: columns, parts of Spark's plan by their number, and the operators below. Values only.

The operators themselves stand with their rules, one to a file (rules/).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Column:
    """One column that an operator gives: Spark's id of it, its name, its type, whether it may be NULL."""

    id: int
    name: str
    type: DataType
    nullable: bool


@dataclass(frozen=True)
class Tree:
    """A plan or an expression of Spark: its kind, and its number in the table that knows Spark's own object."""

    number: int
    kind: str


@dataclass(frozen=True)
class Node:
    """An operator: the Spark plan that computes all of it, and the columns that it gives."""

    plan: Tree
    output: tuple[Column, ...]

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types of its columns."""
        return tuple(column.type for column in self.output)

    @property
    def ids(self) -> frozenset[int]:
        """The ids of its columns."""
        return frozenset(column.id for column in self.output)


def inputs_of(node: Node) -> tuple[Node, ...]:
    """The operators that an operator reads, in the order in which it names them."""
    found: list[Node] = []
    for field in fields(node):
        value: object = getattr(node, field.name)
        parts: tuple[object, ...] = value if isinstance(value, tuple) else (value,)
        found.extend(part for part in parts if isinstance(part, Node))
    return tuple(found)
