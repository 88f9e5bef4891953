"""Sessions with a PostgreSQL that falls silent, and the errors that are those of a row; without a server."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg import conninfo, errors

from headrace.feeds.postgres import PostgresSink
from headrace.feeds.postgres_names import read_target
from headrace.feeds.postgres_session import Session, open_session
from headrace.feeds.postgres_write import is_of_a_row
from headrace.feeds.sink import SinkUnavailable
from tests.feed_batches import target_of


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _let_in(client: socket.socket) -> None:
    """Take a client as PostgreSQL does, and answer nothing from then on."""
    with suppress(OSError), client:
        (length,) = struct.unpack("!i", client.recv(4))
        client.recv(length - 4)
        client.sendall(
            _message(b"R", struct.pack("!i", 0))
            + _message(b"S", b"server_version\x0015.0\0")
            + _message(b"S", b"client_encoding\0UTF8\0")
            + _message(b"K", struct.pack("!ii", 1, 1))
            + _message(b"Z", b"I")
        )
        while client.recv(65_536):
            pass


@pytest.fixture
def silent() -> Iterator[str]:
    """The location of a table in a server that lets clients in, and then says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=_let_in, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"postgresql://u@127.0.0.1:{server.getsockname()[1]}/d/t?sslmode=disable&gssencmode=disable"
        server.shutdown(socket.SHUT_RDWR)


def test_a_server_that_says_nothing_is_not_waited_for_without_an_end(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.feeds.postgres_session._SILENT_SECONDS", 0.2)
    with pytest.raises(SinkUnavailable, match="the server has not answered for"):
        PostgresSink().open(target_of(silent))
    with pytest.raises(SinkUnavailable, match="the server has not answered for"):
        PostgresSink().forget(target_of(silent))


def test_parameters_of_the_url_come_before_those_of_every_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def connect(given: str, **_: object) -> Session:
        asked.append(dict(conninfo.conninfo_to_dict(given)))
        raise psycopg.OperationalError("no server")

    monkeypatch.setattr(Session, "connect", connect)
    target = target_of("postgresql://u@h/d/t?connect_timeout=3&keepalives_idle=5", options={"password": "p"})
    with pytest.raises(psycopg.OperationalError):
        open_session(target, read_target(target))
    (given,) = asked
    assert {name: str(given[name]) for name in ("connect_timeout", "keepalives_idle", "keepalives", "password")} == {
        "connect_timeout": "3",
        "keepalives_idle": "5",
        "keepalives": "1",
        "password": "p",
    }


@pytest.mark.parametrize(
    "code",
    [
        *("22003", "22001", "22021", "22P02", "22008"),
        *("23502", "23503", "23505", "23514", "23P01", "23001", "44000"),
        *("21000", "54000", "54001", "P0001"),
    ],
)
def test_errors_that_a_row_causes(code: str) -> None:
    assert is_of_a_row(errors.lookup(code)("refused"))


@pytest.mark.parametrize(
    "code",
    [
        # The table: no such table or column, a right that is missing, a key without an index, a generated column.
        *("42P01", "42703", "42501", "42P10", "428C9", "42804", "54011", "0A000"),
        # The session or the server.
        *("08006", "25006", "40001", "40P01", "53100", "53300", "55P03", "57014", "57P01", "58030", "XX001"),
        # A trigger that is broken.
        *("2F005", "39P01"),
    ],
)
def test_errors_that_every_row_would_meet(code: str) -> None:
    assert not is_of_a_row(errors.lookup(code)("refused"))


def test_an_error_without_a_code_is_one_of_the_connection() -> None:
    assert not is_of_a_row(psycopg.OperationalError("the connection is lost"))
