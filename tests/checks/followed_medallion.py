"""The medallion, fed by Delta tables that another process appends and merges to: right after each hour, and how soon.

python -m tests.checks.followed_medallion [--scale 0.01] [--hours 5] [--no-feed]

The writer is a process with another engine (delta-rs). Each hour it commits to four tables: clicks are appended, the
others merged. From the time of each commit's file to the epoch that shows it in all 15 views is what is printed; then
the judge computes every view in full, and the tables are held against what the writer was told. An hour's last commit
must show within a second, once the first two hours have compiled what all others use.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import headrace
from headrace.face import home_of
from headrace.sources.running import progress_of
from tests.judge.medallion import CHANGED, EXAMPLE, Bronze, generate, hours_of

KEYS = {
    "orders": "order_id",
    "order_items": "order_item_id",
    "clickstream_events": "event_id",
    "inventory_events": "inventory_event_id",
}
TABLES = ("suppliers", "products", "customers", *CHANGED)
WARM_HOURS = 2
MOST_SECONDS = 1.0


def write(data: Path, tables: Path) -> None:
    """The writer: for each hour that it is told, commits; it answers with version and time of each."""
    for line in sys.stdin:
        told: dict[str, Any] = {}
        changes = dict(hours_of(data, 10_000))[line.strip()]
        for name, listed in changes.items():
            table = name.removeprefix("bronze_")
            before = DeltaTable(tables / table).version()
            _commit(tables / table, KEYS[table], listed)
            version = DeltaTable(tables / table).version()
            if version == before:
                # Nothing was there to be changed, and no commit was made.
                continue
            file = tables / table / "_delta_log" / f"{version:020d}.json"
            told[table] = {"version": version, "at": file.stat().st_mtime}
        print(json.dumps(told), flush=True)


def _commit(path: Path, key: str, changes: list[dict[str, Any]]) -> None:
    """Append what is new; merge what is not, the last change of each key deciding."""
    table = DeltaTable(path)
    schema = pa.schema(table.schema().to_arrow())
    net: dict[Any, dict[str, Any]] = {}
    for change in changes:
        ((kind, row),) = change.items()
        net[row[key]] = {**row, "gone": kind == "delete"}
    columns = {
        field.name: pa.array([_value(row.get(field.name), field.type) for row in net.values()], field.type)
        for field in schema
    }
    if path.name == "clickstream_events" and not any(row["gone"] for row in net.values()):
        write_deltalake(path, pa.table(columns, schema=schema), mode="append")
        return
    rows = pa.table({**columns, "gone": pa.array([row["gone"] for row in net.values()])})
    merged = table.merge(rows, f"t.{key} = s.{key}", source_alias="s", target_alias="t")
    values = {name: f"s.{name}" for name in schema.names}
    merged.when_matched_delete("s.gone").when_matched_update(values).when_not_matched_insert(
        values, predicate="NOT s.gone"
    ).execute()


def _value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, str) and pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    return Decimal(value) if isinstance(value, str) and pa.types.is_decimal(kind) else value


@contextmanager
def writer(data: Path, tables: Path) -> Generator[Callable[[str], dict[str, Any]]]:
    """Has another process commit an hour."""
    command = [sys.executable, "-m", "tests.checks.followed_medallion", "--write", str(data), str(tables)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def hour(name: str) -> dict[str, Any]:
            asked.write(name + "\n")
            asked.flush()
            return json.loads(answers.readline())

        yield hour
        asked.close()


class Seen:
    """When each version of each source could first be read in all views."""

    def __init__(self, hr: headrace.Headrace) -> None:
        self._core = home_of(hr).core
        self.at: dict[tuple[str, int], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        epoch = -1
        while not self._over.wait(0.002):
            if self._core.epoch != epoch:
                epoch, now = self._core.epoch, time.time()
                for table in CHANGED:
                    version = progress_of(self._core, table).position.get("version")
                    if version is not None:
                        self.at.setdefault((table, int(version)), now)

    def delay(self, table: str, version: int, committed_at: float, seconds: float = 60) -> float:
        """How long after its commit a version was seen."""
        ends = time.monotonic() + seconds
        while True:
            later = [at for (name, one), at in list(self.at.items()) if name == table and one >= version]
            if later:
                return min(later) - committed_at
            assert time.monotonic() < ends, f"version {version} of {table} never came"
            time.sleep(0.01)

    def close(self) -> None:
        """Watch no more."""
        self._over.set()
        self._thread.join()


def run(spark: Any, folder: Path, scale: float, hours: int, feed: bool) -> tuple[list[str], list[float]]:
    """Follow so many hours: what was wrong, and how long after its last commit each hour was in all views."""
    data, tables = folder / "data", folder / "tables"
    generate(data, scale, hours)
    shutil.copytree(data / "snapshot", tables)
    for table in CHANGED:
        if feed:
            DeltaTable(tables / table).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    wrong: list[str] = []
    delays: list[float] = []
    with headrace.open(folder / "home", spark=spark) as hr, writer(data, tables) as commit:
        for script in ("1_bronze.sql", "2_silver.sql", "3_gold.sql"):
            hr.execute((EXAMPLE / "sql" / script).read_text())
        # Of the tables as they are before sources keep some of their own.
        model = Bronze(hr, data)
        hr.execute(";".join(f"CREATE SOURCE {name} INTO bronze_{name} FROM DELTA '{tables / name}'" for name in TABLES))
        seen = Seen(hr)
        for name, changes in hours_of(data, hours):
            model.apply(changes)
            told = commit(name)
            late = {table: seen.delay(table, one["version"], one["at"]) for table, one in told.items()}
            last = max(told, key=lambda table: told[table]["at"])
            # Each commit is in all views when its epoch is; the hour is when its last one is.
            delays.append(max(one["at"] + late[table] for table, one in told.items()) - told[last]["at"])
            verdict = hr.verify()
            views = len(hr.execute("SHOW VIEWS").to_pylist())  # pyright: ignore
            if not verdict.ok or views != 15:
                wrong.append(f"{name}: {verdict}")
            wrong += [f"{name}: table {one} is not what was written" for one in model.wrong(hr)]
            shown = ", ".join(f"{table} {seconds:.2f}" for table, seconds in late.items())
            changed = sum(map(len, changes.values()))
            told_views = f"{views} views right: {verdict.ok}, {delays[-1]:.2f} s after the last commit"
            print(f"{name}: {changed} changes; {told_views} ({shown})", flush=True)
        seen.close()
    return wrong, delays


def main() -> int:
    """Follow hours, and print how soon each was in all views."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--hours", type=int, default=5)
    parser.add_argument("--no-feed", action="store_true", help="tables without a change data feed")
    parser.add_argument("--write", nargs=2, type=Path, metavar=("DATA", "TABLES"), help="be the writer")
    chosen = parser.parse_args()
    if chosen.write:
        write(*chosen.write)
        return 0
    with tempfile.TemporaryDirectory(prefix="headrace-followed-") as folder:
        wrong, delays = run(None, Path(folder), chosen.scale, chosen.hours, not chosen.no_feed)
    warm = delays[WARM_HOURS:]
    wrong += [f"an hour was there after {one:.2f} s" for one in warm if one > MOST_SECONDS]
    for one in wrong:
        print(f"WRONG {one}", flush=True)
    print(f"{len(delays)} hours; after the first {WARM_HOURS}, at most {max(warm, default=0):.2f} s after the commit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
