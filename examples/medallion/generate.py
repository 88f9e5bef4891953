"""Make the shop's data: a snapshot of 90 days as Delta tables, and files of hourly changes.

    python examples/medallion/generate.py [--scale 0.1] [--seed 1] [--hours 168] [--out data]

The same arguments make the same rows. Orders have a lifecycle: they are confirmed, shipped and delivered, or cancelled,
or returned weeks later; every change of status is an update in the hour it happens. Stock follows the orders, and
clicks come in journeys of one product each, most of which end early.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

START = datetime(2025, 9, 1, tzinfo=UTC)
SNAPSHOT = datetime(2025, 11, 30, tzinfo=UTC)
MOST_HOURS = 168
HOUR = 3600.0
DAY = 24 * HOUR

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]

STATUSES = ["pending", "confirmed", "shipped", "delivered", "cancelled", "returned"]
MOVEMENTS = ["restock", "sale_reserve", "cancellation_restock", "return_restock"]
CLICKS = ["page_view", "product_view", "add_to_cart", "begin_checkout", "purchase", "heartbeat"]
DEVICES = ["desktop", "mobile", "tablet"]
CATEGORIES = ["Audio", "Books", "Cameras", "Garden", "Grocery", "Kitchen", "Office", "Outdoor", "Phones", "Toys"]
COUNTRIES = ["DE", "FR", "GB", "IT", "JP", "NO", "PL", "US"]


@dataclass(frozen=True)
class Sizes:
    """How many of each there are at a scale; those per day come evenly over the snapshot and the hours after it."""

    customers: int
    products: int
    suppliers: int
    orders_per_day: int
    journeys_per_day: int
    restocks_per_day: int


def sizes_at(scale: float) -> Sizes:
    """About 0.7 M orders, 1.6 M items, 3 M clicks and 2.2 M stock movements at scale 1."""
    return Sizes(
        customers=max(200, round(50_000 * scale)),
        products=max(100, round(5_000 * scale)),
        suppliers=max(10, round(100 * scale)),
        orders_per_day=max(20, round(7_780 * scale)),
        journeys_per_day=max(40, round(16_000 * scale)),
        restocks_per_day=max(10, round(5_000 * scale)),
    )


class Shop:
    """Everything that happens from the start to the last hour, in time order, as columns."""

    def __init__(self, scale: float, seed: int) -> None:
        self.sizes = sizes_at(scale)
        self._random = np.random.default_rng(seed)
        self._days = (SNAPSHOT - START).days + MOST_HOURS // 24
        self.now = (SNAPSHOT - START).total_seconds()
        self._make_dimensions()
        self._make_orders()
        self._make_items()
        self._make_stock()
        self._make_clicks()

    def _choice(self, values: Sequence[Any], count: int, weights: Sequence[float] | None = None) -> npt.NDArray[Any]:
        return self._random.choice(np.array(values, dtype=object), count, p=weights)

    def _skewed(self, size: int, count: int) -> Numbers:
        """Numbers from 1 to the size, small ones more often: few products make most of the sales."""
        return (size * self._random.random(count) ** 2).astype(np.int64) + 1

    def _moments(self, per_day: int) -> Seconds:
        """Moments in time order, more of them by day than by night."""
        count = per_day * self._days
        hours = self._random.choice(24, count, p=_daily_rhythm())
        seconds = hours * HOUR + self._random.random(count) * HOUR
        return np.sort(np.repeat(np.arange(self._days), per_day) * DAY + seconds)

    def _make_dimensions(self) -> None:
        count, random = self.sizes, self._random
        self.suppliers = {
            "supplier_id": np.arange(1, count.suppliers + 1),
            "supplier_name": np.array([f"Supplier {i}" for i in range(1, count.suppliers + 1)], dtype=object),
            "country": self._choice(COUNTRIES, count.suppliers),
            "lead_time_days": random.integers(2, 21, count.suppliers),
            "updated_at": np.zeros(count.suppliers),
        }
        ids = np.arange(1, count.products + 1)
        self.list_cents = random.integers(300, 40_000, count.products)
        self.products = {
            "product_id": ids,
            "product_name": np.array([f"Product {i}" for i in ids], dtype=object),
            "category": self._choice(CATEGORIES, count.products),
            "brand": np.array([f"Brand {i}" for i in random.integers(1, 60, count.products)], dtype=object),
            "supplier_id": random.integers(1, count.suppliers + 1, count.products),
            "list_price": self.list_cents,
            "cost_price": (self.list_cents * (0.4 + 0.3 * random.random(count.products))).astype(np.int64),
            "weight_kg": random.integers(5, 3_000, count.products),
            "is_active": random.random(count.products) > 0.03,
            "updated_at": np.zeros(count.products),
        }
        people = np.arange(1, count.customers + 1)
        self.customers = {
            "customer_id": people,
            "email": np.array([f"customer{i}@example.com" for i in people], dtype=object),
            "signup_date": random.integers(-1_500, 0, count.customers),
            "customer_tier": self._choice(
                ["standard", "silver", "gold", "platinum", "trial"], count.customers, [0.6, 0.2, 0.12, 0.06, 0.02]
            ),
            "geo_country": self._choice(COUNTRIES, count.customers),
            "geo_region": np.array([f"Region {i}" for i in random.integers(1, 40, count.customers)], dtype=object),
            "updated_at": np.zeros(count.customers),
        }

    def _make_orders(self) -> None:
        random = self._random
        self.created = self._moments(self.sizes.orders_per_day)
        count = len(self.created)
        # Most orders are paid, and so confirmed, as they are placed.
        paid = random.random(count) < 0.85
        confirmed = np.where(paid, self.created, self.created + random.exponential(2 * HOUR, count))
        shipped = confirmed + random.exponential(DAY, count) + HOUR
        delivered = shipped + random.exponential(3 * DAY, count) + 6 * HOUR
        cancelled = np.where(random.random(count) < 0.08, self.created + random.exponential(6 * DAY, count), np.inf)
        returned = np.where(random.random(count) < 0.05, delivered + random.exponential(12 * DAY, count), np.inf)
        # A cancellation ends the order: nothing later happens to it.
        self.turns = np.stack(
            [
                np.where(paid, np.inf, self.created),
                np.where(confirmed < cancelled, confirmed, np.inf),
                np.where(shipped < cancelled, shipped, np.inf),
                np.where(delivered < cancelled, delivered, np.inf),
                cancelled,
                np.where(delivered < cancelled, returned, np.inf),
            ]
        )
        self.order_ids = np.arange(1, count + 1)
        self.order_users = random.integers(1, self.sizes.customers + 1, count)
        self.payment = self._choice(["card", "paypal", "invoice", "voucher"], count, [0.6, 0.25, 0.1, 0.05])
        self.coupon = np.where(random.random(count) < 0.1, "SAVE10", None)
        self.shipping = random.choice(np.array([0, 390, 490, 990]), count)

    def _make_items(self) -> None:
        random = self._random
        per_order = random.choice(np.arange(1, 7), len(self.order_ids), p=[0.35, 0.28, 0.18, 0.1, 0.06, 0.03])
        self.item_order = np.repeat(np.arange(len(self.order_ids)), per_order)
        count = len(self.item_order)
        self.item_ids = np.arange(1, count + 1)
        self.item_product = self._skewed(self.sizes.products, count)
        self.item_quantity = random.choice(np.arange(1, 5), count, p=[0.7, 0.18, 0.08, 0.04])
        self.item_cents = (self.list_cents[self.item_product - 1] * (0.9 + 0.1 * random.random(count))).astype(np.int64)
        self.item_discount = np.where(random.random(count) < 0.5, -1, random.choice([0, 5, 10, 15, 20], count))
        gross = self.item_quantity * self.item_cents
        off = gross * np.maximum(self.item_discount, 0) // 100
        self.order_total = np.bincount(self.item_order, weights=gross - off, minlength=len(self.order_ids)).astype(int)
        self.order_discount = np.bincount(self.item_order, weights=off, minlength=len(self.order_ids)).astype(int)

    def _make_stock(self) -> None:
        """Each item is reserved when it is ordered and comes back when the order is cancelled or returned."""
        random, order = self._random, self.item_order
        warehouse = random.integers(1, 6, len(order))
        moments = [self.created[order] + 1.0, self.turns[4][order] + 1.0, self.turns[5][order] + 1.0]
        signs = [-1, 1, 1]
        restocks = self._moments(self.sizes.restocks_per_day)
        at, product, house, kind, change = [restocks], [], [], [], []
        product.append(self._skewed(self.sizes.products, len(restocks)))
        house.append(random.integers(1, 6, len(restocks)))
        kind.append(np.zeros(len(restocks), dtype=np.int8))
        change.append(random.integers(5, 25, len(restocks)))
        for number, (moment, sign) in enumerate(zip(moments, signs, strict=True), 1):
            real = np.isfinite(moment)
            at.append(moment[real])
            product.append(self.item_product[real])
            house.append(warehouse[real])
            kind.append(np.full(int(real.sum()), number, dtype=np.int8))
            change.append(sign * self.item_quantity[real])
        when = np.concatenate(at)
        order_of = np.argsort(when, kind="stable")
        self.stock_at = when[order_of]
        self.stock = {
            "product_id": np.concatenate(product)[order_of],
            "warehouse_id": np.concatenate(house)[order_of],
            "event_type": np.concatenate(kind)[order_of],
            "quantity_change": np.concatenate(change)[order_of],
        }

    def _make_clicks(self) -> None:
        random = self._random
        start = self._moments(self.sizes.journeys_per_day)
        journeys = len(start)
        reach = random.choice(np.arange(5), journeys, p=[0.3, 0.4, 0.16, 0.09, 0.05])
        steps = reach + 1
        journey = np.repeat(np.arange(journeys), steps)
        step = np.arange(len(journey)) - np.repeat(np.cumsum(steps) - steps, steps)
        when = start[journey] + step * 45.0
        order_of = np.argsort(when, kind="stable")
        journey, step = journey[order_of], step[order_of]
        kinds = np.where(random.random(len(step)) < 0.01, len(CLICKS) - 1, step)
        users = random.integers(1, self.sizes.customers + 1, journeys)[journey]
        product = self._skewed(self.sizes.products, journeys)[journey]
        self.click_at = when[order_of]
        self.clicks = {
            "user_id": np.where(random.random(len(journey)) < 0.03, -1, users),
            "session_id": journey,
            "event_type": kinds,
            "product_id": np.where(step == 0, -1, product),
            "device_type": random.choice(len(DEVICES), journeys, p=[0.4, 0.5, 0.1])[journey],
            "geo_country": random.integers(0, len(COUNTRIES), journeys)[journey],
        }

    def orders_table(self, orders: Numbers, moment: float | Seconds) -> pa.Table:
        """Orders as they are at a moment, or each at a moment of its own: the status is that of the latest turn."""
        happened = np.where(self.turns[:, orders] <= moment, self.turns[:, orders], -np.inf)
        latest = happened.max(axis=0)
        return pa.table(
            {
                "order_id": self.order_ids[orders],
                "user_id": self.order_users[orders],
                "order_status": named(np.argmax(happened, axis=0), STATUSES),
                "order_total": cents(self.order_total[orders], 12),
                "discount_amount": cents(self.order_discount[orders], 12),
                "shipping_cost": cents(self.shipping[orders], 12),
                "payment_method": pa.array(self.payment[orders], pa.string()),
                "coupon_code": pa.array(self.coupon[orders], pa.string()),
                "created_at": instants(self.created[orders]),
                "updated_at": instants(latest),
                "ingested_at": instants(latest + 2.0),
            }
        )

    def items_table(self, items: Numbers) -> pa.Table:
        """Order items, which never change."""
        discount = self.item_discount[items]
        return pa.table(
            {
                "order_item_id": self.item_ids[items],
                "order_id": self.order_ids[self.item_order[items]],
                "product_id": self.item_product[items],
                "quantity": pa.array(self.item_quantity[items], pa.int32()),
                "unit_price": cents(self.item_cents[items], 10),
                "discount_pct": cents(np.maximum(discount, 0) * 100, 5, gone=discount < 0),
                "ingested_at": instants(self.created[self.item_order[items]] + 2.0),
            }
        )

    def stock_table(self, numbers: Numbers) -> pa.Table:
        """Stock movements."""
        return pa.table(
            {
                "inventory_event_id": numbers + 1,
                "product_id": self.stock["product_id"][numbers],
                "warehouse_id": self.stock["warehouse_id"][numbers],
                "event_type": named(self.stock["event_type"][numbers], MOVEMENTS),
                "quantity_change": pa.array(self.stock["quantity_change"][numbers], pa.int32()),
                "event_timestamp": instants(self.stock_at[numbers]),
                "ingested_at": instants(self.stock_at[numbers] + 2.0),
            }
        )

    def clicks_table(self, numbers: Numbers) -> pa.Table:
        """Clicks."""
        clicks = {name: column[numbers] for name, column in self.clicks.items()}
        product = clicks["product_id"]
        pages = pc.if_else(pa.array(product > 0), numbered("/product/", product), "/")
        return pa.table(
            {
                "event_id": numbers + 1,
                "user_id": numbers_or_null(clicks["user_id"]),
                "session_id": numbered("s", clicks["session_id"]),
                "event_type": named(clicks["event_type"], CLICKS),
                "page_url": pages,
                "product_id": numbers_or_null(product),
                "referrer": pa.nulls(len(numbers), pa.string()),
                "device_type": named(clicks["device_type"], DEVICES),
                "geo_country": named(clicks["geo_country"], COUNTRIES),
                "geo_region": pa.nulls(len(numbers), pa.string()),
                "event_timestamp": instants(self.click_at[numbers]),
                "ingested_at": instants(self.click_at[numbers] + 2.0),
            }
        )

    def snapshot(self) -> Iterator[tuple[str, pa.Table]]:
        """The bronze tables as they are when the hours begin."""
        suppliers, products, customers = dict(self.suppliers), dict(self.products), dict(self.customers)
        for table in (suppliers, products, customers):
            table["updated_at"] = instants(table["updated_at"])
        suppliers["lead_time_days"] = pa.array(suppliers["lead_time_days"], pa.int32())
        for name, digits in (("list_price", 10), ("cost_price", 10), ("weight_kg", 6)):
            products[name] = cents(products[name], digits)
        days = (START - datetime(1970, 1, 1, tzinfo=UTC)).days + customers["signup_date"]
        customers["signup_date"] = pa.array(days, pa.int32()).cast(pa.date32())
        yield "suppliers", pa.table(suppliers)
        yield "products", pa.table(products)
        yield "customers", pa.table(customers)
        orders = np.flatnonzero(self.created < self.now)
        yield "orders", self.orders_table(orders, self.now - 1e-6)
        yield "order_items", self.items_table(np.flatnonzero(self.created[self.item_order] < self.now))
        yield "inventory_events", self.stock_table(np.flatnonzero(self.stock_at < self.now))
        yield "clickstream_events", self.clicks_table(np.flatnonzero(self.click_at < self.now))

    def hour(self, number: int) -> dict[str, list[dict[str, Any]]]:
        """The changes of one hour by table."""
        start = self.now + number * HOUR
        end = start + HOUR

        def within(moments: Seconds) -> Numbers:
            return np.flatnonzero((moments >= start) & (moments < end))

        plain: list[tuple[str, Callable[[Numbers], pa.Table], Numbers]] = [
            ("order_items", self.items_table, within(self.created[self.item_order])),
            ("clickstream_events", self.clicks_table, within(self.click_at)),
            ("inventory_events", self.stock_table, within(self.stock_at)),
        ]
        changes = {name: [{"insert": row} for row in as_json(make(numbers))] for name, make, numbers in plain}
        changes["orders"] = self._order_changes(start, end)
        return changes

    def _order_changes(self, start: float, end: float) -> list[dict[str, Any]]:
        turn, order = np.nonzero((self.turns >= start) & (self.turns < end))
        when = self.turns[turn, order]
        in_time = np.argsort(when, kind="stable")
        order, when = order[in_time], when[in_time]
        placed = when <= self.created[order]
        before = as_json(self.orders_table(order, np.where(placed, when, np.nextafter(when, 0))))
        after = as_json(self.orders_table(order, when))
        changes: list[dict[str, Any]] = []
        for is_new, old, new in zip(placed.tolist(), before, after, strict=True):
            if not is_new:
                changes.append({"delete": old})
            changes.append({"insert": new})
        return changes


def _daily_rhythm() -> npt.NDArray[np.float64]:
    weights = 1.0 + 0.3 * np.sin((np.arange(24) - 8) / 24 * 2 * np.pi)
    return weights / weights.sum()


def cents(values: Any, digits: int, gone: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Whole hundredths as decimals of scale 2, NULL where they are gone."""
    words = np.zeros(2 * len(values), dtype=np.int64)
    words[0::2] = values
    words[1::2] = np.asarray(values) >> 63
    valid = None if gone is None else pa.array(~gone).buffers()[1]
    return pa.Array.from_buffers(pa.decimal128(digits, 2), len(values), [valid, pa.py_buffer(words.tobytes())])


def instants(seconds: Seconds) -> pa.Array:
    """Seconds since the start as timestamps, to the millisecond."""
    base = int(START.timestamp() * 1000)
    return pa.array((base + np.floor(seconds * 1000).astype(np.int64)) * 1000).cast(pa.timestamp("us", "UTC"))


def named(codes: npt.NDArray[Any], names: Sequence[str]) -> pa.Array:
    """Codes as the names that they stand for."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), pa.array(names)).cast(pa.string())


def numbered(prefix: str, numbers: Numbers) -> pa.Array:
    """Numbers as names with a prefix."""
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def numbers_or_null(values: Numbers) -> pa.Array:
    """Numbers, NULL where negative."""
    return pa.array(values, mask=values < 0)


def as_json(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with decimals and timestamps as strings."""
    columns: list[pa.ChunkedArray] = []
    for column in table.columns:
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.string())
        elif pa.types.is_timestamp(column.type):
            column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
        columns.append(column)
    return pa.table(columns, names=table.column_names).to_pylist()


def generate(out: Path, scale: float, seed: int, hours: int, progress: Progress | None = None) -> None:
    """Write the snapshot and the hours, unless the same are there already."""
    wanted = {"scale": scale, "seed": seed, "hours": hours, "made_by": 2}
    mark = out / "generated.json"
    if mark.exists() and json.loads(mark.read_text()) == wanted:
        return
    task = None if progress is None else progress.add_task("generate", total=7 + hours)
    shop = Shop(scale, seed)
    for name, table in shop.snapshot():
        write_deltalake(str(out / "snapshot" / name), table, mode="overwrite", schema_mode="overwrite")
        if progress is not None and task is not None:
            progress.advance(task)
    for number in range(hours):
        moment = SNAPSHOT + timedelta(hours=number)
        for name, changes in shop.hour(number).items():
            folder = out / "cdc" / name
            folder.mkdir(parents=True, exist_ok=True)
            lines = "".join(json.dumps(change, separators=(",", ":")) + "\n" for change in changes)
            (folder / f"{moment:%Y-%m-%dT%H}.json").write_text(lines)
        if progress is not None and task is not None:
            progress.advance(task)
    mark.write_text(json.dumps(wanted))


def main() -> None:
    """Generate with a progress bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=0.1, help="1 is about 0.7 M orders and 3 M clicks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=int, default=MOST_HOURS, help="hours of changes after the snapshot")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    options = parser.parse_args()
    if not 0 <= options.hours <= MOST_HOURS or options.scale <= 0:
        parser.error(f"hours go from 0 to {MOST_HOURS}, and the scale is above 0")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        generate(options.out, options.scale, options.seed, options.hours, progress)
    print(f"{options.out}: snapshot of 90 days, {options.hours} hours from {SNAPSHOT:%Y-%m-%dT%H}")


if __name__ == "__main__":
    main()
