"""Envelopes of Debezium: what each operation changes, and what else its topics carry."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid3

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headrace.capture.formats.debezium import DebeziumJson
from headrace.capture.messages import (
    Message,
    NoChange,
    Origin,
    Position,
    RowChange,
    SchemaChange,
    Tombstone,
    Transaction,
    TransactionBoundary,
    Truncation,
    Undecodable,
)
from headrace.capture.options import FormatOptions, read_options
from headrace.capture.record import Record
from headrace.intake.table import TableContract
from tests.debezium_events import (
    SOURCES,
    decimal,
    envelope,
    envelope_schema,
    field,
    key_schema,
    record,
    wrapped,
)

COLUMNS = StructType(
    [StructField("id", LongType(), False), StructField("name", StringType()), StructField("price", DecimalType(10, 2))]
)
KEYED = TableContract("things", COLUMNS, ("id",))
BAG = TableContract("things", COLUMNS)
SEQUENCED = TableContract("things", COLUMNS, ("id",), "price")
FIELDS = [field("id", "int64", optional=False), field("name", "string"), decimal("price", 2, 10)]
PLACEHOLDER = "__debezium_unavailable_value"
ROW = {"id": 1, "name": "a", "price": 5}
LATER = {"id": 1, "name": "b", "price": 6}


def decode(value: Any, table: TableContract | None = KEYED, key: Any = None, **options: Any) -> Message:
    return DebeziumJson(table, read_options(options)).decode(record(value, key))


def changed(value: Any, table: TableContract | None = KEYED, key: Any = None, **options: Any) -> RowChange:
    message = decode(value, table, key, **options)
    assert isinstance(message, RowChange)
    return message


@pytest.mark.parametrize(
    ("table", "payload", "operation", "changes"),
    [
        (KEYED, envelope("c", None, ROW), "create", [{"insert": ROW}]),
        (KEYED, envelope("r", None, ROW), "read", [{"insert": ROW}]),
        (KEYED, envelope("u", None, LATER), "update", [{"insert": LATER}]),
        (KEYED, envelope("u", ROW, LATER), "update", [{"insert": LATER}]),
        (
            KEYED,
            envelope("u", ROW, {**LATER, "id": 2}),
            "update",
            [{"delete": {"id": 1}}, {"insert": {**LATER, "id": 2}}],
        ),
        (KEYED, envelope("u", {"id": 1, "name": None, "price": None}, LATER), "update", [{"insert": LATER}]),
        (KEYED, envelope("d", ROW, None), "delete", [{"delete": {"id": 1}}]),
        (KEYED, envelope("d", {"id": 1, "name": None, "price": None}), "delete", [{"delete": {"id": 1}}]),
        (SEQUENCED, envelope("d", ROW), "delete", [{"delete": {"id": 1, "price": 5}}]),
        (BAG, envelope("c", None, ROW), "create", [{"insert": ROW}]),
        (BAG, envelope("u", ROW, LATER), "update", [{"delete": ROW}, {"insert": LATER}]),
        (BAG, envelope("d", ROW), "delete", [{"delete": ROW}]),
        (None, envelope("d", ROW), "delete", [{"delete": ROW}]),
    ],
)
def test_what_an_operation_changes(
    table: TableContract | None, payload: Any, operation: str, changes: list[Any]
) -> None:
    for value in (payload, wrapped(payload, None)):
        message = changed(value, table, decimal_mode="double")
        assert (message.operation, list(message.changes)) == (operation, changes)
        assert (message.before, message.after) == (payload["before"], payload["after"])


def test_the_schema_may_come_along_or_not() -> None:
    coded = {"id": 1, "name": "a", "price": "AfQ="}
    for value in (envelope("c", None, coded), wrapped(envelope("c", None, coded), envelope_schema(FIELDS))):
        (change,) = changed(value).changes
        assert KEYED.decode(change).row == (1, "a", 5)


def test_names_are_those_of_the_table_in_any_case() -> None:
    payload = envelope("u", {"ID": 1, "NAME": "a", "PRICE": 5}, {"ID": 2, "NAME": "b", "PRICE": 6}, "oracle")
    assert list(changed(payload).changes) == [{"delete": {"id": 1}}, {"insert": {"id": 2, "name": "b", "price": 6}}]
    with pytest.raises(Undecodable, match="two columns that are name"):
        decode(envelope("c", None, {"id": 1, "name": "a", "Name": "b"}))


def test_columns_that_the_table_has_not_are_passed_on_or_left_out() -> None:
    payload = envelope("c", None, {**ROW, "colour": "red"})
    assert list(changed(payload).changes) == [{"insert": {**ROW, "colour": "red"}}]
    assert list(changed(payload, unknown_columns="ignore").changes) == [{"insert": ROW}]


def test_a_delete_without_an_image_is_known_by_its_key() -> None:
    wrapped_key = wrapped({"id": 7}, key_schema([field("id", "int64", optional=False)]))
    for key in ({"id": 7}, {"ID": 7}, wrapped_key):
        assert list(changed(envelope("d"), KEYED, key).changes) == [{"delete": {"id": 7}}]
    # With REPLICA IDENTITY NOTHING and its kin, the image lacks the key.
    assert list(changed(envelope("d", {"name": "a"}), KEYED, {"id": 7}).changes) == [{"delete": {"id": 7}}]
    with pytest.raises(Undecodable, match="neither a before nor a key"):
        decode(envelope("d"))


@pytest.mark.parametrize("op", ["u", "d"])
def test_a_table_without_a_key_needs_the_whole_row(op: str) -> None:
    for before in (None, {"id": 1}, {"id": 1, "name": PLACEHOLDER, "price": 5}):
        with pytest.raises(Undecodable, match=r"no key to find it by|neither a before nor a key"):
            decode(envelope(op, before, LATER if op == "u" else None), BAG)


def test_a_tombstone_deletes_what_its_key_names() -> None:
    """Compaction may have taken the delete before it away."""
    decoder = DebeziumJson(KEYED, FormatOptions())
    wrapped_key = wrapped({"id": 7}, key_schema([field("id", "int64")]))
    for key in ({"id": 7}, wrapped_key):
        assert decoder.decode(record(None, key)) == Tombstone(({"delete": {"id": 7}},))
        assert decoder.decode(record(wrapped(None, None), key)) == Tombstone(({"delete": {"id": 7}},))
    for key in (None, {"other": 7}, {"id": None}, "text", 7, wrapped(None, None)):
        assert decoder.decode(record(None, key)) == Tombstone()
    assert decoder.decode(Record(None, b"\xff")) == Tombstone()
    assert DebeziumJson(BAG, FormatOptions()).decode(record(None, {"id": 7})) == Tombstone()
    # Without its sequence it could undo what is newer.
    assert DebeziumJson(SEQUENCED, FormatOptions()).decode(record(None, {"id": 7})) == Tombstone()


def test_a_truncate_and_what_is_no_change() -> None:
    assert isinstance(decode(envelope("t")), Truncation)
    message = {"prefix": "foo", "content": "Ymfy"}
    found = decode(envelope("m", message=message))
    assert isinstance(found, NoChange)
    assert found.meaning == "message"
    assert decode({"ts_ms": 1700000000000}) == NoChange("heartbeat")
    heartbeat = {
        "type": "struct",
        "fields": [field("ts_ms", "int64")],
        "name": "io.debezium.connector.common.Heartbeat",
    }
    assert decode(wrapped({"ts_ms": 1700000000000}, heartbeat)) == NoChange("heartbeat")
    assert decode({}) == NoChange("empty")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (7, "an object"),
        ([envelope("c", None, ROW)], "an object"),
        ("text", "an object"),
        ({"op": "c"}, "no after"),
        ({"op": "x", "after": ROW}, "no operation"),
        ({"op": ["c"], "after": ROW}, "no operation"),
        ({"after": ROW}, "no op"),
        (envelope("c", None, [1]), "after is no object"),
        (envelope("u", 7, ROW), "before is no object"),
        ({"op": "c", "after": ROW, "source": 7}, "source block"),
        ({"op": "c", "after": ROW, "transaction": 7}, "transaction block"),
        (wrapped(envelope("c", None, ROW), 7), "no object"),
        (wrapped(envelope("c", None, ROW), {"fields": 7}), "no list"),
        (wrapped(envelope("c", None, ROW), {"fields": [{"type": "int32"}]}), "no name"),
        (wrapped(envelope("c", None, ROW), envelope_schema([{"field": "id", "type": "int99"}])), "int99"),
        (wrapped(envelope("c", None, ROW), envelope_schema([decimal("price", "x")])), "parameter scale"),  # type: ignore[arg-type]
        (envelope("c", None, {"id": 1, "price": "what?"}), "column price"),
    ],
)
def test_what_is_no_envelope_is_told(value: Any, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason) as refused:
        decode(value)
    assert refused.value.stage in ("envelope", "schema", "values")


POSITIONS = {
    "postgresql": Position("0/8110", (33000, 33040)),
    "mysql": Position("mysql-bin.000003:484:2", (3, 484, 2)),
    "mariadb": Position("mariadb-bin.000012:990:0", (12, 990, 0)),
    "sqlserver": Position("00000027:00000758:0005 00000027:00000758:0003 1", (0x27, 0x758, 5, 0x27, 0x758, 3, 1)),
    "oracle": Position("2122190:1:06001c0027030000,2122180:2:- 2122185", (2122190, 2122185, 3)),
}
NAMES = {
    "postgresql": "shop.public.things",
    "mysql": "shop.things",
    "mariadb": "shop.things",
    "sqlserver": "shop.dbo.things",
    "oracle": "ORCLPDB1.SHOP.THINGS",
}
TRANSACTIONS = {
    "postgresql": Transaction("571"),
    "mysql": Transaction("24DA167-0C0C-11E8-8442-00059A3C7B00:1-19"),
    "mariadb": Transaction("0-1-42"),
    "sqlserver": None,
    "oracle": Transaction("6.28.807"),
}


@pytest.mark.parametrize("connector", sorted(POSITIONS))
def test_where_a_change_comes_from(connector: str) -> None:
    micros = 123456 if connector == "postgresql" else 0
    at = datetime(2023, 11, 14, 22, 13, 20, micros, tzinfo=UTC)
    origin = changed(envelope("c", None, ROW, connector)).origin
    assert origin == Origin(
        connector, NAMES[connector], POSITIONS[connector], at, TRANSACTIONS[connector], snapshot=False, server="shop"
    )


def test_positions_grow_with_the_log() -> None:
    def order(connector: str, **source: Any) -> tuple[int, ...]:
        return changed(envelope("c", None, ROW, connector, source=source)).origin.position.order

    # The log of a transaction may lie before that of one that committed earlier.
    assert order("postgresql", sequence='["33100","33010"]') > order("postgresql")
    assert order("postgresql", sequence='[null,"33040"]') < order("postgresql")
    assert order("postgresql", sequence=None) == (33040,)
    assert order("mysql", file="mysql-bin.000010", pos=4) > order("mysql", file="mysql-bin.000009", pos=999)
    assert order("sqlserver", event_serial_no=2) > order("sqlserver")
    assert order("sqlserver", commit_lsn="00000100:00000001:0001") > order("sqlserver")
    assert order("oracle", commit_scn="2122191") > order("oracle")


@pytest.mark.parametrize("snapshot", [True, "true", "first", "last", "incremental", "first_in_data_collection"])
def test_rows_of_a_snapshot_are_known(snapshot: Any) -> None:
    assert changed(envelope("r", None, ROW, source={"snapshot": snapshot})).origin.snapshot
    assert not changed(envelope("r", None, ROW, source={"snapshot": "false"})).origin.snapshot


def test_a_change_knows_its_transaction() -> None:
    block = {"id": "571:53195832", "total_order": "3", "data_collection_order": 2}
    assert changed(envelope("c", None, ROW, transaction=block)).origin.transaction == Transaction("571:53195832", 3, 2)
    begin = {
        "status": "BEGIN",
        "id": "571:53195829",
        "ts_ms": 1700000000000,
        "event_count": None,
        "data_collections": None,
    }
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert decode(begin) == TransactionBoundary("BEGIN", "571:53195829", at)
    parts = [{"data_collection": "public.a", "event_count": 1}, {"data_collection": "public.b", "event_count": "2"}]
    end = {"status": "END", "id": "571:53195832", "ts_ms": 1700000000000, "event_count": 3, "data_collections": parts}
    assert decode(end) == TransactionBoundary("END", "571:53195832", at, 3, {"public.a": 1, "public.b": 2})
    for bad in ({**end, "id": None}, {**end, "data_collections": 7}, {**end, "data_collections": [{}]}):
        with pytest.raises(Undecodable, match="transaction"):
            decode(bad)


# What Debezium writes for a value that it does not have, by the type of the column.
# Java's UUID of a name has no namespace.
NO_SPACE: Any = SimpleNamespace(bytes=b"")
ENCODED = base64.b64encode(PLACEHOLDER.encode()).decode()
FORMS: list[tuple[Any, Any]] = [
    (StringType(), PLACEHOLDER),
    (BinaryType(), ENCODED),
    (BinaryType(), PLACEHOLDER.encode().hex()),
    (DecimalType(10, 2), ENCODED),
    (ArrayType(StringType()), [PLACEHOLDER]),
    (ArrayType(BinaryType()), [ENCODED]),
    (ArrayType(LongType()), list(PLACEHOLDER.encode())),
    (ArrayType(StringType()), [str(uuid3(NO_SPACE, PLACEHOLDER))]),
    (MapType(StringType(), StringType()), {PLACEHOLDER: PLACEHOLDER}),
    (MapType(StringType(), StringType()), f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'),
    (StringType(), f'{{"{PLACEHOLDER}" : "{PLACEHOLDER}"}}'),
]


@pytest.mark.parametrize(("data_type", "value"), FORMS)
def test_what_is_unavailable_is_kept(data_type: Any, value: Any) -> None:
    table = TableContract("t", StructType([StructField("id", LongType()), StructField("c", data_type)]), ("id",))
    message = changed(envelope("u", None, {"id": 1, "c": value}), table)
    assert (list(message.changes), message.kept, message.after) == ([{"update": {"id": 1}}], {"c"}, {"id": 1})
    # What the row had before, where the record tells.
    if isinstance(data_type, StringType):
        message = changed(envelope("u", {"id": 1, "c": "old"}, {"id": 1, "c": value}), table)
        assert (list(message.changes), message.kept) == ([{"insert": {"id": 1, "c": "old"}}], frozenset())
    deleted = changed(envelope("d", {"id": 1, "c": value}), table)
    assert list(deleted.changes) == [{"delete": {"id": 1}}]


def test_the_placeholder_may_be_another() -> None:
    payload = envelope("u", None, {"id": 1, "name": "n/a", "price": 5})
    assert changed(payload).kept == frozenset()
    assert changed(payload, unavailable_value="n/a").kept == {"name"}
    assert changed(payload, unavailable_value="hex:6e2f61").kept == {"name"}


def test_a_new_key_without_what_its_row_keeps_is_an_update() -> None:
    """After a change of the key, what the new row keeps lay under the old one: the intake finds no row, and refuses."""
    message = changed(envelope("c", None, {"id": 2, "name": PLACEHOLDER, "price": 5}))
    assert (message.operation, list(message.changes)) == ("create", [{"update": {"id": 2, "price": 5}}])


def test_a_schema_is_known_again_by_its_bytes() -> None:
    decoder = DebeziumJson(KEYED, FormatOptions())
    schema = envelope_schema(FIELDS)
    other = envelope_schema([field("id", "int64"), field("name", "string"), field("price", "string")])
    for _ in range(3):
        for number in range(3):
            coded = envelope("c", None, {"id": number, "name": "é", "price": "AfQ="})
            text = envelope("c", None, {"id": number, "name": "}", "price": "5.00"})
            for value in (wrapped(coded, schema), wrapped(text, other)):
                message = decoder.decode(record(value))
                assert isinstance(message, RowChange)
                assert KEYED.decode(message.changes[0]).row == (number, value["payload"]["after"]["name"], 5)
    prefix = record(wrapped({}, schema)).value or b""
    # The same beginning, but not a wrapper of a schema and a payload.
    for ending in (b'{"op":"t"},"payload":{}}', b'{"op":"t"}', b'{"op":"t"}} x', b"[1]}", b'"\xff"}', b""):
        with pytest.raises(Undecodable):
            decoder.decode(Record(prefix[:-3] + ending))
    assert decoder.decode(Record(prefix[:-3] + b" null }")) == Tombstone()


def test_many_schemas_are_not_all_kept() -> None:
    decoder = DebeziumJson(KEYED, FormatOptions())
    for number in range(100):
        schema = envelope_schema([*FIELDS, field(f"c{number}", "int32")])
        decoder.decode(record(wrapped(envelope("c", None, {"id": 1, f"c{number}": number}), schema)))
    assert len(decoder._known) <= 16


def test_the_schema_of_a_record_describes_its_table() -> None:
    decoder = DebeziumJson(None, FormatOptions())
    key = wrapped({"id": 1}, key_schema([field("id", "int64", optional=False)]))
    described = decoder.describe(record(wrapped(envelope("c", None, ROW), envelope_schema(FIELDS)), key))
    assert described is not None
    assert (described.name, described.key) == ("things", ("id",))
    assert [(one.name, one.data_type.simpleString(), one.nullable) for one in described.columns] == [
        ("id", "bigint", False),
        ("name", "string", True),
        ("price", "decimal(10,2)", True),
    ]
    assert decoder.describe(record(envelope("c", None, ROW))) is None
    assert decoder.describe(record(None, key)) is None


def column(
    name: str, kind: str, position: int, length: int | None = None, scale: int | None = None, **more: Any
) -> Any:
    return {
        "name": name,
        "jdbcType": more.pop("jdbc", 0),
        "nativeType": None,
        "typeName": kind,
        "typeExpression": kind,
        "charsetName": None,
        "length": length,
        "scale": scale,
        "position": position,
        "optional": more.pop("optional", True),
        "autoIncremented": False,
        "generated": False,
    }


def test_a_change_of_the_schema_describes_tables() -> None:
    columns = [
        column("name", "VARCHAR", 2, 255),
        column("id", "INT", 1, optional=False),
        column("price", "DECIMAL", 3, 10, 2),
        column("at", "DATETIME", 4, 6),
        column("seen", "TIMESTAMP", 5),
        column("flag", "BIT", 6, 1),
        column("many", "BIGINT UNSIGNED", 7),
        column("few", "TINYINT UNSIGNED", 8),
        column("odd", "SOMETHING NEW", 9),
        column("kind", "ENUM('a','b')", 10),
    ]
    payload = {
        "source": SOURCES["mysql"],
        "ts_ms": 1700000000000,
        "databaseName": "shop",
        "schemaName": None,
        "ddl": "ALTER TABLE things ADD price DECIMAL(10,2)",
        "tableChanges": [
            {
                "type": "ALTER",
                "id": '"shop"."things"',
                "table": {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": ["id"], "columns": columns},
            },
            {"type": "DROP", "id": '"shop"."old"', "table": None},
            {"type": "ALTER", "id": '"shop"."a,b","shop"."c""d"', "table": {"columns": []}},
        ],
    }
    for value in (
        payload,
        wrapped(payload, {"type": "struct", "fields": [], "name": "io.debezium.connector.mysql.SchemaChangeValue"}),
    ):
        message = decode(value)
        assert isinstance(message, SchemaChange)
        assert message.ddl == payload["ddl"]
        assert message.origin.connector == "mysql"
        things, old, renamed = message.tables
        assert (things.name, things.key, things.what) == ("shop.things", ("id",), "changed")
        assert [(one.name, one.data_type.simpleString()) for one in things.columns] == [
            ("id", "int"),
            ("name", "string"),
            ("price", "decimal(10,2)"),
            ("at", "timestamp_ntz"),
            ("seen", "timestamp"),
            ("flag", "boolean"),
            ("many", "bigint"),
            ("few", "smallint"),
            ("odd", "string"),
            ("kind", "string"),
        ]
        assert [one.nullable for one in things.columns[:2]] == [False, True]
        assert (old.name, old.what) == ("shop.old", "went")
        assert (renamed.name, renamed.former_name) == ('shop.c"d', "shop.a,b")
    ddl_only = {"source": SOURCES["mysql"], "databaseName": "shop", "ddl": "CREATE DATABASE shop"}
    assert decode(ddl_only) == SchemaChange(
        (), "CREATE DATABASE shop", changed(envelope("c", None, ROW, "mysql")).origin
    )


@pytest.mark.parametrize(
    ("connector", "kind", "length", "scale", "expected"),
    [
        ("oracle", "NUMBER", 9, 0, "int"),
        ("oracle", "NUMBER", 2, 0, "tinyint"),
        ("oracle", "NUMBER", 20, 0, "decimal(20,0)"),
        ("oracle", "NUMBER", 10, 2, "decimal(10,2)"),
        ("oracle", "NUMBER", None, None, "decimal(38,18)"),
        ("oracle", "DATE", None, None, "timestamp_ntz"),
        ("oracle", "TIMESTAMP(6) WITH TIME ZONE", None, None, "timestamp"),
        ("oracle", "VARCHAR2", 255, None, "string"),
        ("oracle", "INTERVAL DAY(2) TO SECOND(6)", None, None, "interval day to second"),
        ("sqlserver", "int identity", 10, 0, "int"),
        ("sqlserver", "datetime2", 27, 7, "timestamp_ntz"),
        ("sqlserver", "datetimeoffset", None, None, "timestamp"),
        ("sqlserver", "timestamp", None, None, "binary"),
        ("sqlserver", "money", None, None, "decimal(19,4)"),
        ("sqlserver", "tinyint", None, None, "smallint"),
        ("mysql", "MEDIUMINT UNSIGNED", None, None, "bigint"),
        ("mysql", "FLOAT", 53, None, "double"),
        ("mysql", "YEAR", None, None, "int"),
        ("mysql", "LONGBLOB", None, None, "binary"),
        ("postgresql", "numeric", 131089, 0, "decimal(38,0)"),
        ("postgresql", "timestamptz", None, None, "timestamp"),
        ("postgresql", "int4", None, None, "int"),
        ("", "", None, None, "string"),
    ],
)
def test_types_of_databases_have_columns(
    connector: str, kind: str, length: int | None, scale: int | None, expected: str
) -> None:
    table = {"columns": [column("c", kind, 1, length, scale)]}
    source = {"connector": connector}
    message = decode({"source": source, "tableChanges": [{"type": "CREATE", "id": "t", "table": table}]})
    assert isinstance(message, SchemaChange)
    assert message.tables[0].columns[0].data_type.simpleString() == expected


@pytest.mark.parametrize(
    "bad",
    [
        7,
        [7],
        [{"type": "RENAME", "id": "t"}],
        [{"type": "ALTER", "id": ""}],
        [{"type": "ALTER", "id": "t", "table": 7}],
        [{"type": "ALTER", "id": "t", "table": {"columns": [{"typeName": "INT"}]}}],
        [{"type": "ALTER", "id": "t", "table": {"columns": 7}}],
        [{"type": "ALTER", "id": "t", "table": {"primaryKeyColumnNames": [1]}}],
    ],
)
def test_a_broken_change_of_the_schema_is_told(bad: Any) -> None:
    with pytest.raises(Undecodable):
        decode({"source": SOURCES["mysql"], "databaseName": "shop", "ddl": "", "tableChanges": bad})
