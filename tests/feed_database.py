"""A schema of a real PostgreSQL, and feeds into tables of it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql
from pyspark.sql.types import StructType

from headrace.feeds.postgres import PostgresSink
from tests.feed_batches import ITEMS, target_of


class Database:
    """A PostgreSQL with a schema that is empty, and sinks into tables of it."""

    def __init__(self, servers: Any, schema: str) -> None:
        self.servers = servers
        self.schema = schema
        self.deliveries: list[Any] = []

    @property
    def dsn(self) -> str:
        return self.servers.postgres_dsn

    def location(self, table: str = "items") -> str:
        return f"{self.dsn}/{self.schema}.{table}"

    def run(self, query: str, *values: object) -> list[Any]:
        """A query in which {} stands for the schema."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(
                sql.SQL(cast(LiteralString, query)).format(sql.Identifier(self.schema)), values or None
            )
            return cursor.fetchall() if cursor.description else []

    def open(self, table: str = "items", columns: StructType = ITEMS, **parts: Any) -> Any:
        delivery = PostgresSink().open(target_of(self.location(table), columns, **parts))
        self.deliveries.append(delivery)
        return delivery

    def rows(self, table: str = "items") -> list[Any]:
        return self.run(f"SELECT * FROM {{}}.{table} ORDER BY 1")


def item(number: int, name: str | None = None, price: str | None = "1.50") -> dict[str, Any]:
    return {"id": number, "name": name or f"n{number}", "price": price and Decimal(price)}
