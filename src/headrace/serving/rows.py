"""A table as the answer that was asked for: JSON, NDJSON, an Arrow stream or CSV."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import csv, ipc

from headrace.errors import QueryError
from headrace.json_forms import json_column, json_rows, with_readable_text
from headrace.serving.problems import Refusal
from headrace.state.arrow_types import sql_name

JSON, NDJSON, ARROW, CSV = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/csv"
_SLICE = 5_000


@dataclass(frozen=True)
class Result:
    """What a query gave: its rows, the epoch they are of, and whether the asker's own limit cut them off."""

    table: pa.Table
    epoch: int
    truncated: bool = False


def chosen(accept: str) -> str:
    """The media type that an Accept header prefers among those offered; 406 if it takes none."""
    best, best_weight = "", 0.0
    for offered in _WRITERS:
        weight = _weight(offered, accept or "*/*")
        if weight > best_weight:
            best, best_weight = offered, weight
    if not best:
        raise Refusal(
            406,
            "not_acceptable",
            "no offered form of the rows is acceptable",
            detail=f"Offered are {', '.join(_WRITERS)}.",
            hint="name one of them in Accept, or leave the header out for JSON",
        )
    return best


def written(result: Result, media: str) -> Iterator[bytes]:
    """The bytes of an answer, piece by piece."""
    if media in (JSON, NDJSON):
        refuse_twin_names(result.table)
    return _WRITERS[media](result)


def refuse_twin_names(table: pa.Table) -> None:
    """A row that is an object has one value for a name."""
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise QueryError(
            f"two columns are named {twice}",
            hint="give one of them another name with AS, or ask for CSV or Arrow",
        )


def _weight(offered: str, accept: str) -> float:
    """How much a header wants a type: the q of the most specific range that covers it."""
    found: tuple[int, float] = (-1, 0.0)
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name not in (offered, f"{offered.partition('/')[0]}/*", "*/*"):
            continue
        weights = [_number(one[2:]) for one in parameters if one.startswith("q=")]
        found = max(found, (_specificity(name), weights[0] if weights else 1.0))
    return found[1]


def _specificity(name: str) -> int:
    return 0 if name == "*/*" else 1 if name.endswith("/*") else 2


def _number(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def _as_json(result: Result) -> Iterator[bytes]:
    head = {
        "epoch": result.epoch,
        "truncated": result.truncated,
        "columns": [{"name": field.name, "type": sql_name(field.type)} for field in result.table.schema],
    }
    yield json.dumps(head, ensure_ascii=False)[:-1].encode() + b', "rows": ['
    separator = b""
    for part in _slices(result.table):
        rows = json.dumps(json_rows(part), ensure_ascii=False)[1:-1]
        yield separator + rows.encode()
        separator = b", "
    yield b"]}"


def _as_ndjson(result: Result) -> Iterator[bytes]:
    for part in _slices(result.table):
        lines = [json.dumps(row, ensure_ascii=False) for row in json_rows(part)]
        yield ("\n".join(lines) + "\n").encode()


def _as_arrow(result: Result) -> Iterator[bytes]:
    sink = io.BytesIO()
    table = with_readable_text(result.table)
    with ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=_SLICE):
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _as_csv(result: Result) -> Iterator[bytes]:
    """Text is quoted, NULL is nothing at all; what CSV has no form for is JSON inside its field."""
    table = with_readable_text(result.table)
    columns = [_plain_column(column) for column in table.columns]
    flat = pa.table(columns, names=table.column_names)
    sink = io.BytesIO()
    csv.write_csv(flat, sink)
    yield sink.getvalue()


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_nested(kind):
        texts = [None if value is None else json.dumps(value, ensure_ascii=False) for value in json_column(column)]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return column
    texts = [None if value is None else str(value) for value in json_column(column)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, _SLICE):
        yield table.slice(start, _SLICE)


_WRITERS: Mapping[str, Callable[[Result], Iterator[bytes]]] = {
    JSON: _as_json,
    NDJSON: _as_ndjson,
    ARROW: _as_arrow,
    CSV: _as_csv,
}
