"""A shop in one minute: three tables, three views, a few epochs, and the judge at the end."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import headrace

CITIES = ("Bergen", "Graz", "Lyon", "Porto", "Turin")
ORDERS = 2_000

console = Console()


def main() -> None:
    """Create a home in a temporary folder, change its tables, and show how the views follow."""
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        with console.status("Starting Spark"):
            hr = headrace.open(Path(folder) / "shop")
        with hr:
            fill(hr)
            follow(hr)
            refuse(hr)
            explain(hr)
            judge(hr)
    console.print("\nNext: read examples/quickstart/run.py, then docs/tour.md.")


def fill(hr: headrace.Headrace) -> None:
    """Create the tables and views and load the first rows."""
    console.rule("1. Tables and views")
    script = (Path(__file__).parent / "shop.sql").read_text(encoding="utf-8")
    with console.status("Creating 3 tables and 3 views"):
        hr.execute(script)
    draw = random.Random(7)
    customers = [{"id": i, "name": f"customer {i:03}", "city": draw.choice(CITIES)} for i in range(100)]
    products = [
        {"id": i, "name": f"product {i:02}", "price": f"{draw.randint(100, 9900) / 100:.2f}"} for i in range(40)
    ]
    orders = [
        {
            "id": i,
            "customer_id": draw.randrange(100),
            "product_id": draw.randrange(40),
            "quantity": draw.randint(1, 5),
        }
        for i in range(ORDERS)
    ]
    rows = {"customers": customers, "products": products, "orders": orders}
    with console.status(f"Loading {ORDERS:,} orders"):
        receipt = hr.apply({table: [{"insert": row} for row in those] for table, those in rows.items()})
    tell(
        f"{sum(receipt.applied.values()):,} rows into three tables, every query planned for the first time:",
        receipt,
    )
    print_table(hr.query("SELECT * FROM revenue_by_city ORDER BY city"), "revenue_by_city")


def follow(hr: headrace.Headrace) -> None:
    """Apply four small batches; each is one atomic epoch that moves every view at once."""
    console.rule("2. Changes, and what they did to the views")
    batches = {
        "a new order": {"orders": [{"insert": {"id": ORDERS, "customer_id": 3, "product_id": 5, "quantity": 2}}]},
        "a customer moves to Lyon": {"customers": [{"insert": {"id": 3, "name": "customer 003", "city": "Lyon"}}]},
        "two orders are cancelled": {"orders": [{"delete": {"id": 0}}, {"delete": {"id": 1}}]},
        "a product gets a new price, and is ordered at once": {
            "products": [{"insert": {"id": 5, "name": "product 05", "price": "19.90"}}],
            "orders": [{"insert": {"id": ORDERS + 1, "customer_id": 8, "product_id": 5, "quantity": 1}}],
        },
    }
    for what, batch in batches.items():
        before = hr.epoch
        receipt = hr.apply(batch)
        tell(what, receipt)
        counts = {view: hr.changes(view, since=before).num_rows for view in ("order_lines", "best_customers")}
        for view, count in counts.items():
            console.print(f"    {view}: {count or 'no'} changed row{'' if count == 1 else 's'}", style="dim")
        print_table(hr.changes("revenue_by_city", since=before), "revenue_by_city, what changed")


def refuse(hr: headrace.Headrace) -> None:
    """Send a call with a bad change: nothing of it is applied."""
    console.rule("3. A bad change stops only its own call")
    before = hr.epoch
    good = {"insert": {"id": 9_001, "customer_id": 1, "product_id": 1, "quantity": 1}}
    bad = {"insert": {"id": 9_002, "customer_id": 1, "product_id": 1, "quantity": "many"}}
    try:
        hr.apply({"orders": [good, bad]})
    except headrace.ChangesRejected as error:
        console.print(str(error), markup=False, style="yellow")
    console.print(f"The home is still at epoch {hr.epoch}, as before." if hr.epoch == before else "The home moved.")


def explain(hr: headrace.Headrace) -> None:
    """Show why the views are incremental."""
    console.rule("4. How a view is maintained")
    console.print(str(hr.explain("best_customers")), markup=False, highlight=False)


def judge(hr: headrace.Headrace) -> None:
    """Recompute every view with plain Spark and compare."""
    console.rule("5. The judge")
    begun = time.perf_counter()
    with console.status("Recomputing every view from nothing"):
        verdict = hr.verify()
    seconds = time.perf_counter() - begun
    if not verdict.ok:
        raise SystemExit(f"a view differs from its recompute: {verdict.differences}")
    console.print(
        f"Every view equals its full recompute at epoch {hr.epoch} ({seconds:.1f} s to prove it).",
        style="green",
    )


def tell(what: str, receipt: headrace.Receipt) -> None:
    """One line about an epoch and its time."""
    console.print(f"epoch {receipt.epoch}: {what} [bold]{receipt.seconds * 1000:.0f} ms[/bold]", highlight=False)


def print_table(rows: pa.Table, title: str) -> None:
    """Print a small table."""
    hidden = {"_commit_version", "_commit_timestamp"}
    names = [name for name in rows.column_names if name not in hidden]
    screen = Table(*names, title=title, title_justify="left", title_style="dim", show_edge=False)
    for row in rows.to_pylist():
        screen.add_row(*(str(row[name]) for name in names))
    console.print(screen)


if __name__ == "__main__":
    main()
