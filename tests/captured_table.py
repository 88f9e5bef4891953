"""A table in memory that takes messages as a source's table does, through the real intake."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.capture.messages import Message, Truncation
from headrace.catalog.catalog import Table
from headrace.epoch.pending import Pending
from headrace.intake.table import TableContract
from headrace.state.arrow_types import arrow_schema
from headrace.state.store import Store

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


class CapturedTable:
    """What a table holds after the messages that it took."""

    def __init__(self, contract: TableContract) -> None:
        store = Store(contract.name, arrow_schema([field.dataType for field in contract.schema.fields]))
        self._table = Table(contract.name, contract, store, None)

    def take(self, *messages: Message) -> None:
        """Take messages as one epoch; every change must be accepted."""
        pending = Pending(self._table, self._table.store.snapshot(), None)
        for message in messages:
            changes = list(message.changes)
            if isinstance(message, Truncation):
                names = self._table.contract.schema.names
                changes = [{"delete": dict(zip(names, row, strict=True))} for row in self.rows()]
            taken = pending.overlay.take(changes, _NOW)
            assert taken.rejections == (), taken.rejections
        self._table.store.apply(pending.deltas(_NOW, timedelta(days=1))[self._table.name])

    def rows(self) -> list[tuple[Any, ...]]:
        """Its rows, each once."""
        found = self._table.store.snapshot().all()
        assert set(found.weights.tolist()) <= {1}
        return list(zip(*(column.to_pylist() for column in found.rows.columns), strict=True))
