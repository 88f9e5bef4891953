"""The eleven tables of the judge: their columns, keys and random rows.

Rows are drawn to hurt: few distinct keys, ties, NULLs, strings that differ only by case, blank or
Unicode form, and instants on both sides of a change of daylight saving time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

Row: TypeAlias = dict[str, Any]

NULL_SHARE = 0.15

STRINGS = ("a", "A", "a ", "\u00e1", "a\u0301", "", "b")
GROUPS = ("a", "b", "c", "A", "")
FLOATS = (0.0, -0.0, float("nan"), 1.5, -2.25, 1.5, 10.0, 0.25)
JSONS = ('{"a": 1, "b": "x"}', '{"a": null}', '{"b": [1, 2]}', "[]", "not json", "")
ARRAYS: tuple[list[int | None], ...] = ([], [1, 1], [1, None, 2], [3], [None], [-1, 3, 3])
MAPS: tuple[dict[str, int | None], ...] = ({}, {"a": 1}, {"b": 2, "a": 1}, {"a": None}, {"A": -1})


def at(text: str) -> datetime:
    """The UTC instant written as `2025-11-02 05:30` (seconds and fractions optional)."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


DAYLIGHT_SAVING = tuple(
    at(text)
    for text in (
        "2025-11-02 03:59:59.999999",
        "2025-11-02 04:00",
        "2025-11-02 05:30",
        "2025-11-02 06:30",
        "2025-11-03 04:59:59",
        "2025-11-03 05:00",
        "2026-03-08 04:59:59",
        "2026-03-08 06:59:59",
        "2026-03-08 07:00",
        "2026-03-09 03:59:59",
        "2026-03-09 04:00",
    )
)


@dataclass(frozen=True)
class Column:
    """One column: its name, its SQL type, Spark's type, and how to draw a value that is not NULL."""

    name: str
    sql_type: str
    spark_type: DataType
    draw: Callable[[Random], Any]


@dataclass(frozen=True)
class Table:
    """One table: its columns in order and the names of its key (none: a multiset of rows)."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def values(self) -> tuple[Column, ...]:
        """The columns that are not part of the key."""
        return tuple(column for column in self.columns if column.name not in self.key)

    @property
    def struct(self) -> StructType:
        return StructType([StructField(c.name, c.spark_type, True) for c in self.columns])

    def create_sql(self) -> str:
        """CREATE TABLE as Headrace reads it."""
        parts = [f"{c.name} {c.sql_type}" for c in self.columns]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"

    def random_row(self, rng: Random, null_share: float = NULL_SHARE) -> Row:
        """A row with a random key; NULL in about that share of the other columns."""
        row: Row = {}
        for column in self.columns:
            null = column.name not in self.key and rng.random() < null_share
            row[column.name] = None if null else column.draw(rng)
        if self.name == "emp" and row["mgr"] is not None:
            row["mgr"] = rng.randrange(row["eid"]) or None
        return row


def _int(low: int, high: int) -> Callable[[Random], int]:
    return lambda rng: rng.randint(low, high)


def _one(values: tuple[Any, ...]) -> Callable[[Random], Any]:
    return lambda rng: rng.choice(values)


def _money(rng: Random) -> Decimal:
    return rng.choice(
        (
            Decimal("0.00"),
            Decimal("1.00"),
            Decimal("2.50"),
            Decimal("-3.25"),
            Decimal("2.99"),
            Decimal(rng.randint(-400, 900)).scaleb(-2),
        )
    )


def _price(rng: Random) -> Decimal:
    return Decimal(rng.randint(1, 30)) + Decimal(rng.choice((0, 1, 5000, 2500))).scaleb(-4)


def _instant(rng: Random) -> datetime:
    """Few hours of one day, often the same minute, sometimes a fraction apart."""
    start = at("2025-11-01 08:00")
    step = timedelta(hours=rng.randint(0, 3), minutes=rng.choice((0, 0, 10, 29, 30, 31, 59)))
    return start + step + timedelta(microseconds=rng.choice((0, 0, 0, 1, 999999)))


def _event_instant(rng: Random) -> datetime:
    if rng.random() < 0.4:
        return rng.choice(DAYLIGHT_SAVING)
    return _instant(rng) + timedelta(days=rng.randint(0, 1))


def _tick(rng: Random) -> datetime:
    return at("2025-11-01 09:00") + timedelta(minutes=5 * rng.randint(0, 8))


INT, BIGINT, STRING, TIME = IntegerType(), LongType(), StringType(), TimestampType()


def _integer(name: str, low: int, high: int) -> Column:
    return Column(name, "INT", INT, _int(low, high))


def _id(name: str, high: int) -> Column:
    return Column(name, "BIGINT", BIGINT, _int(1, high))


def _text(name: str, values: tuple[str, ...]) -> Column:
    return Column(name, "STRING", STRING, _one(values))


def _time(name: str, draw: Callable[[Random], datetime]) -> Column:
    return Column(name, "TIMESTAMP", TIME, draw)


def _decimal(name: str, precision: int, scale: int, draw: Callable[[Random], Decimal]) -> Column:
    return Column(name, f"DECIMAL({precision},{scale})", DecimalType(precision, scale), draw)


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "t",
            (
                _id("id", 60),
                _text("g", GROUPS),
                _integer("k", -3, 5),
                Column("v", "INT", INT, _one((-5, -1, 0, 1, 1, 2, 5, 9, 10, 11, 20, 20, 25))),
                _decimal("d", 12, 2, _money),
                Column("f", "DOUBLE", DoubleType(), _one(FLOATS)),
                _time("ts", _instant),
                Column("b", "BOOLEAN", BooleanType(), _one((True, False))),
            ),
            ("id",),
        ),
        Table("bag", (_integer("a", 0, 3), _text("s", STRINGS)), ()),
        Table("bag2", (_integer("a", 0, 3), _text("s", STRINGS)), ()),
        Table("l", (_id("id", 30), _integer("x", 0, 4), _integer("y", -3, 12)), ("id",)),
        Table("r", (_id("id", 30), _integer("x", 0, 4), _integer("z", -3, 12)), ("id",)),
        Table("dim", (_integer("k", -1, 8), _text("name", GROUPS), _integer("parent", -1, 8)), ("k",)),
        Table(
            "ev",
            (
                _id("eid", 60),
                _integer("uid", 0, 4),
                _time("ts", _event_instant),
                _text("typ", ("buy", "buy", "view", "void")),
                _decimal("amt", 12, 2, _money),
            ),
            ("eid",),
        ),
        Table(
            "px",
            (_text("sym", ("X", "Y", "z")), _time("ts", _tick), _decimal("price", 10, 4, _price)),
            ("sym", "ts"),
        ),
        Table(
            "tr",
            (_id("tid", 30), _text("sym", ("X", "Y", "z")), _time("ts", _tick), _integer("qty", -5, 5)),
            ("tid",),
        ),
        Table(
            "emp",
            (
                _integer("eid", 1, 20),
                _integer("mgr", 1, 20),
                _integer("dept", 1, 3),
                _decimal("sal", 10, 2, _money),
            ),
            ("eid",),
        ),
        Table(
            "doc",
            (
                _id("id", 20),
                Column("xs", "ARRAY<INT>", ArrayType(INT), _one(ARRAYS)),
                Column("m", "MAP<STRING,INT>", MapType(STRING, INT), _one(MAPS)),
                _text("js", JSONS),
            ),
            ("id",),
        ),
    )
}

# What groups, joins or partitions the rows of a table: the column that S2, S3 and S12 work on.
GROUP_COLUMN = {
    "t": "g",
    "bag": "a",
    "bag2": "a",
    "l": "x",
    "r": "x",
    "dim": "name",
    "ev": "uid",
    "px": "price",
    "tr": "sym",
    "emp": "dept",
    "doc": "js",
}
