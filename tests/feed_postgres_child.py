"""A process that delivers batches into PostgreSQL and ends, or stops, at a step that it is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from decimal import Decimal
from typing import Any

from headrace.feeds.batch import Batch, Mark, Operation
from headrace.feeds.postgres_delivery import PostgresDelivery
from headrace.feeds.postgres_names import read_target
from headrace.feeds.sink import SinkEnded, SinkUnavailable
from tests.feed_batches import ITEMS, batch_of, target_of

KEYS, SIZE, BATCHES = 20, 7, 6


def events(first: int, last: int, mode: str = "mirror") -> list[tuple[Operation, dict[str, Any]]]:
    """The events of these numbers: rows that come, change and go, the same whenever asked; or that only come."""
    made: list[tuple[Operation, dict[str, Any]]] = []
    for number in range(first, last + 1):
        turn, key = divmod(number, KEYS)
        operation: Operation = "DELETE" if (turn + key) % 5 == 4 else "INSERT" if turn == 0 else "UPDATE"
        if mode == "insert":
            operation = "INSERT"
        made.append((operation, {"id": key, "name": f"of {number}", "price": Decimal(number)}))
    return made


def batch_after(number: int, mode: str = "mirror", **parts: Any) -> Batch:
    """The next events after one of that number."""
    return batch_of(events(number + 1, number + SIZE, mode), number + 1, **parts)


def delivery_of(location: str, fence: int, mode: str, step: Any = lambda _: None) -> PostgresDelivery:
    """Rows of a table with a key, or only added, to one without."""
    parts: dict[str, Any] = {"fence": fence, "options": {"mode": mode}, "has_key": mode != "insert"}
    target = target_of(location, **parts, key=("id",) if mode != "insert" else tuple(ITEMS.names))
    return PostgresDelivery(target, read_target(target), step)


def main() -> None:
    """Deliver from where the database knows the feed to be."""
    told = json.loads(sys.argv[1])
    seen = 0

    def step(name: str) -> None:
        nonlocal seen
        seen += name == told["step"]
        if name == told["step"] and seen == told["time"]:
            print("there", flush=True)
            os.kill(os.getpid(), getattr(signal, told["signal"]))

    try:
        delivery = delivery_of(told["location"], told["fence"], told["mode"], step)
        number = (delivery.known_mark() or Mark(0, None, 0)).sequence
        while number < BATCHES * SIZE:
            delivery.deliver(batch_after(number, told["mode"]))
            number += SIZE
        if told["scan"]:
            delivery.begin_scan(ITEMS)
            delivery.deliver(batch_after(number, scan=True))
            delivery.end_scan(Mark(10_000, None, number + SIZE))
    except SinkUnavailable:
        try:
            # As the runner does: the same once more.
            delivery.deliver(batch_after(number, told["mode"]))
        except SinkEnded as ended:
            print(ended, flush=True)


if __name__ == "__main__":
    main()
