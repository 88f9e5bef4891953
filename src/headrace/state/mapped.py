"""Rows kept in files instead of in the heap: written once, mapped into memory, and gone with whoever holds them.

The file loses its name as soon as it is mapped, so that nothing is left behind, whatever becomes of the process. The
system keeps the pages that are being read and drops the others when memory is short.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Below this many rows the heap is cheaper than a file.
LARGE = 250_000
# Rows of one stretch: what is brought into the heap at a time while large relations are written and merged.
STRETCH = 2_000_000

Number = TypeVar("Number", bound=np.generic)


def rows(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of all tables, in order, each table a stretch of its own."""
    with tempfile.NamedTemporaryFile(prefix="headrace-rows-") as file:
        with pa.OSFile(file.name, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for table in tables:
                for batch in table.combine_chunks().to_batches():
                    writer.write_batch(batch)
        with pa.memory_map(file.name) as source:
            return pa.ipc.open_file(source).read_all()


def numbers(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The same numbers, outside the heap where there are many of them."""
    if len(values) <= LARGE:
        return values
    with tempfile.NamedTemporaryFile(prefix="headrace-numbers-") as file:
        values.tofile(file.name)
        return np.memmap(Path(file.name), dtype=values.dtype, mode="r")


def stretches(table: pa.Table) -> Iterable[pa.Table]:
    """A table in parts of at most so many rows."""
    for start in range(0, table.num_rows, STRETCH):
        yield table.slice(start, STRETCH)
