"""One commit of an epoch to the ledger: with every sync, without any, and as delta-rs appends, in one run.

    python bench/commit.py [--commits 200] [--object-store] [--json FILE]

With --object-store also to a server on loopback that speaks S3, which is the one of the tests; that alone needs a JVM.
Compare the ratios, not the milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from headrace.ledger.ledger import Ledger, now_utc
from headrace.state.delta import Delta, consolidate
from headrace.storage.objects import Location

RELATIONS = 5
ROWS = 1_000


def delta() -> Delta:
    """What one relation's delta in an ordinary epoch looks like."""
    columns = [pa.array(np.arange(ROWS)), pa.array([f"value {i}" for i in range(ROWS)])]
    return consolidate(pa.table(columns, names=["c0", "c1"]), np.ones(ROWS, dtype=np.int64))


def by_ledger(folder: Location) -> Callable[[int], None]:
    """Commits as the engine makes them."""
    ledger = Ledger(folder, inline_bytes=4 * 1024 * 1024)
    ledger.open()
    ledger.claim(1)
    deltas = {f"r{i}": delta() for i in range(RELATIONS)}
    return lambda epoch: ledger.commit(epoch, now_utc(), {}, deltas)


def by_delta_rs(folder: Path) -> Callable[[int], None]:
    """Appends of rows of the same size by delta-rs."""
    rows = pa.table({"epoch": [1] * RELATIONS, "delta": [os.urandom(20_000)] * RELATIONS})
    write_deltalake(str(folder), rows)
    table = DeltaTable(str(folder))
    return lambda _: write_deltalake(table, rows, mode="append")


def timed(commit: Callable[[int], None], commits: int) -> tuple[float, float]:
    """The median and the 95th percentile of some commits, in milliseconds."""
    times: list[float] = []
    for epoch in range(1, commits + 1):
        started = time.perf_counter()
        commit(epoch)
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times), sorted(times)[int(commits * 0.95)]


def to_object_store(commits: int) -> tuple[float, float]:
    """The same commits to the object store of the tests."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.object_store import ObjectStore

    with ObjectStore() as store:
        return timed(by_ledger(store.location("home")), commits)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--object-store", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="headrace-commit-"))
    try:
        synced = timed(by_ledger(folder / "synced"), options.commits)
        with mock.patch("os.fsync"):
            unsynced = timed(by_ledger(folder / "unsynced"), options.commits)
        appended = timed(by_delta_rs(folder / "delta-rs"), options.commits)
    finally:
        shutil.rmtree(folder)
    results = {"synced": synced, "unsynced": unsynced, "delta-rs append, unsynced": appended}
    if options.object_store:
        results["to an object store"] = to_object_store(options.commits)
    print(f"{'commit':<28} {'median':>9} {'95th':>9} {'ratio':>7}")
    for name, (median, late) in results.items():
        print(f"{name:<28} {median:>6.1f} ms {late:>6.1f} ms {median / synced[0]:>6.2f}x")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
