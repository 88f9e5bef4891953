"""Types of PostgreSQL, captured by a real Debezium in each of its modes: what is decoded is what the database holds."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.capture.formats.debezium import DebeziumJson
from headrace.capture.messages import Message, RowChange, Tombstone, TransactionBoundary, Truncation
from headrace.capture.options import read_options
from headrace.capture.record import Record
from headrace.intake.table import TableContract
from headrace.local import Servers
from tests import kafka_topics
from tests.captured_table import CapturedTable
from tests.thinned import thinned

STRING, TIMESTAMP, NTZ = StringType(), TimestampType(), TimestampNTZType()
POINT = StructType(
    [
        StructField("x", DoubleType()),
        StructField("y", DoubleType()),
        StructField("wkb", BinaryType()),
        StructField("srid", IntegerType()),
    ]
)
# A column: its type there, its type here, two values as SQL, and what PostgreSQL is asked for to compare them.
COLUMNS: list[tuple[str, str, DataType, str, str, str]] = [
    ("b", "BOOLEAN", BooleanType(), "true", "false", "{}"),
    ("i2", "SMALLINT", ShortType(), "-32768", "32767", "{}"),
    ("i4", "INTEGER", IntegerType(), "-2147483648", "7", "{}"),
    ("i8", "BIGINT", LongType(), "-9223372036854775808", "9223372036854775807", "{}"),
    ("f4", "REAL", FloatType(), "0.1", "'NaN'", "{}::float8"),
    ("f8", "DOUBLE PRECISION", DoubleType(), "0.1", "'-Infinity'", "{}"),
    ("n", "NUMERIC(12,4)", DecimalType(12, 4), "12345678.1234", "-0.0001", "{}"),
    ("nv", "NUMERIC", DecimalType(38, 18), "1.5", "-123.000000000001", "{}"),
    # Debezium itself leaves out zeros at the end where the column has no scale.
    ("nt", "NUMERIC", STRING, "1.25", "-0.001", "{}::text"),
    ("m", "MONEY", DecimalType(19, 2), "12.34", "-0.01", "{}::numeric"),
    ("t", "TEXT", STRING, "'é \"x\" \\ '", "''", "{}"),
    ("v", "VARCHAR(20)", STRING, "'abc'", "'ABC'", "{}"),
    ("c", "CHAR(5)", STRING, "'ab'", "'xyz'", "rpad({}, 5)"),
    ("by", "BYTEA", BinaryType(), "'\\x00ff7f'", "''", "{}"),
    ("d", "DATE", DateType(), "'0001-01-01'", "'2024-02-29'", "{}"),
    ("t3", "TIME(3)", TimeType(3), "'04:05:11.789'", "'00:00'", "{}"),
    ("t6", "TIME", TimeType(6), "'04:05:11.789'", "'23:59:59.999'", "{}"),
    ("ttz", "TIMETZ", STRING, "'04:05:11+02'", "'23:59:59Z'", ""),
    ("ts3", "TIMESTAMP(3)", NTZ, "'2018-06-20 15:13:16.945'", "'1969-12-31 23:59:59.999'", "{}"),
    ("ts6", "TIMESTAMP", NTZ, "'2018-06-20 15:13:16.945'", "'1700-01-01 00:00:00.001'", "{}"),
    ("tsu", "TIMESTAMP", TIMESTAMP, "'2018-06-20 15:13:16.945'", "'2200-01-01'", "{} AT TIME ZONE 'UTC'"),
    ("tstz", "TIMESTAMPTZ", TIMESTAMP, "'2018-06-20 15:13:16.945104+02'", "'1969-12-31 23:59:59Z'", "{}"),
    ("iv", "INTERVAL", DayTimeIntervalType(), "'1 day 02:03:04.5'", "'-3 days'", "{}"),
    ("j", "JSON", STRING, "'{\"a\": [1, 2.50]}'", "'null'", "{}::text"),
    ("jb", "JSONB", STRING, "'{\"a\": 1}'", "'[]'", "{}::text"),
    ("jm", "JSONB", MapType(STRING, LongType()), "'{\"a\": 1}'", "'{}'", "{}"),
    (
        "u",
        "UUID",
        STRING,
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "'00000000-0000-0000-0000-000000000000'",
        "{}::text",
    ),
    ("e", "mood", STRING, "'glad'", "'sad'", "{}::text"),
    ("bit1", "BIT(1)", BooleanType(), "B'1'", "B'0'", "{}::int = 1"),
    ("bit9", "BIT(9)", LongType(), "B'100000001'", "B'000000101'", "{}::bigint"),
    ("vbit", "BIT VARYING(12)", LongType(), "B'101'", "B'1'", "{}::bit(12)::bigint >> (12 - length({}))"),
    ("ip", "INET", STRING, "'192.168.1.7'", "'::1'", "host({})"),
    ("net", "CIDR", STRING, "'192.168.1.0/24'", "'10.0.0.0/8'", "{}::text"),
    ("mac", "MACADDR", STRING, "'08:00:2b:01:02:03'", "'00:00:00:00:00:00'", "{}::text"),
    ("pt", "POINT", POINT, "'(1.5,-2)'", "'(0,0)'", "ARRAY[{}[0], {}[1]]"),
    ("r4", "INT4RANGE", STRING, "'[1,5)'", "'empty'", "{}::text"),
    ("rn", "NUMRANGE", STRING, "'(1.5,)'", "'[0,0]'", "{}::text"),
    ("rd", "DATERANGE", STRING, "'[2020-01-01,2020-02-01)'", "'(,)'", "{}::text"),
    ("ai", "INTEGER[]", ArrayType(IntegerType()), "'{1,NULL,3}'", "'{}'", "{}"),
    ("at", "TEXT[]", ArrayType(STRING), "'{a,NULL,\"é,\"}'", "'{}'", "{}"),
    ("an", "NUMERIC(6,2)[]", ArrayType(DecimalType(6, 2)), "'{1.50,NULL}'", "'{-0.01}'", "{}"),
    ("ad", "DATE[]", ArrayType(DateType()), "'{2018-06-20}'", "'{}'", "{}"),
    ("ab", "BOOLEAN[]", ArrayType(BooleanType()), "'{t,f}'", "'{}'", "{}"),
    ("none", "TEXT", STRING, "NULL", "NULL", "{}"),
]
BITS = ("bit9", "vbit")
DECIMALS = ("precise", "string", "double")
TIMES = ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")
# Each mode once, and, apart, all pairs of them; the last says whether the schema comes along.
MODES = [(DECIMALS[number % 3], time, number % 2 == 0) for number, time in enumerate(TIMES)]
OTHERS = [one for one in itertools.product(DECIMALS, TIMES, (True, False)) if one not in MODES]


def contract(schemas: bool) -> TableContract:
    """Our table; without a schema nothing tells that bits are no other bytes."""
    kinds = {name: BinaryType() if name in BITS and not schemas else kind for name, _, kind, *_ in COLUMNS}
    fields = [StructField("id", IntegerType(), False), *(StructField(name, kind) for name, kind in kinds.items())]
    return TableContract("every", StructType(fields), ("id",))


@pytest.fixture(scope="module")
def database(local_servers: Servers) -> Iterator[psycopg.Connection]:
    with psycopg.connect(local_servers.postgres_dsn, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
        columns = ", ".join(f"{name} {kind}" for name, kind, *_ in COLUMNS)
        connection.execute(f"CREATE TABLE every (id INT PRIMARY KEY, {columns})".encode())
        for number in (0, 1):
            values = ", ".join(str(one[3 + number]) for one in COLUMNS)
            connection.execute(f"INSERT INTO every VALUES ({number}, {values})".encode())
        connection.execute("INSERT INTO every (id) VALUES (2)")
        yield connection
        connection.execute("DROP TABLE every; DROP TYPE mood")


def expected(database: psycopg.Connection) -> dict[int, tuple[Any, ...]]:
    """What PostgreSQL holds, each value as we have it."""
    asked = [one[5].format(one[0], one[0]) or "NULL" for one in COLUMNS]
    rows = database.execute(f"SELECT id, {', '.join(asked)} FROM every".encode()).fetchall()
    return {row[0]: tuple(_as_held(value, one) for value, one in zip(row[1:], COLUMNS, strict=True)) for row in rows}


def _as_held(value: Any, column: tuple[Any, ...]) -> Any:
    name, data_type = column[0], column[2]
    if value is None:
        return None
    if isinstance(data_type, DecimalType):
        return value.quantize(Decimal(1).scaleb(-data_type.scale))
    if isinstance(data_type, MapType):
        return list(value.items())
    if name == "pt":
        return None if value[0] is None else tuple(value)
    return bytes(value) if isinstance(value, memoryview) else value


def held(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What we hold, without what has no counterpart there."""
    found = list(row[1:])
    for number, (name, *_) in enumerate(COLUMNS):
        value = found[number]
        if name == "ttz":
            found[number] = None
        elif name == "pt" and value is not None:
            found[number] = (value["x"], value["y"])
        elif isinstance(value, bytes) and name in BITS:
            found[number] = int.from_bytes(value, "little")
        elif name == "nt" and isinstance(value, str) and value.startswith("{"):
            # Without a schema nothing tells that this object is a number; text of an object is its JSON.
            told = json.loads(value)
            unscaled = int.from_bytes(base64.b64decode(told["value"]), "big", signed=True)
            found[number] = str(Decimal(unscaled).scaleb(-told["scale"]))
    return tuple(found)


def alike(ours: dict[int, tuple[Any, ...]], theirs: dict[int, tuple[Any, ...]]) -> None:
    assert ours.keys() == theirs.keys()
    for key, row in theirs.items():
        for (name, *_), mine, other in zip(COLUMNS, ours[key], row, strict=True):
            assert _text(mine) == _text(other), (key, name)


def _text(value: Any) -> str:
    # NaN is not equal to itself, and an instant is one in any zone.
    if isinstance(value, datetime) and value.tzinfo is not None:
        return repr(value.astimezone(UTC))
    return repr(value)


def messages(servers: Servers, topic: str, decoder: DebeziumJson, count: int, since: int = 0) -> list[Message]:
    found = kafka_topics.read(servers.bootstrap, topic, lambda read: len(read) >= count, since)
    return [decoder.decode(as_record(one)) for one in found]


def as_record(message: Any) -> Record:
    return Record(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.topic(),
        message.partition(),
        message.offset(),
        datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
    )


def captured(servers: Servers, name: str, config: dict[str, str], table: str = "public.every") -> str:
    # Its slot goes with it: the server has room for few.
    servers.capture(name, [table], {"slot.drop.on.stop": "true", **config})
    return f"{name}.{table}"


def converters(schemas: bool) -> dict[str, str]:
    enabled = "true" if schemas else "false"
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        f"{part}.converter{ending}": value
        for part in ("key", "value")
        for ending, value in (("", json_converter), (".schemas.enable", enabled))
    }


@pytest.mark.parametrize(
    ("decimals", "times", "schemas"),
    [*thinned(MODES, 3), *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)],
)
def test_every_type_in_every_mode(
    local_servers: Servers, database: psycopg.Connection, decimals: str, times: str, schemas: bool
) -> None:
    name = f"every_{decimals}_{times}_{schemas}".lower()
    config = {"decimal.handling.mode": decimals, "time.precision.mode": times, **converters(schemas)}
    topic = captured(local_servers, name, config)
    try:
        options = {"decimal_mode": decimals, "time_precision": times}
        if times.startswith("adaptive"):
            options["time_units"] = "ts3: milliseconds"
        decoder = DebeziumJson(contract(schemas), read_options({} if schemas else options))
        table = CapturedTable(contract(schemas))
        for message in messages(local_servers, topic, decoder, 3):
            assert isinstance(message, RowChange)
            assert (message.operation, message.origin.snapshot) == ("read", True)
            table.take(message)
        alike({row[0]: held(row) for row in table.rows()}, expected(database))
    finally:
        local_servers.delete_connector(name)


def test_what_a_log_carries(local_servers: Servers, database: psycopg.Connection) -> None:
    """Large values that did not change, changes of keys, deletes, tombstones, a truncate, and transactions."""
    schema = StructType(
        [
            StructField("id", IntegerType()),
            StructField("n", IntegerType()),
            StructField("doc", STRING),
            StructField("raw", BinaryType()),
            StructField("list", ArrayType(STRING)),
            StructField("j", STRING),
        ]
    )
    database.execute("CREATE TABLE large (id INT PRIMARY KEY, n INT, doc TEXT, raw BYTEA, list TEXT[], j JSONB)")
    for column in ("doc", "raw", "list", "j"):
        database.execute(f"ALTER TABLE large ALTER COLUMN {column} SET STORAGE EXTERNAL".encode())
    config = {"provide.transaction.metadata": "true", "skipped.operations": "none", **converters(True)}
    topic = captured(local_servers, "log_of_large", config, "public.large")
    try:
        table = CapturedTable(TableContract("large", schema, ("id",)))
        decoder = DebeziumJson(TableContract("large", schema, ("id",)), read_options({}))
        text = "x" * 20_000
        with database.transaction():
            for number in (1, 2):
                database.execute(
                    "INSERT INTO large VALUES (%s, 0, %s, %s, %s, %s)",
                    (number, text, text.encode(), [text], json.dumps({"a": text})),
                )
        database.execute("UPDATE large SET n = 5 WHERE id = 1")
        database.execute("UPDATE large SET n = 6 WHERE id = 1")
        database.execute("DELETE FROM large WHERE id = 2")
        read = messages(local_servers, topic, decoder, 6)
        assert [type(one) for one in read] == [RowChange] * 5 + [Tombstone]
        assert [one.operation for one in read[:5] if isinstance(one, RowChange)] == [
            "create",
            "create",
            "update",
            "update",
            "delete",
        ]
        kept = [one.kept for one in read[2:4] if isinstance(one, RowChange)]
        assert kept == [{"doc", "raw", "list", "j"}] * 2
        orders = [
            one.origin.transaction.order for one in read[:2] if isinstance(one, RowChange) and one.origin.transaction
        ]
        assert orders == [1, 2]
        positions = [one.origin.position.order for one in read[:5] if isinstance(one, RowChange)]
        assert positions == sorted(positions)
        table.take(*read)
        assert table.rows() == [(1, 6, text, text.encode(), [text], json.dumps({"a": text}))]
        database.execute("UPDATE large SET id = 3, doc = 'short', raw = '', list = '{}', j = '{}' WHERE id = 1")
        database.execute("TRUNCATE large")
        read = messages(local_servers, topic, decoder, 4, since=6)
        table.take(*read[:3])
        assert table.rows() == [(3, 6, "short", b"", [], "{}")]
        assert isinstance(read[3], Truncation)
        table.take(read[3])
        assert table.rows() == []
        boundaries = messages(local_servers, "log_of_large.transaction", decoder, 2)
        begin, end = boundaries
        assert isinstance(begin, TransactionBoundary)
        assert isinstance(end, TransactionBoundary)
        assert (begin.status, end.status, end.events, end.events_by_table) == ("BEGIN", "END", 2, {"public.large": 2})
    finally:
        local_servers.delete_connector("log_of_large")
        database.execute("DROP TABLE large")
