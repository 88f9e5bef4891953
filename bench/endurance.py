"""A thousand epochs over one home: does it stay as fast, as small and as readable as it was?

    python bench/endurance.py [--epochs 1000] [--changes 500] [--rows 1000000] [--json FILE]

The tables and views are those of bench/epoch.py. Folds run beside the epochs, at an interval; epochs during a fold and
epochs without one are told apart. At the end the home is reopened, every base is read by delta-rs and DuckDB, and the
judge recomputes every view.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import pyarrow as pa
from deltalake import DeltaTable
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import headrace
from headrace.settings import Settings
from headrace.spark.session import start_spark
from headrace.state.hashing import identity

sys.path.insert(0, str(Path(__file__).parent))
import epoch as bench

PART = 10


class Folding(threading.Thread):
    """Folds at an interval and remembers when it did."""

    def __init__(self, hr: headrace.Headrace, home: Path, seconds: float) -> None:
        super().__init__(daemon=True)
        self._hr = hr
        self._home = home
        self._seconds = seconds
        self.spans: list[tuple[float, float]] = []
        self.files: list[int] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(self._seconds):
            started = time.perf_counter()
            self._hr.fold()
            self.spans.append((started, time.perf_counter()))
            self.files.append(sum(files_by_folder(self._home).values()))

    def overlaps(self, start: float, end: float) -> bool:
        """Whether a fold ran at any time between two instants."""
        return any(a < end and start < b for a, b in self.spans)


def resident(pid: int) -> dict[str, int]:
    """A process's own memory and the file pages that it has mapped, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {name: int(value.split()[0]) // 1024 for name, value in (line.split(":") for line in lines if "kB" in line)}
    return {"own": sizes["RssAnon"], "mapped": sizes["RssFile"]}


def memory(spark: Any) -> dict[str, int]:
    """The memory of the driver: Python's and the JVM's."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    python, java = resident(os.getpid()), resident(jvm)
    return {"python": python["own"], "python mapped": python["mapped"], "jvm": java["own"]}


def files_by_folder(home: Path) -> dict[str, int]:
    """How many files each part of the home has."""
    return dict(Counter(path.relative_to(home).parts[0] for path in home.rglob("*") if path.is_file()))


def agree(hr: headrace.Headrace, home: Path) -> int:
    """Read every base by delta-rs and DuckDB and compare it with the home; how many bases were compared."""
    extension = next(Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension"))
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'; SET TimeZone = 'UTC'")
    names = [name for what in ("TABLES", "VIEWS") for name in hr.execute(f"SHOW {what}").column("name").to_pylist()]
    for name in names:
        path = home / "tables" / name
        held = hr.query(f"SELECT * FROM {name}")
        readings = {
            "delta-rs": DeltaTable(str(path)).to_pyarrow_table(),
            "DuckDB": connection.sql(f"SELECT * FROM delta_scan('{path}')").to_arrow_table(),
        }
        for reader, table in readings.items():
            if identities(table.cast(held.schema)) != identities(held):
                raise SystemExit(f"{reader} reads the base of {name} otherwise than the home")
    return len(names)


def identities(table: pa.Table) -> list[tuple[int, int]]:
    """The identities of all rows, sorted: equal for equal multisets."""
    low, high = identity(table.columns, table.num_rows)
    return sorted(zip(low.tolist(), high.tolist(), strict=True))


def main() -> None:
    """Run, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fold-every", type=float, default=30.0, help="seconds between folds")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds that a file which nobody needs stays")
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    bench.CHANGES = options.changes
    spark = start_spark(Settings(spark_memory="4g", pause_garbage_collection=True))
    home = Path(tempfile.mkdtemp(prefix="headrace-endurance-"))
    rng = random.Random(11)
    times: list[tuple[float, float]] = []
    sizes: list[dict[str, int]] = []
    try:
        settings = Settings(vacuum_grace=timedelta(seconds=options.grace), pause_garbage_collection=True)
        hr = headrace.open(home, spark=spark, settings=settings)
        bench.load(hr, options.rows)
        started = time.perf_counter()
        for name, sql in bench.VIEWS.items():
            hr.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        rebuild = time.perf_counter() - started
        hr.fold()
        early: dict[str, int] = {}
        folding = Folding(hr, home, options.fold_every)
        folding.start()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns) as progress:
            task = progress.add_task("epochs", total=options.warm_up + options.epochs)
            for i in range(options.warm_up + options.epochs):
                changes = bench.mixed_changes(rng, options.rows, options.rows + i * options.changes)
                began = time.perf_counter()
                hr.apply(changes)
                if i >= options.warm_up:
                    times.append((began, time.perf_counter()))
                if i == options.warm_up + options.epochs // PART:
                    early = memory(spark)
                if i % PART == 0:
                    sizes.append(memory(spark))
                progress.advance(task)
        folding.done.set()
        folding.join()
        late = memory(spark)
        hr.fold()
        compared = agree(hr, home)
        # What the last fold left for whoever may still read it goes with the next one.
        time.sleep(options.grace)
        hr.fold()
        at_rest = files_by_folder(home)
        hr.close()
        started = time.perf_counter()
        hr = headrace.open(home, spark=spark, settings=settings)
        reopened = time.perf_counter() - started
        verdict = hr.verify()
        hr.close()
        if not verdict.ok:
            raise SystemExit(f"the judge found a difference: {verdict}")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    part = max(1, options.epochs // PART)
    seconds = [end - start for start, end in times]
    during = [end - start for start, end in times if folding.overlaps(start, end)]
    without = [end - start for start, end in times if not folding.overlaps(start, end)]
    first, last = statistics.median(seconds[:part]), statistics.median(seconds[-part:])
    own = ("python", "jvm")
    results = {
        "epochs": options.epochs,
        "changes_per_epoch": options.changes,
        "first_median": first,
        "last_median": last,
        "growth": last / first,
        "memory_early_mb": early,
        "memory_late_mb": late,
        "memory_most_mb": {name: max(one[name] for one in sizes) for name in late},
        "memory_growth": sum(late[name] for name in own) / max(1, sum(early[name] for name in own)),
        "folds": len(folding.spans),
        "files_after_each_fold": folding.files,
        "files_at_rest": at_rest,
        "p95_without_fold": bench.percentile(without),
        "p95_during_fold": bench.percentile(during),
        "fold_ratio": bench.percentile(during) / bench.percentile(without) if during and without else None,
        "reopen_seconds": reopened,
        "rebuild_seconds": rebuild,
        "reopen_ratio": reopened / rebuild,
        "bases_compared": compared,
    }
    for name, value in results.items():
        print(f"{name:<20} {value:.3f}" if isinstance(value, float) else f"{name:<20} {value}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
