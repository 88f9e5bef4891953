"""One changed row in one large partition: windows that read a piece of it against reading it whole.

    python bench/window.py [--rows 10000 200000] [--epochs 7] [--json FILE]

Everything is measured in one run on one machine. The figure that counts is how much longer an epoch takes when the
partition has more rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import headrace
from headrace.rules import window

WARM_UP = 4

# Each view with the position in the order at which its one row changes.
VIEWS = {
    "first 3 rows": (
        "top",
        "SELECT id, at, amount FROM (SELECT *, row_number() OVER (PARTITION BY account ORDER BY at DESC) AS place "
        "FROM {table}) WHERE place <= 3",
    ),
    "lag": ("middle", "SELECT id, amount - lag(amount) OVER (PARTITION BY account ORDER BY at) AS step FROM {table}"),
    "moving average": (
        "middle",
        "SELECT id, avg(amount) OVER (PARTITION BY account ORDER BY at ROWS 6 PRECEDING) AS average FROM {table}",
    ),
    "running sum": ("end", "SELECT id, sum(amount) OVER (PARTITION BY account ORDER BY at) AS balance FROM {table}"),
    "running sum of all": ("end", "SELECT id, sum(amount) OVER (ORDER BY at) AS balance FROM {table}"),
}
WAYS = ("pieces", "whole")


def prepare(hr: Any, way: str, view: str, rows: int, number: int) -> str:
    """A table with one partition of so many rows, and the view over it."""
    table = f"t{number}_{way}_{rows}"
    hr.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, account INT, at BIGINT, amount DECIMAL(10, 2))")
    hr.execute(f"INSERT INTO {table} SELECT id, 1, id * 10, CAST(id % 100 AS DECIMAL(10, 2)) FROM range({rows})")
    old = mock.patch.object(window, "reach_of", return_value=None)
    with old if way == "whole" else nullcontext():
        hr.execute(f"CREATE VIEW v_{table} AS {VIEWS[view][1].format(table=table)}")
    return table


def changes(where: str, rows: int) -> Iterator[dict[str, Any]]:
    """New rows, one to an epoch."""
    number = 0
    while True:
        number += 1
        at = rows * 5 + number if where == "middle" else rows * 10 + number
        yield {"insert": {"id": rows + number, "account": 1, "at": at, "amount": "1.25"}}


def measure(hr: Any, table: str, where: str, rows: int, epochs: int) -> float:
    """The median milliseconds of an epoch with one changed row."""
    times: list[float] = []
    for number, change in enumerate(changes(where, rows)):
        if number == WARM_UP + epochs:
            break
        started = time.perf_counter()
        hr.apply({table: [change]})
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times[WARM_UP:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs=2, default=[10_000, 200_000])
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    few, many = options.rows
    results: dict[str, dict[str, list[float]]] = {}
    header = f"{'view':<20} {'row at':<7} {'reads':<7} {f'{few:,} rows':>14} {f'{many:,} rows':>14} {'ratio':>7}"
    print(header, flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        headrace.open(str(Path(folder) / "home"), pause_garbage_collection=True) as hr,
    ):
        for number, (view, (where, _)) in enumerate(VIEWS.items()):
            for way in WAYS:
                found = results.setdefault(view, {}).setdefault(way, [])
                for rows in (few, many):
                    table = prepare(hr, way, view, rows, number)
                    found.append(measure(hr, table, where, rows, options.epochs))
                small, large = found
                line = f"{view:<20} {where:<7} {way:<7} {small:>11.0f} ms {large:>11.0f} ms {large / small:>6.1f}x"
                print(line, flush=True)
        verdict = hr.verify()
        print("every view equals its recompute" if verdict.ok else verdict.differences)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
