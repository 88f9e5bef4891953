"""The servers that were started together: where they are, what can be done to them, and their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.errors import SetupError
from headrace.interrupts import interrupts_held
from headrace.local.connectors import Connectors
from headrace.local.debezium import mariadb_config, postgres_config
from headrace.local.kafka import create_topic
from headrace.local.server import Server


class Servers:
    """Running servers; a context that ends them.

    `restart_...` kills a server with kill -9 and starts it again on the same port and data; `kill_...` leaves it dead
    until its `start()`, as in `servers.kafka.start()`.
    """

    def __init__(
        self, servers: Mapping[str, Server], folder: Path, discard: Callable[[], None], *, lasting: bool
    ) -> None:
        self.folder = folder
        self._servers = dict(servers)
        self._discard = discard
        self._lasting = lasting
        self._stopped = False

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def logs(self) -> Path:
        """The folder with what each server says: kafka.log, connect.log, postgres.log, mariadb.log."""
        return self.folder / "logs"

    @property
    def kafka(self) -> Server:
        """The broker."""
        return self._one("kafka")

    @property
    def connect(self) -> Server:
        """Kafka Connect, with Debezium."""
        return self._one("connect")

    @property
    def postgres(self) -> Server:
        """The PostgreSQL."""
        return self._one("postgres")

    @property
    def mariadb(self) -> Server:
        """The MariaDB."""
        return self._one("mariadb")

    @property
    def bootstrap(self) -> str:
        """Where the broker is reached, as host:port."""
        return self.kafka.address

    @property
    def connect_url(self) -> str:
        """Where Connect's REST interface is reached."""
        return self.connect.address

    @property
    def postgres_dsn(self) -> str:
        """Where PostgreSQL is reached, as a URL with user and password."""
        return self.postgres.address

    @property
    def mariadb_dsn(self) -> str:
        """Where MariaDB is reached, as a mysql:// URL with user and password."""
        return self.mariadb.address

    def restart_broker(self) -> None:
        """Kill the broker and start it again."""
        self.kafka.restart()

    def restart_connect(self) -> None:
        """Kill Connect and start it again; its connectors go on by themselves."""
        self.connect.restart()

    def restart_postgres(self) -> None:
        """Kill PostgreSQL and start it again."""
        self.postgres.restart()

    def restart_mariadb(self) -> None:
        """Kill MariaDB and start it again."""
        self.mariadb.restart()

    def kill_broker(self) -> None:
        """End the broker as kill -9 does."""
        self.kafka.kill()

    def kill_connect(self) -> None:
        """End Connect as kill -9 does."""
        self.connect.kill()

    def kill_postgres(self) -> None:
        """End PostgreSQL as kill -9 does."""
        self.postgres.kill()

    def kill_mariadb(self) -> None:
        """End MariaDB as kill -9 does."""
        self.mariadb.kill()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; `config` has Kafka's own names, such as cleanup.policy."""
        create_topic(self.bootstrap, name, partitions, config or {})

    def capture(self, name: str, tables: Sequence[str] = (), config: Mapping[str, str] | None = None) -> None:
        """Capture the PostgreSQL by a Debezium connector of this name, into topics called name.schema.table.

        Tables are named with their schema, as public.orders; without any, all are captured. `config` has Debezium's own
        names and goes before what is usual here. Returns when the connector runs.
        """
        self.create_connector(postgres_config(self.postgres_dsn, name, tables, config or {}))

    def capture_mariadb(self, name: str, tables: Sequence[str] = (), config: Mapping[str, str] | None = None) -> None:
        """Capture the MariaDB likewise, into topics called name.database.table; tables as headrace.orders."""
        self.create_connector(mariadb_config(self.mariadb_dsn, self.bootstrap, name, tables, config or {}))

    def create_connector(self, config: Mapping[str, str]) -> None:
        """Create a connector, or change the one of that name; return when it and its tasks run."""
        self._connectors.create(config)

    def wait_for_connector(self, name: str) -> None:
        """Wait until a connector and its tasks run, as after a restart; one that has failed is an error."""
        self._connectors.wait(name)

    def delete_connector(self, name: str) -> None:
        """Delete a connector, if it is there, and wait for its end; its slot and publication in PostgreSQL stay."""
        self._connectors.delete(name)

    def connector_status(self, name: str) -> dict[str, Any] | None:
        """What Connect tells of a connector and its tasks; none if it has none of that name."""
        return self._connectors.status(name)

    def connectors(self) -> list[str]:
        """The names of all connectors."""
        return self._connectors.names()

    def status(self) -> list[dict[str, object]]:
        """Each server: whether its process is there, whether it answers, and where it is."""
        return [
            {
                "name": server.name,
                "running": server.is_running,
                "answers": server.is_running and server.program.answers(),
                "address": server.address,
                "pid": server.pid,
                "start_seconds": round(server.seconds, 2),
                "log": str(server.log),
            }
            for server in self._servers.values()
        ]

    def ended(self) -> list[Server]:
        """The servers whose processes have gone."""
        return [server for server in self._servers.values() if not server.is_running]

    def stop(self) -> None:
        """End all servers, those first that use the others; what was not to last is removed."""
        if self._stopped:
            return
        with interrupts_held():
            if self._lasting:
                for server in reversed(self._servers.values()):
                    server.stop()
            # What nobody will read again need not be put in order.
            self._discard()
            self._stopped = True

    @property
    def _connectors(self) -> Connectors:
        return Connectors(self.connect_url)

    def _one(self, name: str) -> Server:
        try:
            return self._servers[name]
        except KeyError:
            raise SetupError(
                f"{name} was not started", hint=f"start it with the others: headrace.local.start({name}=True)"
            ) from None
