"""What is wrong with a home now: sources and feeds that fail or are late, views behind, dead letters, upkeep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from headrace.definitions.restored import PAUSED_BY_RESTORE
from headrace.home import Home
from headrace.serving.home_metrics import HomeMetrics
from headrace.sources.pace import seconds_since
from headrace.sources.system_tables import DEAD_LETTERS

Level = Literal["warning", "broken"]
_LATE_EPOCHS = 1_000


@dataclass(frozen=True)
class Finding:
    """One thing that somebody should look at: what it is of, how grave, and in words."""

    kind: str
    about: str
    level: Level
    text: str

    @property
    def name(self) -> tuple[str, str]:
        """By which it is the same the next time, whatever its words."""
        return self.kind, self.about

    def to_json(self) -> dict[str, Any]:
        """As it is told to others."""
        return asdict(self)


def findings(home: Home, lag_seconds: float) -> list[Finding]:
    """All that is wrong now; an empty list if nothing is."""
    core = home.core
    if core.is_lost:
        return [Finding("home", "home", "broken", "Another process took the home over.")]
    if core.broken is not None:
        return [Finding("home", "home", "broken", f"The home could not take an epoch in: {core.broken.message}.")]
    found = [*_sources(home, lag_seconds), *_feeds(home), *_views(home, lag_seconds), *_upkeep(home)]
    relations = core.relations()
    letters = relations[DEAD_LETTERS][0].count if DEAD_LETTERS in relations else 0
    if letters:
        found.append(Finding("dead_letters", DEAD_LETTERS, "warning", f"{letters:,} dead letters wait for somebody."))
    return found


def _sources(home: Home, lag_seconds: float) -> list[Finding]:
    found: list[Finding] = []
    for source in list(home.core.catalog.sources.values()):
        status = home.sources.status_of(source)
        if status.error == PAUSED_BY_RESTORE:
            found.append(Finding("source_paused", source.name, "warning", f"It is paused: {status.error}"))
        elif status.state == "Error":
            found.append(Finding("source_failing", source.name, "warning", f"It has stopped: {status.error}"))
        elif status.state != "Running":
            continue
        elif status.failing_since is not None and seconds_since(status.failing_since) > lag_seconds:
            since = f"{status.failing_since:%Y-%m-%d %H:%M:%S} UTC"
            told = f"It cannot be read since {since}, and is tried again: {status.error}"
            found.append(Finding("source_failing", source.name, "warning", told))
        elif status.warning is not None:
            found.append(Finding("source_late", source.name, "warning", status.warning))
        elif (status.lag_seconds or 0.0) > lag_seconds:
            found.append(Finding("source_late", source.name, "warning", f"It is {status.lag_seconds:.0f} s behind."))
    return found


def _feeds(home: Home) -> list[Finding]:
    found: list[Finding] = []
    for feed in list(home.core.catalog.feeds.values()):
        status = home.feeds.status_of(feed)
        if status.error == PAUSED_BY_RESTORE:
            found.append(Finding("feed_paused", feed.name, "warning", f"It is paused: {status.error}"))
        elif status.state == "Error" or (status.state == "Paused" and status.error):
            found.append(Finding("feed_failing", feed.name, "warning", f"It has stopped: {status.error}"))
        if status.state != "Running":
            continue
        if status.retries:
            text = f"It is retrying, {status.retries} times since its last delivery: {status.error}"
            found.append(Finding("feed_retrying", feed.name, "warning", text))
        if status.lag is not None and status.lag > _LATE_EPOCHS:
            found.append(Finding("feed_late", feed.name, "warning", f"It has {status.lag:,} epochs to tell."))
    return found


def _views(home: Home, lag_seconds: float) -> list[Finding]:
    behind = HomeMetrics(home).behind()
    return [
        Finding("view_stale", name, "warning", f"It is {seconds:.0f} s behind what its sources have.")
        for name, seconds in behind.items()
        if seconds > lag_seconds
    ]


def _upkeep(home: Home) -> list[Finding]:
    status = home.status()
    told = {"fold_failure": "Folds fail, and the log grows", "clock_failure": "The clock's epochs fail",
            "merge_failure": "Merging of state fails", "spark_failure": "Spark cannot be started"}  # fmt: skip
    return [
        Finding("upkeep", name.removesuffix("_failure"), "warning", f"{text}: {status[name]}")
        for name, text in told.items()
        if status.get(name)
    ]
