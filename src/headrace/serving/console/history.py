"""What the console shows over time: epochs as they were committed, and what the process used meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.home import Home
from headrace.spark.jobs import jobs_of
from headrace.spark.proc import resident_bytes
from headrace.spark.session import jvm_of

_EPOCHS = 2_000
_SAMPLES = 720
_SAMPLE_SECONDS = 5.0
# A walk through the home's files is repeated after so long, or so many times what it took.
_DISK_SECONDS = 60.0
_DISK_SHARE = 100
_JOBS = 20
_JOBS_SECONDS = 2.0


@dataclass(frozen=True)
class PastEpoch:
    """One committed epoch: when, how many rows of each relation changed, and the seconds of its stages."""

    epoch: int
    committed_at: datetime
    changes: Mapping[str, int]
    stages: Mapping[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> dict[str, Any]:
        """As the console reads it."""
        return {
            "epoch": self.epoch,
            "committed_at": self.committed_at.isoformat(),
            "seconds": round(sum(self.stages.values()), 6),
            "stages": {name: round(seconds, 6) for name, seconds in self.stages.items()},
            "changes": dict(self.changes),
        }


class History:
    """The newest epochs since the server began, and a sample of what it uses every few seconds."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._epochs: deque[PastEpoch] = deque(maxlen=_EPOCHS)
        self._samples: deque[dict[str, Any]] = deque(maxlen=_SAMPLES)
        self._jobs: tuple[float, list[dict[str, Any]]] = (-_JOBS_SECONDS, [])
        self._asking = threading.Lock()
        self._ending = threading.Event()
        self._disk: tuple[float, float, int | None] = (0.0, 0.0, None)
        self._thread = threading.Thread(target=self._sample_on, name="headrace-samples", daemon=True)
        # Beside whoever else listens: a home may have several servers.
        committed, ran = home.core.committed, home.loop.ran

        def note(epoch: int, committed_at: datetime, changes: Mapping[str, int]) -> None:
            committed(epoch, committed_at, changes)
            self._note(epoch, committed_at, changes)

        def note_stages(epoch: int, stages: Mapping[str, float]) -> None:
            ran(epoch, stages)
            self._note_stages(epoch, stages)

        home.core.committed, home.loop.ran = note, note_stages

    def begin(self) -> None:
        """Take samples from now on."""
        self._thread.start()

    def close(self) -> None:
        """Take no more of them."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(10)

    def _note(self, epoch: int, committed_at: datetime, changes: Mapping[str, int]) -> None:
        visible = self._home.core.catalog.relations
        self._epochs.append(PastEpoch(epoch, committed_at, {name: n for name, n in changes.items() if name in visible}))

    def _note_stages(self, epoch: int, stages: Mapping[str, float]) -> None:
        last = self._epochs[-1] if self._epochs else None
        if last is not None and last.epoch == epoch:
            self._epochs[-1] = PastEpoch(epoch, last.committed_at, last.changes, dict(stages))

    def epochs(self, since: int = -1) -> list[PastEpoch]:
        """Those after an epoch that are still known, oldest first."""
        found: list[PastEpoch] = []
        for one in reversed(list(self._epochs)):
            if one.epoch <= since:
                break
            found.append(one)
        return found[::-1]

    def rates(self, seconds: float = 60.0) -> dict[str, float]:
        """Changed rows a second of each relation, over the last so many seconds."""
        begin = datetime.now(UTC).timestamp() - seconds
        counted: dict[str, int] = {}
        for one in reversed(list(self._epochs)):
            if one.committed_at.timestamp() < begin:
                break
            for name, count in one.changes.items():
                counted[name] = counted.get(name, 0) + count
        return {name: count / seconds for name, count in counted.items()}

    def samples(self) -> list[dict[str, Any]]:
        """The samples, oldest first."""
        return list(self._samples)

    def jobs(self) -> list[dict[str, Any]]:
        """The newest jobs of Spark; asked at most every so often, however many pages are open."""
        with self._asking:
            asked_at, found = self._jobs
            if time.monotonic() - asked_at > _JOBS_SECONDS:
                with self._home.renewal.working(busy=False):
                    found = jobs_of(self._home.core.sessions.catalyst.session, _JOBS)
                self._jobs = time.monotonic(), found
            return found

    def _sample_on(self) -> None:
        while not self._ending.is_set():
            # Whatever cannot be read now may be there the next time.
            with suppress(Exception):
                self._samples.append(self._sample())
            self._ending.wait(_SAMPLE_SECONDS)

    def _sample(self) -> dict[str, Any]:
        jvm = jvm_of(self._home.core.sessions.catalyst.session)
        return {
            "at": datetime.now(UTC).isoformat(),
            "epoch": self._home.core.epoch,
            "process_bytes": resident_bytes(os.getpid()),
            "spark_bytes": None if jvm is None else resident_bytes(jvm.process.pid),
            "state_rows": sum(state.size for _, state in self._home.core.all_at_once()[1]),
            "disk_bytes": self._disk_bytes(),
        }

    def _disk_bytes(self) -> int | None:
        """The bytes of a home's files, where it lies on this machine; what was found last, if that is not long ago."""
        looked_at, took, found = self._disk
        path = self._home.path
        if not isinstance(path, Path):
            return None
        begun = time.monotonic()
        if found is None or begun - looked_at > max(_DISK_SECONDS, took * _DISK_SHARE):
            found = 0
            for one in path.rglob("*"):
                # Files come and go while one looks.
                with suppress(OSError):
                    found += one.lstat().st_size
            self._disk = (begun, time.monotonic() - begun, found)
        return found
