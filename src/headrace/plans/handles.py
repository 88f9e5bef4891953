"""Spark's own objects behind the trees and columns of which a view's operators are made.

Operators are values and know no JVM; whoever builds a query of them asks here.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.ir.nodes import Column, Tree
from headrace.plans.trees import Java, column, columns_of, kind_of


class Handles:
    """A table of Spark's objects: trees by their number, columns by what they are."""

    def __init__(self) -> None:
        self._trees: list[Java] = []
        self._columns: dict[Column, Java] = {}

    def tree(self, java: Java) -> Tree:
        """A plan or an expression as a value that leads back to it."""
        self._trees.append(java)
        return Tree(len(self._trees) - 1, kind_of(java))

    def trees(self, javas: Iterable[Java]) -> tuple[Tree, ...]:
        """Several plans or expressions."""
        return tuple(self.tree(java) for java in javas)

    def column(self, java: Java) -> Column:
        """A resolved attribute, or anything that has its face, as a value that leads back to it."""
        known = column(java)
        self._columns.setdefault(known, java)
        return known

    def output(self, plan: Java) -> tuple[Column, ...]:
        """The columns that a plan gives."""
        return tuple(self.column(java) for java in columns_of(plan))

    def java(self, one: Tree | Column) -> Java:
        """Spark's own object."""
        return self._trees[one.number] if isinstance(one, Tree) else self._columns[one]

    def javas(self, several: Iterable[Tree | Column]) -> list[Java]:
        """Spark's own objects."""
        return [self.java(one) for one in several]
