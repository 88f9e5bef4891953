"""A home's relations without Spark: a ledger, stores and the history of columns, moved by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from headrace.catalog.catalog import Table
from headrace.catalog.columns import ColumnHistory
from headrace.catalog.make import make_table
from headrace.intake.arrow import table_schema
from headrace.intake.table import TableContract
from headrace.ledger.ledger import Ledger, summed
from headrace.reading.following import Following, Newest
from headrace.state.delta import Delta, consolidate, weights_of
from tests.small_homes import BEGIN

KINDS: dict[str, DataType] = {"id": LongType(), "n": LongType(), "more": LongType(), "name": StringType()}
Row = tuple[Any, ...]


class SmallRelations:
    """Tables (views are followed just the same) whose every definition and change is one epoch."""

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger(path, 4096)
        self.ledger.open()
        self.ledger.claim(1)
        self.tables: dict[str, Table] = {}
        self.history = ColumnHistory()
        self.changed_at: dict[str, int] = {}
        self.epoch = 0
        for head in self.ledger.heads():
            self.epoch = head.epoch
            self._record(head.content)
        for name, table in self.tables.items():
            columns = self.history.at(name, self.epoch)
            assert columns is not None
            log = list(self.ledger.entries(name, columns.born - 1))
            table.store.apply(summed(table.store.schema, self.history.under(log, columns)))
        self.following = Following(self.ledger, self.epoch, self.newest)

    def newest(self, name: str) -> Newest:
        table = self.tables.get(name)
        content = None if table is None else table.store.snapshot()
        return Newest(self.epoch, self.history, table, content, self.changed_at.get(name, self.epoch))

    def define(self, name: str, *columns: str, key: Sequence[str] = ("id",), rows: Iterable[Row] = ()) -> int:
        """Make a relation, or another in its place; the log begins anew."""
        return self._define(name, columns, range(len(columns)), key, reset=True, rows=rows)

    def alter(self, name: str, ids: Sequence[int], *columns: str, rows: Iterable[Row]) -> int:
        """Other columns for the same log; the rows that it then holds are given."""
        key = self.tables[name].contract.key
        epoch = self._define(name, columns, ids, key, reset=False)
        table = self.tables[name]
        table.store.apply(delta_of(table, inserts=rows))
        return epoch

    def drop(self, name: str) -> int:
        return self._commit({"drop": [name]}, {})

    def change(self, name: str, inserts: Iterable[Row] = (), deletes: Iterable[Row] = ()) -> int:
        return self._commit({}, {name: delta_of(self.tables[name], inserts, deletes)})

    def _define(
        self,
        name: str,
        columns: Sequence[str],
        ids: Iterable[int],
        key: Sequence[str],
        *,
        reset: bool,
        rows: Iterable[Row] = (),
    ) -> int:
        schema = StructType([StructField(one, KINDS[one]) for one in columns])
        definition = {"name": name, "schema": schema.jsonValue(), "ids": list(ids), "key": list(key)}
        head: dict[str, Any] = {"define": [{**definition, "kind": "table", "sequence": None}]}
        if reset:
            head["reset"] = [name]
        delta = delta_of(_table(definition), rows)
        return self._commit(head, {name: delta} if len(delta) else {})

    def _commit(self, head: dict[str, Any], deltas: dict[str, Delta]) -> int:
        epoch, at = self.epoch + 1, moment(self.epoch + 1)
        self.ledger.commit(epoch, at, head, deltas)
        self.epoch = epoch
        self._record(head)
        for name, delta in deltas.items():
            self.tables[name].store.apply(delta)
            self.changed_at[name] = epoch
        self.following.add(epoch, at, deltas)
        self.following.wake()
        return epoch

    def _record(self, head: Any) -> None:
        self.history = self.history.recorded(self.epoch, head)
        for name in head.get("drop", ()):
            del self.tables[name]
        for definition in head.get("define", ()):
            self.tables[definition["name"]] = _table(definition)


def moment(epoch: int) -> datetime:
    return BEGIN + timedelta(seconds=epoch)


def delta_of(table: Table, inserts: Iterable[Row] = (), deletes: Iterable[Row] = ()) -> Delta:
    inserts, deletes = list(inserts), list(deletes)
    rows = [*deletes, *inserts]
    kinds = table_schema(table.schema).types
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    weights = weights_of([-1] * len(deletes) + [1] * len(inserts))
    return consolidate(pa.table(columns, schema=table.store.schema), weights)


def _table(definition: Any) -> Table:
    schema = StructType.fromJson(definition["schema"])
    contract = TableContract(definition["name"], schema, tuple(definition["key"]), None)
    return make_table(contract, definition["ids"])
