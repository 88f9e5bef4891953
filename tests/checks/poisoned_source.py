"""A source of which one change in a hundred makes a view fail, beside a caller of another table.

Once clean, once with poison that fails alike, once with poison each of its own; how long each takes, and how long the
caller waits meanwhile. `python -m tests.checks.poisoned_source [records] [longest seconds]`.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
from tests.growing_log import LOG, tail

DEFINITIONS = """
CREATE TABLE t (id INT PRIMARY KEY, n INT, w STRING);
CREATE VIEW v AS SELECT id, 10 DIV (n + 1) AS x, CAST(w AS INT) AS y FROM t;
CREATE TABLE beside (id INT PRIMARY KEY, n INT);
CREATE VIEW beside_v AS SELECT id, n + 1 AS m FROM beside;
"""
Row = dict[str, Any]
KINDS: dict[str, Callable[[Row], Row]] = {
    "clean": lambda row: row,
    "one poison": lambda row: {**row, "n": -1},
    "poison of many values": lambda row: {**row, "w": f"no number {row['id']}"},
}
# How much longer than clean input a poisoned one may take.
MOST_TIMES = 10


def shown(hr: headrace.Headrace) -> dict[str, Any]:
    """What the source counts."""
    told: Any = hr.execute("SHOW SOURCES")
    (row,) = told.to_pylist()
    return row


def measure(hr: headrace.Headrace, count: int, poison: Callable[[Row], Row], longest: float) -> tuple[float, list[str]]:
    """Take so many records: the seconds, and what was not as it must be."""
    hr.execute(DEFINITIONS)
    clean: list[Row] = [{"id": number, "n": number % 50, "w": str(number)} for number in range(count)]
    places = set(random.Random(16).sample(range(count), count // 100))
    LOG[:] = [{"insert": poison(row) if place in places else row} for place, row in enumerate(clean)]
    guilty = sum(LOG[place]["insert"] != clean[place] for place in places)
    waits: list[float] = []
    over = threading.Event()

    def push() -> None:
        number = 0
        while not over.wait(0.1):
            begun = time.monotonic()
            hr.apply({"beside": [{"insert": {"id": (number := number + 1), "n": 1}}]})
            waits.append(time.monotonic() - begun)

    hr.apply({"beside": [{"insert": {"id": 0, "n": 1}}]})
    pusher = threading.Thread(target=push)
    begun = time.monotonic()
    hr.execute(f"CREATE SOURCE s INTO t FROM PYTHON '{tail.__module__}:tail'")
    pusher.start()
    while (told := shown(hr))["received"] - told["pending"] < count and time.monotonic() < begun + longest:
        time.sleep(0.05)
    seconds = time.monotonic() - begun
    over.set()
    pusher.join()
    waits.sort()
    wrong: list[str] = []
    if (told["received"], told["applied"], told["dead"]) != (count, count - guilty, guilty):
        wrong.append(f"after {seconds:.1f} s: {told}")
    if not hr.verify().ok:
        wrong.append("a view is wrong")
    print(
        f"{seconds:.1f} s, {told['received'] - told['pending']} records, {told['dead']} dead, "
        f"pushes beside: {len(waits)}, median {waits[len(waits) // 2]:.3f} s, longest {waits[-1]:.3f} s",
        flush=True,
    )
    return seconds, wrong


def main() -> int:
    """Take clean and poisoned input, each in a home of its own."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    longest = float(sys.argv[2]) if len(sys.argv) > 2 else 600.0
    clean = 0.0
    failed = False
    for kind, poison in KINDS.items():
        with (
            tempfile.TemporaryDirectory(prefix="headrace-poison-") as folder,
            headrace.open(Path(folder) / "home") as hr,
        ):
            print(f"{kind}: ", end="", flush=True)
            seconds, wrong = measure(hr, count, poison, longest)
        clean = clean or seconds
        if seconds > MOST_TIMES * clean:
            wrong.append(f"it took {seconds / clean:.1f} times as long as clean input")
        for one in wrong:
            print(f"WRONG {one}", flush=True)
        failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
