"""What feeds carry: events a second into a real Kafka, beside a loop that produces row by row, on the same rows.

python bench/feeds.py [--rows 1000000] [--json FILE]

    plain         CREATE CHANGEFEED over a table that is there: from the statement until the last event is confirmed
    exactly once  the same with exactly_once = true
    changes       a feed that is paused while every row is changed, then resumed: a backlog of updates
    tutorial      rows of the same table as tutorials send them: json.dumps and produce for each, flush after 100

Small epochs are committed beside each feed; their median duration is compared with that of epochs without a feed. All
messages are counted in the topic afterwards, by a reader of committed messages. Then the same for rows into a real
PostgreSQL (bench/feeds_postgres.py, which also runs by itself).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pyspark
from feeds_epochs import SmallEpochs
from feeds_postgres import postgres

import headrace
from headrace import local

_TABLE = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, city STRING, amount DECIMAL(12,2), placed TIMESTAMP)
"""
_ROWS = """
INSERT INTO orders SELECT id, CAST(id % 5000 AS INT), concat('city ', id % 300), CAST(id % 100000 AS DECIMAL(12,2)),
    timestamp_seconds(1767225600 + id) FROM range({rows})
"""
_OPTIONS = "batch_size = 20000, flush_interval_ms = 100, create_topic = true, partitions = 4"
_TUTORIAL_ROWS = 50_000
_TUTORIAL_BATCH = 100


def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="where the figures are kept")
    chosen = parser.parse_args()
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "spark": pyspark.__version__}
    figures = {"kafka": kafka(chosen.rows), "postgres": postgres(chosen.rows), "machine": machine}
    print(json.dumps(figures, indent=2), flush=True)
    if chosen.json is not None:
        kept = json.loads(chosen.json.read_text()) if chosen.json.exists() else {}
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps({**kept, **figures}, indent=2) + "\n")


def kafka(rows: int) -> dict[str, Any]:
    """Events a second into a broker of this machine."""
    figures: dict[str, Any] = {"rows": rows, "cores": os.cpu_count(), "load_before": round(os.getloadavg()[0], 2)}
    with (
        tempfile.TemporaryDirectory() as folder,
        local.start(connect=False, postgres=False) as servers,
        headrace.open(Path(folder) / "home") as hr,
    ):
        hr.execute(_TABLE)
        hr.execute(_ROWS.format(rows=rows))
        broker = servers.bootstrap
        epochs = SmallEpochs(hr)
        figures["epoch_alone_ms"] = epochs.alone()
        for name, further in (("plain", ""), ("exact", ", exactly_once = true")):
            began_at = time.monotonic()
            into = f"INTO KAFKA '{broker}/{name}' WITH ({_OPTIONS}{further})"
            hr.execute(f"CREATE CHANGEFEED {name} FOR TABLE orders {into}")
            took = epochs.until_delivered(name, rows, began_at)
            figures[name] = _figures(rows, *took, _count(broker, name))
        # It would deliver the same changes beside the feed that is measured.
        hr.execute("DROP CHANGEFEED exact")
        hr.execute("PAUSE CHANGEFEED plain")
        hr.execute("UPDATE orders SET amount = amount + 1")
        began_at = time.monotonic()
        hr.execute("RESUME CHANGEFEED plain")
        took = epochs.until_delivered("plain", 2 * rows, began_at)
        figures["changes"] = _figures(rows, *took, _count(broker, "plain") - rows)
        few = min(rows, _TUTORIAL_ROWS)
        table = hr.query(f"SELECT * FROM orders WHERE id < {few}")
        servers.create_topic("tutorial", partitions=4)
        figures["tutorial"] = _figures(few, _tutorial(broker, table), None, _count(broker, "tutorial"))
    per_second = figures["tutorial"]["events_per_second"]
    figures["times_the_tutorial"] = round(figures["plain"]["events_per_second"] / per_second, 1)
    return figures


def _tutorial(broker: str, table: Any) -> float:
    """Send rows as is usually shown."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker, "acks": "all"})
    began_at = time.monotonic()
    for number, row in enumerate(table.to_pylist(), 1):
        event = {"sequence": number, "table": "orders", "operation": "INSERT", "key": {"id": row["id"]}, "new_row": row}
        producer.produce("tutorial", json.dumps(event, default=str).encode(), f"orders:{row['id']}")
        if number % _TUTORIAL_BATCH == 0:
            producer.flush()
    producer.flush()
    return time.monotonic() - began_at


def _figures(events: int, seconds: float, epoch_ms: float | None, found: int) -> dict[str, Any]:
    if found != events:
        raise SystemExit(f"the topic has {found:,} messages, and {events:,} were delivered")
    beside = "" if epoch_ms is None else f", epochs beside it {epoch_ms} ms"
    print(f"Kafka: {events:,} events in {seconds:.1f} s, {events / seconds:,.0f}/s{beside}", flush=True)
    figures = {"events": events, "seconds": round(seconds, 2), "events_per_second": round(events / seconds)}
    return figures if epoch_ms is None else {**figures, "epoch_ms": epoch_ms}


def _count(broker: str, topic: str) -> int:
    """How many messages a reader of committed ones finds."""
    settings = {"bootstrap.servers": broker, "group.id": "bench", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in partitions])
        found, ended = 0, 0
        while ended < len(partitions):
            for message in consumer.consume(10_000, 1.0):
                found += message.error() is None
                ended += message.error() is not None
        return found
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
