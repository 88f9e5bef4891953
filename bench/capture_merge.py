"""The usual pipeline over the same topics: readStream from Kafka, parse, deduplicate by key, MERGE into Delta tables.

It keeps two tables, and neither raw rows nor views. bench/capture.py runs it in a process of its own:

    python bench/capture_merge.py BOOTSTRAP FOLDER RECORDS_IN_A_BATCH SECONDS_AT_MOST
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from capture_stream import PREFIX
from pyspark.sql import DataFrame, SparkSession

from headrace.settings import Settings
from headrace.spark import jars
from headrace.spark.java import find_java

_LOCK = Path(__file__).with_name("jars.lock")
ROWS = {
    "customers": "id BIGINT, name STRING, region STRING, joined BIGINT",
    "orders": "id BIGINT, customer BIGINT, status STRING, amount DECIMAL(12, 2), note STRING, at TIMESTAMP,"
    " updated BIGINT",
}


def main() -> None:
    """Take what the topics hold, in time; print the seconds, the records that were taken and the counts of rows."""
    bootstrap, folder, size, limit = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(float(sys.argv[4]))
    spark = session(folder)
    for table, columns in ROWS.items():
        spark.sql(f"CREATE TABLE {table} ({columns}) USING delta LOCATION '{folder / table}'")
    # A query of each kind first: what is compiled once is no part of the comparison.
    spark.range(10).selectExpr("from_json('{}', 'a INT')").collect()
    began = time.perf_counter()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribePattern", f"{PREFIX}.*")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", size)
        .load()
    )
    taken: list[tuple[int, float]] = []

    def take(batch: DataFrame, _: int) -> None:
        count = _merge(batch)
        taken.append((count, time.perf_counter() - began))

    query = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    ended = query.awaitTermination(limit)
    if not ended:
        query.stop()
    seconds = time.perf_counter() - began if ended else taken[-1][1]
    counts = {table: spark.table(table).count() for table in ROWS}
    told = {"seconds": seconds, "taken": sum(count for count, _ in taken), "batches": len(taken), "rows": counts}
    print(json.dumps(told))
    spark.stop()


def _merge(batch: DataFrame) -> int:
    """Bring a batch into both tables; how many records it had."""
    batch.persist()
    count = batch.count()
    for table, columns in ROWS.items():
        schema = f"before STRUCT<{columns}>, after STRUCT<{columns}>, op STRING"
        batch.where(f"topic = '{PREFIX}.{table}' AND value IS NOT NULL").selectExpr(
            f"from_json(CAST(value AS STRING), '{schema}') AS e", "partition", "offset"
        ).selectExpr("coalesce(e.after, e.before) AS row", "e.op AS op", "partition", "offset").createOrReplaceTempView(
            "changes"
        )
        session: Any = batch.sparkSession
        session.sql(
            "SELECT last.row.*, last.op AS op FROM (SELECT max_by(struct(row, op), offset) AS last"
            " FROM changes GROUP BY row.id)"
        ).createOrReplaceTempView("latest")
        names = [one.split()[0] for one in columns.replace("DECIMAL(12, 2)", "DECIMAL").split(",")]
        sets = ", ".join(f"t.{name} = s.{name}" for name in names)
        session.sql(
            f"MERGE INTO {table} t USING latest s ON t.id = s.id"
            f" WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets}"
            f" WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({', '.join(names)})"
            f" VALUES ({', '.join(f's.{name}' for name in names)})"
        )
    batch.unpersist()
    return count


def session(folder: Path) -> SparkSession:
    """A session as such a pipeline would have it, with Spark's reader of Kafka."""
    os.environ["JAVA_HOME"] = str(Path(find_java().executable).resolve().parent.parent)
    files = [*jars.paths(), *jars.paths(lock=_LOCK.read_text())]
    settings = {
        "spark.master": "local[*]",
        "spark.driver.memory": Settings().spark_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, files)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
    }
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
