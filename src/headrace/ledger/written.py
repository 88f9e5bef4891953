"""A delta that lies in files already, as executors of Spark wrote it: the ledger takes the files as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.state.delta import Delta


@dataclass(frozen=True, eq=False)
class Written:
    """A delta, and the Parquet files that hold its rows, each with its weight in a last column."""

    delta: Delta
    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.delta)

    def parts(self) -> list[tuple[Path, int]]:
        """The files that hold rows, and how many."""
        counted = [(file, pq.read_metadata(file).num_rows) for file in self.files]
        return [(file, rows) for file, rows in counted if rows]

    @property
    def is_readable(self) -> bool:
        """Whether whoever reads the files finds the very types of the delta: some have no form of their own there."""
        wanted = [*self.delta.rows.schema.types, pa.int64()]
        return all(pq.read_schema(file).types == wanted for file in self.files)
