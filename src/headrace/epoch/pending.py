"""A table's rows, as intake asks for them, and its net change as a delta."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.catalog.catalog import Table
from headrace.intake.arrow import to_arrow
from headrace.intake.overlay import Found, KeptCell, Net, Overlay
from headrace.state.arrow_types import conform
from headrace.state.delta import Delta, combine, consolidate, end_to_end, gather, negate
from headrace.state.hashing import identity, key_hashes
from headrace.state.state import State


class Pending:
    """Changes of one table, on top of what it and its tombstones hold."""

    def __init__(self, table: Table, snapshot: State, buried: State | None) -> None:
        self._table = table
        self._snapshot = snapshot
        self._buried = buried
        self._found: list[Delta] = []
        contract = table.contract
        self._key_indexes = [contract.schema.names.index(name) for name in contract.key]
        if contract.key:
            self.overlay = Overlay(contract, lookup=self._lookup, tombstones=self._tombstones)
        else:
            self.overlay = Overlay(contract, count=self._count)

    def _lookup(self, keys: list[Any]) -> dict[Any, Found]:
        contract = self._table.contract
        fields = [contract.schema[name] for name in contract.key]
        wanted = _column_table(keys, fields)
        hashes = np.unique(key_hashes(wanted, tuple(range(len(fields)))))
        rows = self._snapshot.lookup(tuple(self._key_indexes), hashes)
        self._found.append(rows)
        part = len(self._found) - 1
        columns = [rows.rows.column(i).to_pylist() for i in self._key_indexes]
        sequences: Sequence[Any] = [None] * len(rows)
        if contract.sequence is not None:
            sequences = rows.rows.column(contract.schema.names.index(contract.sequence)).to_pylist()
        return {
            contract.key_identity(key): Found((part, i), sequences[i])
            for i, key in enumerate(zip(*columns, strict=True))
        }

    def _tombstones(self, keys: list[Any]) -> dict[Any, Any]:
        contract = self._table.contract
        assert self._buried is not None
        fields = [contract.schema[name] for name in contract.key]
        wanted = _column_table(keys, fields)
        width = len(fields)
        hashes = np.unique(key_hashes(wanted, tuple(range(width))))
        rows = self._buried.lookup(tuple(range(width)), hashes)
        columns = [rows.rows.column(i).to_pylist() for i in range(width)]
        sequences = rows.rows.column(width).to_pylist()
        return {contract.key_identity(key): sequences[i] for i, key in enumerate(zip(*columns, strict=True))}

    def _count(self, rows: list[Any]) -> dict[Any, int]:
        contract = self._table.contract
        table = _positional(to_arrow(rows, contract.schema), contract.schema)
        low, high = identity(table.columns, table.num_rows)
        counts = self._snapshot.multiplicity(low, high)
        return {contract.row_identity(row): int(n) for row, n in zip(rows, counts, strict=True)}

    def deltas(self, now: datetime, retention: timedelta) -> dict[str, Delta]:
        """The net change of the table, and of its tombstones."""
        net = self.overlay.net()
        result = {self._table.name: self._rows_delta(net)}
        if self._table.tombstones is not None:
            assert self._buried is not None
            result[self._table.tombstones.name] = self._tombstone_delta(net, self._buried, now - retention)
        return result

    def _rows_delta(self, net: Net) -> Delta:
        schema = self._table.contract.schema
        parts: list[Delta] = []
        by_part: dict[int, list[int]] = {}
        for handle in net.removed_handles:
            part, position = handle  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
            by_part.setdefault(part, []).append(position)
        for part, positions in by_part.items():
            parts.append(negate(gather(self._found[part], np.array(positions, dtype=np.int64))))
        signed = [(row, -n) for row, n in net.removed_rows] + list(net.added_rows)
        table = _positional(to_arrow([row for row, _ in signed], schema), schema)
        table = self._with_kept(table, net.kept_cells, len(net.removed_rows))
        weights = np.array([n for _, n in signed], dtype=np.int64)
        parts.append(consolidate(table, weights))
        return combine(*end_to_end(parts))

    def _with_kept(self, table: pa.Table, cells: Sequence[KeptCell], first: int) -> pa.Table:
        """The table with the values that its rows, counted from `first`, keep of rows that were found.

        They never become Python values on the way: what a statement wrote may be none that Python can hold.
        """
        begins = np.cumsum([table.num_rows, *(len(found) for found in self._found)])
        by_index: dict[int, list[KeptCell]] = {}
        for cell in cells:
            by_index.setdefault(cell.column, []).append(cell)
        for index, kept in by_index.items():
            origin = np.arange(table.num_rows)
            for cell in kept:
                part, row = cell.handle  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
                origin[first + cell.row] = begins[part] + row
            field = table.field(index)
            parts = [table.column(index), *(found.rows.column(index) for found in self._found)]
            values = pa.chunked_array([chunk for part in parts for chunk in part.chunks], type=field.type)
            table = table.set_column(index, field, values.take(pa.array(origin)))
        return table

    def _tombstone_delta(self, net: Net, snapshot: State, expired_at: datetime) -> Delta:
        contract = self._table.contract
        width = len(contract.key)
        touched = [*(t.key for t in net.tombstones_set), *net.tombstones_removed]
        parts: list[tuple[pa.Table, np.ndarray]] = []
        if touched:
            fields = [contract.schema[name] for name in contract.key]
            hashes = np.unique(key_hashes(_column_table(touched, fields), tuple(range(width))))
            known = snapshot.lookup(tuple(range(width)), hashes)
            identities = {contract.key_identity(key) for key in touched}
            columns = [known.rows.column(i).to_pylist() for i in range(width)]
            gone = [i for i, key in enumerate(zip(*columns, strict=True)) if contract.key_identity(key) in identities]
            parts.append((known.rows.take(pa.array(gone, type=pa.int64())), -known.weights[gone]))
        expired = _expired(snapshot, width, expired_at)
        if expired is not None:
            parts.append(expired)
        rows = [(*t.key, t.sequence, t.deleted_at) for t in net.tombstones_set]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(snapshot.schema)
        added = pa.table(
            [pa.array(c, type=f.type) for c, f in zip(columns, snapshot.schema, strict=True)],
            schema=snapshot.schema,
        )
        parts.append((added, np.ones(added.num_rows, dtype=np.int64)))
        tables = pa.concat_tables([table for table, _ in parts]).combine_chunks()
        summed = consolidate(tables, np.concatenate([weights for _, weights in parts]))
        # A tombstone that was both replaced and found expired would be taken away twice.
        low_enough = summed.weights < -1
        if bool(low_enough.any()):
            return Delta(summed.rows, np.maximum(summed.weights, -1), summed.low, summed.high)
        return summed


def _expired(snapshot: State, width: int, before: datetime) -> tuple[pa.Table, np.ndarray] | None:
    """Tombstones older than the retention; found by their time, not by a scan."""
    found = snapshot.between(width + 1, -np.inf, before.timestamp() * 1e6)
    if len(found) == 0:
        return None
    return found.rows, -found.weights


def _column_table(keys: Sequence[Any], fields: Sequence[Any]) -> pa.Table:
    return to_arrow(list(keys), StructType(list(fields)))


def _positional(table: pa.Table, schema: Any) -> pa.Table:
    return conform(table, [field.dataType for field in schema.fields])
