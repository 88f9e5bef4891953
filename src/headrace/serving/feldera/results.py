"""The rows of an ad-hoc query in the formats that the client asks for."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as parquet
import pyarrow.types as types
from fastapi.responses import Response, StreamingResponse

from headrace.json_forms import json_column, with_readable_text
from headrace.serving.feldera.json_rows import QUERY, column_texts, json_rows

Format = Literal["text", "json", "parquet", "arrow_ipc", "hash"]
ROWS_AT_ONCE = 1000


def respond(table: pa.Table, form: Format) -> Response:
    """The answer to a query."""
    return _RESPONSES[form](table)


def text_lines(table: pa.Table) -> Iterator[str]:
    """The rows as a ruled table, line by line; NULL is empty."""
    columns = [_cells(name, column) for name, column in zip(table.column_names, table.columns, strict=True)]
    widths = [max(map(len, cells)) for cells in columns]
    rule = "+" + "".join(f"{'-' * (width + 2)}+" for width in widths)
    yield rule
    for index, cells in enumerate(zip(*columns, strict=True)):
        yield "|" + "".join(f" {cell:<{width}} |" for cell, width in zip(cells, widths, strict=True))
        if index == 0:
            yield rule
    if table.num_rows:
        yield rule


def naive(table: pa.Table) -> pa.Table:
    """The table with timestamps as the client knows them: UTC, without saying so."""
    fields = [pa.field(f.name, _naive_type(f.type), f.nullable) for f in table.schema]
    return table if table.schema.types == [f.type for f in fields] else table.cast(pa.schema(fields))


def _naive_type(kind: pa.DataType) -> pa.DataType:
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if types.is_list(kind):
        return pa.list_(_naive_field(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_naive_field(kind.key_field), _naive_field(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_naive_field(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _naive_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _naive_type(field.type), field.nullable)


def _json(table: pa.Table) -> Response:
    return StreamingResponse(_joined(json_rows(table, QUERY)), media_type="application/x-ndjson")


def _text(table: pa.Table) -> Response:
    return StreamingResponse(_joined(text_lines(table)), headers={"content-type": "text/plain"})


def _hash(table: pa.Table) -> Response:
    """Of the rows in their order: ask for an ORDER BY where it is to stay the same."""
    digest = hashlib.sha256("\n".join([",".join(table.column_names), *json_rows(table, QUERY)]).encode())
    # The client reads anything but exactly this content type as JSON.
    return Response(digest.hexdigest(), headers={"content-type": "text/plain"})


def _parquet(table: pa.Table) -> Response:
    sink = io.BytesIO()
    parquet.write_table(naive(with_readable_text(table)), sink)
    return Response(sink.getvalue(), media_type="application/vnd.apache.parquet")


def _arrow(table: pa.Table) -> Response:
    sink = pa.BufferOutputStream()
    plain = naive(with_readable_text(table))
    with pa.ipc.new_stream(sink, plain.schema) as stream:
        stream.write_table(plain)
    return Response(sink.getvalue().to_pybytes(), media_type="application/vnd.apache.arrow.stream")


_RESPONSES: dict[Format, Callable[[pa.Table], Response]] = {
    "text": _text,
    "json": _json,
    "parquet": _parquet,
    "arrow_ipc": _arrow,
    "hash": _hash,
}


def _joined(lines: Iterator[str]) -> Iterator[bytes]:
    """Lines in pieces that are worth sending."""
    while piece := list(islice(lines, ROWS_AT_ONCE)):
        yield ("\n".join(piece) + "\n").encode()


def _cells(name: str, column: pa.ChunkedArray) -> list[str]:
    """The column's name and values, each on one line."""
    if types.is_string(column.type) or types.is_large_string(column.type):
        texts = [value or "" for value in json_column(column)]
    else:
        # Of what is written in quotes, only those around the whole go; NULL is nothing at all.
        written = column_texts(column, QUERY)
        texts = ["" if text is None else text.strip('"') for text in written]
    return [text.translate(_ONE_LINE) for text in (name, *texts)]


_ONE_LINE = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
