"""How a relation's delta lies in rows of the ledger: inside of one, in a file that it names, or in files of Spark's."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.ledger.durable import ContentChanged, take_named, withdraw, write_named
from headrace.ledger.names import plain_name
from headrace.ledger.written import Part, Written
from headrace.state.delta import Delta
from headrace.storage.folders import make_folder
from headrace.storage.objects import Location

_log = logging.getLogger("headrace.ledger")


def delta_rows(
    folder: Location, inline_bytes: int, epoch: int, relation: str, delta: Delta | Written
) -> Iterator[dict[str, Any]]:
    """What the rows of a delta hold: most often it is one, with the delta inside. Files go to the folder."""
    parts, delta = (delta.parts, delta.delta) if isinstance(delta, Written) else ((), delta)
    columns = [*delta.rows.columns, pa.chunked_array([pa.array(delta.weights)])]
    table = pa.table(columns, names=[*delta.rows.column_names, "weight"])
    if table.nbytes <= inline_bytes:
        yield {"rows": len(delta), "delta": _to_bytes(table)}
    elif taken := _taken(folder, epoch, relation, parts, len(delta)):
        yield from taken
    else:
        yield {"rows": len(delta), "file": write_large(folder, epoch, relation, table)}


def _taken(folder: Location, epoch: int, relation: str, parts: Sequence[Part], rows: int) -> list[dict[str, Any]]:
    """What names files that hold so many rows, which are the folder's from now on, all of them or none.

    None at all if one of them is no longer what the rows were read from: whoever holds the rows can write them.
    """
    if sum(part.rows for part in parts) != rows:
        return []
    make_folder(folder)
    taken: list[dict[str, Any]] = []
    try:
        for part in parts:
            if part.rows:
                name = take_named(folder, _prefix(epoch, relation), part.file, part.digest)
                taken.append({"rows": part.rows, "file": name})
    except BaseException as error:
        withdraw(folder / one["file"] for one in taken)
        if not isinstance(error, ContentChanged):
            raise
        _log.warning("%s was changed by others, and is written anew for epoch %d", error, epoch)
        return []
    return taken


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
