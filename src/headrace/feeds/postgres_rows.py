"""The events of a batch as lines that COPY reads: of each key the newest, and which ones PostgreSQL cannot hold."""

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
        """The last line of each key, in order."""
        codes = self.keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        last = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
        # Of several with one number, the last stays.
        last[codes] = np.arange(len(codes))
        return np.sort(last)

    def payload(self) -> memoryview:
        """All lines as one text, as it lies in memory."""
        _, offsets, data = self.texts.buffers()
        if not len(self) or data is None:
            return memoryview(b"")
        bounds = np.frombuffer(offsets, np.int64)[self.texts.offset : self.texts.offset + len(self) + 1]
        return memoryview(data)[int(bounds[0]) : int(bounds[-1])]


def lines_of(batch: Batch, events: np.ndarray, described: Described) -> tuple[Lines, Faults]:
    """Some events of a batch, as the mode of the target has them, and the faults of those that cannot be."""
    operations = np.asarray(batch.operations, dtype=object)[events]
    written = operations == "INSERT"
    if described.mode != "insert":
        written |= operations == "UPDATE"
    faults: Faults = {}
    parts = [_full(batch.rows, events[written], batch.columns, described.keys, faults)]
    order = [events[written] * 2 + 1]
    if described.mode == "mirror":
        removed = operations == "DELETE"
        parts.append(_gone(batch.rows, events[removed], batch.columns, described.keys))
        order.append(events[removed] * 2 + 1)
    if described.mode != "insert" and set(described.keys) != set(batch.key):
        # The key of the target may move to another row of it: what was under the old one goes first.
        updated = operations == "UPDATE"
        parts.append(_moved(batch, events[updated], described.keys))
        order.append(parts[-1].events * 2)
    places = np.argsort(np.concatenate(order), kind="stable")
    return _joined(parts).taken(places), faults


def _full(rows: pa.Table, events: np.ndarray, columns: StructType, keys: Sequence[str], faults: Faults) -> Lines:
    taken = _taken(rows, events)
    texts: list[pa.Array] = []
    for field in columns.fields:
        text, found = copy_text(taken.column(field.name), field.dataType)
        faults.update({int(events[row]): f"{field.name}: {reason}" for row, reason in found.items()})
        texts.append(text)
    by_name = dict(zip(columns.names, texts, strict=True))
    return _lines("f", texts, [by_name[key] for key in keys], events, columns, keys)


def _gone(rows: pa.Table, events: np.ndarray, columns: StructType, keys: Sequence[str]) -> Lines:
    """Lines that have the key alone; a key that PostgreSQL cannot hold is not there either."""
    taken = _taken(rows, events)
    by_name: dict[str, pa.Array] = {}
    known = np.ones(len(events), dtype=bool)
    for key in keys:
        by_name[key], found = copy_text(taken.column(key), columns[key].dataType)
        known[list(found)] = False
    nothing = pa.nulls(len(events), pa.large_string())
    texts = [by_name.get(name, nothing) for name in columns.names]
    return _lines("t", texts, [by_name[key] for key in keys], events, columns, keys).taken(known)


def _moved(batch: Batch, events: np.ndarray, keys: Sequence[str]) -> Lines:
    """Lines that take away what was under the old key of an update."""
    old = _gone(batch.old_rows, events, batch.columns, keys)
    new = _gone(batch.rows, events, batch.columns, keys)
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
