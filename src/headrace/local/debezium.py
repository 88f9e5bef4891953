"""The configurations of Debezium's connectors for the databases that are started here."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit


def postgres_config(dsn: str, name: str, tables: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a connector of a PostgreSQL; without tables, it captures all."""
    # PostgreSQL takes no other characters in the name of a slot.
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name.lower())
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **_usual(dsn, name, tables),
        "database.dbname": urlsplit(dsn).path.lstrip("/"),
        "plugin.name": "pgoutput",
        "slot.name": f"{plain}_slot",
        "publication.name": f"{plain}_publication",
        "publication.autocreate.mode": "filtered" if tables else "all_tables",
        **given,
    }


def mariadb_config(
    dsn: str, bootstrap: str, name: str, tables: Sequence[str], given: Mapping[str, str]
) -> dict[str, str]:
    """The configuration of a connector of a MariaDB; without tables, it captures those of the URL's database."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        **_usual(dsn, name, tables),
        **({} if tables else {"database.include.list": urlsplit(dsn).path.lstrip("/")}),
        # Each that reads the binlog is a replica with a number of its own.
        "database.server.id": str(1000 + zlib.crc32(name.encode()) % 1_000_000),
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"{name}-schema-history",
        **given,
    }


def _usual(dsn: str, name: str, tables: Sequence[str]) -> dict[str, str]:
    database = urlsplit(dsn)
    return {
        "name": name,
        "topic.prefix": name,
        "database.hostname": str(database.hostname),
        "database.port": str(database.port),
        "database.user": unquote(str(database.username)),
        "database.password": unquote(str(database.password)),
        **({"table.include.list": ",".join(tables)} if tables else {}),
    }
