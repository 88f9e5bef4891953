"""Every row of a change that a view fails on by itself, found by tries of some rows at a time.

A part that fails is halved, so that each guilty row costs as many tries as it takes to halve down to it. Two guesses
spare most of them: what Spark says of a failure may quote the value, and rows that are alike in what the expression
reads fail alike. A guess decides which row is tried alone, and nothing else: a wrong one costs a try.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import ViewEvaluationError
from headrace.state.arrow_compute import pc
from headrace.state.delta import Delta, gather

# What a view raises over a change, None if it can be computed.
Try = Callable[[Delta], ViewEvaluationError | None]
Places = npt.NDArray[np.int64]

# Rows that are tried together at first.
_PART = 512
# A guess that names more rows than these says nothing.
_MOST_GUESSED = 8
_QUOTED = re.compile(r"'([^']*)'")


class GuiltyRows:
    """The search through one table's change."""

    def __init__(self, names: Sequence[str], change: Delta, fails: Try) -> None:
        self._names = list(names)
        self._change = gather(change, np.flatnonzero(change.weights > 0))
        self._fails = fails
        self._found: dict[int, ViewEvaluationError] = {}
        # Those that were tried alone, and can be taken.
        self._innocent: set[int] = set()

    def find(self) -> list[tuple[dict[str, Any], ViewEvaluationError]]:
        """The rows that fail by themselves, each with what the view says; none where only some together do."""
        every = np.arange(len(self._change), dtype=np.int64)
        for start in range(0, len(every), _PART):
            self._search(every[start : start + _PART])
        places = sorted(self._found)
        rows = self._change.rows.take(pa.array(places, pa.int64())).rename_columns(self._names).to_pylist()
        return [(row, self._found[place]) for row, place in zip(rows, places, strict=True)]

    def _search(self, part: Places) -> None:
        waiting = [part]
        while waiting:
            part = self._unknown(waiting.pop())
            if len(part) == 0 or (error := self._try(part)) is None:
                continue
            if len(part) == 1:
                self._bury(int(part[0]), error)
                continue
            guessed = [place for place in self._quoted(part, error) if self._tried_alone(place)]
            if guessed:
                waiting.append(part)
            else:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]

    def _unknown(self, part: Places) -> Places:
        return part[[int(place) not in self._found for place in part]] if self._found else part

    def _try(self, part: Places) -> ViewEvaluationError | None:
        return self._fails(gather(self._change, part))

    def _tried_alone(self, place: int) -> bool:
        """Whether a row fails by itself, of which it is not known yet."""
        if place in self._found or place in self._innocent:
            return False
        error = self._try(np.array([place], dtype=np.int64))
        if error is None:
            self._innocent.add(place)
            return False
        self._bury(place, error)
        return True

    def _bury(self, place: int, error: ViewEvaluationError) -> None:
        """Take a row as found, and try those that are like it in what the expression reads, until one can be taken."""
        self._found[place] = error
        words = {word.lower() for word in re.findall(r"\w+", error.expression)}
        read = [index for index, name in enumerate(self._names) if name.lower() in words]
        for alike in self._alike(place, read) if read else ():
            if alike in self._found:
                continue
            told = None if alike in self._innocent else self._try(np.array([alike], dtype=np.int64))
            if told is None:
                self._innocent.add(alike)
                return
            self._found[alike] = told

    def _alike(self, place: int, columns: Sequence[int]) -> Iterator[int]:
        rows = self._change.rows
        same = pa.array(np.ones(rows.num_rows, dtype=bool))
        for index in columns:
            column = rows.column(index)
            value = column[place]
            equal = pc.is_null(column) if not value.is_valid else pc.fill_null(pc.equal(column, value), False)
            same = pc.and_(same, equal)
        for one in np.flatnonzero(np.asarray(same)).tolist():
            yield int(one)

    def _quoted(self, part: Places, error: ViewEvaluationError) -> list[int]:
        """The rows that have a value which the failure quotes, if they are few."""
        quoted = [one for one in _QUOTED.findall(error.detail.partition(": ")[2]) if one]
        rows = self._change.rows.take(pa.array(part))
        found: dict[int, None] = {}
        for column in rows.columns if quoted else ():
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                hits = np.flatnonzero(np.asarray(pc.is_in(column, pa.array(quoted, column.type))))
                found.update(dict.fromkeys(part[hits].tolist()))
        return list(found) if len(found) <= _MOST_GUESSED else []
