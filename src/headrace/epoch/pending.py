"""A table's rows, as intake asks for them, and its net change as a delta."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.catalog.catalog import Table
from headrace.epoch.emptied import end_of_all
from headrace.intake.arrow import to_arrow
from headrace.intake.overlay import Found, KeptCell, Net, Overlay
from headrace.intake.positions import SOURCE_AT, SourcePosition
from headrace.state.arrow_types import conform
from headrace.state.delta import Delta, combine, consolidate, end_to_end, gather, negate
from headrace.state.hashing import identity, key_hashes
from headrace.state.state import State

# So many rows that are too old to be remembered are let go in one epoch, or more where it changes more.
LET_GO = 10_000


class Pending:
    """Changes of one table, on top of what it holds and what is remembered of its keys."""

    def __init__(
        self, table: Table, snapshot: State, buried: State | None = None, positions: State | None = None
    ) -> None:
        self._table = table
        self._snapshot = snapshot
        self._buried = buried
        self._positions = positions
        # What was found of positions, so that those which are replaced need not be looked up again.
        self._found_positions: list[tuple[Delta, list[Any]]] = []
        self._found: list[Delta] = []
        contract = table.contract
        self._key_indexes = [contract.schema.names.index(name) for name in contract.key]
        if contract.key:
            self.overlay = Overlay(
                contract,
                lookup=self._lookup,
                tombstones=self._tombstones,
                positions=None if positions is None else self._known_positions,
                emptied_at=end_of_all(table, positions),
            )
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
        assert self._buried is not None
        found, marks = self._of_keys(self._buried, keys)
        return dict(zip(marks, found.rows.column(len(self._key_indexes)).to_pylist(), strict=True))

    def _known_positions(self, keys: list[Any]) -> dict[Any, SourcePosition]:
        assert self._positions is not None
        found, marks = self._of_keys(self._positions, keys)
        self._found_positions.append((found, marks))
        columns = [column.to_pylist() for column in found.rows.columns[len(self._key_indexes) :]]
        return {mark: SourcePosition(*parts) for mark, *parts in zip(marks, *columns, strict=True)}

    def _count(self, rows: list[Any]) -> dict[Any, int]:
        contract = self._table.contract
        table = _positional(to_arrow(rows, contract.schema), contract.schema)
        low, high = identity(table.columns, table.num_rows)
        counts = self._snapshot.multiplicity(low, high)
        return {contract.row_identity(row): int(n) for row, n in zip(rows, counts, strict=True)}

    def deltas(self, now: datetime, retention: timedelta) -> dict[str, Delta]:
        """The net change of the table, and of what is remembered of its keys."""
        net = self.overlay.net()
        result = {self._table.name: self._rows_delta(net)}
        if self._table.tombstones is not None:
            assert self._buried is not None
            result[self._table.tombstones.name] = self._tombstone_delta(net, self._buried, now - retention)
        if self._table.positions is not None and net.positions_set:
            assert self._positions is not None
            result[self._table.positions.name] = self._position_delta(net, self._positions, now, retention)
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
        touched = [*(t.key for t in net.tombstones_set), *net.tombstones_removed]
        known = [self._of_keys(snapshot, touched)] if touched else []
        rows = [(*t.key, t.sequence, t.deleted_at) for t in net.tombstones_set]
        return self._remembered_delta(snapshot, touched, known, rows, len(self._key_indexes) + 1, expired_at)

    def _position_delta(self, net: Net, snapshot: State, now: datetime, retention: timedelta) -> Delta:
        """Positions that are older than the newest that came now by more than the retention are let go with it.

        A clock that is ahead of ours lets nothing go too soon.
        """
        times = [one.source_at for _, one in net.positions_set if one.source_at is not None]
        newest = min(max(times), now) if times else None
        touched = [key for key, _ in net.positions_set]
        rows = [(*key, *position) for key, position in net.positions_set]
        column = len(self._key_indexes) + SOURCE_AT
        expired_at = None if newest is None else before(newest, retention)
        return self._remembered_delta(snapshot, touched, self._found_positions, rows, column, expired_at)

    def _remembered_delta(
        self,
        snapshot: State,
        touched: Sequence[Any],
        found: Sequence[tuple[Delta, list[Any]]],
        rows: Sequence[Any],
        column: int,
        expired_at: datetime | None,
    ) -> Delta:
        """Rows that are remembered of keys in place of those that were, without some of those that are too old."""
        contract = self._table.contract
        parts: list[tuple[pa.Table, np.ndarray]] = []
        identities = {contract.key_identity(key) for key in touched}
        for known, marks in found:
            gone = [i for i, mark in enumerate(marks) if mark in identities]
            parts.append((known.rows.take(pa.array(gone, type=pa.int64())), -known.weights[gone]))
        if expired_at is not None:
            # By their time, not by a scan; and not all at once, for the cost follows the change.
            too_old = snapshot.between(column, -np.inf, expired_at.timestamp() * 1e6)
            first = gather(too_old, np.arange(min(len(too_old), max(LET_GO, 4 * len(touched)))))
            old = [i for i, mark in enumerate(self._marks(first)) if mark not in identities]
            parts.append((first.rows.take(pa.array(old, type=pa.int64())), -first.weights[old]))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(snapshot.schema)
        added = pa.table(
            [pa.array(c, type=f.type) for c, f in zip(columns, snapshot.schema, strict=True)],
            schema=snapshot.schema,
        )
        parts.append((added, np.ones(added.num_rows, dtype=np.int64)))
        tables = pa.concat_tables([table for table, _ in parts]).combine_chunks()
        return consolidate(tables, np.concatenate([weights for _, weights in parts]))

    def _of_keys(self, snapshot: State, keys: Sequence[Any]) -> tuple[Delta, list[Any]]:
        """What is remembered of keys, and of which of them each row is."""
        contract = self._table.contract
        width = len(contract.key)
        wanted = _column_table(keys, [contract.schema[name] for name in contract.key])
        found = snapshot.lookup(tuple(range(width)), np.unique(key_hashes(wanted, tuple(range(width)))))
        marks, asked = self._marks(found), {contract.key_identity(key) for key in keys}
        if all(mark in asked for mark in marks):
            return found, marks
        # A hash may be shared: only rows of these keys count, so that none is found twice.
        own = [i for i, mark in enumerate(marks) if mark in asked]
        return gather(found, np.array(own, dtype=np.int64)), [marks[i] for i in own]

    def _marks(self, remembered: Delta) -> list[Any]:
        columns = [remembered.rows.column(i).to_pylist() for i in range(len(self._key_indexes))]
        return [self._table.contract.key_identity(key) for key in zip(*columns, strict=True)]


def _column_table(keys: Sequence[Any], fields: Sequence[Any]) -> pa.Table:
    return to_arrow(list(keys), StructType(list(fields)))


def _positional(table: pa.Table, schema: Any) -> pa.Table:
    return conform(table, [field.dataType for field in schema.fields])


def before(moment: datetime, retention: timedelta) -> datetime | None:
    """The time before which nothing is remembered, if there is one."""
    try:
        return moment - retention
    except OverflowError:
        # There is no time so early.
        return None
