"""A delta that lies in files already, as executors of Spark wrote it: the ledger takes the files as they were read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.state.delta import Delta


@dataclass(frozen=True)
class Part:
    """A file, the rows that were read from it, and the SHA-256 and the size that it had then."""

    file: Path
    rows: int
    digest: str
    size: int

    @property
    def is_there(self) -> bool:
        """Whether it is there, and as large as it was."""
        try:
            return self.file.stat().st_size == self.size
        except OSError:
            return False


@dataclass(frozen=True, eq=False)
class Written:
    """A delta, and the Parquet files that its rows were read from, each row with its weight in a last column."""

    delta: Delta
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return len(self.delta)

    @property
    def is_readable(self) -> bool:
        """Whether whoever reads the files finds the very types of the delta: some have no form of their own there."""
        wanted = [*self.delta.rows.schema.types, pa.int64()]
        try:
            return all(pq.read_schema(part.file).types == wanted for part in self.parts)
        except (OSError, pa.ArrowInvalid):
            return False
