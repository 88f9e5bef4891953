"""What the client may ask of a pipeline as a whole: whether it runs, since when, and how much went through it.

A home has no such switch. Paused and stopped hold for this door alone: what comes in through other doors goes on.
"""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.serving.problems import Refusal

Status = Literal["Running", "Paused", "Stopped"]


@dataclass(frozen=True)
class Counts:
    """Changes that came in through this door since the server started, and those that still wait for their epoch."""

    received: int = 0
    waiting: int = 0


class PipelineStatus:
    """The pipeline's status, which every request may read and some may set."""

    def __init__(self, home: str) -> None:
        self.id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"headrace:{home}"))
        self.incarnation = str(uuid.uuid4())
        self.started_at = datetime.now(UTC)
        self.since = self.started_at
        self.status: Status = "Running"
        self.stops = 0
        self.counts = Counts()
        self._lock = threading.Lock()

    def move(self, status: Status) -> None:
        """From now on this is the status; setting it again changes nothing."""
        with self._lock:
            if status != self.status:
                self.status, self.since = status, datetime.now(UTC)
                self.stops += status == "Stopped"

    def count(self, changes: int, submission: Future[Any]) -> None:
        """Changes that were put in line, until their epoch is over."""
        self._add(changes, changes)
        submission.add_done_callback(lambda _: self._add(0, -changes))

    def count_done(self, changes: int) -> None:
        """Changes whose epoch is over already."""
        self._add(changes, 0)

    def _add(self, received: int, waiting: int) -> None:
        with self._lock:
            self.counts = Counts(self.counts.received + received, self.counts.waiting + waiting)

    def refuse_stopped(self) -> None:
        """What needs a pipeline that runs or is paused is refused while it is stopped."""
        if self.status == "Stopped":
            raise Refusal(
                409,
                "PipelineInteractionNotDeployed",
                "the pipeline is stopped",
                detail="Someone stopped it through this client's API; other ways into the home are open.",
                hint="call start() on the pipeline",
            )

    def refuse_paused(self, *, force: bool) -> None:
        """A push is refused while the pipeline is paused or stopped, unless it is forced."""
        self.refuse_stopped()
        if self.status == "Paused" and not force:
            raise Refusal(
                409,
                "PipelinePaused",
                "the pipeline is paused",
                hint="call resume() on the pipeline, or push with force=True",
            )
