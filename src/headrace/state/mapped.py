"""Rows kept in files instead of in the heap: written once, mapped into memory, and gone with whoever holds them.

The file loses its name as soon as it is mapped, so that nothing is left behind, whatever becomes of the process. The
system keeps the pages that are being read and drops the others when memory is short.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Below this many rows the heap is cheaper than a file.
LARGE = 250_000
# Rows of one stretch: what is brought into the heap at a time while large relations are written and merged.
STRETCH = 2_000_000

Number = TypeVar("Number", bound=np.generic)
_MAPS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
_MAPPING = threading.Lock()
_log = logging.getLogger("headrace.state")
# The C library keeps what was freed unless it is told; only that of GNU can be told.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def rows(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of all tables, in order, each table a stretch of its own."""
    with tempfile.NamedTemporaryFile(prefix="headrace-rows-") as file:
        with pa.OSFile(file.name, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for table in tables:
                for batch in table.combine_chunks().to_batches():
                    writer.write_batch(batch)
        return pa.ipc.open_file(pa.py_buffer(_map(file.name))).read_all()


def numbers(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The same numbers, outside the heap where there are many of them."""
    if len(values) <= LARGE:
        return values
    with tempfile.NamedTemporaryFile(prefix="headrace-numbers-") as file:
        values.tofile(file.name)
        return np.frombuffer(_map(file.name), dtype=values.dtype)


def release() -> None:
    """Let go of pages and buffers: after a fill or a fold, few of them are wanted again soon. Never raises."""
    try:
        with _MAPPING:
            maps = list(_MAPS)
        for held in maps:
            held.madvise(mmap.MADV_DONTNEED)
        pa.default_memory_pool().release_unused()
        if _TRIM is not None:
            _TRIM(0)
    except Exception as error:
        # What was to be released is only held longer.
        _log.warning("memory could not be released: %s", error)


def _map(name: str) -> mmap.mmap:
    with open(name, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with _MAPPING:
        _MAPS.add(held)
    return held


def stretches(table: pa.Table) -> Iterable[pa.Table]:
    """A table in parts of at most so many rows."""
    for start in range(0, table.num_rows, STRETCH):
        yield table.slice(start, STRETCH)
