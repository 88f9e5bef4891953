"""MariaDB, followed by its binlog, as a replica with a number of its own."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

from headrace.capture.connector import Connector, Description, Position
from headrace.capture.debezium.reading import DebeziumReading, Plan, again, with_snapshot
from headrace.capture.debezium.settings import OPTIONS, given, named_tables, read_url, usual

_PORT = 3306
_JARS = "mariadb"


def plan(description: Description) -> Plan:
    """How Debezium reads the database of a source."""
    url = read_url(description, ("mysql", "mariadb"), _PORT)
    database = url.path.strip("/")
    config = {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        **usual(description, url, _PORT, database),
        "database.include.list": database,
        # Each that reads the binlog is a replica with a number of its own.
        "database.server.id": str(
            1_000_000 + zlib.crc32(f"{description.name} {description.location}".encode()) % 10**9
        ),
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
        "include.schema.changes": "false",
        "read.only": "true",
        **given(description.options),
    }
    return Plan(
        _JARS,
        "io.debezium.connector.mariadb.MariaDbConnectorTask",
        config,
        _database(url, config),
        keeps_history=True,
    )


def _open(description: Description, position: Position) -> DebeziumReading:
    return DebeziumReading(description, position, plan(description))


def _snapshot(description: Description, wanted: Sequence[str], asked: str) -> Position:
    return with_snapshot(
        named_tables(description, read_url(description, ("mysql", "mariadb"), _PORT).path.strip("/"), wanted),
        asked,
    )


def _database(url: SplitResult, config: dict[str, str]) -> dict[str, Any]:
    properties = {"user": config["database.user"], "password": config["database.password"]}
    return {"url": f"jdbc:mariadb://{url.hostname}:{url.port or _PORT}{url.path}", "properties": properties}


MYSQL = Connector(
    "MYSQL",
    OPTIONS,
    _open,
    plan,
    brings_many=True,
    has_format=True,
    format="debezium",
    again=again,
    snapshot=_snapshot,
)
