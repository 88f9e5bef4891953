"""Judgement of refused events: single bad rows, which are parked, or a sink that accepts nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headrace.feeds.sink import EventsRefused, SinkEnded

# The sink is at fault if it refused so many of its latest events, and nine in ten of them.
_WINDOW = 100
_LEAST_REFUSED = 20
_ACCEPTED_SHARE = 0.1


@dataclass
class RefusalJudge:
    """The numbers of events that a sink accepted and refused lately, each event counted once."""

    _batches: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])

    def note(self, count: int, refused: EventsRefused | None = None) -> None:
        """Count the events of a batch; raise `SinkEnded` if the sink refuses nearly all of its latest events."""
        faults = 0 if refused is None else len(refused.refused)
        held = 0 if refused is None else len(refused.held)
        self._batches.append((count - faults - held, faults))
        while len(self._batches) > 1 and sum(map(sum, self._batches)) - sum(self._batches[0]) >= _WINDOW:
            self._batches.popleft()
        all_accepted, all_refused = (sum(one[index] for one in self._batches) for index in (0, 1))
        total = all_accepted + all_refused
        if refused is not None and all_refused >= _LEAST_REFUSED and all_accepted <= total * _ACCEPTED_SHARE:
            reason = next(iter(refused.refused.values()), "")
            raise SinkEnded(
                f"the sink refused {all_refused:,} of the last {total:,} events, so the fault is not in single rows: "
                f"{reason}"
            )
