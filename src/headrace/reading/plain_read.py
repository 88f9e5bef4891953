"""Reads that need no Spark: `SELECT * FROM relation [WHERE column = literal [AND ...]] [LIMIT n]`.

A relation is read whole while it is small, and by its key whatever its size. What is not of exactly this form, or
where Spark would cast one side of a comparison, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from headrace.reading.queries import Relations
from headrace.sql.syntax import Query
from headrace.sql.tokens import Token, quoted_value, scan, string_value
from headrace.state.arrow_types import arrow_type, conform
from headrace.state.delta import Delta
from headrace.state.hashing import hash_columns
from headrace.state.repeat import first_of, repeat, repeated_bytes
from headrace.state.state import State

_SMALL = 50_000
_SMALL_BYTES = 16 * 1024 * 1024
_BITS: Mapping[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


@dataclass(frozen=True)
class Literal:
    """A number or a string as it is written."""

    token: Token
    negative: bool = False


@dataclass(frozen=True)
class PlainRead:
    """One relation, the values that some of its columns must have, and how many rows are wanted."""

    relation: str
    equal: Mapping[str, Literal]
    limit: int | None


def plain_read(query: Query) -> PlainRead | None:
    """The read that a query is, if it is one of these."""
    sql = query.plain_sql
    if len(sql) > 10_000 or any(one.kind != "version" for one in query.time_travel):
        return None
    tokens = scan(sql)
    # A comment may be a hint, which only Spark can read.
    if any(sql[a.end : b.start].strip() for a, b in pairwise(tokens)):
        return None
    if not tokens or sql[: tokens[0].start].strip() or sql[tokens[-1].end :].strip():
        return None
    return _Reading(tokens).whole()


def read_plainly(
    read: PlainRead, relations: Relations, key_of: Callable[[str], Sequence[str]], rows: int | None = None
) -> pa.Table | None:
    """The rows of a read, at most so many; None where only Spark can tell."""
    if read.relation not in relations:
        return None
    snapshot, schema = relations[read.relation]
    wanted = _values(read.equal, schema)
    if wanted is None:
        return None
    key = [schema.names.index(name) for name in key_of(read.relation) if name in schema.names]
    if key and all(index in wanted for index in key):
        held = _by_key(snapshot, tuple(key), [wanted[index] for index in key])
    elif snapshot.size <= _SMALL:
        held = snapshot.all()
    else:
        return None
    table = conform(held.rows, [field.dataType for field in schema.fields]).append_column("", pa.array(held.weights))
    for index, value in wanted.items():
        table = table.filter(pc.call_function("equal", [table.column(index), value]))
    distinct, weights = table.remove_column(len(schema)), table.column(len(schema)).to_numpy()
    times = first_of(weights, min([one for one in (read.limit, rows, int(weights.sum())) if one is not None]))
    # Few distinct rows may be very many when each is repeated: Spark does that where it hurts no epoch.
    if int(times.sum()) > _SMALL or (bool(np.any(times > 1)) and repeated_bytes(distinct, times) > _SMALL_BYTES):
        return None
    return repeat(distinct, times).rename_columns(schema.names)


def _by_key(snapshot: State, key: tuple[int, ...], values: Sequence[pa.Scalar]) -> Delta:
    columns = [pa.chunked_array([pa.array([value.as_py()], type=value.type)]) for value in values]
    return snapshot.lookup(key, hash_columns(columns, 1))


def _values(equal: Mapping[str, Literal], schema: StructType) -> dict[int, pa.Scalar] | None:
    """The literals as values of their columns, by index; None if one of them is not of its column's own type."""
    indexes: dict[str, list[int]] = {}
    for index, name in enumerate(schema.names):
        indexes.setdefault(name.lower(), []).append(index)
    found: dict[int, pa.Scalar] = {}
    for name, literal in equal.items():
        at = indexes.get(name.lower(), [])
        value = _value(literal, schema.fields[at[0]].dataType) if len(at) == 1 else None
        if value is None:
            return None
        found[at[0]] = value
    return found


def _value(literal: Literal, kind: DataType) -> pa.Scalar | None:
    """A literal as a value of a type, where Spark compares the two without a cast that could change either."""
    token, negative = literal.token, literal.negative
    if token.kind == "string":
        plain = isinstance(kind, StringType) and kind.simpleString() == "string" and not negative
        return pa.scalar(string_value(token), arrow_type(kind)) if plain else None
    if not token.text.replace(".", "", 1).isdigit() or not token.text.isascii():
        return None
    number = Decimal(("-" if negative else "") + token.text)
    bits = _BITS.get(type(kind))
    if bits is not None:
        fits = "." not in token.text and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)
        return pa.scalar(int(number), arrow_type(kind)) if fits else None
    if isinstance(kind, DecimalType):
        scale = len(token.text.partition(".")[2])
        whole = len(token.text.partition(".")[0].lstrip("0"))
        if scale > kind.scale or whole > kind.precision - kind.scale:
            return None
        return pa.scalar(number, arrow_type(kind))
    return None


class _Reading:
    """The tokens of a query, taken one after the other as long as they are what is expected."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def whole(self) -> PlainRead | None:
        """The read, if the tokens are that of one from the first to the last."""
        if not (self._word("SELECT") and self._symbol("*") and self._word("FROM")):
            return None
        relation = self._name()
        if relation is None:
            return None
        equal: dict[str, Literal] = {}
        if self._word("WHERE"):
            while True:
                column = self._name()
                if column is None or column.lower() in equal or not (self._symbol("=") or self._symbol("==")):
                    return None
                literal = self._literal()
                if literal is None:
                    return None
                equal[column.lower()] = literal
                if not self._word("AND"):
                    break
        limit = None
        if self._word("LIMIT"):
            token = self._take()
            if token is None or token.kind != "number" or not token.text.isdigit() or len(token.text) > 9:
                return None
            limit = int(token.text)
        return PlainRead(relation.lower(), equal, limit) if self._at == len(self._tokens) else None

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> Token | None:
        token = self._peek()
        self._at += 1
        return token

    def _word(self, word: str) -> bool:
        token = self._peek()
        if token is None or token.keyword != word:
            return False
        self._at += 1
        return True

    def _symbol(self, symbol: str) -> bool:
        token = self._peek()
        if token is None or token.kind != "operator" or token.text != symbol:
            return False
        self._at += 1
        return True

    def _name(self) -> str | None:
        token = self._take()
        if token is None or token.kind not in ("word", "quoted"):
            return None
        return quoted_value(token) if token.kind == "quoted" else token.text

    def _literal(self) -> Literal | None:
        token = self._take()
        if token is None:
            return None
        if token.kind == "operator" and token.text == "-":
            number = self._take()
            return Literal(number, negative=True) if number is not None and number.kind == "number" else None
        return Literal(token) if token.kind in ("string", "number") else None
