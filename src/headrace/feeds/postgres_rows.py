"""The events of a batch as lines that COPY reads: of each key the newest, and those that PostgreSQL cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DoubleType, FloatType

from headrace.feeds.batch import Batch, Operation
from headrace.feeds.postgres_names import Described, Mode
from headrace.feeds.postgres_types import Faults, copy_text
from headrace.state.arrow_compute import pc

_NULL = "\\N"
# The operations that a mode brings into the table.
_WRITTEN: Mapping[Mode, tuple[Operation, ...]] = {
    "mirror": ("INSERT", "UPDATE", "DELETE"),
    "upsert": ("INSERT", "UPDATE"),
    "insert": ("INSERT",),
}


@dataclass(frozen=True, eq=False)
class Lines:
    """What is to be written, in the order of the events: a line for each, which begins with t if its row is gone."""

    # Of each line: the event, by its index in the batch, the line itself, and the key as text.
    events: np.ndarray
    texts: pa.Array
    keys: pa.Array
    gone: np.ndarray
    null_key: np.ndarray

    def __len__(self) -> int:
        return len(self.events)

    def taken(self, which: np.ndarray) -> Lines:
        """Some of the lines, by their numbers or by which of them are true."""
        numbers = np.flatnonzero(which) if which.dtype == bool else which
        chosen = pa.array(numbers, pa.int64())
        return Lines(
            self.events[numbers],
            self.texts.take(chosen),
            self.keys.take(chosen),
            self.gone[numbers],
            self.null_key[numbers],
        )

    def newest(self) -> np.ndarray:
        """Return the numbers of the last line of each key.

        Lines that remove a row come first, also if the lines are written in pieces: a value that is unique in another
        column of the table is free then for the row that takes it over.
        """
        keys = self.keys.dictionary_encode()
        last = np.zeros(len(keys.dictionary), dtype=np.int64)
        # Of several with one number, the last stays.
        last[keys.indices.to_numpy(zero_copy_only=False)] = np.arange(len(keys))
        return last[np.lexsort((last, ~self.gone[last]))]

    def payload(self) -> memoryview:
        """All lines as one text, as it lies in memory."""
        _, offsets, data = self.texts.buffers()
        if not len(self) or data is None:
            return memoryview(b"")
        bounds = np.frombuffer(offsets, np.int64)[self.texts.offset : self.texts.offset + len(self) + 1]
        return memoryview(data)[int(bounds[0]) : int(bounds[-1])]


def lines_of(batch: Batch, events: np.ndarray, described: Described) -> tuple[Lines, Faults]:
    """Return the lines of some events as the mode of the target asks for them, and the faults of values.

    Of a row that is gone a line has the key alone; a key that PostgreSQL cannot hold is not there either.
    """
    operations = np.asarray(batch.operations, dtype=object)[events]
    written = np.isin(operations, _WRITTEN[described.mode])
    events, gone = events[written], operations[written] == "DELETE"
    null_key = np.zeros(len(events), dtype=bool)
    faults: Faults = {}
    texts = [pa.array(np.where(gone, "t", "f"), pa.large_string())]
    keys: dict[str, pa.Array] = {}
    for field in batch.columns.fields:
        is_key = field.name in described.keys
        values = batch.rows.column(field.name).take(pa.array(events, pa.int64(), mask=None if is_key else gone))
        text, found = copy_text(values, field.dataType)
        faults.update({int(events[row]): f"{field.name}: {reason}" for row, reason in found.items()})
        texts.append(text)
        if is_key:
            null_key |= np.asarray(values.is_null())
            # PostgreSQL takes both zeros for one.
            floating = isinstance(field.dataType, (FloatType, DoubleType))
            keys[field.name] = pc.replace_substring_regex(text, r"^-0$", "0") if floating else text
    lines = Lines(
        events,
        _side_by_side(texts, "\n", len(events)),
        _side_by_side([keys[name] for name in described.keys], "", len(events)),
        gone,
        null_key,
    )
    return lines.taken(~(gone & np.isin(events, list(faults)))), faults


def _side_by_side(texts: Sequence[pa.Array], end: str, count: int) -> pa.Array:
    if not texts:
        return pa.array([""] * count, pa.large_string())
    separator = pa.scalar("\t", pa.large_string())
    line = pc.binary_join_element_wise(*texts, separator, null_handling="replace", null_replacement=_NULL)
    if not end:
        return line
    return pc.binary_join_element_wise(line, pa.scalar(end, pa.large_string()), pa.scalar("", pa.large_string()))
