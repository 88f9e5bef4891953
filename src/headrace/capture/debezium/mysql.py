"""MySQL and MariaDB, followed by their binlog, as a replica with a number of its own.

They are not the same: each has its own ids of transactions, and a connector of its own. Which one is there, its
greeting tells.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import SplitResult

from headrace.capture.connector import Connector, Description, Position
from headrace.capture.debezium.reading import DebeziumReading, Plan, again, with_snapshot
from headrace.capture.debezium.settings import OPTIONS, given, named_tables, read_url, tables_of, usual
from headrace.capture.debezium.tables import like
from headrace.errors import SourceUnavailable

_PORT = 3306
_SCHEMES = ("mysql", "mariadb")
_GREETING_SECONDS = 10.0
# The first byte of a greeting, which is the version of the protocol.
_PROTOCOL = 10
Kind = Literal["mysql", "mariadb"]
_CLASSES: dict[Kind, str] = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}


def plan(description: Description, kind: Kind = "mariadb") -> Plan:
    """How Debezium reads the database of a source."""
    url = read_url(description, _SCHEMES, _PORT)
    database = url.path.strip("/")
    config = {
        "connector.class": _CLASSES[kind],
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
    tables = tables_of(description, database)
    return Plan(
        kind,
        f"{_CLASSES[kind]}Task",
        config,
        _database(url, config, kind),
        keeps_history=True,
        tables=tables,
        looking=_looking(tables),
    )


def kind_of(url: SplitResult) -> Kind:
    """Whether a server is a MySQL or a MariaDB, as it says itself to whoever connects."""
    if url.scheme == "mariadb":
        return "mariadb"
    try:
        with socket.create_connection((str(url.hostname), url.port or _PORT), _GREETING_SECONDS) as connection:
            connection.settimeout(_GREETING_SECONDS)
            with connection.makefile("rb") as said:
                length = int.from_bytes(said.read(4)[:3], "little")
                greeting = said.read(length)
    except OSError as error:
        raise _silent(url, f"{error}.") from error
    if greeting[:1] != bytes([_PROTOCOL]):
        # It refuses whoever connects, and says why, after its code and state.
        raise _silent(url, greeting[9:].decode("utf-8", "replace") or "It says nothing.")
    version = greeting[1:].partition(b"\0")[0]
    return "mariadb" if b"mariadb" in version.lower() else "mysql"


def _silent(url: SplitResult, detail: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"the database at {url.hostname}:{url.port or _PORT} does not answer as a MySQL or a MariaDB",
        detail=detail,
        hint="it is tried again; see that the server is up and the address is right",
    )


def _open(description: Description, position: Position) -> DebeziumReading:
    kind = kind_of(read_url(description, _SCHEMES, _PORT))
    return DebeziumReading(description, position, plan(description, kind))


def _looking(tables: Sequence[str]) -> str:
    name = "concat(table_schema, '.', table_name)"
    return (
        f"SELECT {name}, NULL, NULL FROM information_schema.tables "
        f"WHERE table_schema = database() AND table_type <> 'VIEW' AND {like(name, tables)}"
    )


def _snapshot(description: Description, wanted: Sequence[str], asked: str) -> Position:
    database = read_url(description, _SCHEMES, _PORT).path.strip("/")
    return with_snapshot(named_tables(description, database, wanted), asked)


def _database(url: SplitResult, config: dict[str, str], kind: Kind) -> dict[str, Any]:
    properties = {"user": config["database.user"], "password": config["database.password"]}
    return {"url": f"jdbc:{kind}://{url.hostname}:{url.port or _PORT}{url.path}", "properties": properties}


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
