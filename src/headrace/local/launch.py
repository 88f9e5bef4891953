"""Start real servers on this machine: side by side, each on a free port, and ready when it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from headrace.errors import SetupError
from headrace.local.connect import connect_program
from headrace.local.folder import Claim, close_to_others
from headrace.local.kafka import kafka_program
from headrace.local.mariadb import mariadb_program
from headrace.local.packages import client, kafka_jars, postgres_files
from headrace.local.postgres import postgres_program
from headrace.local.server import Program, Server
from headrace.local.servers import Servers
from headrace.storage.scratch import Scratch

_LOOK_SECONDS = 0.05


def start(
    kafka: bool | Mapping[str, str] = True,
    connect: bool | Mapping[str, str] = True,
    postgres: bool | Mapping[str, str] = True,
    mariadb: bool | Mapping[str, str] = False,
    *,
    folder: str | os.PathLike[str] | None = None,
    on_ready: Callable[[Server], None] | None = None,
) -> Servers:
    """Start a Kafka broker, Kafka Connect with Debezium, a PostgreSQL whose changes can be captured; or a MariaDB.

    Returns when each answers. They listen on free ports of this machine only, and end with the context, or with this
    process, however that ends. A mapping in place of True holds settings in the server's own words. With a `folder`,
    data, ports and password are kept there for the next start; without, they are gone in the end. `on_ready` is called
    with each server once it answers.
    """
    if connect is not False and kafka is False:
        raise SetupError("Kafka Connect needs Kafka", hint="start both, or neither: kafka=False, connect=False")
    # Whatever is missing is told before anything is started.
    for name, wanted in (("confluent_kafka", kafka), ("psycopg", postgres)):
        if wanted is not False:
            client(name)
    with ExitStack() as undo:
        claim = Claim(_short_lived(undo) if folder is None else Path(folder).absolute())
        undo.callback(claim.release)
        servers: dict[str, Server] = {}
        for program in _programs(claim, kafka, connect, postgres, mariadb, lasting=folder is not None):
            servers[program.name] = server = Server(program, claim.logs / f"{program.name}.log")
            undo.callback(server.discard)
        _start_all(list(servers.values()), on_ready)
        claim.tell(
            {
                "pid": os.getpid(),
                "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "servers": {
                    name: {"address": server.address, "start_seconds": round(server.seconds, 2), "log": str(server.log)}
                    for name, server in servers.items()
                },
            }
        )
        return Servers(servers, claim.path, undo.pop_all().close, lasting=folder is not None)


def _short_lived(undo: ExitStack) -> Path:
    scratch = Scratch()
    undo.callback(scratch.close)
    close_to_others(scratch.path)
    return scratch.path


def _programs(
    claim: Claim,
    kafka: bool | Mapping[str, str],
    connect: bool | Mapping[str, str],
    postgres: bool | Mapping[str, str],
    mariadb: bool | Mapping[str, str],
    *,
    lasting: bool,
) -> Iterator[Program]:
    """The programs that were asked for, those first that others need."""
    kept = claim.keep(("kafka", "controller", "connect", "postgres", "mariadb"))
    if kafka is not False:
        jars = kafka_jars()
        broker = kafka_program(
            claim.path / "kafka", jars, kept.ports["kafka"], kept.ports["controller"], _settings(kafka)
        )
        yield broker
        if connect is not False:
            yield connect_program(
                claim.path / "connect", jars, kept.ports["connect"], broker.address, _settings(connect)
            )
    if postgres is not False:
        yield postgres_program(
            claim.path / "postgres",
            postgres_files(),
            kept.ports["postgres"],
            kept.password,
            _settings(postgres),
            lasting=lasting,
        )
    if mariadb is not False:
        yield mariadb_program(
            claim.path / "mariadb", kept.ports["mariadb"], kept.password, _settings(mariadb), lasting=lasting
        )


def _settings(given: bool | Mapping[str, str]) -> Mapping[str, str]:
    return {} if isinstance(given, bool) else given


def _start_all(servers: list[Server], on_ready: Callable[[Server], None] | None) -> None:
    # None waits for another: Connect asks for the broker until it is there.
    for server in servers:
        server.begin()
    waiting = servers
    while waiting:
        for server in [one for one in waiting if one.is_ready()]:
            waiting = [one for one in waiting if one is not server]
            if on_ready is not None:
                on_ready(server)
        time.sleep(_LOOK_SECONDS)
