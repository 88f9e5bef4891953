"""What a JVM tells of its memory, asked again and again: whether all that it still does is collect garbage, in vain."""

from __future__ import annotations

import re
from collections import deque

# A collection is in vain that leaves the room for old objects this full, in percent, and wins back so little of all
# that was held. One alone says little: work may let go of much the next moment.
_FULL = 90
_LITTLE = 10
_IN_VAIN = 2
# The part of its time that a JVM spends on collecting when it hardly does anything else.
_COLLECTING = 0.8
_READING = re.compile(rb"!ys(\d+) (\d+) (-?\d+)\n")


class Pulse:
    """The readings of the last seconds of one JVM."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # When each was taken, and how many milliseconds had been spent on collecting by then.
        self._readings: deque[tuple[float, int]] = deque()
        self._in_vain = 0

    def suffocates(self, answer: bytes, at: float) -> bool:
        """Whether a JVM that answers has done little else for seconds but collect, at last again and again in vain.

        It need not have been full all the while: as it fills up, each collection takes longer and finds less.
        """
        reading = _READING.match(answer)
        if reading is None:
            return False
        spent, full, won = map(int, reading.groups())
        # One that is not spent on since is the same collection, looked at again.
        if self._readings and spent > self._readings[-1][1]:
            self._in_vain = self._in_vain + 1 if full >= _FULL and won < _LITTLE else 0
        self._readings.append((at, spent))
        while len(self._readings) > 2 and at - self._readings[1][0] >= self._seconds:
            self._readings.popleft()
        since, spent_then = self._readings[0]
        lasted = at - since
        return (
            self._in_vain >= _IN_VAIN and lasted >= self._seconds and spent - spent_then >= _COLLECTING * 1000 * lasted
        )
