"""What statements run on: the loop that makes epochs, and the sources and feeds at work."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.access.audit import Audit
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.feeds.running import Feeds
from headrace.sources.running import Sources


@dataclass(frozen=True)
class Engine:
    """An open home, as far as statements reach."""

    loop: Loop
    sources: Sources
    feeds: Feeds
    # Who administered what; none where nobody asks.
    audit: Audit | None = None

    @property
    def core(self) -> Core:
        """The newest epoch."""
        return self.loop.core
