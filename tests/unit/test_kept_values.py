"""What an update does not name stays exactly what it was, whatever its type and however often the row changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.catalog.catalog import Table
from headrace.epoch.pending import Pending
from headrace.intake.table import TableContract
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import consolidate
from headrace.state.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: dict[str, tuple[Any, Any]] = {
    "text": (StringType(), "é" * 9000),
    "number": (DecimalType(38, 10), Decimal("12345678901234567890.0123456789")),
    "ratio": (DoubleType(), float("nan")),
    "at": (TimestampType(), datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    "local": (TimestampNTZType(), datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "day": (DateType(), date(1, 1, 1)),
    "clock": (TimeType(6), time(23, 59, 59, 999999)),
    "long": (DayTimeIntervalType(), timedelta(days=-3, microseconds=7)),
    "raw": (BinaryType(), b"\x00\xff"),
    "list": (ArrayType(LongType()), [1, None, 3]),
    "pairs": (MapType(StringType(), DecimalType(5, 2)), [("b", Decimal("1.50")), ("a", None)]),
    "nested": (StructType([StructField("a", ArrayType(StringType()))]), {"a": ["x", None]}),
    "nothing": (StringType(), None),
}
SCHEMA = StructType(
    [
        StructField("id", LongType(), False),
        StructField("n", LongType()),
        *(StructField(name, kind) for name, (kind, _) in VALUES.items()),
    ]
)
ROW = {name: value for name, (_, value) in VALUES.items()}


@pytest.fixture
def table() -> Table:
    store = Store("t", arrow_schema([field.dataType for field in SCHEMA.fields]))
    return Table("t", TableContract("t", SCHEMA, ("id",)), store, None)


def change(table: Table, *calls: list[Any]) -> None:
    """One epoch of several calls."""
    pending = Pending(table, table.store.snapshot(), None)
    for call in calls:
        verdict = pending.overlay.take(call, NOW)
        assert not verdict.rejections, verdict.rejections
    table.store.apply(pending.deltas(NOW, timedelta(days=1))["t"])


def held(table: Table) -> pa.Table:
    found = table.store.snapshot().all()
    assert set(found.weights.tolist()) <= {1}
    return found.rows.rename_columns(SCHEMA.names).sort_by("id")


def test_values_of_every_type_are_kept(table: Table) -> None:
    change(table, [{"insert": {"id": i, "n": i, **ROW}} for i in (1, 2, 3)])
    before = held(table)
    change(table, [{"update": {"id": 1, "n": 10}}, {"update": {"id": 3, "n": 30}}], [{"update": {"id": 3, "n": 31}}])
    after = held(table)
    assert after.column("n").to_pylist() == [10, 2, 31]
    for name in ROW:
        # As text, for NaN is not equal to itself.
        assert repr(after.column(name).to_pylist()) == repr(before.column(name).to_pylist()), name


def test_a_row_that_changes_twice_in_an_epoch_keeps_of_both(table: Table) -> None:
    change(table, [{"insert": {"id": 1, "n": 1, **ROW}}])
    change(
        table,
        [{"update": {"id": 1, "text": "new"}}, {"insert": {"id": 2, "n": 2, "text": "fresh"}}],
        [{"update": {"id": 1, "n": 5}}, {"update": {"id": 2, "n": 6}}, {"update": {"id": 1, "day": None}}],
    )
    first, second = held(table).to_pylist()
    assert (first["n"], first["text"], first["day"], first["number"]) == (5, "new", None, ROW["number"])
    assert (second["n"], second["text"], second["number"]) == (6, "fresh", None)


def test_what_python_cannot_hold_is_kept_too(table: Table) -> None:
    far = 8_000_000_000_000_000_000
    columns = [pa.nulls(1, kind) for kind in table.store.schema.types]
    columns[0] = pa.array([1], pa.int64())
    index = SCHEMA.names.index("at")
    columns[index] = pa.array([far], pa.int64()).cast(table.store.schema.field(index).type)
    rows = pa.table(columns, schema=table.store.schema)
    table.store.apply(consolidate(rows, np.ones(1, dtype=np.int64)))
    change(table, [{"update": {"id": 1, "n": 5}}])
    after = held(table)
    assert after.column("at").cast(pa.int64()).to_pylist() == [far]
    assert after.column("n").to_pylist() == [5]
