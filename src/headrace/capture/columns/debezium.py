"""Records of one table as columns: changes in order, and what the raw table keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj
from pyspark.sql.types import ArrayType, IntegralType, StringType, StructType

from headrace.capture.columns import pattern
from headrace.capture.columns.forms import column_form, usual_form
from headrace.capture.columns.origins import source_times
from headrace.capture.columns.shape import Column, Shape, learn_shape
from headrace.capture.columns.texts import join, row_text, scattered
from headrace.capture.formats.debezium_origin import is_snapshot
from headrace.capture.options import FormatOptions
from headrace.capture.unavailable import unavailable_texts
from headrace.capture.values.encoding import PLAIN
from headrace.intake.table import TableContract
from headrace.state.arrow_compute import pc
from headrace.state.arrow_types import arrow_schema

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
_SAMPLES = 20
_MOST_SHAPES = 4
# So much of a batch may be read record by record before another shape is looked for.
_TOLERATED = 0.02
_BLOCK_BYTES = 4 << 20
_OPERATIONS = pa.array(["create", "read", "update", "delete"], pa.string())
_LETTERS = pa.array(["c", "r", "u", "d"], pa.string())
RAW = pa.schema(
    [
        ("operation", pa.string()),
        ("before", pa.large_string()),
        ("after", pa.large_string()),
        ("source_at", pa.int64()),
        ("position", pa.large_string()),
    ]
)

LOGGED = pa.schema([("log", pa.int64()), ("order", pa.string()), ("read", pa.bool_())])


@dataclass(frozen=True, eq=False)
class ChangeColumns:
    """Changes of one table, in order: rows in its own types, which are deletes, and the record that each came from.

    The row of a delete of a key has the key, and the sequence if the table has one. `raw` has a row for each record of
    `raw_places`: all that were understood but for tombstones; `logged` tells where each of them is in its source: the
    log, the order in it, whether it was read. Times are microseconds.
    """

    understood: Marks
    rows: pa.Table
    deleted: Marks
    places: Places
    raw: pa.Table
    raw_places: Places
    logged: pa.Table


class _Image(NamedTuple):
    """Rows before or after changes: values and JSON texts by index, the texts of rows, and those that are refused."""

    values: dict[int, pa.Array]
    texts: dict[int, pa.Array]
    rows: pa.Array
    refused: Marks


class _Part(NamedTuple):
    """What was made of some records: deletes and inserts with their places, and rows of the raw table with theirs."""

    deletes: tuple[pa.Table, Places]
    inserts: tuple[pa.Table, Places]
    raw: tuple[pa.Table, Places]
    logged: pa.Table
    understood: Places


def can_be_columns(table: TableContract) -> bool:
    """Whether changes of a table can be ordered and compared as columns."""
    return table.sequence is None or not isinstance(table.schema[table.sequence].dataType, (ArrayType, StructType))


class ColumnDecoder:
    """Reads many records of one table; what it does not surely understand it leaves to others."""

    def __init__(self, table: TableContract, options: FormatOptions) -> None:
        self._table = table
        self._options = options
        self._schema = arrow_schema(field.dataType for field in table.schema.fields)
        self._unavailable = pa.array(sorted(unavailable_texts(options.unavailable_value)), pa.string())
        self._shapes: list[Shape] = []
        sequence = () if table.sequence is None else (table.schema.names.index(table.sequence),)
        # What a delete names, and what no change may lack.
        self._carried = (*table.key_indexes, *sequence) if table.key else tuple(range(len(self._schema)))
        self._required = {
            *((*table.key_indexes, *sequence) if table.key else ()),
            *(index for index, field in enumerate(table.schema.fields) if not field.nullable),
        }
        self._key = _key_columns(table)

    def decode(self, values: pa.Array, keys: pa.Array) -> ChangeColumns:
        """The changes of all records that are understood, of those given: bytes of values and keys."""
        there = np.asarray(values.is_valid())
        parts = [self._tombstones(keys, np.flatnonzero(~there))]
        texts = _texts(values)
        left = np.flatnonzero(np.asarray(texts.is_valid()))
        tried = 0
        while len(left):
            if tried == len(self._shapes):
                many = tried == 0 or len(left) > _TOLERATED * len(values)
                new = self._learn(values, left) if many else None
                if new is None:
                    break
                self._shapes.append(new)
            shape = self._shapes[tried]
            tried += 1
            # Texts are long: they are copied only where some are left out.
            here = texts if len(left) == len(texts) else texts.take(pa.array(left))
            fits = np.asarray(pc.match_substring_regex(here, shape.pattern))
            if fits.any():
                chosen = here if fits.all() else here.filter(pa.array(fits))
                parts.append(self._read(shape, chosen, left[fits]))
                # One of this shape with a value that must be looked at alone is of no other shape either.
                left = left[~fits]
        return self._end_to_end(parts, len(values))

    def _learn(self, values: pa.Array, left: Places) -> Shape | None:
        if len(self._shapes) >= _MOST_SHAPES:
            return None
        chosen = left[np.linspace(0, len(left) - 1, _SAMPLES).astype(np.int64)]
        shape = learn_shape(values.take(pa.array(chosen)).to_pylist(), self._table, self._options)
        known = shape is None or any(shape.learnt == one.learnt for one in self._shapes)
        return None if known else shape

    def _read(self, shape: Shape, texts: pa.Array, places: Places) -> _Part:
        """The changes of records of one shape; the places are those of the records."""
        if shape.quoting:
            texts = pc.replace_substring_regex(texts, shape.quoting, r'\1"\2"')
        parsed = _parsed(texts, shape.parsed)
        if parsed is None:
            return self._nothing()
        length = len(texts)
        before, after, source = (parsed[name] for name in ("before", "after", "source"))
        operations = pc.index_in(parsed["op"], _LETTERS)
        is_delete, is_update = (np.asarray(pc.equal(parsed["op"], letter)) for letter in "du")
        has_before, has_after = np.asarray(before.is_valid()), np.asarray(after.is_valid())
        keyless = not self._table.key
        alone = np.where(is_delete, ~has_before, ~has_after) | (is_update & ~has_before & keyless)
        fields = {field.name: source.field(index) for index, field in enumerate(source.type)}
        times, far = source_times(fields, length)
        place = shape.block.position(fields, length)
        # Where a record is in its log must be told, for the changes of a key to be in order.
        alone |= far | np.asarray(pc.equal(place.orders, ""))
        with_after = np.flatnonzero(~is_delete & has_after)
        with_before = np.flatnonzero((is_delete | is_update) & has_before)
        new = self._image(shape, after.take(pa.array(with_after)))
        old = self._image(shape, before.take(pa.array(with_before)))
        alone[with_after] |= new.refused | self._lacking(new, len(with_after), self._required)
        gone = is_delete[with_before] | keyless
        lacking = self._lacking(old, len(with_before), self._required.intersection(self._carried))
        alone[with_before] |= old.refused | (gone & lacking)
        if keyless and len(shape.columns) < len(self._schema):
            # A row without a key is known by all of its columns.
            alone[with_before] = True
        self._mark_moved(alone, new, old, with_after, with_before)
        kept_new, kept_old = ~alone[with_after], ~alone[with_before]
        inserts = self._rows(new, kept_new), places[with_after[kept_new]]
        deletes = self._rows(old, kept_old & gone, self._carried), places[with_before[kept_old & gone]]
        chosen = pa.array(np.flatnonzero(~alone))
        raw = pa.table(
            [
                _OPERATIONS.take(operations.take(chosen)),
                scattered(length, with_before, old.rows).take(chosen),
                scattered(length, with_after, new.rows).take(chosen),
                times.take(chosen),
                place.texts.take(chosen),
            ],
            schema=RAW,
        )
        logs = pa.array(np.full(len(chosen), shape.log, dtype=np.int64))
        logged = pa.table([logs, place.orders.take(chosen), _read_marks(fields, length).take(chosen)], schema=LOGGED)
        return _Part(deletes, inserts, (raw, places[~alone]), logged, places[~alone])

    def _image(self, shape: Shape, image: pa.Array) -> _Image:
        refused = np.zeros(len(image), dtype=bool)
        values: dict[int, pa.Array] = {}
        texts: dict[int, pa.Array] = {}
        names: list[str] = []
        for number, column in enumerate(shape.columns):
            parsed = image.field(number)
            read = column.form.read(parsed)
            refused |= read.refused | (not column.form.quoted and self._placeholders(parsed))
            values[column.index], texts[column.index] = read.values, read.texts
            names.append(self._table.schema.names[column.index])
        return _Image(values, texts, row_text(names, [texts[one.index] for one in shape.columns], len(image)), refused)

    def _placeholders(self, parsed: pa.Array) -> Marks | bool:
        """Which values are only named, and stay what they are."""
        return np.asarray(pc.is_in(parsed, self._unavailable)) if pa.types.is_string(parsed.type) else False

    def _lacking(self, image: _Image, length: int, required: set[int]) -> Marks:
        """Which rows have no value where there must be one."""
        lacking = np.zeros(length, dtype=bool)
        for index in required:
            column = image.values.get(index)
            lacking |= True if column is None else np.asarray(column.is_null())
        return lacking

    def _mark_moved(self, alone: Marks, new: _Image, old: _Image, with_after: Places, with_before: Places) -> None:
        """Mark updates after which a row has another key: they are two changes, and seldom."""
        length = len(alone)
        for index in self._table.key_indexes:
            if index not in new.texts or index not in old.texts:
                continue
            was, now = scattered(length, with_before, old.texts[index]), scattered(length, with_after, new.texts[index])
            differs = pc.and_(pc.not_equal(was, now), pc.not_equal(was, pa.scalar("null", was.type)))
            alone |= np.asarray(pc.fill_null(differs, False))

    def _rows(self, image: _Image, kept: Marks, indexes: Sequence[int] | None = None) -> pa.Table:
        wanted = image.values.keys() if indexes is None else image.values.keys() & set(indexes)
        count = int(kept.sum())
        mask = pa.array(kept)
        columns = [
            image.values[index].filter(mask) if index in wanted else pa.nulls(count, field.type)
            for index, field in enumerate(self._schema)
        ]
        return pa.table(columns, schema=self._schema)

    def _tombstones(self, keys: pa.Array, places: Places) -> _Part:
        """Deletes of keys whose records have no value any more, where a key alone is enough to delete a row."""
        nothing = self._nothing()
        if not len(places):
            return nothing
        if not self._table.key or self._table.sequence is not None:
            return nothing._replace(understood=places)
        if self._key is None:
            return nothing
        expression, schema, columns = self._key
        texts = _texts(keys.take(pa.array(places)))
        fits = np.asarray(pc.fill_null(pc.match_substring_regex(texts, expression), False))
        parsed = _parsed(texts.filter(pa.array(fits)), schema) if fits.any() else None
        if parsed is None:
            return nothing
        values: dict[int, pa.Array] = {}
        refused = np.zeros(int(fits.sum()), dtype=bool)
        for column in columns:
            read = column.form.read(parsed[column.given])
            refused |= read.refused | self._placeholders(parsed[column.given])
            values[column.index] = read.values
        image = _Image(values, {}, pa.nulls(0), refused)
        understood = places[fits][~refused]
        return nothing._replace(deletes=(self._rows(image, ~refused), understood), understood=understood)

    def _nothing(self) -> _Part:
        none = np.zeros(0, dtype=np.int64)
        rows = self._schema.empty_table(), none
        return _Part(rows, rows, (RAW.empty_table(), none), LOGGED.empty_table(), none)

    def _end_to_end(self, parts: Sequence[_Part], length: int) -> ChangeColumns:
        understood = np.zeros(length, dtype=bool)
        for part in parts:
            understood[part.understood] = True
        # Of one record, a delete comes before an insert.
        tables = [*(part.deletes for part in parts), *(part.inserts for part in parts)]
        places = np.concatenate([where for _, where in tables])
        deleted = np.concatenate(
            [np.full(len(where), number < len(parts)) for number, (_, where) in enumerate(tables)]
        ).astype(bool)
        order = np.argsort(places, kind="stable")
        rows = pa.concat_tables([table for table, _ in tables]).combine_chunks().take(pa.array(order))
        raw = pa.concat_tables([part.raw[0] for part in parts])
        raw_places = np.concatenate([part.raw[1] for part in parts])
        logged = pa.concat_tables([part.logged for part in parts])
        return ChangeColumns(understood, rows, deleted[order], places[order], raw, raw_places, logged)


def _key_columns(table: TableContract) -> tuple[str, pa.Schema, tuple[Column, ...]] | None:
    """How the key of a record is written that has just the table's key, where that is of numbers and text."""
    fields = [table.schema.fields[index] for index in table.key_indexes]
    plain = all(isinstance(field.dataType, (IntegralType, StringType)) for field in fields)
    # Of what looks like a payload beside its schema, only the payload counts.
    if not fields or not plain or {field.name for field in fields} <= {"schema", "payload"}:
        return None
    forms = [
        column_form(usual_form(field.dataType), PLAIN, field.dataType, lambda _: PLAIN, truncate=False)
        for field in fields
    ]
    named = list(zip(fields, table.key_indexes, forms, strict=True))
    text = pattern.json_object([(field.name, form.pattern) for field, _, form in named])
    schema = pa.schema([(field.name, form.parsed) for field, _, form in named])
    return pattern.whole_text(text), schema, tuple(Column(field.name, index, form) for field, index, form in named)


def _read_marks(fields: dict[str, pa.Array], length: int) -> pa.Array:
    """Which rows were read by a snapshot, and not logged."""
    words = fields.get("snapshot")
    if words is None:
        return pa.array(np.zeros(length, dtype=bool))
    numbered = words.dictionary_encode()
    marks = pa.array([is_snapshot(word) for word in numbered.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(marks.take(numbered.indices), False)


def _texts(values: pa.Array) -> pa.Array:
    """Bytes as text; NULL for those that are none."""
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([_text(one) for one in values.to_pylist()], pa.large_string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _parsed(texts: pa.Array, schema: pa.Schema) -> dict[str, Any] | None:
    """The fields of objects, one of each text, by name; None if Arrow makes something else of them."""
    lines = join(texts, "\n")
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int64)[lines.offset : lines.offset + len(lines) + 1]
    content = lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(content), pj.ReadOptions(block_size=_BLOCK_BYTES), options)
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(texts):
        return None
    return {name: _one_chunk(table[name]) for name in schema.names}


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
