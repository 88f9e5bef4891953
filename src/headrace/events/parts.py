"""What all openings of one event store in a process share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from headrace.access.audit import Audit
from headrace.events.erasure import Keys
from headrace.events.followers import Follower
from headrace.events.snapshots import Snapshots
from headrace.events.states import Code


@dataclass(frozen=True)
class StoreParts:
    """Its code, its keys, who takes snapshots, and who follows it."""

    code: Code
    keys: Keys
    snapshots: Snapshots
    audit: Audit
    followers: list[Follower] = field(default_factory=list[Follower])

    def add(self, follower: Follower) -> None:
        """Keep one more who follows the store; those who were stopped are kept no longer."""
        self.followers[:] = [*(one for one in self.followers if not one.is_stopped), follower]

    def stop(self, name: str, *, forgotten: bool = False) -> None:
        """Stop whoever follows the store under a name."""
        chosen = [one for one in self.followers if one.name == name]
        for one in chosen:
            one.end(forgotten=forgotten)
        for one in chosen:
            one.stop()
        self.followers[:] = [one for one in self.followers if one.name != name]


def parts_for(home: Any, store: str, threads: ThreadPoolExecutor) -> StoreParts:
    """What the openings of a store share."""
    code, keys = Code(), Keys(home, store)
    return StoreParts(code, keys, Snapshots(code, keys, threads), Audit(home))
