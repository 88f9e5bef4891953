"""How a source fares, as SHOW SOURCES and the metrics tell it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headrace.sources.intake import Progress

State = Literal["Running", "Paused", "Error", "Done"]


@dataclass(frozen=True)
class Status:
    """How a source fares."""

    state: State
    progress: Progress
    pending: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    error: str | None = None
    records_per_second: float = 0.0
    warning: str | None = None
    # Since when it is tried again and again though it runs.
    failing_since: datetime | None = None
