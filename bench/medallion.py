"""One hour of changes on the medallion: Headrace, plain Spark in full, and a hand-written MERGE pipeline, in one run.

    python bench/medallion.py [--scales 0.1 1] [--hours 20] [--json FILE]

Headrace keeps all 15 views current and durable in one epoch. Plain Spark computes the same views from the same tables,
silver cached, and writes nothing. The MERGE pipeline writes all 22 relations as Delta tables. Each scale has processes
of its own; they take turns, hour by hour, so that whatever else the machine does slows all of them. Compare the ratios,
not the seconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from rich.console import Console

import headrace
from headrace.project.definitions import read_definitions
from headrace.project.folder import open_project
from headrace.project.run import run_project
from headrace.settings import Settings
from headrace.spark.jars import read_lock
from headrace.spark.session import large_session, start_spark

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "medallion"))
import plain
from epoch import percentile, spark_jobs
from merge_pipeline import MergePipeline

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "medallion"
CHANGED = ("orders", "order_items", "clickstream_events", "inventory_events")
FIRST = 20
TRICKS = 3
# What an hour leaves to be done in the background is not to slow the hour of another scale.
PAUSE = 0.3
console = Console(stderr=True)


def generated(scale: float, hours: int) -> Path:
    """The data of a scale, made if it is not there yet."""
    data = ROOT / "bench" / "data" / f"medallion-{scale}"
    made = data / "generated.json"
    if not made.exists() or json.loads(made.read_text()).get("hours", 0) < hours:
        shutil.rmtree(data, ignore_errors=True)
        subprocess.run(
            [
                sys.executable,
                str(EXAMPLE / "generate.py"),
                "--scale",
                str(scale),
                "--hours",
                str(hours),
                "--out",
                str(data),
            ],
            check=True,
        )
    return data


def hour_names(data: Path) -> list[str]:
    """All hours that there are files of."""
    return sorted({file.stem for table in CHANGED for file in (data / "cdc" / table).glob("*.json")})


def changes_of(data: Path, hour: str) -> dict[str, list[dict[str, Any]]]:
    """One hour's changes of all tables."""
    files = {table: data / "cdc" / table / f"{hour}.json" for table in CHANGED}
    return {
        f"bronze_{table}": [json.loads(line) for line in file.read_text().splitlines()]
        for table, file in files.items()
        if file.exists()
    }


def memory(spark: Any) -> dict[str, int]:
    """Megabytes that the driver's two processes hold, and of these what is their own, not pages of files."""
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    sizes = {"resident": 0, "own": 0}
    for pid in (os.getpid(), jvm):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines if "kB" in line)}
        sizes["resident"] += found["VmRSS"] // 1024
        sizes["own"] += found["RssAnon"] // 1024
    return sizes


class Turns:
    """Lets processes work one after the other, round by round."""

    def __init__(self, context: SpawnContext, count: int) -> None:
        self._batons = [context.Semaphore(int(turn == 0)) for turn in range(count)]
        self._broken = context.Event()

    @contextmanager
    def take(self, turn: int) -> Generator[None, None, None]:
        """Work when it is this one's turn; the next one's comes after."""
        while not self._batons[turn].acquire(timeout=5):
            if self._broken.is_set():
                raise SystemExit("another scale failed")
        try:
            yield
        except BaseException:
            self._broken.set()
            raise
        finally:
            self._batons[(turn + 1) % len(self._batons)].release()


_turns: Turns


def join(turns: Turns) -> None:
    """What a new process is told."""
    global _turns
    _turns = turns


def push_hours(hr: headrace.Headrace, data: Path, spark: Any, hours: int, turn: int) -> dict[str, Any]:
    """Warm up, and measure."""
    names = hour_names(data)
    seconds: list[float] = []
    counts: list[int] = []
    sizes: list[dict[str, int]] = []
    stages: list[dict[str, float]] = []
    jobs = 0
    for number, hour in enumerate(names[: FIRST + hours]):
        with _turns.take(turn):
            changes = changes_of(data, hour)
            if number == FIRST:
                jobs = spark_jobs(hr)
            started = time.perf_counter()
            receipt = hr.apply(changes)
            seconds.append(time.perf_counter() - started)
            counts.append(sum(map(len, changes.values())))
            stages.append(dict(receipt.stages))
            sizes.append(memory(spark))
            console.print(f"  hour {hour}: {counts[-1]} changes in {seconds[-1]:.2f} s")
            time.sleep(PAUSE)
    jobs_per_epoch = (spark_jobs(hr) - jobs) / hours
    measured = seconds[FIRST:]
    return {
        "changes_per_hour": statistics.median(counts[FIRST:]),
        "epoch_median": statistics.median(measured),
        "epoch_p95": percentile(measured),
        "epoch_stages": {
            name: statistics.median([one.get(name, 0.0) for one in stages[FIRST:]]) for name in stages[-1]
        },
        "first_twenty": [round(one, 3) for one in seconds[:FIRST]],
        "jobs_per_epoch": jobs_per_epoch,
        "memory_mb_at_start": sizes[FIRST],
        "memory_mb_at_end": sizes[-1],
        "memory_mb_most": {name: max(one[name] for one in sizes) for name in ("resident", "own")},
    }


def play_tricks(hr: headrace.Headrace) -> float:
    """The seconds until all views know of a supplier's absurd lead time."""
    tricks: list[float] = []
    for days in range(TRICKS):
        started = time.perf_counter()
        hr.execute(
            "INSERT INTO bronze_suppliers "
            f"VALUES (7, 'Blake and Sons', 'DE', {10_000 + days}, TIMESTAMP '2025-12-02 00:00:00')"
        )
        tricks.append(time.perf_counter() - started)
    return statistics.median(tricks)


def measure(scale: float, data: Path, hours: int, others: int, turn: int) -> dict[str, Any]:
    """One scale: all three ways."""
    spark = start_spark(Settings(pause_garbage_collection=True))
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    session = large_session(spark)
    try:
        project = open_project(EXAMPLE, {"data": str(data)})
        with headrace.open(folder / "home", spark=spark, pause_garbage_collection=True) as hr:
            with _turns.take(turn):
                console.print(f"scale {scale}: backfill")
                started = time.perf_counter()
                run_project(hr, read_definitions(project))
                backfill = time.perf_counter() - started
            results: dict[str, Any] = {"scale": scale, "backfill": backfill}
            results.update(push_hours(hr, data, spark, hours, turn))
            with _turns.take(turn):
                results["supplier_trick_median"] = play_tricks(hr)
                compare(hr, results, data, session, folder, others)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    results["faster_than_recompute"] = results["recompute_median"] / results["epoch_median"]
    results["faster_than_merge"] = results["merge_median"] / results["epoch_median"]
    results["p95_to_median"] = results["epoch_p95"] / results["epoch_median"]
    results["trick_to_epoch"] = results["supplier_trick_median"] / results["epoch_median"]
    results["backfill_to_plain"] = results["backfill"] / results["plain_backfill_written"]
    return results


def compare(
    hr: headrace.Headrace, results: dict[str, Any], data: Path, session: Any, folder: Path, others: int
) -> None:
    """The other two ways, and the judge between them."""
    names = hr.execute("SHOW VIEWS").to_pylist()
    results["incremental_views"] = sum(bool(one["incremental"]) for one in names)
    hr.fold()
    console.print(f"scale {results['scale']}: plain Spark, in full")
    tables = plain.bases(session, folder / "home")
    plain.recompute(session, tables)
    results["recompute_median"] = statistics.median(plain.recompute(session, tables) for _ in range(others))
    console.print(f"scale {results['scale']}: the judge")
    verdict = hr.verify()
    results["judge"] = verdict.ok
    if not verdict.ok:
        raise SystemExit(f"the judge found a difference: {verdict}")
    console.print(f"scale {results['scale']}: the MERGE pipeline")
    pipeline = MergePipeline(session, folder / "merge", plain.view_queries())
    results["plain_backfill_written"] = pipeline.backfill(data / "snapshot", plain.TABLES)
    merged = [pipeline.hour(data / "cdc", hour) for hour in hour_names(data)[:others]]
    results["merge_median"] = statistics.median(merged)


def machine() -> dict[str, Any]:
    """Where this was measured, and with what."""
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "spark": version("pyspark"),
        "delta": next(jar.version for jar in read_lock() if jar.group == "io.delta"),
    }


RATIOS = ("faster_than_recompute", "faster_than_merge", "p95_to_median", "trick_to_epoch", "backfill_to_plain")


def show(results: dict[str, Any]) -> None:
    """Ratios first, then what they are made of."""
    for one in results["scales"]:
        print(f"scale {one['scale']}")
        for name in (*RATIOS, *(name for name in one if name not in RATIOS)):
            value = one[name]
            print(f"  {name:<24} {value:.3f}" if isinstance(value, float) else f"  {name:<24} {value}")
    if "slower_at_largest" in results:
        print(f"an hour at the largest scale takes {results['slower_at_largest']:.2f} times that at the smallest")


def main() -> None:
    """Run, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scales", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--hours", type=int, default=20, help="hours measured, after twenty to warm up")
    parser.add_argument("--others", type=int, default=3, help="measured runs of the other two ways")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    count = len(options.scales)
    made = [generated(scale, FIRST + options.hours + options.others) for scale in options.scales]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, join, (Turns(context, count),)) as processes:
        under_way = [
            processes.submit(measure, scale, data, options.hours, options.others, turn)
            for turn, (scale, data) in enumerate(zip(options.scales, made, strict=True))
        ]
        scales = [one.result() for one in under_way]
    results: dict[str, Any] = {"machine": machine(), "scales": scales}
    if len(scales) > 1:
        results["slower_at_largest"] = scales[-1]["epoch_median"] / scales[0]["epoch_median"]
    show(results)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
