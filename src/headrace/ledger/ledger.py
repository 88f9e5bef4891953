"""The ledger: one Delta table, one append per epoch.

Before the append an epoch does not exist; after it, it always will.

Each row is one relation's delta in one epoch, hidden state included: small deltas lie in the row as Arrow bytes,
larger ones in a file that the row names. The row with an empty relation name is the epoch's head: its time, the
definitions it made, and the idempotency keys it used up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from headrace.errors import LedgerError
from headrace.state.delta import Delta, consolidate, empty

_SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("relation", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("delta", pa.binary()),
        pa.field("file", pa.string()),
        pa.field("head", pa.string()),
        pa.field("committed_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
_CHECKPOINT_EVERY = 200


@dataclass(frozen=True)
class Head:
    """What an epoch is, beside its deltas."""

    epoch: int
    committed_at: datetime
    content: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Entry:
    """One relation's delta in one epoch."""

    epoch: int
    committed_at: datetime
    relation: str
    rows: pa.Table
    weights: Any


class Ledger:
    """The committed epochs of one home."""

    def __init__(self, home: Path, inline_bytes: int) -> None:
        self._home = home
        self._path = home / "ledger"
        self._files = home / "deltas"
        self._inline_bytes = inline_bytes
        self._table: DeltaTable | None = None

    def open(self) -> None:
        """Find the ledger of the home, if there is one."""
        try:
            self._table = DeltaTable(str(self._path))
        except TableNotFoundError:
            self._table = None
        except Exception as error:
            raise LedgerError(
                "the ledger cannot be read", detail=str(error), hint="check the folder 'ledger' of the home"
            ) from error

    def commit(self, epoch: int, at: datetime, head: Mapping[str, Any], deltas: Mapping[str, Delta]) -> None:
        """Make an epoch exist, with all of its deltas at once."""
        rows: list[dict[str, Any]] = [
            {"epoch": epoch, "relation": "", "rows": 0, "head": json.dumps(head), "committed_at": at}
        ]
        for relation, delta in deltas.items():
            if len(delta) == 0:
                continue
            row: dict[str, Any] = {
                "epoch": epoch,
                "relation": relation,
                "rows": len(delta),
                "committed_at": at,
            }
            columns = [*delta.rows.columns, pa.chunked_array([pa.array(delta.weights)])]
            table = pa.table(columns, names=[*delta.rows.column_names, "weight"])
            content = _to_bytes(table)
            if len(content) <= self._inline_bytes:
                row["delta"] = content
            else:
                row["file"] = self._write_file(epoch, relation, table)
            rows.append(row)
        batch = pa.Table.from_pylist(rows, schema=_SCHEMA)
        try:
            if self._table is None:
                self._path.mkdir(parents=True, exist_ok=True)
                write_deltalake(
                    str(self._path),
                    batch,
                    mode="append",
                    configuration={"delta.checkpointInterval": str(_CHECKPOINT_EVERY)},
                )
                self._table = DeltaTable(str(self._path))
            else:
                write_deltalake(self._table, batch, mode="append")
        except OSError as error:
            raise _unwritable(error) from error
        except Exception as error:
            raise _unwritable(error) from error

    def _write_file(self, epoch: int, relation: str, table: pa.Table) -> str:
        name = f"{epoch:012d}-{relation.replace('#', '.')}.parquet"
        try:
            self._files.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, self._files / name)
        except OSError as error:
            raise _unwritable(error) from error
        return name

    def heads(self) -> list[Head]:
        """All epochs in order."""
        table = self._read(["epoch", "head", "committed_at"], relation="")
        return [Head(row["epoch"], row["committed_at"], json.loads(row["head"])) for row in table.to_pylist()]

    def entries(self, relation: str | None = None, since: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The deltas after an epoch, up to and including another, in order; of one relation or of all."""
        table = self._read(["epoch", "relation", "delta", "file", "committed_at"], relation, since, until)
        for row in table.to_pylist():
            if row["relation"] == "":
                continue
            content = self._content(row)
            width = content.num_columns - 1
            rows = content.select(list(range(width))).rename_columns([f"c{i}" for i in range(width)])
            weights = content.column(width).to_numpy()
            yield Entry(row["epoch"], row["committed_at"], row["relation"], rows, weights)

    def _content(self, row: Mapping[str, Any]) -> pa.Table:
        if row["delta"] is not None:
            return pa.ipc.open_stream(row["delta"]).read_all()
        try:
            return pq.read_table(self._files / row["file"])
        except OSError as error:
            raise LedgerError(
                f"a file of epoch {row['epoch']} cannot be read",
                detail=str(error),
                hint="restore the home from a backup",
            ) from error

    def _read(
        self, columns: Sequence[str], relation: str | None = None, since: int = 0, until: int | None = None
    ) -> pa.Table:
        if self._table is None:
            return pa.schema([_SCHEMA.field(c) for c in columns]).empty_table()
        wanted = pc.field("epoch") > since
        if until is not None:
            wanted = wanted & (pc.field("epoch") <= until)
        if relation is not None:
            wanted = wanted & (pc.field("relation") == relation)
        table = self._table.to_pyarrow_dataset().to_table(columns=list(columns), filter=wanted)
        return table.sort_by("epoch")


def summed(schema: pa.Schema, entries: Sequence[Entry]) -> Delta:
    """The state that a relation's deltas come to."""
    tables = [pa.table(entry.rows.columns, schema=schema) for entry in entries if len(entry.weights)]
    if not tables:
        return empty(schema)
    weights = np.concatenate([entry.weights for entry in entries if len(entry.weights)])
    return consolidate(pa.concat_tables(tables).combine_chunks(), weights.astype(np.int64))


def now_utc() -> datetime:
    """The time of day, in UTC, to the microsecond."""
    return datetime.now(UTC)


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def _unwritable(error: Exception) -> LedgerError:
    return LedgerError(
        "the ledger cannot be written",
        detail=f"{error}. Nothing of this epoch was committed.",
        hint="free space or mend the rights of the home's folder, then send the call again",
    )
