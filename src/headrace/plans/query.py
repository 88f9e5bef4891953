"""A query over small tables that are handed in at every run: what rules ask Spark for.

How it is run is another's matter: planned once and kept (prepared.py), or planned anew each time (fresh.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import DataType, NullType

from headrace.ir.nodes import Column
from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import Java, columns_of


@dataclass(frozen=True)
class LeafShape:
    """The columns of one leaf: those that the plan above reads by their ids, then extra columns by name."""

    columns: tuple[Column, ...]
    extra: tuple[tuple[str, DataType], ...] = ()

    def fields(self) -> list[tuple[int, DataType]]:
        """The columns that are handed in, by index: one that is always NULL has no type in a file."""
        types = [column.type for column in self.columns] + [kind for _, kind in self.extra]
        return [(index, kind) for index, kind in enumerate(types) if not isinstance(kind, NullType)]


@dataclass(frozen=True)
class Leaf:
    """A leaf in a plan: its columns, and the attributes of its extra columns."""

    plan: Java
    extra: dict[str, Java]


Build = Callable[[list[Leaf]], Java]


class Query(Protocol):
    """Something that turns tables into one."""

    def run(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The query's rows, as c0, c1, ...; each table has its leaf's columns in order, the extra ones last."""
        ...


def make_leaf(catalyst: Catalyst, shape: LeafShape, plan: Java) -> Leaf:
    """The leaf that a plan gives, whose columns are the fields of its shape: in one partition, under their ids."""
    columns = {index: java for (index, _), java in zip(shape.fields(), columns_of(plan), strict=True)}
    aliases: list[Java] = []
    for index, wanted in enumerate(shape.columns):
        source = columns.get(index) or catalyst.null_literal(catalyst.java_type(wanted.type))
        aliases.append(catalyst.alias(source, wanted.name, catalyst.id_of(wanted)))
    extra: dict[str, Java] = {}
    for offset, (name, _) in enumerate(shape.extra):
        alias = catalyst.alias(columns[len(shape.columns) + offset], name)
        aliases.append(alias)
        extra[name] = alias.toAttribute()
    return Leaf(catalyst.one_partition(catalyst.project(aliases, plan)), extra)


def numbered(result: pa.Table) -> pa.Table:
    """A result with its columns named c0, c1, ..."""
    return result.rename_columns([f"c{i}" for i in range(result.num_columns)])
