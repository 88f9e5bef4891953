"""The clock of an epoch: one row, which views that read the time join."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from headrace.catalog.catalog import Catalog
from headrace.epoch.work import Work
from headrace.sql.one_row import CLOCK
from headrace.state.delta import consolidate

_ONE = np.ones(1, dtype=np.int64)


def move_clock(work: Work, catalog: Catalog, now: datetime, resolution: float) -> None:
    """Set the clock of an epoch under way, if any view reads it."""
    if not catalog.reads_clock and work.before(CLOCK).is_empty:
        return
    moment = datetime.fromtimestamp(now.timestamp() // resolution * resolution, UTC)
    known = work.before(CLOCK).all()
    schema = work.before(CLOCK).schema
    rows = [*known.rows.column(0).to_pylist(), moment]
    table = pa.table([pa.array(rows, type=schema.types[0])], schema=schema)
    delta = consolidate(table, np.concatenate([-known.weights, _ONE]))
    if len(delta):
        work.record(CLOCK, delta)
