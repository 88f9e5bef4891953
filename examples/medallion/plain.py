"""The same 15 views by plain Spark, each computed in full: what one would do without Headrace."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SQL = Path(__file__).parent / "sql"
TABLES = ("suppliers", "products", "customers", "orders", "order_items", "inventory_events", "clickstream_events")
_VIEW = re.compile(r"CREATE MATERIALIZED VIEW (\w+) AS\n(.*?);\s*$", re.DOTALL | re.MULTILINE)


def view_queries() -> dict[str, str]:
    """The query of every view, in an order in which each reads only those before it."""
    return {
        name: query
        for layer in ("2_silver.sql", "3_gold.sql")
        for name, query in _VIEW.findall((SQL / layer).read_text())
    }


def recompute(session: Any, tables: Mapping[str, Any]) -> float:
    """Seconds that Spark takes to compute all views from the bronze tables, silver cached, nothing written."""
    for name, frame in tables.items():
        frame.createOrReplaceTempView(name)
    cached: list[Any] = []
    started = time.perf_counter()
    for name, query in view_queries().items():
        frame = session.sql(query)
        if name.startswith("silver_"):
            frame = frame.cache()
            cached.append(frame)
        frame.createOrReplaceTempView(name)
        if name.startswith("gold_"):
            frame.write.format("noop").mode("overwrite").save()
    # Silver views that no gold view reads in full are views all the same.
    for frame in cached:
        frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    for frame in reversed(cached):
        frame.unpersist(blocking=True)
    for name in (*view_queries(), *tables):
        session.catalog.dropTempView(name)
    return seconds


def bases(session: Any, home: Path) -> dict[str, Any]:
    """The bronze tables as any Delta reader finds them in a home."""
    return {
        f"bronze_{name}": session.read.format("delta").load(str(home / "tables" / f"bronze_{name}")) for name in TABLES
    }
