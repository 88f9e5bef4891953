"""A shop's changes as Debezium writes them for PostgreSQL without a schema: customers and orders, as one log."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import confluent_kafka

PREFIX = "shop.public"
TABLES = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING, region STRING, joined TIMESTAMP_NTZ);
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer BIGINT, status STRING, amount DECIMAL(12, 2), note STRING, at TIMESTAMP,
    updated TIMESTAMP_NTZ
);
"""
VIEWS = {
    "by_customer": """
        SELECT c.id, c.name, c.region, count(*) AS n, sum(o.amount) AS total
        FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.id, c.name, c.region""",
    "by_status": "SELECT status, count(*) AS n, sum(amount) AS total, max(at) AS latest FROM orders GROUP BY status",
    "waiting": """
        SELECT o.id, o.amount, o.at, c.name, c.region FROM orders o JOIN customers c ON o.customer = c.id
        WHERE o.status IN ('new', 'paid')""",
}
_STATUSES = ("new", "paid", "packed", "shipped", "returned", "cancelled")
_REGIONS = ("north", "south", "east", "west")
_BEGIN = 1_768_000_000_000_000


class Shop:
    """Makes changes one after the other, the same each time for a seed."""

    def __init__(self, customers: int, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._customers = customers
        self._made = 0
        self._live: list[int] = []
        self._orders = 0
        self._lsn = 24_000_000

    def changes(self, count: int) -> Iterator[tuple[str, bytes, bytes | None]]:
        """So many changes, each with its table and key; after a delete comes a tombstone, which is none of them."""
        for _ in range(count):
            self._made += 1
            yield from self._next()

    def _next(self) -> Iterator[tuple[str, bytes, bytes | None]]:
        chance = self._random.random()
        if self._made <= self._customers:
            yield self._changed("customers", "c", None, self._customer(self._made))
        elif chance < 0.03:
            yield self._changed("customers", "u", None, self._customer(self._random.randint(1, self._customers)))
        elif chance < 0.55 or not self._live:
            self._orders += 1
            self._live.append(self._orders)
            yield self._changed("orders", "c", None, self._order(self._orders))
        elif chance < 0.92:
            yield self._changed("orders", "u", None, self._order(self._random.choice(self._live)))
        else:
            place = self._random.randrange(len(self._live))
            gone, self._live[place] = self._live[place], self._live[-1]
            self._live.pop()
            before = {**dict.fromkeys(self._order(gone)), "id": gone}
            changed = self._changed("orders", "d", before, None)
            yield changed
            yield "orders", changed[1], None

    def _customer(self, number: int) -> dict[str, Any]:
        name = f"customer {number}, {self._random.randint(1, 1000)}"
        joined = _BEGIN - self._random.randint(0, 10**15)
        return {"id": number, "name": name, "region": self._random.choice(_REGIONS), "joined": joined}

    def _order(self, number: int) -> dict[str, Any]:
        choose = self._random
        clock = self._made % 86_400
        time = f"{clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}.{number % 10**6:06}Z"
        return {
            "id": number,
            "customer": choose.randint(1, self._customers),
            "status": choose.choice(_STATUSES),
            "amount": f"{choose.randint(100, 999_999) / 100:.2f}",
            "note": f"to be left at door {choose.randint(1, 10**6)}" if choose.random() < 0.6 else None,
            "at": f"2026-01-{choose.randint(1, 28):02}T{time}",
            "updated": _BEGIN + self._made * 1000,
        }

    def _changed(
        self, table: str, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> tuple[str, bytes, bytes]:
        self._lsn += 96
        millis = _BEGIN // 1000 + self._made
        envelope = {
            "before": before,
            "after": after,
            "source": {
                "version": "3.5.0.Final",
                "connector": "postgresql",
                "name": "shop",
                "ts_ms": millis,
                "snapshot": "false",
                "db": "shop",
                "sequence": f'["{self._lsn - 48}","{self._lsn}"]',
                "ts_us": millis * 1000,
                "ts_ns": millis * 1_000_000,
                "schema": "public",
                "table": table,
                "txId": 700 + self._made // 4,
                "lsn": self._lsn,
                "xmin": None,
            },
            "transaction": None,
            "op": op,
            "ts_ms": millis + 20,
            "ts_us": (millis + 20) * 1000,
            "ts_ns": (millis + 20) * 1_000_000,
        }
        key = f'{{"id":{(after or before or {})["id"]}}}'
        return table, key.encode(), json.dumps(envelope, separators=(",", ":"), ensure_ascii=False).encode()


def produce(bootstrap: str, shop: Shop, count: int) -> int:
    """Write so many changes into the topics of the tables; the number of records."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "compression.type": "lz4", "log_level": 2}
    )
    records = 0
    for table, key, value in shop.changes(count):
        while True:
            try:
                producer.produce(f"{PREFIX}.{table}", value, key)
                break
            except BufferError:
                producer.poll(0.1)
        records += 1
        if records % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return records
