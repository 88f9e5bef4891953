"""Positions of many captured changes as columns: the same verdicts as one by one, for batches that are taken whole."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_NO_TIME = np.iinfo(np.int64).min


class PositionColumns(NamedTuple):
    """The parts of positions, one array each; texts as Python's, times in microseconds, the least number for none."""

    log: npt.NDArray[np.int64]
    order: npt.NDArray[np.object_]
    partition: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]
    source_at: npt.NDArray[np.int64]
    read: npt.NDArray[np.bool_]

    def take(self, indexes: npt.NDArray[np.int64]) -> PositionColumns:
        """Those at some indexes."""
        parts: list[Any] = [part[indexes] for part in self]
        return PositionColumns(*parts)


def position_columns(table: pa.Table) -> PositionColumns:
    """The positions that the last columns of a store of positions hold, or any with the same columns."""
    log, order, partition, offset, number, source_at, read = table.columns[-len(PositionColumns._fields) :]
    times = source_at.cast(pa.int64()).fill_null(_NO_TIME)
    return PositionColumns(
        np.asarray(log, dtype=np.int64),
        np.asarray(order, dtype=object),
        np.asarray(partition, dtype=np.int64),
        np.asarray(offset, dtype=np.int64),
        np.asarray(number, dtype=np.int64),
        np.asarray(times, dtype=np.int64),
        np.asarray(read, dtype=bool),
    )


def are_stale(new: PositionColumns, known: PositionColumns) -> npt.NDArray[np.bool_]:
    """Of pairs of changes of one key each, whether the first is stale after the second; see `is_stale`."""
    told = (new.order != "") & (known.order != "")
    same_log = told & (new.log == known.log)
    lower_order, same_order = _bools(new.order < known.order), _bools(new.order == known.order)
    earlier = (new.offset < known.offset) | ((new.offset == known.offset) & (new.number < known.number))
    same_place = (new.offset == known.offset) & (new.number == known.number)
    first = (new.offset < known.offset) | ((new.offset == known.offset) & (new.partition < known.partition))
    timed = (new.source_at != _NO_TIME) & (known.source_at != _NO_TIME) & (new.source_at != known.source_at)
    older = new.source_at < known.source_at
    lower = (lower_order | (same_order & first)) & ~(timed & ~older)
    elsewhere = same_log & np.where(new.read == known.read, lower, new.read & timed & older)
    # Where offset and time agree they decide, else the position.
    within = np.where(timed & (older == earlier), earlier, lower_order | (same_order & earlier))
    within = np.where(same_log & (new.read == known.read), within, earlier) | same_place
    return np.where(new.partition == known.partition, within, elsewhere)


def _bools(compared: npt.NDArray[np.object_] | npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return np.asarray(compared, dtype=bool)
