"""What a feed carries into a real PostgreSQL, beside upserts row by row as tutorials write them, on the same rows.

python bench/feeds_postgres.py [--rows 500000] [--json FILE]

    feed      CREATE CHANGEFEED over a table that is there: from the statement until the last row is confirmed
    changes   a feed that is paused while every row is changed, then resumed: a backlog of updates
    deletes   likewise, of half of the rows
    tutorial  rows of the same table: INSERT ... ON CONFLICT for each, committed after each 100

Small epochs are committed beside each feed, and compared with epochs without one. The rows of PostgreSQL are compared
with those of the relation afterwards, by their count and their sums.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from feeds_epochs import SmallEpochs

import headrace
from headrace import local

_TABLE = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, city STRING, amount DECIMAL(12,2), placed TIMESTAMP,
    paid BOOLEAN, score DOUBLE, note STRING)
"""
_ROWS = """
INSERT INTO orders SELECT id, CAST(id % 5000 AS INT), concat('city ', id % 300), CAST(id % 100000 AS DECIMAL(12,2)),
    timestamp_seconds(1767225600 + id), id % 3 = 0, id * 1.5D, 'a note of the usual length' FROM range({rows})
"""
_OPTIONS = "batch_size = 50000, flush_interval_ms = 100, indexes = 'customer; customer, placed DESC'"
_TUTORIAL_ROWS = 50_000
_TUTORIAL_BATCH = 100
_UPSERT = """
INSERT INTO tutorial (id, customer, city, amount, placed, paid, score, note) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET customer = EXCLUDED.customer, city = EXCLUDED.city, amount = EXCLUDED.amount,
    placed = EXCLUDED.placed, paid = EXCLUDED.paid, score = EXCLUDED.score, note = EXCLUDED.note
"""


def postgres(rows: int) -> dict[str, Any]:
    """Rows a second into a PostgreSQL of this machine, with a primary key and two indexes."""
    figures: dict[str, Any] = {"rows": rows, "cores": os.cpu_count(), "load_before": round(os.getloadavg()[0], 2)}
    with (
        tempfile.TemporaryDirectory() as folder,
        local.start(kafka=False, connect=False) as servers,
        headrace.open(Path(folder) / "home") as hr,
        psycopg.connect(servers.postgres_dsn, autocommit=True) as database,
    ):
        os.environ["BENCH_FEEDS_POSTGRES"] = f"{servers.postgres_dsn}/orders"
        hr.execute(_TABLE)
        hr.execute(_ROWS.format(rows=rows))
        epochs = SmallEpochs(hr)
        figures["epoch_alone_ms"] = epochs.alone()
        began_at = time.monotonic()
        hr.execute(f"CREATE CHANGEFEED f FOR TABLE orders INTO POSTGRES 'env:BENCH_FEEDS_POSTGRES' WITH ({_OPTIONS})")
        figures["feed"] = _figures(rows, *epochs.until_delivered("f", rows, began_at))
        _compare(hr, database)
        delivered = rows
        for name, statement, count in (
            ("changes", "UPDATE orders SET amount = amount + 1", rows),
            ("deletes", "DELETE FROM orders WHERE id % 2 = 0", (rows + 1) // 2),
        ):
            hr.execute("PAUSE CHANGEFEED f")
            hr.execute(statement)
            began_at = time.monotonic()
            hr.execute("RESUME CHANGEFEED f")
            delivered += count
            figures[name] = _figures(count, *epochs.until_delivered("f", delivered, began_at))
            _compare(hr, database)
        table = hr.query("SELECT * FROM orders").slice(0, _TUTORIAL_ROWS)
        figures["tutorial"] = _figures(table.num_rows, _tutorial(servers.postgres_dsn, table))
    figures["times_the_tutorial"] = round(
        figures["feed"]["rows_per_second"] / figures["tutorial"]["rows_per_second"], 1
    )
    return figures


def _tutorial(dsn: str, table: Any) -> float:
    """Write rows as is usually shown, into a table with the same key and indexes."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE tutorial (LIKE orders INCLUDING ALL)")
        connection.commit()
        began_at = time.monotonic()
        for number, row in enumerate(table.to_pylist(), 1):
            connection.execute(_UPSERT, list(row.values()))
            if number % _TUTORIAL_BATCH == 0:
                connection.commit()
        connection.commit()
        return time.monotonic() - began_at


def _compare(hr: Any, database: Any) -> None:
    sums = "SELECT count(*), sum(id), sum(amount), sum(score) FROM orders"
    (ours,) = [tuple(row.values()) for row in hr.query(sums).to_pylist()]
    theirs = database.execute(sums).fetchone()
    if theirs != ours:
        raise SystemExit(f"PostgreSQL has {theirs}, and the relation {ours}")


def _figures(rows: int, seconds: float, epoch_ms: float | None = None) -> dict[str, Any]:
    beside = "" if epoch_ms is None else f", epochs beside it {epoch_ms} ms"
    print(f"PostgreSQL: {rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f}/s{beside}", flush=True)
    figures = {"rows": rows, "seconds": round(seconds, 2), "rows_per_second": round(rows / seconds)}
    return figures if epoch_ms is None else {**figures, "epoch_ms": epoch_ms}


def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--json", type=Path, help="where the figures are kept")
    chosen = parser.parse_args()
    figures = {"postgres": postgres(chosen.rows)}
    print(json.dumps(figures, indent=2), flush=True)
    if chosen.json is not None:
        kept = json.loads(chosen.json.read_text()) if chosen.json.exists() else {}
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps({**kept, **figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
