"""What libraries would change in changefeeds: orjson for the texts of events, Arrow's ADBC driver for COPY.

python bench/feeds_libraries.py [--rows 200000]      (needs: pip install adbc-driver-postgresql)

    texts   event_texts, which makes columns of texts by Arrow, beside orjson for each row; processor time
    copy    our lines through psycopg's COPY, beside adbc_ingest of the same table, both into a table without indexes;
            time until the transaction has committed

decisions/0020 has the figures.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import psycopg
import pyarrow as pa
from pyspark.sql.types import (
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace import local
from headrace.feeds.batch import Batch, EventForm, Events, Mark
from headrace.feeds.json_events import event_texts, moment_text
from headrace.feeds.postgres_types import copy_text
from headrace.json_forms import json_rows
from headrace.state.arrow_compute import pc

_COLUMNS = StructType(
    [
        StructField("id", LongType(), False),
        StructField("customer", IntegerType()),
        StructField("city", StringType()),
        StructField("amount", DecimalType(12, 2)),
        StructField("placed", TimestampType()),
    ]
)
_CREATE = "CREATE TABLE {} (id BIGINT, customer INT, city TEXT, amount NUMERIC(12,2), placed TIMESTAMPTZ)"
_RUNS = 5


def main() -> None:
    """Measure and print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = _rows(parser.parse_args().rows)
    _report(
        "texts", {"event_texts": lambda: event_texts(_batch(rows)), "orjson": lambda: _by_orjson(_batch(rows))}, rows
    )
    with local.start(kafka=False, connect=False) as servers, psycopg.connect(servers.postgres_dsn) as connection:
        ways: dict[str, Callable[[], object]] = {"psycopg": lambda: _copy(connection, rows)}
        try:
            from adbc_driver_postgresql import dbapi  # pyright: ignore[reportMissingImports]
        except ImportError:
            print("adbc-driver-postgresql is not installed")
        else:
            adbc: Any = dbapi.connect(servers.postgres_dsn)  # pyright: ignore[reportUnknownMemberType]
            ways["adbc"] = lambda: _ingest(adbc, rows)
        _report("copy", ways, rows, time.monotonic)


def _report(
    name: str, ways: dict[str, Callable[[], object]], rows: pa.Table, clock: Callable[[], float] = time.process_time
) -> None:
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(_RUNS):
        for way, run in ways.items():
            began_at = clock()
            run()
            seconds[way].append(clock() - began_at)
    for way, taken in seconds.items():
        ratio = statistics.median(taken) / statistics.median(seconds[next(iter(ways))])
        print(f"{name:6} {way:12} {rows.num_rows / statistics.median(taken):>12,.0f} rows/s  {ratio:.2f} of the time")


def _rows(count: int) -> pa.Table:
    numbers = np.arange(count)
    return pa.table(
        {
            "id": pa.array(numbers),
            "customer": pa.array((numbers % 5000).astype(np.int32)),
            "city": pa.array([f"city {number % 300}" for number in numbers.tolist()]),
            "amount": pa.array([Decimal(number) for number in numbers.tolist()], pa.decimal128(12, 2)),
            "placed": pa.array(1_767_225_600_000_000 + numbers * 1_000_000).cast(pa.timestamp("us", "UTC")),
        }
    )


def _batch(rows: pa.Table) -> Batch:
    events = Events.of_epoch(1, datetime.now(UTC), "INSERT", rows)
    return Batch.of(EventForm("f", "orders", _COLUMNS, ("id",)), events, Mark(1, len(events), len(events)))


def _by_orjson(batch: Batch) -> list[bytes]:
    moments = {moment: moment_text(moment) for moment in set(batch.committed_at)}
    return [
        orjson.dumps(
            {
                "sequence": sequence,
                "timestamp": moments[moment],
                "table": batch.form.table,
                "operation": operation,
                "key": {name: row[name] for name in batch.key},
                "new_row": row,
            }
        )
        for sequence, moment, operation, row in zip(
            batch.sequences, batch.committed_at, batch.operations, json_rows(batch.rows), strict=True
        )
    ]


def _copy(connection: Any, rows: pa.Table) -> None:
    columns = [copy_text(rows.column(one.name), one.dataType)[0] for one in _COLUMNS.fields]
    tab, end, nothing = (pa.scalar(text, pa.large_string()) for text in ("\t", "\n", ""))
    lines = pc.binary_join_element_wise(*columns, tab, null_handling="replace", null_replacement="\\N")
    data = pc.binary_join_element_wise(lines, end, nothing).buffers()[2]
    connection.execute("DROP TABLE IF EXISTS by_psycopg")
    connection.execute(_CREATE.format("by_psycopg"))
    with connection.cursor().copy("COPY by_psycopg FROM STDIN") as copy:
        copy.write(memoryview(data))
    connection.commit()


def _ingest(adbc: Any, rows: pa.Table) -> None:
    with adbc.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS by_adbc")
        cursor.execute(_CREATE.format("by_adbc"))
        cursor.adbc_ingest("by_adbc", rows, mode="append")
    adbc.commit()


if __name__ == "__main__":
    main()
