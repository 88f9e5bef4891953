"""Rules driven without a JVM: a bench to build them on, and a home of stores that they follow.

What Spark would prepare as a plan is given as DuckDB's SQL over the same leaves, t0, t1, ..., columns x0, x1, ... What
a rule hands in, and what it makes of the rows that come back, is all its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.types import DataType

from headrace.epoch.work import Work
from headrace.ir.nodes import Column, Tree
from headrace.plans.handles import Handles
from headrace.plans.trees import read_by
from headrace.rules.all import RULES
from headrace.rules.base import NeedsFill, Rule
from headrace.rules.context import RuleContext
from headrace.rules.scan import Scan
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, consolidate, weights_of
from headrace.state.store import Store

Row = tuple[Any, ...]
Rows = Counter[Row]
Model = dict[str, Rows]
# How often a row is to stand in a relation from some epoch on.
Epoch = Mapping[tuple[str, Row], int]


class Reader:
    """Reads handles that carry their own answers; of a sequence it has no shorter one."""

    _gateway_client = SimpleNamespace()

    def items(self, _: object) -> None:
        return None

    def children(self, node: object) -> str:
        raise AssertionError(node)

    output = children


read_by(Reader())


class Listed:
    """A sequence as the JVM would hold it."""

    _gateway_client = Reader._gateway_client

    def __init__(self, *members: Any) -> None:
        self._members = members

    def size(self) -> int:
        return len(self._members)

    def apply(self, position: int) -> Any:
        return self._members[position]


class Unasked:
    """Stands where a handle into the JVM is passed on; whatever is made of it is another one."""

    _gateway_client = Reader._gateway_client

    def __getattr__(self, name: str) -> Unasked:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object) -> Unasked:
        return self


HANDLES = Handles()


def handle(kind: str, **parts: Any) -> Any:
    """What stands for Spark's object of a plan or an expression, of which no more than this is known."""
    made = Unasked()
    made.__dict__.update(_headrace_kind=kind, **parts)
    return made


def plan(kind: str = "Project", **parts: Any) -> Tree:
    """A plan or an expression of which no more than this is known."""
    return HANDLES.tree(handle(kind, **parts))


def column(number: int, kind: DataType) -> Column:
    told = f"{number}\ntrue\n{kind.json()}\na{number}"
    return HANDLES.column(handle("AttributeReference", _headrace_id=number, _headrace_attribute=told))


def scan(name: str, first: int, *types: DataType) -> Scan:
    """All columns of a relation, with ids that rise from the first."""
    columns = tuple(column(first + i, kind) for i, kind in enumerate(types))
    return Scan(plan(), columns, name, tuple(range(len(types))))


class Asked:
    """A query as SQL."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._connection = duckdb.connect()
        self.runs = 0

    def run(self, tables: Sequence[pa.Table]) -> pa.Table:
        self.runs += 1
        for i, table in enumerate(tables):
            self._connection.register(f"t{i}", table.rename_columns([f"x{n}" for n in range(table.num_columns)]))
        result = self._connection.execute(self._sql).to_arrow_table()
        return result.rename_columns([f"c{i}" for i in range(result.num_columns)])


class Bench(RuleContext):
    """A context whose queries are given, in the order in which the rules ask for them."""

    def __init__(self, *queries: str) -> None:
        super().__init__(Unasked(), Path("/nowhere"), "v", RULES, handles=HANDLES)  # pyright: ignore
        self._given = [Asked(sql) for sql in queries]
        self.asked = list(self._given)

    def query(self, shapes: object, build: object) -> Any:
        return self._given.pop(0)


class Home:
    """Relations, the hidden stores of one rule, and what its deltas come to."""

    def __init__(
        self,
        bench: Bench,
        rule: Rule,
        sources: Sequence[Scan],
        naive: Callable[[Model], Rows],
        fills: Mapping[int, Callable[[Model], Rows]] | None = None,
        bound: int = 100_000,
    ) -> None:
        self.rule, self._naive, self._bound = rule, naive, bound
        self._hidden = {hidden.name: i for i, hidden in enumerate(bench.stores)}
        self._fills = fills or {}
        schemas = {one.relation: arrow_schema([a.type for a in one.output]) for one in sources}
        schemas |= {hidden.name: hidden.schema for hidden in bench.stores}
        self.stores = {name: Store(name, schema) for name, schema in schemas.items()}
        self.model: Model = {one.relation: Counter() for one in sources}
        self.refills = 0
        self._fill()
        self.out = naive(self.model)

    def _fill(self) -> None:
        for name, number in self._hidden.items():
            if number in self._fills:
                store = self.stores[name]
                store.replace([delta_of(store.schema, self._fills[number](self.model))])

    def step(self, epoch: Epoch) -> None:
        """One epoch: what the rule says must lead from what was to what a recompute gives."""
        changes = {name: Counter[Row]() for name in self.model}
        for (name, row), times in epoch.items():
            changes[name][row] = times - self.model[name][row]
        work = Work(self.stores, self._bound)
        for name, change in changes.items():
            work.record(name, delta_of(self.stores[name].schema, change))
            self.model[name] = netted(self.model[name], change)
        expected = self._naive(self.model)
        try:
            delta = self.rule.delta(work)
        except NeedsFill:
            self.refills += 1
            for name in changes:
                self.stores[name].apply(work.delta_of(name))
            self._fill()
            self.out = expected
            return
        self.out = netted(self.out, rows_of(delta))
        assert self.out == expected
        for name, change in work.deltas.items():
            self.stores[name].apply(change)


def netted(rows: Rows, change: Rows) -> Rows:
    total = Counter(rows)
    for row, n in change.items():
        total[row] += n
    return Counter({row: n for row, n in total.items() if n})


def delta_of(schema: pa.Schema, change: Rows) -> Delta:
    rows = [row for row, n in change.items() if n]
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return consolidate(pa.table(arrays, schema=schema), weights_of([change[row] for row in rows]))


def rows_of(delta: Delta) -> Rows:
    found: Rows = Counter()
    columns = [one.to_pylist() for one in delta.rows.columns]
    for row, n in zip(zip(*columns, strict=True), np.asarray(delta.weights).tolist(), strict=True):
        found[row] += n
    return found


def repeated(rows: Rows) -> list[Row]:
    return [row for row, n in rows.items() for _ in range(n)]


def epochs(**relations: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Epoch]]:
    """Some epochs over relations of such rows: rows come, are doubled, and go again."""
    relation_rows = st.one_of([st.tuples(st.just(name), row) for name, row in relations.items()])
    return st.lists(st.dictionaries(relation_rows, st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=6)
