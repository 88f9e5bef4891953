"""How a relation's delta lies in rows of the ledger: inside of one, in a file that it names, or in files of Spark's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.ledger.durable import take_named, write_named
from headrace.ledger.names import plain_name
from headrace.ledger.written import Written
from headrace.state.delta import Delta
from headrace.storage.folders import make_folder
from headrace.storage.objects import Location


def delta_rows(
    folder: Location, inline_bytes: int, epoch: int, relation: str, delta: Delta | Written
) -> Iterator[dict[str, Any]]:
    """What the rows of a delta hold: most often it is one, with the delta inside. Files go to the folder."""
    files, delta = (delta, delta.delta) if isinstance(delta, Written) else (None, delta)
    columns = [*delta.rows.columns, pa.chunked_array([pa.array(delta.weights)])]
    table = pa.table(columns, names=[*delta.rows.column_names, "weight"])
    if table.nbytes <= inline_bytes:
        yield {"rows": len(delta), "delta": _to_bytes(table)}
    elif files is None:
        yield {"rows": len(delta), "file": write_large(folder, epoch, relation, table)}
    else:
        make_folder(folder)
        for file, rows in files.parts():
            yield {"rows": rows, "file": take_named(folder, _prefix(epoch, relation), file)}


def write_large(folder: Location, epoch: int, relation: str, table: pa.Table) -> str:
    """Write a large delta; the name of its file, for the row that will name it."""
    make_folder(folder)
    strings = [field.name for field in table.schema if pa.types.is_string(field.type)]
    name, _ = write_named(
        folder,
        _prefix(epoch, relation),
        lambda sink: pq.write_table(
            table,
            sink,
            compression="zstd",
            row_group_size=250_000,
            use_dictionary=strings,  # pyright: ignore[reportArgumentType]
        ),
    )
    return name


def mark() -> str:
    """A part of a file's name that no other writer has: who lost its turn removes its own files, never another's."""
    return secrets.token_hex(4)


def _prefix(epoch: int, relation: str) -> str:
    """How the name of a large delta's file begins."""
    return f"{epoch:012d}-{plain_name(relation)}-{mark()}-"


def _to_bytes(table: pa.Table) -> bytes:
    # Half packed already, it takes the file's own compression half of the time, and the file is hardly larger.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()
