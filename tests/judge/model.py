"""A plain Python model of the tables, which follows changes without any of Headrace's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from tests.judge.schemas import Row, Table

Change: TypeAlias = dict[str, Row]
Changes: TypeAlias = dict[str, list[Change]]


def insert(row: Row) -> Change:
    return {"insert": row}


def delete(row: Row) -> Change:
    return {"delete": row}


class ModelTable:
    """The rows of one table: by key, or as a multiset where there is none."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._by_key: dict[tuple[Any, ...], Row] = {}
        self._bag: Counter[tuple[Any, ...]] = Counter()

    def __len__(self) -> int:
        return len(self._by_key) if self.table.key else self._bag.total()

    def rows(self) -> list[Row]:
        """All rows, copies of a multiset repeated, in an order that depends on the rows alone."""
        if self.table.key:
            return [self._by_key[key] for key in sorted(self._by_key)]
        copies = sorted(self._bag.elements(), key=repr)
        return [dict(zip(self.table.names, values, strict=True)) for values in copies]

    def get(self, **key: Any) -> Row | None:
        return self._by_key.get(self._key(key))

    def apply(self, change: Change) -> None:
        """Follow one change; a delete of an absent row without a key is a mistake of the test."""
        ((kind, row),) = change.items()
        if self.table.key:
            if kind == "insert":
                self._by_key[self._key(row)] = {name: row.get(name) for name in self.table.names}
            else:
                self._by_key.pop(self._key(row), None)
            return
        values = tuple(row.get(name) for name in self.table.names)
        if kind == "insert":
            self._bag[values] += 1
        elif self._bag[values] <= 0:
            raise ValueError(f"delete of an absent row of {self.table.name}: {values}")
        else:
            self._bag[values] -= 1
            self._bag += Counter()

    def arrow(self) -> pa.Table:
        rows = self.rows()
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for column in self.table.columns:
            # Session time zone is UTC everywhere; PySpark names it in the Arrow type.
            kind = to_arrow_type(column.spark_type, timezone="UTC")
            values = [row[column.name] for row in rows]
            if pa.types.is_map(kind):
                values = [None if value is None else list(value.items()) for value in values]
            fields.append(pa.field(column.name, kind, nullable=True))
            arrays.append(pa.array(values, type=kind))
        return pa.table(arrays, schema=pa.schema(fields))

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.table.key)


class Model:
    """All tables of one home, as they must be after the changes so far."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = {table.name: ModelTable(table) for table in tables}

    def __getitem__(self, name: str) -> ModelTable:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def apply(self, changes: Mapping[str, Sequence[Change]]) -> None:
        for name, table_changes in changes.items():
            for change in table_changes:
                self.tables[name].apply(change)

    def clear(self, names: Iterable[str]) -> Changes:
        """The changes that empty these tables (not applied to the model)."""
        changes = {name: [delete(row) for row in self.tables[name].rows()] for name in names}
        return {name: rows for name, rows in changes.items() if rows}


def json_form(changes: Mapping[str, Sequence[Change]]) -> Changes:
    """The same changes as a JSON document would carry them: decimals and instants as strings."""
    return {
        name: [
            {kind: {column: _json_value(value) for column, value in row.items()} for kind, row in change.items()}
            for change in table_changes
        ]
        for name, table_changes in changes.items()
    }


def _json_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value
