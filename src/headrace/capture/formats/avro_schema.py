"""Avro schemas: how each value is written, and the schema by which its bytes are read without any conversion.

What Avro calls a logical type is taken off before the bytes are read: the rules of types are ours, and the same for
every format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.types import BooleanType, DataType, DoubleType, FloatType, IntegerType, LongType, StringType

from headrace.capture.exact_json import refuse_depth
from headrace.capture.formats.connect import LOGICAL
from headrace.capture.messages import Undecodable
from headrace.capture.values.encoding import PLAIN, Encoding, Kind
from headrace.intake.reasons import shown

_PRIMITIVES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
}
_LOGICAL: dict[tuple[str, str], Kind] = {
    ("int", "date"): Kind.DATE_DAYS,
    ("int", "time-millis"): Kind.TIME_MILLIS,
    ("long", "time-micros"): Kind.TIME_MICROS,
    ("long", "timestamp-millis"): Kind.INSTANT_MILLIS,
    ("long", "timestamp-micros"): Kind.INSTANT_MICROS,
    ("long", "timestamp-nanos"): Kind.INSTANT_NANOS,
    ("long", "local-timestamp-millis"): Kind.LOCAL_MILLIS,
    ("long", "local-timestamp-micros"): Kind.LOCAL_MICROS,
    ("long", "local-timestamp-nanos"): Kind.LOCAL_NANOS,
    ("bytes", "decimal"): Kind.DECIMAL_BYTES,
    ("fixed", "decimal"): Kind.DECIMAL_BYTES,
}
_NAMED = ("record", "error", "enum", "fixed")
MOST_NAMES = 10_000
# A type that is named again and again within others doubles with each of them: what is unfolded has an end.
MOST_VALUES = 20_000


@dataclass(frozen=True)
class Named:
    """A type: how it is written, whether its values may take no bytes at all, and of how many values it is made."""

    encoding: Encoding
    empty: bool
    size: int = 1


class SchemaReading:
    """Reads schemas that may refer to each other by name, each before those that refer to it."""

    def __init__(self) -> None:
        self._named: dict[str, Named | None] = {}

    def read(self, schema: Any) -> tuple[Any, Encoding]:
        """The schema without logical types, and how its values are written; `Undecodable` if it cannot be used."""
        refuse_depth(schema)
        plain, found = self._read(schema, "")
        return plain, found.encoding

    def _read(self, schema: Any, space: str) -> tuple[Any, Named]:
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema), space)
        if not isinstance(schema, dict):
            raise Undecodable(f"a part of an Avro schema is {shown(schema)}", "schema")
        content = cast("dict[str, Any]", schema)
        kind = content.get("type")
        if isinstance(kind, (dict, list)):
            return self._read(kind, space)
        if not isinstance(kind, str):
            raise Undecodable(f"an Avro schema has the type {shown(kind)}", "schema")
        if kind in _NAMED:
            return self._named_type(content, kind, space)
        if kind == "array":
            return self._array(content, space)
        if kind == "map":
            plain, found = self._read(content.get("values"), space)
            inner = found.encoding
            return (
                {"type": "map", "values": plain},
                Named(
                    _logical(content, kind, Encoding(Kind.MAP, key=PLAIN, element=inner)),
                    empty=False,
                    size=1 + found.size,
                ),
            )
        plain, found = self._by_name(kind, space)
        return plain, Named(_logical(content, kind, found.encoding), found.empty, found.size)

    def _by_name(self, name: str, space: str) -> tuple[str, Named]:
        if name == "null":
            return name, Named(PLAIN, empty=True)
        if name == "bytes":
            return name, Named(Encoding(Kind.BYTES), empty=False)
        if name in _PRIMITIVES:
            return name, Named(Encoding(plain=_PRIMITIVES[name]), empty=False)
        for full in (_full_name(name, space), name):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise Undecodable(f"the Avro type {full[:60]} contains itself, which no column can", "schema")
                return full, found
        raise Undecodable(f"the Avro schema names an unknown type {name[:60]!r}", "schema")

    def _union(self, branches: list[Any], space: str) -> tuple[Any, Named]:
        if not branches:
            raise Undecodable("an Avro union has no branch", "schema")
        read = [self._read(branch, space) for branch in branches]
        told = [found for plain, found in read if plain != "null"]
        encoding = told[0].encoding if len(told) == 1 else PLAIN
        # The number of the branch takes a byte at least.
        return [plain for plain, _ in read], Named(encoding, empty=False, size=_size(found for _, found in read))

    def _array(self, content: Mapping[str, Any], space: str) -> tuple[Any, Named]:
        plain, found = self._read(content.get("items"), space)
        if found.empty:
            raise Undecodable("an Avro array has elements without bytes: a few bytes could claim any number", "schema")
        encoding = _logical(content, "array", Encoding(Kind.LIST, element=found.encoding))
        return {"type": "array", "items": plain}, Named(encoding, empty=False, size=1 + found.size)

    def _named_type(self, content: Mapping[str, Any], kind: str, space: str) -> tuple[Any, Named]:
        name = content.get("name")
        if not isinstance(name, str) or not name or len(self._named) >= MOST_NAMES:
            raise Undecodable(f"an Avro {kind} has the name {shown(name)}", "schema")
        given = content.get("namespace")
        full = _full_name(name, given if isinstance(given, str) else space)
        if full in self._named:
            raise Undecodable(f"the Avro type {full[:60]} is defined twice", "schema")
        self._named[full] = None
        if kind == "enum":
            plain, found = _enum(content, full)
        elif kind == "fixed":
            plain, found = _fixed(content, full)
        else:
            plain, found = self._record(content, full)
        self._named[full] = found
        return plain, found

    def _record(self, content: Mapping[str, Any], full: str) -> tuple[Any, Named]:
        fields = content.get("fields")
        if not isinstance(fields, list):
            raise Undecodable(f"the Avro record {full[:60]} has the fields {shown(fields)}", "schema")
        space = full.rpartition(".")[0]
        plain: list[Any] = []
        inner: list[tuple[str, Encoding]] = []
        parts: list[Named] = []
        for field in cast("list[Any]", fields):
            name = cast("dict[str, Any]", field).get("name") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise Undecodable(f"a field of the Avro record {full[:60]} is {shown(field)}", "schema")
            read, found = self._read(cast("dict[str, Any]", field).get("type"), space)
            plain.append({"name": name, "type": read})
            inner.append((name, found.encoding))
            parts.append(found)
        encoding = _logical(content, "record", Encoding(Kind.STRUCT, fields=tuple(inner)))
        return {"type": "record", "name": full, "fields": plain}, Named(
            encoding, all(one.empty for one in parts), _size(parts)
        )


def _size(parts: Iterable[Named]) -> int:
    size = 1 + sum(one.size for one in parts)
    if size > MOST_VALUES:
        raise Undecodable(f"an Avro schema unfolds into more than {MOST_VALUES:,} values", "schema")
    return size


class Symbols:
    """The symbols of an enum by their numbers; a list would take a negative one as counted from its end.

    It is told to nobody as a sequence: of those the library counts from the end by itself.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, number: int) -> str:
        if number < 0:
            raise IndexError(f"an enum has no symbol {number}")
        return self._names[number]


def _enum(content: Mapping[str, Any], full: str) -> tuple[Any, Named]:
    symbols = content.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(one, str) for one in cast("list[Any]", symbols)):
        raise Undecodable(f"the Avro enum {full[:60]} has the symbols {shown(symbols)}", "schema")
    plain = {"type": "enum", "name": full, "symbols": Symbols(cast("list[str]", symbols))}
    return plain, Named(Encoding(plain=StringType()), empty=False)


def _fixed(content: Mapping[str, Any], full: str) -> tuple[Any, Named]:
    size = content.get("size")
    if type(size) is not int or not 0 <= size <= 1 << 24:
        raise Undecodable(f"the Avro type {full[:60]} has the size {shown(size)}", "schema")
    encoding = _logical(content, "fixed", Encoding(Kind.BYTES))
    return {"type": "fixed", "name": full, "size": size}, Named(encoding, empty=size == 0)


def _logical(content: Mapping[str, Any], kind: str, literal: Encoding) -> Encoding:
    """What the names of Connect or of Avro make of a type."""
    name, logical = content.get("connect.name"), content.get("logicalType")
    found = LOGICAL.get(name) if isinstance(name, str) else None
    if found is None and isinstance(logical, str):
        found = _LOGICAL.get((kind, logical))
    if found is None:
        return literal
    if found is not Kind.DECIMAL_BYTES:
        return Encoding(found)
    parameters = content.get("connect.parameters")
    given = cast("dict[str, Any]", parameters) if isinstance(parameters, dict) else {}
    scale = _small(content.get("scale", given.get("scale", 0)))
    precision = content.get("precision", given.get("connect.decimal.precision"))
    return Encoding(found, scale, None if precision is None else _small(precision))


def _small(value: Any) -> int:
    text = str(value) if type(value) in (int, str) else ""
    if len(text) > 6 or not text.removeprefix("-").isdecimal():
        raise Undecodable(f"a decimal of an Avro schema has the scale or precision {shown(value)}", "schema")
    return int(text)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
