"""The shape of a topic's envelopes: which fields they have in which order, learnt from a few, held against all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.capture.columns import pattern
from headrace.capture.columns.forms import ColumnForm, Form, column_form, form_of, usual_form
from headrace.capture.columns.origins import BLOCKS, Block
from headrace.capture.exact_json import read_record
from headrace.capture.formats.debezium_origin import text as text_of_block
from headrace.capture.messages import Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.values.assumed import debezium_values
from headrace.intake.positions import numbered
from headrace.intake.table import TableContract

# More columns than this make an expression that takes much memory.
_MOST_COLUMNS = 200
_IMAGES = ("before", "after")
_OF_TABLE = ("db", "schema", "table", "collection")
_OF_LOG = ("connector", "name", *_OF_TABLE)
_Content = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of the images: its name there, its index in the table, and how it is written."""

    given: str
    index: int
    form: ColumnForm


@dataclass(frozen=True, eq=False)
class Shape:
    """What an accepted record is like, and how its columns are read."""

    pattern: str
    # What finds the numbers that are read as text; empty if there are none.
    quoting: str
    parsed: pa.Schema
    columns: tuple[Column, ...]
    block: Block
    # The log that positions are of, as a number.
    log: int
    learnt: tuple[Any, ...]


def learn_shape(samples: Sequence[bytes], table: TableContract, options: FormatOptions) -> Shape | None:
    """The shape of the first sample that has one, with the forms that values have in any of them."""
    contents = [content for content in map(_content, samples) if content is not None]
    for first in contents:
        image = next((one for one in map(first.get, ("after", "before")) if one is not None), {})
        alike = [one for one in contents if list(one) == list(first) and list(one["source"]) == list(first["source"])]
        images = [row for one in alike for row in map(one.get, _IMAGES) if row is not None and list(row) == list(image)]
        shape = _shape(first, image, images, table, options)
        if shape is not None:
            return shape
    return None


def _content(sample: bytes) -> dict[str, Any] | None:
    """An envelope of a change of a row, without a schema and of a connector that is known here."""
    try:
        content: Any = read_record(sample)
    except Undecodable:
        return None
    if not isinstance(content, dict):
        return None
    envelope = cast("dict[str, Any]", content)
    source, images = envelope.get("source"), [envelope.get(name) for name in _IMAGES]
    if not isinstance(source, dict) or cast("dict[str, Any]", source).get("connector") not in BLOCKS:
        return None
    rows = all(one is None or isinstance(one, dict) for one in images)
    return envelope if rows and "op" in envelope and any(images) else None


def _shape(
    envelope: _Content, image: _Content, images: Sequence[_Content], table: TableContract, options: FormatOptions
) -> Shape | None:
    origin: Mapping[str, Any] = envelope["source"]
    connector: str = origin["connector"]
    fields = _image_fields(image, images, connector, table, options)
    if fields is None:
        return None
    row, columns = fields
    block = BLOCKS[connector]
    named: dict[str, str] = {name: known for name, (known, _) in block.fields.items()}
    # Which log it is of: what has another name there is of another shape.
    named |= {name: _literal(origin[name]) for name in _OF_LOG if name in origin}
    named["snapshot"] = pattern.BOOLEAN if type(origin.get("snapshot")) is bool else r'"[a-z_]{0,40}"|null'
    source = [(name, named.get(name, pattern.SCALAR)) for name in origin]
    known = {
        **dict.fromkeys(_IMAGES, pattern.optional(row)),
        "source": pattern.json_object(source),
        "transaction": "null",
        "op": '"[crud]"',
    }
    # What has no operation, or a description of an update, is another kind of record.
    if (
        any(isinstance(origin.get(name), (dict, list)) for name in _OF_LOG)
        or "updateDescription" in envelope
        or not {"after", "op", "source"} <= envelope.keys()
    ):
        return None
    text = pattern.json_object([(name, known.get(name, pattern.SCALAR)) for name in envelope])
    parsed_row = pa.struct([(one.given, one.form.parsed) for one in columns])
    kinds = {name: kind for name, (_, kind) in block.fields.items()}
    kinds["snapshot"] = pa.bool_() if type(origin.get("snapshot")) is bool else pa.string()
    parsed_source = pa.struct([(name, kind) for name, kind in kinds.items() if name in origin])
    parsed = pa.schema([("before", parsed_row), ("after", parsed_row), ("source", parsed_source), ("op", pa.string())])
    written = pattern.whole_text(text)
    # The same as of one record alone, whose names are joined there.
    table_name = ".".join(one for one in (text_of_block(origin.get(name)) for name in _OF_TABLE) if one)
    log = numbered(f"{connector}:{text_of_block(origin.get('name'))}:{table_name}")
    quoted = [one.given for one in columns if one.form.quoted]
    if any(name in origin or name in envelope for name in quoted):
        # A number of that name outside of the rows would be taken for one of theirs.
        return None
    return Shape(written, pattern.quoting(quoted) if quoted else "", parsed, columns, block, log, (written,))


def _literal(value: Any) -> str:
    return re.escape(json.dumps(value, ensure_ascii=False))


def _image_fields(
    image: _Content, images: Sequence[_Content], connector: str, table: TableContract, options: FormatOptions
) -> tuple[str, tuple[Column, ...]] | None:
    """The pattern of an image, and its columns; None if it has what is not known here."""
    declared = {name.lower(): index for index, name in enumerate(table.schema.names)}
    assume = debezium_values(options.time_precision, options.decimal_mode, options.binary_mode, connector)
    fields: list[tuple[str, str]] = []
    columns: list[Column] = []
    if len(image) > _MOST_COLUMNS:
        return None
    for given in image:
        index = declared.get(given.lower())
        if index is None:
            if options.unknown_columns != "ignore":
                return None
            fields.append((given, pattern.SCALAR))
            continue
        field = table.schema.fields[index]
        form = _form([row[given] for row in images], field.dataType)
        if form is None or any(one.index == index for one in columns):
            return None
        encoding = assume(field.dataType, options.time_units.get(field.name.lower()))
        truncate = options.excess_precision == "truncate"
        found = column_form(form, encoding, field.dataType, lambda kind: assume(kind, None), truncate=truncate)
        fields.append((given, pattern.optional(found.pattern)))
        columns.append(Column(given, index, found))
    return pattern.json_object(fields), tuple(columns)


def _form(values: Sequence[Any], data_type: DataType) -> Form | None:
    """The form of the first value that is there; None if it has none here."""
    first = next((value for value in values if value is not None), None)
    return usual_form(data_type) if first is None else form_of(first, data_type)
