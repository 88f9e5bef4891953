"""A session with PostgreSQL in which no statement waits without an end.

The server ends a statement that takes too long (`statement_timeout`) or waits too long for a lock (`lock_timeout`). A
server that does neither because its process is stopped, its disk hangs or its host is gone says nothing at all: TCP
keepalives find a host that is gone, and the session itself gives up a server that is silent for longer than the
statement under way may take.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

from psycopg import Connection, Cursor, OperationalError, conninfo, sql
from psycopg.abc import PQGen

from headrace.feeds.postgres_names import Described
from headrace.feeds.sink import Target

T = TypeVar("T")

# How long a statement may take: any, one for so many rows, and one that builds an index or compares whole tables.
_STATEMENT_SECONDS = 120
_ROWS_A_SECOND = 50
_LONG_SECONDS = 86_400
# How much longer the session waits than the server lets a statement take; alone while a session is made.
_SILENT_SECONDS = 30.0
# Of libpq, where the URL does not say otherwise: milliseconds for tcp_user_timeout, seconds else.
_CONNECTION = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 6,
    "tcp_user_timeout": 60_000,
}
_SETTINGS = {
    "timezone": "UTC",
    "statement_timeout": f"{_STATEMENT_SECONDS}s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
}


class Session(Connection[Any]):
    """A connection that is closed when its server is silent for longer than a statement may take."""

    _statement_seconds = 0

    def reset_limit(self) -> None:
        """Wait for the statements of the next transaction as long as the session lets any take."""
        self._statement_seconds = _STATEMENT_SECONDS

    def limit(self, cursor: Cursor[Any], seconds: int) -> None:
        """Let each further statement of a transaction, which has begun, take so many seconds."""
        if seconds != _STATEMENT_SECONDS:
            cursor.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(f"{seconds}s"))
        self._statement_seconds = seconds

    def wait(self, gen: PQGen[T], *arguments: Any, **named: Any) -> T:
        """Wait for the server as any connection does, but not without an end."""
        return super().wait(self._watched(gen), *arguments, **named)

    def _watched(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        """Pass on what a wait of psycopg asks for; close the connection if its socket is not ready for too long."""
        limit = self._statement_seconds + _SILENT_SECONDS
        heard_at = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > limit:
                    gen.close()
                    self.close()
                    raise OperationalError(f"the server has not answered for {limit:.0f} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def limit_long(cursor: Cursor[Any]) -> None:
    """Let each further statement of the transaction take a day: it indexes or compares whole tables."""
    _session_of(cursor).limit(cursor, _LONG_SECONDS)


def limit_for(cursor: Cursor[Any], rows: int) -> None:
    """Let each further statement of the transaction take as long as so many rows may need."""
    _session_of(cursor).limit(cursor, max(_STATEMENT_SECONDS, rows // _ROWS_A_SECOND))


def _session_of(cursor: Cursor[Any]) -> Session:
    session = cursor.connection
    assert isinstance(session, Session)
    return session


def open_session(target: Target, described: Described) -> Session:
    """Open a session for a feed, with its settings."""
    given: dict[str, Any] = {
        **_CONNECTION,
        **conninfo.conninfo_to_dict(described.database),
        "application_name": f"headrace {target.feed}"[:60],
        "client_encoding": "UTF8",
    }
    password = target.options.get("password")
    if password is not None:
        given["password"] = str(password)
    session = Session.connect(conninfo.make_conninfo(**given), prepare_threshold=1)
    try:
        for setting, value in _SETTINGS.items():
            session.execute(sql.SQL("SET {} = {}").format(sql.Identifier(setting), value))
        session.commit()
        session.reset_limit()
    except BaseException:
        session.close()
        raise
    return session
