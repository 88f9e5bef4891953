"""What a caller gets back: the epoch its changes became part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """One accepted call: its epoch, counts by table, and the seconds it took, by stage."""

    epoch: int
    applied: Mapping[str, int] = field(default_factory=dict[str, int])
    stale: Mapping[str, int] = field(default_factory=dict[str, int])
    dead: Mapping[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    # What its idempotency key stands for; empty where there is no key, or where an older release kept none.
    digest: str = field(default="", compare=False, repr=False)
    # Of events that were appended: the version of their aggregate after them, and the position of the last of them.
    version: int | None = None
    position: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The receipt as the ledger keeps it."""
        return {
            "epoch": self.epoch,
            "applied": dict(self.applied),
            "stale": dict(self.stale),
            "dead": dict(self.dead),
            "seconds": self.seconds,
            "stages": dict(self.stages),
            **({} if self.version is None else {"version": self.version, "position": self.position}),
        }

    @staticmethod
    def from_json(content: Mapping[str, Any], digest: str = "") -> Receipt:
        """A receipt that the ledger kept."""
        return Receipt(**content, digest=digest)


class Receipts:
    """The receipts of idempotency keys, in the order of their epochs; they expire with these, as they do on disk."""

    def __init__(self) -> None:
        self._held: dict[str, Receipt] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: str, oldest: int) -> Receipt | None:
        """The receipt of a key, unless its epoch is older than the oldest that is kept."""
        found = self._held.get(key)
        return found if found is not None and found.epoch >= oldest else None

    def add(self, receipts: Mapping[str, Receipt]) -> None:
        """Keep the receipts of an epoch; a key that has expired may be used again."""
        for key in receipts:
            self._held.pop(key, None)
        self._held.update(receipts)

    def forget(self, oldest: int) -> None:
        """Let go of what has expired."""
        while self._held:
            key = next(iter(self._held))
            if self._held[key].epoch >= oldest:
                return
            del self._held[key]
