"""Two readers of one topic, up to Arrow columns in the driver: Structured Streaming, and a consumer at offsets.

What follows is the same for both, an epoch, so it is left out. A backlog is taken as fast as it goes; then records are
written at a rate, and each is as late as the batch that brought it. bench/capture.py runs it; Spark's side in a process
of its own:

    python bench/capture_readers.py BOOTSTRAP FOLDER RECORDS SECONDS RATE
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
from capture_merge import ROWS, session
from capture_stream import PREFIX, TABLES, Shop, produce
from pyspark.sql import DataFrame

import headrace
from headrace import local
from headrace.capture.columns.debezium import ColumnDecoder
from headrace.capture.columns.records import Records
from headrace.capture.connector import Description
from headrace.capture.kafka import KafkaReading
from headrace.capture.options import read_options

_BATCH = 100_000


def readers(servers: local.Servers, records: int, seconds: float, rate: int) -> dict[str, Any]:
    """The same backlog by both, and then as many records as come for so long, for each of them."""
    for table in ("customers", "orders"):
        servers.create_topic(f"{PREFIX}.{table}", partitions=2)
    written = produce(servers.bootstrap, Shop(min(20_000, records // 10)), records)
    with tempfile.TemporaryDirectory() as folder:
        ours = _consumer(servers.bootstrap, Path(folder) / "home", written, seconds, rate)
        command = [sys.executable, __file__, servers.bootstrap, str(Path(folder) / "stream"), str(written)]
        done = subprocess.run(
            [*command, str(seconds), str(rate)], check=True, stdout=subprocess.PIPE, text=True, timeout=240
        )
    theirs = json.loads(done.stdout.strip().splitlines()[-1])
    return {"records": written, "seconds": seconds, "rate": rate, "consumer": ours, "read_stream": theirs}


def _consumer(bootstrap: str, home: Path, records: int, seconds: float, rate: int) -> dict[str, Any]:
    options = read_options({"decimal_mode": "string"})
    with headrace.open(home) as hr:
        hr.execute(TABLES)
        catalog = hr._home.core.catalog  # pyright: ignore[reportPrivateUsage]
        decoders = {name: ColumnDecoder(catalog.table(name).contract, options) for name in ROWS}
    reading = KafkaReading(Description("readers", f"{bootstrap}/{PREFIX}.*", {}, ""), {})

    def decode(polled: Records) -> None:
        for table, decoder in decoders.items():
            mine = [index for index, topic in enumerate(polled.topics) if topic.endswith(f".{table}")]
            if mine:
                values, keys = (
                    pa.array([part[index] for index in mine], pa.large_binary())
                    for part in (polled.values, polled.keys)
                )
                decoder.decode(values, keys)

    # The first records of a process pay for what is learned once, in both readers.
    taken, began = 0, time.perf_counter()
    while taken < records:
        polled = reading.poll_records(_BATCH, 5_000, 0.5)
        taken += len(polled)
        decode(polled)
    backlog = time.perf_counter() - began
    delays: list[float] = []
    writer = _Writer(bootstrap, seconds, rate)
    writer.start()
    while writer.is_alive() or len(delays) < writer.written:
        polled = reading.poll_records(_BATCH, 5_000, 0.5)
        decode(polled)
        now = time.time()
        delays += [now - millis / 1000 for millis in polled.timestamps]
    reading.close()
    return {"backlog_seconds": backlog, "records_per_second": records / backlog, **_told(delays)}


class _Writer(threading.Thread):
    """Writes records at a rate."""

    def __init__(self, bootstrap: str, seconds: float, rate: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._seconds, self._rate = bootstrap, seconds, rate
        self.written = 0

    def run(self) -> None:
        """Write for so many seconds."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self._servers, "linger.ms": 0, "log_level": 2})
        changes = Shop(1_000, seed=2).changes(1_000_000)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < self._seconds:
            while self.written < passed * self._rate:
                table, key, value = next(changes)
                producer.produce(f"{PREFIX}.{table}", value, key)
                self.written += 1
            producer.poll(0)
            time.sleep(0.005)
        producer.flush(30)


def _told(delays: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(delays, n=100)
    return {"measured": len(delays), "median": cuts[49], "p99": cuts[98]}


def main() -> None:
    """Spark's side: each micro-batch is parsed and brought to the driver as Arrow."""
    bootstrap, folder = sys.argv[1], Path(sys.argv[2])
    records, seconds, rate = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    spark = session(folder)
    spark.range(10).selectExpr("from_json('{}', 'a INT')").collect()
    count, delays, live = [0], list[float](), threading.Event()

    def take(batch: DataFrame, _: int) -> None:
        batch.persist()
        times: list[Any] = []
        for table, columns in ROWS.items():
            schema = f"before STRUCT<{columns}>, after STRUCT<{columns}>, op STRING"
            rows = batch.where(f"topic = '{PREFIX}.{table}'").selectExpr(
                f"from_json(CAST(value AS STRING), '{schema}') AS e", "partition", "offset", "timestamp"
            )
            times += rows.toArrow().column("timestamp").to_pylist()
        batch.unpersist()
        now = time.time()
        count[0] += len(times)
        if live.is_set():
            delays.extend(now - one.timestamp() for one in times)

    began = time.perf_counter()
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribePattern", f"{PREFIX}.*")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(_BATCH))
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while count[0] < records and query.isActive:
        time.sleep(0.01)
    backlog = time.perf_counter() - began
    # What the other reader was given at a rate is still in the topics.
    while query.status["isDataAvailable"]:
        time.sleep(0.1)
    time.sleep(3)
    began_at = count[0]
    live.set()
    writer = _Writer(bootstrap, seconds, rate)
    writer.start()
    while writer.is_alive() or count[0] < began_at + writer.written:
        time.sleep(0.01)
    print(
        json.dumps({"backlog_seconds": backlog, "records_per_second": records / backlog, **_told(delays)}), flush=True
    )
    # A batch that is under way when its query is stopped ends with an error of Spark's own, and this process with it.
    while query.status["isTriggerActive"]:
        time.sleep(0.01)
    query.stop()
    query.awaitTermination(30)
    spark.stop()


if __name__ == "__main__":
    main()
