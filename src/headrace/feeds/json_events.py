"""Events as JSON, column by column: one text for each, in the envelope that the feed asks for.

    ours      {"sequence", "timestamp", "table", "operation", "key", "new_row", "old_row"}; old_row only when asked for
    wrapped   {"after", "before", "updated", "key"}; before only when asked for
    debezium  {"before", "after", "source", "op", "ts_ms"}; without old values, `before` of a delete has its key alone

Values have the one form of json_forms.py. Texts are made by Arrow, whole columns at a time; what it cannot write as we
do (broken text, far years, nested values) is written one by one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from headrace.feeds.batch import Batch
from headrace.json_forms import is_readable, json_column, json_form
from headrace.state.arrow_compute import pc

_ESCAPED = r'["\\\x00-\x1f]'
# Arrow writes a decimal of more than these places with an exponent where it is small.
_PLAIN_SCALE = 6
# Where the years begin that Python knows, and where they end.
_YEARS = {
    "s": (-62_135_596_800, 253_402_300_800),
    "ms": (-62_135_596_800_000, 253_402_300_800_000),
    "us": (-62_135_596_800_000_000, 253_402_300_800_000_000),
}
_DAY_1, _DAY_10000 = -719_162, 2_932_897
_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "RESET": "t"}


def event_texts(batch: Batch) -> list[bytes]:
    """Each event of a batch as JSON, in the envelope of its feed; worked out once."""
    envelope = batch.form.envelope
    if envelope not in batch.made:
        make = {"ours": _ours, "wrapped": _wrapped, "debezium": _debezium}[envelope]
        batch.made[envelope] = [_reset(batch)] if _is_reset(batch) else _binary(make(batch)).to_pylist()
    return batch.made[envelope]


def key_texts(batch: Batch) -> list[bytes]:
    """The key of each event as a JSON object; null of a RESET."""
    if "key" not in batch.made:
        texts = [b"null"] if _is_reset(batch) else _binary(row_texts(batch.rows.select(list(batch.key)))).to_pylist()
        batch.made["key"] = texts
    return batch.made["key"]


def row_texts(rows: pa.Table) -> pa.Array:
    """Each row as a JSON object by column name."""
    if not rows.num_columns:
        return pa.array(["{}"] * rows.num_rows, pa.large_string())
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(rows.column_names, rows.columns, strict=True)):
        parts += ["{" * (not index) + "," * bool(index) + _text(name) + ":", column_texts(column)]
    return _joined(*parts, "}")


def column_texts(column: pa.ChunkedArray) -> pa.Array:
    """The JSON text of each value; NULL for NULL."""
    kind = column.type
    if types.is_integer(kind) or types.is_boolean(kind):
        return _whole(column).cast(pa.large_string())
    if types.is_null(kind):
        return pa.nulls(len(column), pa.large_string())
    if types.is_string(kind) or types.is_large_string(kind):
        return _strings(column)
    if types.is_decimal(kind) and 0 <= kind.scale <= _PLAIN_SCALE:
        return _quoted(_whole(column).cast(pa.string()))
    if types.is_date32(kind) and _within(column, pa.int32(), _DAY_1, _DAY_10000):
        return _quoted(_whole(column).cast(pa.string()))
    if types.is_timestamp(kind) and _within(column, pa.int64(), *_YEARS.get(kind.unit, (0, 0))):
        return _moments(_whole(column))
    if types.is_float64(kind) or types.is_float32(kind):
        array = _whole(column)
        if not pc.any(pc.invert(pc.is_finite(array))).as_py():
            # No number has a comma in it.
            texts = _text(array.to_pylist())[1:-1].split(",") if len(array) else []
            made = pa.array(texts, pa.large_string())
            return pc.if_else(pc.is_valid(array), made, pa.scalar(None, pa.large_string()))
    values = json_column(column)
    return pa.array([None if one is None else _text(one) for one in values], pa.large_string())


def moment_text(moment: datetime) -> str:
    """A time as events tell it."""
    return json_form(moment.astimezone(UTC))


def _ours(batch: Batch) -> pa.Array:
    removed = _is("DELETE", batch)
    rows = row_texts(batch.rows)
    parts: list[Any] = [
        '{"sequence":',
        _numbers(batch.sequences),
        ',"timestamp":"',
        _by_value(batch.committed_at, moment_text),
        f'","table":{_text(batch.form.table)},"operation":"',
        pa.array(batch.operations, pa.large_string()),
        '","key":',
        _keys(batch),
        ',"new_row":',
        pc.if_else(removed, _NULL, rows),
    ]
    if batch.form.include_old_values:
        parts += [',"old_row":', _old(batch)]
    return _joined(*parts, "}")


def _wrapped(batch: Batch) -> pa.Array:
    rows = row_texts(batch.rows)
    parts: list[Any] = ['{"after":', pc.if_else(_is("DELETE", batch), _NULL, rows)]
    if batch.form.include_old_values:
        parts += [',"before":', _old(batch)]
    keys: list[Any] = [part for name in batch.key for part in (",", column_texts(batch.rows.column(name)))]
    parts += [
        ',"updated":"',
        _by_value(batch.committed_at, lambda moment: str(_micros(moment) * 1000)),
        ".",
        # As a clock's logical part: events of one epoch are told apart, and in order.
        pc.utf8_lpad(_numbers(batch.sequences), 10, "0"),
        '","key":[',
        *keys[1:],
        "]}",
    ]
    return _joined(*parts)


def _debezium(batch: Batch) -> pa.Array:
    rows = row_texts(batch.rows)
    removed = _is("DELETE", batch)
    before = _old(batch) if batch.form.include_old_values else pc.if_else(removed, _keys(batch), _NULL)
    ops = [_OPS[one] for one in batch.operations]
    moments = _by_value(batch.committed_at, lambda moment: str(_micros(moment) // 1000))
    source = f'"version":"1","connector":"headrace","name":{_text(batch.form.feed)},"db":"headrace","schema":null,'
    return _joined(
        '{"before":',
        before,
        ',"after":',
        pc.if_else(removed, _NULL, rows),
        ',"source":{' + source + f'"table":{_text(batch.form.table)},"snapshot":"{str(batch.scan).lower()}","ts_ms":',
        moments,
        ',"epoch":',
        _numbers(batch.epochs),
        ',"sequence":',
        _numbers(batch.sequences),
        '},"op":"',
        pa.array(["r"] * len(ops) if batch.scan else ops, pa.large_string()),
        '","ts_ms":',
        moments,
        "}",
    )


def _reset(batch: Batch) -> bytes:
    """That a relation is another from here on, and which columns it has now."""
    moment, sequence = batch.committed_at[0], batch.sequences[0]
    columns = [{"name": one.name, "type": one.dataType.simpleString()} for one in batch.columns.fields]
    if batch.form.envelope == "ours":
        told: dict[str, Any] = {"sequence": sequence, "timestamp": moment_text(moment), "table": batch.form.table}
        told |= {"operation": "RESET", "key": None, "new_row": None, "columns": columns}
    elif batch.form.envelope == "wrapped":
        updated = f"{_micros(moment) * 1000}.{sequence:010d}"
        told = {"after": None, "updated": updated, "key": None, "reset": True, "columns": columns}
    else:
        source: dict[str, Any] = {"version": "1", "connector": "headrace", "name": batch.form.feed, "db": "headrace"}
        source |= {"schema": None, "table": batch.form.table, "snapshot": "false", "ts_ms": _micros(moment) // 1000}
        source |= {"epoch": int(batch.epochs[0]), "sequence": sequence}
        told = {"before": None, "after": None, "source": source, "op": "t", "ts_ms": _micros(moment) // 1000}
    return _text(told).encode()


def _is_reset(batch: Batch) -> bool:
    return batch.operations.tolist() == ["RESET"]


_NULL = pa.scalar("null", pa.large_string())


def _old(batch: Batch) -> pa.Array:
    """The old rows, of a delete the row that is gone; null of an insert."""
    old = pc.if_else(_is("INSERT", batch), _NULL, row_texts(batch.old_rows))
    return pc.if_else(_is("DELETE", batch), row_texts(batch.rows), old)


def _keys(batch: Batch) -> pa.Array:
    return pa.array(key_texts(batch), pa.large_binary()).cast(pa.large_string())


def _is(operation: str, batch: Batch) -> pa.Array:
    return pa.array(batch.operations == operation)


def _numbers(values: npt.ArrayLike) -> pa.Array:
    return pa.array(np.asarray(values, dtype=np.int64)).cast(pa.large_string())


def _by_value(moments: npt.NDArray[np.object_], text: Any) -> pa.Array:
    """A text for each moment; the many that are the same are written once."""
    known = {one: text(one) for one in set(moments)}
    return pa.array([known[one] for one in moments], pa.large_string())


def _micros(moment: datetime) -> int:
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _strings(column: pa.ChunkedArray) -> pa.Array:
    if not is_readable(column):
        texts = [None if one is None else _text(one) for one in json_column(column)]
        return pa.array(texts, pa.large_string())
    array = _whole(column).cast(pa.large_string())
    plain = _quoted(array)
    escaped = pc.match_substring_regex(array, _ESCAPED)
    if not pc.any(escaped).as_py():
        return plain
    mask = escaped.fill_null(False)
    texts = [_text(one) for one in array.filter(mask).to_pylist()]
    return pc.replace_with_mask(plain, mask, pa.array(texts, pa.large_string()))


def _moments(array: pa.Array) -> pa.Array:
    """Times as Python writes them: a T in the middle, six places or none, and +00:00 where they have a zone."""
    micros = array.cast(pa.timestamp("us", array.type.tz))
    texts = micros.cast(pa.string()).cast(pa.large_string())
    ticks = micros.cast(pa.int64())
    seconds = pc.multiply(pc.divide(ticks, 1_000_000), 1_000_000)
    clock = pc.if_else(
        pc.equal(seconds, ticks),
        pc.utf8_slice_codeunits(texts, 11, 19),
        pc.utf8_slice_codeunits(texts, 11, 26),
    )
    date = pc.utf8_slice_codeunits(texts, 0, 10)
    return _joined('"', date, "T", clock, '"' if array.type.tz is None else '+00:00"', nulls=True)


def _within(column: pa.ChunkedArray, kind: pa.DataType, first: int, end: int) -> bool:
    bounds = pc.min_max(column.cast(kind))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is None or (low >= first and high < end)


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined('"', texts.cast(pa.large_string()), '"', nulls=True)


def _joined(*parts: Any, nulls: bool = False) -> pa.Array:
    """Texts put together, row by row; a NULL among them is null, or makes all of it NULL."""
    given = [pa.scalar(one, pa.large_string()) if isinstance(one, str) else one for one in parts]
    handling = "emit_null" if nulls else "replace"
    empty = pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(*given, empty, null_handling=handling, null_replacement="null")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """All of a column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _binary(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.large_binary())
