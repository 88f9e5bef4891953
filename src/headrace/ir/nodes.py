"""The operators that a view is made of, as its rules follow them. Frozen, typed, without behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plans.trees import Attribute, Java


@dataclass(frozen=True, eq=False)
class Node:
    """An operator: the Spark plan that computes all of it, and the columns that it gives."""

    plan: Java
    output: tuple[Attribute, ...]


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """Some columns of a relation."""

    relation: str
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """Rows that never change."""


@dataclass(frozen=True, eq=False)
class FilterProject(Node):
    """Steps that act on each row alone, bottom first."""

    child: Node
    steps: tuple[Java, ...]


@dataclass(frozen=True, eq=False)
class UnionAll(Node):
    """UNION ALL."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Edge:
    """Columns of two inputs of a join that must be equal; NULL equals NULL only where it is null-safe."""

    left: int
    right: int
    left_columns: tuple[int, ...]
    right_columns: tuple[int, ...]
    null_safe: bool


@dataclass(frozen=True, eq=False)
class Threshold:
    """A column of one input compared with an expression over a one-row input."""

    input: int
    column: int
    operator: str
    expression: Java
    single: int
    condition: Java


@dataclass(frozen=True, eq=False)
class InnerJoin(Node):
    """Inner and cross joins of any number of inputs; attribute ids name the key columns."""

    inputs: tuple[Node, ...]
    conditions: tuple[Java, ...]
    edges: tuple[Edge, ...]
    thresholds: tuple[Threshold, ...]
    singles: frozenset[int]


@dataclass(frozen=True, eq=False)
class OuterJoin(Node):
    """LEFT, RIGHT, FULL, SEMI, ANTI and existence joins of two inputs."""

    kind: str
    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: bool
    condition: Java | None


MOMENTS = frozenset({"VariancePop", "VarianceSamp", "StddevPop", "StddevSamp"})
PAIRS = frozenset({"CovPopulation", "CovSample", "Corr"})


@dataclass(frozen=True, eq=False)
class AggregateCall:
    """One aggregate function of a GROUP BY; the inputs are columns of the node below."""

    java: Java
    name: str
    distinct: bool
    inputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """A GROUP BY whose aggregates are kept as partial results; the first columns below are the groups."""

    child: Node
    groups: tuple[Attribute, ...]
    calls: tuple[AggregateCall, ...]
    results: tuple[Java, ...]


@dataclass(frozen=True, eq=False)
class Touched(Node):
    """Operators that are computed anew for the keys that changed: windows, and aggregates without partials."""

    child: Node
    keys: tuple[int, ...]
    steps: tuple[Java, ...]
    what: str


@dataclass(frozen=True, eq=False)
class Limit(Node):
    """ORDER BY with LIMIT and OFFSET."""

    child: Node
    order: tuple[Java, ...]
    limit: int | None
    offset: int
