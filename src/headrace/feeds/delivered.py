"""The sequences of a feed's events that a sink has, so that each event takes effect once, however often it is sent.

An event may come late: one that was refused is tried again, those of its key wait for it, and one that was parked is
sent when somebody asks for it. So a highest sequence alone does not suffice; the few below it that have not come are
kept with it. A refused event is dropped once a later event of its key was applied, and given up once it was parked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class DeliveredSequences:
    """All sequences up to the highest but for those that are missing; none at all if there is no highest."""

    highest: int | None = None
    # From the first to the last of each stretch, in order.
    missing: tuple[tuple[int, int], ...] = ()
    # Of those that the sink refused: the key, in any form that is the same each time.
    refused: Mapping[int, str] = field(default_factory=dict[int, str])

    def lacks(self, numbers: Sequence[int]) -> np.ndarray:
        """Return for each of these sequences whether its event has not come yet."""
        given = np.asarray(numbers, dtype=np.int64)
        if self.highest is None:
            return np.ones(len(given), dtype=bool)
        late = np.zeros(len(given), dtype=bool)
        for first, last in self.missing:
            late |= (given >= first) & (given <= last)
        return late | (given > self.highest)

    def with_events(
        self, numbers: Sequence[int], refused: Mapping[int, str] = _NONE, newest: Mapping[str, int] = _NONE
    ) -> DeliveredSequences:
        """Return the sequences once these events have come, but for those that are refused, each with its key.

        `newest` has the last sequence of each key that has come, at least of the keys of refused events: an event that
        was refused before that is not missing any more.
        """
        given = np.asarray(numbers, dtype=np.int64)
        if not len(given):
            return self
        before = int(given[0]) - 1 if self.highest is None else self.highest
        passed = [number for number, key in self.refused.items() if newest.get(key, -1) > number]
        come = np.union1d(given[~np.isin(given, list(refused))], np.asarray(passed, dtype=np.int64))
        missing = [part for stretch in self.missing for part in _without(stretch, come)]
        highest = max(before, int(given[-1]))
        if highest > before:
            missing += _without((before + 1, highest), come)
        gone = set(come.tolist())
        waiting = {number: key for number, key in {**self.refused, **refused}.items() if number not in gone}
        return DeliveredSequences(highest, tuple(missing), waiting)

    def give_up(self, numbers: Collection[int]) -> DeliveredSequences:
        """Return the sequences without these refused events among the missing: they were parked elsewhere."""
        return self.with_events(sorted(number for number in numbers if number in self.refused))

    def as_json(self) -> str:
        """Return the text that a sink stores."""
        return json.dumps([self.highest, self.missing, list(self.refused.items())], separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes | None) -> DeliveredSequences:
        """Return the sequences of a stored text; none if there is no text."""
        if not text:
            return DeliveredSequences()
        highest, missing, refused = json.loads(text)
        stretches: list[Any] = missing
        return DeliveredSequences(highest, tuple((int(first), int(last)) for first, last in stretches), dict(refused))


def _without(stretch: tuple[int, int], come: np.ndarray) -> list[tuple[int, int]]:
    """Return the rest of a stretch without the numbers that have come, which are in order."""
    first, last = stretch
    inside = come[np.searchsorted(come, first) : np.searchsorted(come, last, "right")]
    bounds = np.concatenate(([first - 1], inside, [last + 1]))
    gaps = np.flatnonzero(np.diff(bounds) > 1)
    return [(int(bounds[gap]) + 1, int(bounds[gap + 1]) - 1) for gap in gaps]
