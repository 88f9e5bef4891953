"""Change events of Debezium, made of parts: the envelopes that its connectors document, with rows of our own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from headrace.capture.record import Record

Schema = dict[str, Any]


def field(name: str, kind: str, logical: str = "", optional: bool = True, **parts: Any) -> Schema:
    """A field of a schema of Kafka Connect."""
    named = {"name": logical, "version": 1} if logical else {}
    return {"type": kind, "optional": optional, **named, **parts, "field": name}


def decimal(name: str, scale: int, precision: int | None = None) -> Schema:
    """A field with precise decimals."""
    bounds = {} if precision is None else {"connect.decimal.precision": str(precision)}
    return field(name, "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": str(scale), **bounds})


def struct(name: str, fields: Sequence[Schema], logical: str = "") -> Schema:
    """A field with fields of its own."""
    return field(name, "struct", logical, fields=list(fields))


SOURCES: Mapping[str, dict[str, Any]] = {
    "postgresql": {
        "version": "3.5.0.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1700000000123,
        "ts_us": 1700000000123456,
        "ts_ns": 1700000000123456789,
        "snapshot": "false",
        "db": "shop",
        "sequence": '["33000","33040"]',
        "schema": "public",
        "table": "things",
        "txId": 571,
        "lsn": 33040,
        "xmin": None,
    },
    "mysql": {
        "connector": "mysql",
        "name": "shop",
        "ts_ms": 1700000000000,
        "snapshot": "false",
        "db": "shop",
        "table": "things",
        "server_id": 223344,
        "gtid": "24DA167-0C0C-11E8-8442-00059A3C7B00:1-19",
        "file": "mysql-bin.000003",
        "pos": 484,
        "row": 2,
        "thread": 7,
        "query": None,
    },
    "mariadb": {
        "connector": "mariadb",
        "name": "shop",
        "ts_ms": 1700000000000,
        "snapshot": False,
        "db": "shop",
        "table": "things",
        "server_id": 1,
        "gtid": "0-1-42",
        "file": "mariadb-bin.000012",
        "pos": 990,
        "row": 0,
    },
    "sqlserver": {
        "connector": "sqlserver",
        "name": "shop",
        "ts_ms": 1700000000000,
        "snapshot": "false",
        "db": "shop",
        "schema": "dbo",
        "table": "things",
        "change_lsn": "00000027:00000758:0003",
        "commit_lsn": "00000027:00000758:0005",
        "event_serial_no": 1,
    },
    "oracle": {
        "connector": "oracle",
        "name": "shop",
        "ts_ms": 1700000000000,
        "snapshot": "false",
        "db": "ORCLPDB1",
        "schema": "SHOP",
        "table": "THINGS",
        "txId": "6.28.807",
        "scn": "2122185",
        "commit_scn": "2122190:1:06001c0027030000,2122180:2:-",
        "rs_id": "001234.00012345.0124",
        "ssn": 3,
        "redo_thread": 1,
    },
    "mongodb": {
        "connector": "mongodb",
        "name": "shop",
        "ts_ms": 1700000000000,
        "snapshot": "false",
        "db": "shop",
        "rs": "rs0",
        "collection": "things",
        "ord": 31,
        "lsid": None,
        "txnNumber": None,
    },
}


def envelope(
    op: str, before: Any = None, after: Any = None, connector: str = "postgresql", **more: Any
) -> dict[str, Any]:
    """The payload of a change event."""
    source = SOURCES[connector] | more.pop("source", {})
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": op,
        "ts_ms": 1700000001000,
        "transaction": None,
        **more,
    }


def envelope_schema(fields: Sequence[Schema]) -> Schema:
    """The schema of the change events of a table."""
    return {
        "type": "struct",
        "fields": [
            struct("before", fields, "shop.public.things.Value"),
            struct("after", fields, "shop.public.things.Value"),
            struct(
                "source",
                [field("version", "string"), field("connector", "string"), field("ts_ms", "int64")],
                "io.debezium.connector.postgresql.Source",
            ),
            field("op", "string", optional=False),
            field("ts_ms", "int64"),
        ],
        "optional": False,
        "name": "shop.public.things.Envelope",
        "version": 2,
    }


def key_schema(fields: Sequence[Schema]) -> Schema:
    """The schema of the keys of a table."""
    return {"type": "struct", "fields": list(fields), "optional": False, "name": "shop.public.things.Key"}


def wrapped(payload: Any, schema: Any) -> dict[str, Any]:
    """A value with its schema."""
    return {"schema": schema, "payload": payload}


def record(value: Any, key: Any = None, **parts: Any) -> Record:
    """A record of values that are written as JSON; decimals with their digits."""
    return Record(
        None if value is None else dumped(value), None if key is None else dumped(key), topic="shop.things", **parts
    )


def dumped(value: Any) -> bytes:
    """JSON whose decimals are numbers."""
    marks: dict[str, str] = {}

    def mark(number: object) -> str:
        assert isinstance(number, Decimal)
        marks[f"<<{len(marks)}>>"] = str(number)
        return f"<<{len(marks) - 1}>>"

    text = json.dumps(value, default=mark, separators=(",", ":"))
    for name, number in marks.items():
        text = text.replace(f'"{name}"', number)
    return text.encode()
