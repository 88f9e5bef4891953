"""A process that dies between two steps leaves the old epoch or the new one, in a folder and in an object store.

The crash checks do the same with whole homes and Spark; this is the ledger and its bases alone.
"""

from __future__ import annotations

import multiprocessing
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.ledger import base, durable, ledger
from headrace.ledger.inspection import inspect_storage
from headrace.ledger.names import is_kept
from headrace.storage.objects import Location, ObjectPath, location_of
from headrace.upkeep.fold import sweep_after_crash
from tests.checks.storage import orphans
from tests.small_homes import BASE_SCHEMAS, add_epoch, fold, opened, rows_at, rows_of_base

POINTS = (
    "log written",
    "log named",
    "file written",
    "files written",
    "data written",
    "committed",
    "rows written",
    "base written",
    "base committed",
    "segment written",
    "ruins swept",
    "segment committed",
    "checkpoint written",
    "replacement written",
    "checkpoint sealed",
    "log trimmed",
)
_EPOCHS = 12


@dataclass(frozen=True)
class Life:
    """What one process is to do with a home."""

    home: str
    options: dict[str, str]
    journal: Path
    crash_at: str


def live(life: Life) -> None:
    """Find the home whole, sweep what the last life left, and go on until the crash."""
    durable._crash_at = life.crash_at  # pyright: ignore[reportPrivateUsage]
    ledger._CHECKPOINT_EVERY = 6  # pyright: ignore[reportPrivateUsage]
    base._CHECKPOINT_EVERY = 2  # pyright: ignore[reportPrivateUsage]
    base._KEEP_COMMITS = 1  # pyright: ignore[reportPrivateUsage]
    home = location_of(life.home, life.options)
    log = opened(home, inline_bytes=0)
    acknowledged = len(life.journal.read_bytes())
    assert log.epoch - acknowledged in (0, 1), f"{acknowledged} were acknowledged, the home stands at {log.epoch}"
    log.claim(1)
    sweep_after_crash(home, log, BASE_SCHEMAS)
    assert [epoch for epoch, _ in rows_at(home, log.epoch)] == list(range(1, log.epoch + 1))
    assert orphans(home) == []
    for epoch in range(log.epoch + 1, log.epoch + 1 + _EPOCHS):
        add_epoch(log, epoch)
        life.journal.write_bytes(b"." * epoch)
        if epoch % 3 == 0:
            fold(home, log, epoch)
            log.compact(epoch, 0, is_kept, 2)
            log.tidy()


@pytest.mark.thorough
def test_a_death_at_any_point_loses_nothing(location: Location, tmp_path: Path) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    journal = tmp_path.with_name(f"{tmp_path.name}-journal")
    journal.write_bytes(b"")
    options = location.bucket.options if isinstance(location, ObjectPath) else {}
    for point in (*POINTS, ""):
        process = processes.Process(target=live, args=(Life(str(location), options, journal, point),))
        process.start()
        process.join()
        assert process.exitcode == (-signal.SIGKILL if point else 0), f"at {point or 'the end'}"
    epoch = opened(location).epoch
    fold(location, opened(location), epoch)
    assert len(rows_of_base(location)) == epoch
    assert inspect_storage(location).ok
    sweep_after_crash(location, opened(location), BASE_SCHEMAS)
    assert orphans(location) == []
