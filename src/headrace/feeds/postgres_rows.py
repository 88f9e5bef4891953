"""The events of a batch as lines that COPY reads: of each key the newest, and those that PostgreSQL cannot hold.

The key of the target may be another than that of the relation (option `keys`), and one row may take the target key that
another one leaves. Events of one epoch come in the order of their relation keys, so that a row may arrive under a key
before the row that held the key leaves it, in the same batch or in an earlier one. Two rules keep such a row:

- Within a batch, all lines of an epoch that remove a row come before those that write one.
- A line that removes a row carries the row's relation key too, and removes the row only while the target holds that of
  the same relation key. Where another row has taken the place, in a batch before, nothing is removed.

An epoch has one event of a relation key and leaves one row under a target key, so both rules together bring the table
to the relation's rows wherever batches are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DoubleType, FloatType, StructType

from headrace.feeds.batch import Batch
from headrace.feeds.postgres_names import Described
from headrace.feeds.postgres_types import Faults, copy_text
from headrace.state.arrow_compute import pc

_NULL = "\\N"


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
        """Return the numbers of the lines that decide what is under each key, those that remove a row first.

        They are the last line of each key; where that removes a row, all lines of the key that do: each removes only
        the row that it names, and any of those rows may be the one in the table.
        """
        codes = self.keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        last = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
        # Of several with one number, the last stays.
        last[codes] = np.arange(len(codes))
        removing = np.flatnonzero(self.gone & self.gone[last[codes]])
        return np.concatenate((removing, np.sort(last[~self.gone[last]])))

    def payload(self) -> memoryview:
        """All lines as one text, as it lies in memory."""
        _, offsets, data = self.texts.buffers()
        if not len(self) or data is None:
            return memoryview(b"")
        bounds = np.frombuffer(offsets, np.int64)[self.texts.offset : self.texts.offset + len(self) + 1]
        return memoryview(data)[int(bounds[0]) : int(bounds[-1])]


def lines_of(batch: Batch, events: np.ndarray, described: Described) -> tuple[Lines, Faults]:
    """Return the lines of some events as the mode of the target asks for them, and the faults of the others."""
    operations = np.asarray(batch.operations, dtype=object)[events]
    written = operations == "INSERT"
    if described.mode != "insert":
        written |= operations == "UPDATE"
    faults: Faults = {}
    parts = [_full(batch.rows, events[written], batch.columns, described.keys, faults)]
    if described.mode == "mirror":
        removed = operations == "DELETE"
        parts.append(_gone(batch.rows, events[removed], batch.columns, described))
    if described.mode != "insert" and set(described.keys) != set(batch.key):
        updated = operations == "UPDATE"
        parts.append(_moved(batch, events[updated], described))
    joined = _joined(parts)
    epochs = np.asarray(batch.epochs, dtype=np.int64)[joined.events]
    return joined.taken(np.lexsort((joined.events, ~joined.gone, epochs))), faults


def _full(rows: pa.Table, events: np.ndarray, columns: StructType, keys: Sequence[str], faults: Faults) -> Lines:
    taken = _taken(rows, events)
    texts: list[pa.Array] = []
    for field in columns.fields:
        text, found = copy_text(taken.column(field.name), field.dataType)
        faults.update({int(events[row]): f"{field.name}: {reason}" for row, reason in found.items()})
        texts.append(text)
    by_name = dict(zip(columns.names, texts, strict=True))
    return _lines("f", texts, [by_name[key] for key in keys], events, columns, keys)


def _gone(rows: pa.Table, events: np.ndarray, columns: StructType, described: Described) -> Lines:
    """Return lines that name a row to remove by its keys; a key that PostgreSQL cannot hold is not there either."""
    taken = _taken(rows, events)
    by_name: dict[str, pa.Array] = {}
    known = np.ones(len(events), dtype=bool)
    for key in (*described.keys, *described.owner):
        by_name[key], found = copy_text(taken.column(key), columns[key].dataType)
        known[list(found)] = False
    nothing = pa.nulls(len(events), pa.large_string())
    texts = [by_name.get(name, nothing) for name in columns.names]
    return _lines("t", texts, [by_name[key] for key in described.keys], events, columns, described.keys).taken(known)


def _moved(batch: Batch, events: np.ndarray, described: Described) -> Lines:
    """Return lines that remove rows from under the old keys of updates."""
    old = _gone(batch.old_rows, events, batch.columns, described)
    new = _gone(batch.rows, events, batch.columns, described)
    now = dict(zip(new.events.tolist(), new.keys.to_pylist(), strict=True))
    before = zip(old.events.tolist(), old.keys.to_pylist(), strict=True)
    return old.taken(np.asarray([now.get(event) != key for event, key in before], dtype=bool))


def _lines(
    gone: str,
    texts: Sequence[pa.Array],
    key_texts: Sequence[pa.Array],
    events: np.ndarray,
    columns: StructType,
    keys: Sequence[str],
) -> Lines:
    count = len(events)
    null_key = np.zeros(count, dtype=bool)
    told: list[pa.Array] = []
    for key, text in zip(keys, key_texts, strict=True):
        null_key |= pc.is_null(text).to_numpy(zero_copy_only=False)
        # PostgreSQL takes both zeros for one.
        floating = isinstance(columns[key].dataType, (FloatType, DoubleType))
        told.append(pc.replace_substring_regex(text, r"^-0$", "0") if floating else text)
    return Lines(
        events,
        _side_by_side([pa.array([gone] * count, pa.large_string()), *texts], "\t", "\n", count),
        _side_by_side(told, "\t", "", count),
        np.full(count, gone == "t"),
        null_key,
    )


def _side_by_side(texts: Sequence[pa.Array], between: str, end: str, count: int) -> pa.Array:
    if not texts:
        return pa.array([""] * count, pa.large_string())
    separator = pa.scalar(between, pa.large_string())
    line = pc.binary_join_element_wise(*texts, separator, null_handling="replace", null_replacement=_NULL)
    if not end:
        return line
    return pc.binary_join_element_wise(line, pa.scalar(end, pa.large_string()), pa.scalar("", pa.large_string()))


def _taken(rows: pa.Table, events: np.ndarray) -> pa.Table:
    return rows if len(events) == rows.num_rows else rows.take(pa.array(events, pa.int64()))


def _joined(parts: Sequence[Lines]) -> Lines:
    if len(parts) == 1:
        return parts[0]
    return Lines(
        np.concatenate([part.events for part in parts]),
        pa.concat_arrays([part.texts for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        np.concatenate([part.gone for part in parts]),
        np.concatenate([part.null_key for part in parts]),
    )
