"""Spark's types, read for their extent: the text is kept, Spark alone says what it means."""

from __future__ import annotations

from headrace.errors import StatementError
from headrace.sql.reader import Reader, near_miss
from headrace.sql.tokens import keywords

_TYPES = keywords(
    """ARRAY BIGINT BINARY BOOLEAN BYTE CHAR CHARACTER DATE DEC DECIMAL DOUBLE FLOAT GEOGRAPHY GEOMETRY INT
    INTEGER INTERVAL LONG MAP NUMERIC REAL SHORT SMALLINT STRING STRUCT TIME TIMESTAMP TIMESTAMP_LTZ
    TIMESTAMP_NTZ TINYINT VARCHAR VARIANT VOID"""
)
_INTERVAL_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_FOREIGN = {
    "TEXT": "STRING",
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP",
    "INT2": "SMALLINT",
    "INT4": "INT",
    "INT8": "BIGINT",
    "SERIAL": "INT",
    "BIGSERIAL": "BIGINT",
    "BLOB": "BINARY",
    "BYTEA": "BINARY",
    "NUMBER": "DECIMAL",
    "UUID": "STRING",
    "JSON": "STRING or VARIANT",
    "JSONB": "STRING or VARIANT",
}


def read_type(reader: Reader) -> str:
    """The exact text of the type that begins here; an unknown type is an error with its position."""
    begin = reader.index
    name = reader.keyword()
    if not name:
        raise reader.expected("a type")
    if name not in _TYPES:
        raise _unknown(reader, name)
    reader.index += 1
    match name:
        case "ARRAY":
            reader.expect_symbol("<")
            read_type(reader)
            reader.expect_symbol(">")
        case "MAP":
            reader.expect_symbol("<")
            read_type(reader)
            reader.expect_symbol(",")
            read_type(reader)
            reader.expect_symbol(">")
        case "STRUCT":
            _read_fields(reader)
        case "INTERVAL":
            _read_interval(reader)
        case "TIMESTAMP" | "TIME":
            _read_parameters(reader)
            if not reader.accept("WITHOUT", "TIME", "ZONE"):
                reader.accept("WITH", "LOCAL", "TIME", "ZONE")
        case "STRING":
            if reader.accept("COLLATE"):
                reader.column()
        case _:
            _read_parameters(reader)
    return reader.text_since(begin)


def _read_parameters(reader: Reader) -> None:
    if reader.at_symbol("("):
        reader.skip_brackets()


def _read_interval(reader: Reader) -> None:
    if reader.keyword() not in _INTERVAL_UNITS:
        return
    reader.index += 1
    if reader.accept("TO"):
        if reader.keyword() not in _INTERVAL_UNITS:
            raise reader.expected(*_INTERVAL_UNITS)
        reader.index += 1


def _read_fields(reader: Reader) -> None:
    if reader.accept_symbol("<>"):
        return
    reader.expect_symbol("<")
    while True:
        reader.column()
        reader.accept_symbol(":")
        read_type(reader)
        reader.accept("NOT", "NULL")
        if reader.accept("COMMENT"):
            reader.string("the comment as a string")
        if not reader.accept_symbol(","):
            break
    if not reader.accept_symbol(">"):
        raise reader.expected("','", "'>'")


def _unknown(reader: Reader, name: str) -> StatementError:
    meant = _FOREIGN.get(name) or near_miss(name, sorted(_TYPES))
    token = reader.peek()
    spelled = token.text if token else name
    hint = f"did you mean {meant}?" if meant else "use a type of Spark SQL, such as BIGINT, STRING or DECIMAL(12, 2)"
    return reader.fail(f"unknown type '{spelled}'", hint=hint)
