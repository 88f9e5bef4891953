"""The medallion under the judge: ordinary hours, then hours that no generator would make.

python -m tests.judge.medallion [--hours 24] [--scale 0.02]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql.types import DataType, DecimalType, TimestampType

import headrace
from headrace.face import home_of
from headrace.project.definitions import read_definitions
from headrace.project.folder import open_project
from headrace.project.run import run_project
from tests.spark_cluster import spark_and_folder

EXAMPLE = Path(__file__).parents[2] / "examples" / "medallion"
CHANGED = ("orders", "order_items", "clickstream_events", "inventory_events")
Changes = dict[str, list[dict[str, Any]]]


def generate(data: Path, scale: float, hours: int) -> None:
    """Write the snapshot and the hours."""
    command = [sys.executable, str(EXAMPLE / "generate.py"), "--scale", str(scale), "--hours", str(hours)]
    subprocess.run([*command, "--out", str(data)], check=True, capture_output=True)


def backfill(hr: headrace.Headrace, data: Path) -> None:
    """All 22 relations in one epoch."""
    run_project(hr, read_definitions(open_project(EXAMPLE, {"data": str(data)})))


def hours_of(data: Path, hours: int) -> Iterator[tuple[str, Changes]]:
    """Ordinary hours, in order."""
    for hour in sorted(file.stem for file in (data / "cdc" / "orders").glob("*.json"))[:hours]:
        files = {table: data / "cdc" / table / f"{hour}.json" for table in CHANGED}
        yield (
            hour,
            {
                f"bronze_{table}": [json.loads(line) for line in file.read_text().splitlines()]
                for table, file in files.items()
                if file.exists()
            },
        )


def hostile_hours(hr: headrace.Headrace) -> Iterator[tuple[str, Changes]]:
    """Changes of everything that the reference data never changes, each worked out on what the home holds then."""

    def rows(sql: str) -> list[dict[str, Any]]:
        return hr.query(sql).to_pylist()

    def replaced(sql: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"insert": {**row, **change(row)}} for row in rows(sql)]

    yield (
        "changed customers, products and suppliers",
        {
            "bronze_customers": replaced(
                "SELECT * FROM bronze_customers WHERE customer_id % 7 = 0",
                lambda row: {"customer_tier": {"gold": "trial", "trial": "gold"}.get(row["customer_tier"], "silver")},
            ),
            "bronze_products": replaced(
                "SELECT * FROM bronze_products WHERE product_id % 9 = 0",
                lambda row: {
                    "is_active": not row["is_active"],
                    "category": "Toys",
                    "supplier_id": 3,
                    "cost_price": None,
                },
            ),
            "bronze_suppliers": replaced(
                "SELECT * FROM bronze_suppliers WHERE supplier_id % 2 = 0",
                lambda row: {"lead_time_days": None if row["supplier_id"] % 4 else 900, "country": None},
            ),
        },
    )
    yield (
        "deleted customers, products and suppliers",
        {
            f"bronze_{table}": [
                {"delete": row} for row in rows(f"SELECT {key} FROM bronze_{table} WHERE {key} % 11 = 5")
            ]
            for table, key in (("customers", "customer_id"), ("products", "product_id"), ("suppliers", "supplier_id"))
        },
    )
    yield (
        "deleted orders and items",
        {
            "bronze_orders": [
                {"delete": row} for row in rows("SELECT order_id FROM bronze_orders WHERE order_id % 41 = 0")
            ],
            "bronze_order_items": [
                {"delete": row}
                for row in rows("SELECT order_item_id FROM bronze_order_items WHERE order_item_id % 37 = 1")
            ],
        },
    )
    yield (
        "orders moved to an older week, and into the last year",
        {
            "bronze_orders": replaced(
                "SELECT * FROM bronze_orders WHERE order_id % 97 = 3",
                lambda row: {"created_at": "2025-09-03T10:00:00Z" if row["order_id"] % 2 else "2024-12-30T00:00:00Z"},
            )
        },
    )
    emptied = rows("SELECT * FROM bronze_order_items WHERE product_id % 5 = 2")
    yield "groups emptied", {"bronze_order_items": [{"delete": row} for row in emptied]}
    yield "groups refilled", {"bronze_order_items": [{"insert": row} for row in emptied]}
    click = rows("SELECT * FROM bronze_clickstream_events WHERE product_id IS NOT NULL ORDER BY event_id LIMIT 1")[0]
    late = [
        {
            "insert": {
                **click,
                "event_id": 10**12 + i,
                "event_type": "add_to_cart",
                "event_timestamp": "2025-11-29T23:30:00Z",
            }
        }
        for i in range(20)
    ]
    yield "late clicks", {"bronze_clickstream_events": late}
    ahead = {**click, "event_id": 10**12 + 99, "product_id": None, "event_timestamp": "2025-12-09T12:00:00Z"}
    yield "a new maximum days ahead", {"bronze_clickstream_events": [{"insert": ahead}]}
    yield "the maximum is gone again", {"bronze_clickstream_events": [{"delete": {"event_id": 10**12 + 99}}]}
    yield (
        "duplicates of a change",
        {
            "bronze_clickstream_events": [*late, *late],
            "bronze_order_items": [{"insert": row} for row in emptied[:50] for _ in range(3)],
        },
    )
    orders = rows("SELECT * FROM bronze_orders")
    yield "every order gone", {"bronze_orders": [{"delete": {"order_id": row["order_id"]}} for row in orders]}
    yield "every order back", {"bronze_orders": [{"insert": row} for row in orders]}


class Bronze:
    """What the tables must hold: the snapshot and every change on top of it, kept in plain Python."""

    def __init__(self, hr: headrace.Headrace, data: Path) -> None:
        self._tables = {table.name: table.contract for table in home_of(hr).core.catalog.tables()}
        self._rows: dict[str, dict[Any, dict[str, Any]]] = {name: {} for name in self._tables}
        for name in self._tables:
            snapshot = DeltaTable(str(data / "snapshot" / name.removeprefix("bronze_"))).to_pyarrow_table()
            self.apply({name: [{"insert": row} for row in snapshot.to_pylist()]})

    def apply(self, changes: Changes) -> None:
        """Follow what the home was told."""
        for name, listed in changes.items():
            contract = self._tables[name]
            for change in listed:
                ((kind, row),) = change.items()
                values = {field.name: _value(row.get(field.name), field.dataType) for field in contract.schema.fields}
                key = tuple(values[column] for column in contract.key)
                if kind == "insert":
                    self._rows[name][key] = values
                else:
                    self._rows[name].pop(key, None)

    def wrong(self, hr: headrace.Headrace) -> list[str]:
        """The tables that hold anything else."""
        found: list[str] = []
        for name, contract in self._tables.items():
            held = hr.query(f"SELECT * FROM {name}").to_pylist()
            by_key = {tuple(row[column] for column in contract.key): row for row in held}
            if len(by_key) != len(held) or by_key != self._rows[name]:
                found.append(name)
        return found


def _value(value: Any, kind: DataType) -> Any:
    if isinstance(value, str) and isinstance(kind, TimestampType):
        return datetime.fromisoformat(value)
    return Decimal(value) if isinstance(value, str) and isinstance(kind, DecimalType) else value


def judged(
    hr: headrace.Headrace, hours: Iterator[tuple[str, Changes]], bronze: Bronze | None = None
) -> Iterator[tuple[str, Any, list[str]]]:
    """Apply each hour and let the judge decide on the views; with a model of the tables, they are compared with it."""
    for name, changes in hours:
        hr.apply(changes)
        if bronze is not None:
            bronze.apply(changes)
        yield name, hr.verify(), [] if bronze is None else bronze.wrong(hr)


def digests(hr: headrace.Headrace) -> dict[str, str]:
    """What each relation holds, as a number that does not depend on the order of rows; DOUBLEs at nine digits."""
    found: dict[str, str] = {}
    for name in home_of(hr).core.catalog.relations:
        rows = hr.query(f"SELECT * FROM {name}").to_pylist()
        rounded = [[f"{v:.8e}" if isinstance(v, float) else v for v in row.values()] for row in rows]
        told = "\n".join(sorted(map(repr, rounded)))
        found[name] = f"{len(rows)} {hashlib.sha256(told.encode()).hexdigest()[:16]}"
    return found


def main() -> None:
    """Judge every hour and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--cluster", action="store_true", help="on a Spark of several processes; needs root")
    parser.add_argument("--contents", type=Path, help="write here what each relation holds at the end of each hour")
    options = parser.parse_args()
    wrong = 0
    contents: dict[str, dict[str, str]] = {}
    with spark_and_folder(options.cluster, "headrace-medallion-") as (spark, folder):
        data = folder / "data"
        generate(data, options.scale, options.hours)
        with headrace.open(folder / "home", spark=spark) as hr:
            backfill(hr, data)
            bronze = Bronze(hr, data)
            for hours in (hours_of(data, options.hours), hostile_hours(hr)):
                for name, verdict, tables in judged(hr, hours, bronze):
                    right = verdict.ok and not tables
                    contents[name] = digests(hr) if options.contents else {}
                    print(f"{'right' if right else 'WRONG'}  epoch {hr.epoch}  {name}", flush=True)
                    if not right:
                        wrong += 1
                        print(verdict, *tables, sep="\n")
    if options.contents:
        options.contents.write_text(json.dumps(contents, indent=1))
    print(f"{wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
