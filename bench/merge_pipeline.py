"""The medallion by hand: MERGE INTO every table that an hour touches, gold overwritten from silver.

What a careful engineer writes today with Spark and Delta alone. Bronze tables take the hour's changes by MERGE; silver
tables take the rows of the touched orders, products and clicks by MERGE; gold tables are computed anew from silver.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

_KEYS = {
    "orders": "order_id",
    "order_items": "order_item_id",
    "inventory_events": "inventory_event_id",
    "clickstream_events": "event_id",
}
_SILVER_KEYS = {
    "silver_enriched_clickstream": ("event_id",),
    "silver_orders_enriched": ("order_id",),
    "silver_order_items_enriched": ("order_item_id",),
    "silver_confirmed_order_items": ("order_item_id",),
    "silver_inventory_current": ("product_id", "warehouse_id"),
}


class MergePipeline:
    """All 22 relations as Delta tables of their own."""

    def __init__(self, session: Any, folder: Path, queries: dict[str, str]) -> None:
        self._session = session
        # MERGE INTO names its table by the path.
        session.conf.set("spark.sql.runSQLOnFiles", "true")
        self._folder = folder
        self._queries = queries

    def backfill(self, snapshot: Path, tables: tuple[str, ...]) -> float:
        """Write every table and view once; the seconds it took."""
        started = time.perf_counter()
        for table in tables:
            frame = self._session.read.format("delta").load(str(snapshot / table))
            frame.write.format("delta").save(str(self._folder / f"bronze_{table}"))
            self._register(f"bronze_{table}")
        for name, query in self._queries.items():
            self._session.sql(query).write.format("delta").save(str(self._folder / name))
            self._register(name)
        return time.perf_counter() - started

    def hour(self, cdc: Path, hour: str) -> float:
        """Apply one hour of changes to all relations; the seconds it took."""
        started = time.perf_counter()
        for table, key in _KEYS.items():
            self._merge_bronze(table, key, cdc / table / f"{hour}.json")
        touched = {
            "touched_orders": "SELECT order_id FROM net_orders UNION SELECT order_id FROM net_order_items",
            "touched_products": "SELECT DISTINCT product_id FROM net_inventory_events",
            "touched_events": "SELECT event_id FROM net_clickstream_events",
        }
        for name, query in touched.items():
            self._session.sql(query).cache().createOrReplaceTempView(name)
        self._merge_silver("silver_enriched_clickstream", "touched_events", "event_id")
        self._merge_silver("silver_orders_enriched", "touched_orders", "order_id")
        self._merge_silver("silver_order_items_enriched", "touched_orders", "order_id")
        self._merge_silver("silver_confirmed_order_items", "touched_orders", "order_id")
        self._merge_silver("silver_inventory_current", "touched_products", "product_id")
        for name, query in self._queries.items():
            if name.startswith("gold_") or name == "silver_inventory_by_supplier":
                self._session.sql(query).write.format("delta").mode("overwrite").save(str(self._folder / name))
        for name in touched:
            self._session.catalog.uncacheTable(name)
        return time.perf_counter() - started

    def _register(self, name: str) -> None:
        self._session.read.format("delta").load(str(self._folder / name)).createOrReplaceTempView(name)

    def _merge_bronze(self, table: str, key: str, file: Path) -> None:
        """The last change of each key decides."""
        net: dict[Any, dict[str, Any]] = {}
        for line in file.read_text().splitlines():
            change = json.loads(line)
            (kind, row) = next(iter(change.items()))
            net[row[key]] = {**row, "_gone": kind == "delete"}
        schema = self._session.table(f"bronze_{table}").schema
        lines = self._session.createDataFrame([(json.dumps(row),) for row in net.values()], "line STRING")
        rows = lines.selectExpr(f"from_json(line, '{_ddl(schema)}, _gone BOOLEAN') AS row").select("row.*")
        rows.cache().createOrReplaceTempView(f"net_{table}")
        columns = [field.name for field in schema.fields]
        self._session.sql(f"""
            MERGE INTO delta.`{self._folder / f"bronze_{table}"}` t USING net_{table} s ON t.{key} = s.{key}
            WHEN MATCHED AND s._gone THEN DELETE
            WHEN MATCHED THEN UPDATE SET {_set(columns)}
            WHEN NOT MATCHED AND NOT s._gone THEN INSERT {_insert(columns)}
        """)

    def _merge_silver(self, name: str, touched: str, key: str) -> None:
        """Replace the rows of the touched keys by what the query gives for them now."""
        query = f"SELECT * FROM ({self._queries[name]}) WHERE {key} IN (SELECT {key} FROM {touched})"
        self._session.sql(query).cache().createOrReplaceTempView("fresh")
        keys = _SILVER_KEYS[name]
        wanted = [row[0] for row in self._session.table(touched).collect()]
        within = f"t.{key} IN ({', '.join(map(str, wanted))})"
        columns = self._session.table("fresh").columns
        self._session.sql(f"""
            MERGE INTO delta.`{self._folder / name}` t USING fresh s
            ON {" AND ".join([within, *(f"t.{k} = s.{k}" for k in keys)])}
            WHEN MATCHED THEN UPDATE SET {_set(columns)}
            WHEN NOT MATCHED THEN INSERT {_insert(columns)}
            WHEN NOT MATCHED BY SOURCE AND {within} THEN DELETE
        """)
        self._session.catalog.uncacheTable("fresh")


def _ddl(schema: Any) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def _set(columns: list[str]) -> str:
    return ", ".join(f"t.{column} = s.{column}" for column in columns)


def _insert(columns: list[str]) -> str:
    return f"({', '.join(columns)}) VALUES ({', '.join(f's.{column}' for column in columns)})"
