"""The medallion from nothing: generate, backfill, push hours, change the past, and prove every view right.

    python examples/medallion/demo.py [--scale 0.1] [--hours 6] [--data FOLDER] [--json]

Everything runs in this process, on a home of its own under the data folder, which is made anew each time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import plain
from rich.console import Console
from rich.table import Table

import headrace
from headrace.cli.progress import shown
from headrace.project.definitions import read_definitions
from headrace.project.folder import open_project
from headrace.project.run import run_project
from headrace.settings import Settings
from headrace.spark.session import large_session, start_spark

EXAMPLE = Path(__file__).parent
LEFT = 18
CHANGED = ("orders", "order_items", "clickstream_events", "inventory_events")
# Wide enough for the tables, also where the output goes to a file.
console = Console(width=None if sys.stdout.isatty() else 110)


def generated(data: Path, scale: float, hours: int) -> None:
    """Make the shop's data, unless the same is there already."""
    made = data / "generated.json"
    found: dict[str, Any] = json.loads(made.read_text()) if made.exists() else {}
    if found.get("scale") == scale and found.get("hours", 0) >= hours:
        console.print(f"The shop's data is in {data}.")
        return
    command = [sys.executable, str(EXAMPLE / "generate.py"), "--scale", str(scale), "--hours", str(hours)]
    subprocess.run([*command, "--out", str(data)], check=True)


def backfill(hr: headrace.Headrace, data: Path) -> float:
    """Read the snapshot into seven tables and fill fifteen views, all in one epoch; the seconds it took."""
    project = open_project(EXAMPLE, {"data": str(data)})
    started = time.perf_counter()
    with shown(hr, "Backfill", None):
        run_project(hr, read_definitions(project))
    seconds = time.perf_counter() - started
    tables = hr.execute("SHOW TABLES").to_pylist()
    views = hr.execute("SHOW VIEWS").to_pylist()
    incremental = sum(bool(view["incremental"]) for view in views)
    console.print(
        f"{sum(table['rows'] for table in tables):,} rows in {len(tables)} tables, {len(views)} views filled in "
        f"{seconds:.1f} s; {incremental} of {len(views)} views follow changes incrementally."
    )
    return seconds


def push(hr: headrace.Headrace, data: Path, hours: int) -> list[float]:
    """Apply the hours one after the other, each as one epoch; the seconds of each."""
    shown_hours = Table("hour", *CHANGED, "views current in", title="Hours pushed, each one atomic epoch")
    seconds: list[float] = []
    for hour in sorted(file.stem for file in (data / "cdc" / "orders").glob("*.json"))[:hours]:
        changes: dict[str, list[Any]] = {}
        for table in CHANGED:
            file = data / "cdc" / table / f"{hour}.json"
            changes[f"bronze_{table}"] = [json.loads(line) for line in file.read_text().splitlines()]
        with console.status(f"Pushing {hour}"):
            started = time.perf_counter()
            hr.apply(changes, key=f"demo-{hour}")
            seconds.append(time.perf_counter() - started)
        shown_hours.add_row(hour, *(f"{len(changes[f'bronze_{t}']):,}" for t in CHANGED), f"{seconds[-1]:.2f} s")
    console.print(shown_hours)
    console.print("The first hour also plans and compiles what every later one uses again.")
    return seconds


def supplier_trick(hr: headrace.Headrace) -> dict[str, Any]:
    """Give one supplier an absurd lead time and count the alerts."""
    count = "SELECT COUNT(*) AS alerts FROM gold_realtime_inventory_alerts"
    before = hr.query(count).to_pylist()[0]["alerts"]
    started = time.perf_counter()
    receipt = hr.execute(
        "INSERT INTO bronze_suppliers VALUES (7, 'Blake and Sons', 'DE', 10000, TIMESTAMP '2025-12-01 00:00:00')"
    )
    seconds = time.perf_counter() - started
    after = hr.query(count).to_pylist()[0]["alerts"]
    assert isinstance(receipt, headrace.Receipt)
    console.print(
        f"\n[bold]One supplier now delivers after 10,000 days.[/bold] Alerts before: {before}, after: {after}. "
        f"One row changed, every view followed in {seconds:.2f} s (epoch {receipt.epoch})."
    )
    return {"alerts_before": before, "alerts_after": after, "seconds": seconds}


def past_week(hr: headrace.Headrace) -> float:
    """Cancel the largest order of a past week and show what moves; the seconds it took."""
    order = hr.query(
        "SELECT order_id, category, date_trunc('week', order_created_at) AS week, SUM(line_net_revenue) AS revenue "
        "FROM silver_confirmed_order_items WHERE order_created_at BETWEEN '2025-10-06' AND '2025-10-12' "
        "GROUP BY ALL ORDER BY revenue DESC, order_id LIMIT 1"
    ).to_pylist()[0]
    trend = (
        "SELECT week_start, weekly_net_revenue, revenue_4wk_moving_avg, cumulative_ytd_revenue "
        f"FROM gold_weekly_revenue_trend WHERE category = '{order['category']}' "
        f"AND week_start BETWEEN '{order['week']:%Y-%m-%d}' AND '{order['week']:%Y-%m-%d}'::DATE + INTERVAL 28 DAYS "
        "ORDER BY week_start"
    )
    before = hr.query(trend).to_pylist()
    started = time.perf_counter()
    hr.execute(f"UPDATE bronze_orders SET order_status = 'cancelled' WHERE order_id = {order['order_id']}")
    seconds = time.perf_counter() - started
    after = hr.query(trend).to_pylist()
    title = f"Order {order['order_id']} of {order['week']:%d %B} is cancelled: {order['category']}, before and after"
    table = Table("week", "revenue", "", "4-week average", "", "year to date", "", title=title)
    for old, new in zip(before, after, strict=True):
        cells = [f"{old['week_start']:%Y-%m-%d}"]
        for name in ("weekly_net_revenue", "revenue_4wk_moving_avg", "cumulative_ytd_revenue"):
            moved = old[name] != new[name]
            cells += [f"{old[name]:,.2f}", f"[bold]{new[name]:,.2f}[/bold]" if moved else "same"]
        table.add_row(*cells)
    console.print()
    console.print(table)
    console.print(f"All of it in one epoch of {seconds:.2f} s.")
    return seconds


def prove(hr: headrace.Headrace, home: Path, spark: Any, epoch_seconds: float) -> tuple[float, bool]:
    """Compute all views in full by plain Spark, put both times side by side, and compare row by row."""
    session = large_session(spark)
    with console.status("Folding, so that plain Spark can read the tables"):
        hr.fold()
    with console.status("Plain Spark computes all 15 views in full"):
        full = plain.recompute(session, plain.bases(session, home))
    table = Table("", "one hour of changes", title="Side by side")
    table.add_row("Headrace: one epoch, all 15 views, durable", f"{epoch_seconds:.2f} s")
    table.add_row("plain Spark, its first run: all 15 views in full, nothing written", f"{full:.2f} s")
    table.add_row("ratio", f"[bold]{full / epoch_seconds:.0f} times[/bold]")
    console.print()
    console.print(table)
    with console.status("The judge recomputes every view and compares it with what is served"):
        verdict = hr.verify()
    console.print("[green]Every view equals its full recompute, row by row.[/green]" if verdict.ok else str(verdict))
    return full, verdict.ok


def _near(path: Path) -> Path:
    """The path as seen from here, where that is shorter."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def main() -> None:
    """Run the whole story."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--hours", type=int, default=6)
    parser.add_argument("--data", type=Path, default=EXAMPLE / "data")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, the rest to stderr")
    options = parser.parse_args()
    console.stderr = options.json
    # More than is pushed here, so that there is something left to push by hand.
    generated(options.data, options.scale, options.hours + LEFT)
    home = options.data / "home"
    shutil.rmtree(home, ignore_errors=True)
    with console.status("Starting Spark"):
        spark = start_spark(Settings())
    try:
        with headrace.open(home, spark=spark) as hr:
            filled = backfill(hr, options.data)
            seconds = push(hr, options.data, options.hours)
            trick = supplier_trick(hr)
            cancelled = past_week(hr)
            full, right = prove(hr, home, spark, seconds[-1])
    finally:
        spark.stop()
    if options.json:
        figures = {"backfill": filled, "hours": seconds, "supplier_trick": trick, "cancellation": cancelled}
        print(json.dumps({**figures, "full_recompute": full, "right": right}))
    home, data = (_near(path) for path in (home, options.data))
    console.print(
        "\n[bold]Look around[/bold], with .venv/bin on the PATH\n"
        f"  headrace serve --home {home}                      the same over HTTP, on port 8080\n"
        f'  headrace query --home {home} "SELECT * FROM gold_order_status_summary"\n'
        f"  headrace changes --home {home} gold_realtime_inventory_alerts\n"
        "  curl -N 'localhost:8080/v1/changes/gold_order_status_summary?since=0'     while it serves: the changes\n"
        f"  headrace push --hour 2025-11-30T{options.hours:02d} --data {data}    the next hour"
    )
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
