"""One epoch against a full recompute: three tables, three views on top of each other, 1,000 mixed changes.

    python bench/epoch.py [--rows 1000000 4000000] [--epochs 20] [--recomputes 3] [--json FILE]

Everything is measured in one run on one machine; compare the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import headrace
from headrace.face import home_of
from headrace.settings import Settings
from headrace.spark.session import start_spark

CUSTOMERS = 50_000
PRODUCTS = 5_000
CHANGES = 1_000
WARM_UP = 15

TABLES = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL, product_id BIGINT NOT NULL,
    quantity INT NOT NULL, price DECIMAL(10,2) NOT NULL, ordered_at TIMESTAMP NOT NULL);
CREATE TABLE customers (id BIGINT PRIMARY KEY, region STRING, tier STRING);
CREATE TABLE products (id BIGINT PRIMARY KEY, category STRING, cost DECIMAL(10,2))
"""

VIEWS = {
    "sales": """
        SELECT o.id, c.region, c.tier, p.category, date_trunc('month', o.ordered_at) AS month, o.quantity,
               o.quantity * o.price AS revenue, o.quantity * (o.price - p.cost) AS margin
        FROM orders o JOIN customers c ON o.customer_id = c.id JOIN products p ON o.product_id = p.id""",
    "monthly": """
        SELECT region, category, month, COUNT(*) AS orders, SUM(quantity) AS units, SUM(revenue) AS revenue,
               AVG(margin) AS average_margin
        FROM sales GROUP BY region, category, month""",
    "trend": """
        SELECT region, category, month, revenue, revenue - LAG(revenue) OVER w AS change,
               SUM(revenue) OVER w AS cumulative
        FROM monthly WINDOW w AS (PARTITION BY region, category ORDER BY month)""",
}


def load(hr: headrace.Headrace, rows: int) -> None:
    """Fill the tables by Spark's own range, the same rows every time."""
    hr.execute(TABLES)
    hr.execute(
        f"INSERT INTO customers SELECT id, concat('region-', id % 50), "
        f"element_at(array('standard', 'silver', 'gold'), CAST(id % 3 AS INT) + 1) FROM range({CUSTOMERS})"
    )
    hr.execute(
        f"INSERT INTO products SELECT id, concat('category-', id % 40), CAST(id % 90 AS DECIMAL(10,2)) "
        f"FROM range({PRODUCTS})"
    )
    hr.execute(
        f"INSERT INTO orders SELECT id, (id * 7919) % {CUSTOMERS}, (id * 104729) % {PRODUCTS}, "
        f"CAST(id % 9 AS INT) + 1, "
        f"CAST((id % 10000) / 100 AS DECIMAL(10,2)), "
        f"TIMESTAMP '2025-01-01' + make_dt_interval(0, 0, 0, id % 31536000) FROM range({rows})"
    )


def mixed_changes(rng: random.Random, rows: int, next_id: int) -> dict[str, list[dict[str, Any]]]:
    """New orders, changed orders, deleted orders, and a few changed customers and products."""
    orders: list[dict[str, Any]] = []
    for i in range(CHANGES * 6 // 10):
        orders.append({"insert": _order(rng, next_id + i)})
    for _ in range(CHANGES * 288 // 1000):
        orders.append({"insert": _order(rng, rng.randrange(rows))})
    for _ in range(CHANGES // 10):
        orders.append({"delete": {"id": rng.randrange(rows)}})
    customers = [
        {"insert": {"id": rng.randrange(CUSTOMERS), "region": f"region-{rng.randrange(50)}", "tier": "gold"}}
        for _ in range(CHANGES // 100)
    ]
    products = [
        {
            "insert": {
                "id": rng.randrange(PRODUCTS),
                "category": f"category-{rng.randrange(40)}",
                "cost": "12.50",
            }
        }
        for _ in range(CHANGES // 500)
    ]
    return {"orders": orders, "customers": customers, "products": products}


def _order(rng: random.Random, key: int) -> dict[str, Any]:
    return {
        "id": key,
        "customer_id": rng.randrange(CUSTOMERS),
        "product_id": rng.randrange(PRODUCTS),
        "quantity": rng.randrange(1, 10),
        "price": f"{rng.randrange(100, 10000) / 100:.2f}",
        "ordered_at": f"2025-{rng.randrange(1, 13):02d}-{rng.randrange(1, 28):02d}T{rng.randrange(24):02d}:00:00Z",
    }


def recompute(hr: headrace.Headrace) -> float:
    """Seconds that plain Spark takes to compute the three views from the tables, writing nothing."""
    core = home_of(hr).core
    relations = core.relations()
    frames = {name: core.sessions.frames.frame(*relations[name]) for name in ("orders", "customers", "products")}
    session = core.sessions.frames.catalyst.session
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"bench_{name}")
    sql = VIEWS["sales"]
    for name in frames:
        sql = sql.replace(f" {name} ", f" bench_{name} ")
    started = time.perf_counter()
    sales = session.sql(sql).cache()
    sales.createOrReplaceTempView("bench_sales")
    monthly = session.sql(VIEWS["monthly"].replace("FROM sales", "FROM bench_sales")).cache()
    monthly.createOrReplaceTempView("bench_monthly")
    trend = session.sql(VIEWS["trend"].replace("FROM monthly", "FROM bench_monthly"))
    for one in (sales, monthly, trend):
        one.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    for one in (monthly, sales):
        one.unpersist(blocking=True)
    return seconds


def percentile(values: list[float]) -> float:
    """The 95th percentile: of twenty, the second largest."""
    return sorted(values)[math.ceil(len(values) * 0.95) - 1] if values else 0.0


def spark_jobs(hr: headrace.Headrace) -> int:
    """How many Spark jobs have been started so far."""
    tracker = home_of(hr).core.sessions.frames.catalyst.session.sparkContext._jsc.sc().dagScheduler()  # pyright: ignore
    return int(tracker.nextJobId().get() if hasattr(tracker.nextJobId(), "get") else tracker.nextJobId())


def measure(rows: int, epochs: int, recomputes: int, spark: Any) -> dict[str, Any]:
    """One table size: load, warm up, measure epochs and recomputes in turn, and let the judge decide."""
    home = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    rng = random.Random(7)
    try:
        with headrace.open(home, spark=spark, pause_garbage_collection=True) as hr:
            started = time.perf_counter()
            load(hr, rows)
            loaded = time.perf_counter()
            for name, sql in VIEWS.items():
                hr.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
            filled = time.perf_counter()
            print(f"  loaded in {loaded - started:.1f} s, views filled in {filled - loaded:.1f} s", flush=True)
            times: list[float] = []
            stages: dict[str, list[float]] = {}
            jobs = 0
            for i in range(WARM_UP + epochs):
                changes = mixed_changes(rng, rows, rows + i * CHANGES)
                before = spark_jobs(hr)
                began = time.perf_counter()
                receipt = hr.apply(changes)
                seconds = time.perf_counter() - began
                if i >= WARM_UP:
                    times.append(seconds)
                    jobs = spark_jobs(hr) - before
                    for stage, part in receipt.stages.items():
                        stages.setdefault(stage, []).append(part)
                print(f"  epoch {i + 1}: {seconds:.3f} s", end="\r", flush=True)
            print()
            recompute(hr)
            full = [recompute(hr) for _ in range(recomputes)]
            verdict = hr.verify()
            if not verdict.ok:
                print(verdict, file=sys.stderr)
                raise SystemExit("the judge found a difference")
        return {
            "rows": rows,
            "epoch_seconds": statistics.median(times),
            "epoch_seconds_p95": percentile(times),
            "recompute_seconds": statistics.median(full),
            "ratio": statistics.median(full) / statistics.median(times),
            "jobs_per_epoch": jobs,
            "fill_seconds": filled - loaded,
            "stages": {stage: statistics.median(parts) for stage, parts in stages.items()},
        }
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--recomputes", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    spark = start_spark(Settings(spark_memory="4g", pause_garbage_collection=True))
    results: list[dict[str, Any]] = []
    for rows in options.rows:
        print(f"{rows:,} orders, {CUSTOMERS:,} customers, {PRODUCTS:,} products", flush=True)
        results.append(measure(rows, options.epochs, options.recomputes, spark))
    print(f"\n{'orders':>10} {'ratio':>7} {'epoch':>9} {'95th':>9} {'recompute':>10} {'jobs':>5}  stages")
    for one in results:
        stages = ", ".join(f"{name} {seconds:.3f}" for name, seconds in one["stages"].items())
        print(
            f"{one['rows']:>10,} {one['ratio']:>6.1f}x {one['epoch_seconds']:>7.3f} s "
            f"{one['epoch_seconds_p95']:>7.3f} s "
            f"{one['recompute_seconds']:>8.2f} s {one['jobs_per_epoch']:>5}  {stages}"
        )
    if len(results) > 1:
        growth = results[-1]["epoch_seconds"] / results[0]["epoch_seconds"]
        sizes = f"from {results[0]['rows']:,} to {results[-1]['rows']:,} orders"
        print(f"the epoch's own time grows {growth:.2f} times {sizes}")
    if options.json:
        machine = {"machine": platform.machine(), "python": platform.python_version(), "spark": spark.version}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
