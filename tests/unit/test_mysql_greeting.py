"""Whether a server is a MySQL or a MariaDB, by the first bytes that each sends to whoever connects."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from urllib.parse import SplitResult, urlsplit

import pytest

from headrace.capture.debezium.mysql import kind_of
from headrace.errors import SourceUnavailable


def packet(content: bytes) -> bytes:
    return struct.pack("<I", len(content))[:3] + b"\0" + content


def greeting(version: bytes) -> bytes:
    return packet(b"\x0a" + version + b"\0" + bytes(60))


@pytest.fixture
def saying() -> Iterator[Callable[[bytes], SplitResult]]:
    listener = socket.create_server(("127.0.0.1", 0))

    def say(said: bytes) -> SplitResult:
        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        return urlsplit(f"mysql://reader@127.0.0.1:{listener.getsockname()[1]}/shop")

    yield say
    listener.close()


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        (b"8.0.12", "mysql"),
        (b"9.1.0-commercial", "mysql"),
        (b"5.5.5-10.11.6-MariaDB-0+deb12u1-log", "mariadb"),
        (b"11.4.2-MariaDB", "mariadb"),
    ],
)
def test_a_server_says_which_it_is(saying: Callable[[bytes], SplitResult], version: bytes, kind: str) -> None:
    assert kind_of(saying(greeting(version))) == kind


@pytest.mark.parametrize(
    "said",
    [b"", b"\x05", b"SSH-2.0-OpenSSH_9.2\r\n", packet(b"\xff\x10\x04#08004Too many connections")],
    ids=["nothing", "a part", "another server", "a refusal"],
)
def test_what_is_neither_is_tried_again(saying: Callable[[bytes], SplitResult], said: bytes) -> None:
    with pytest.raises(SourceUnavailable) as told:
        kind_of(saying(said))
    if b"Too many" in said:
        assert "Too many connections" in str(told.value.detail)


def test_a_url_may_say_it_and_a_server_that_is_not_there_is_told() -> None:
    assert kind_of(urlsplit("mariadb://reader@127.0.0.1:1/shop")) == "mariadb"
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1"):
        kind_of(urlsplit("mysql://reader@127.0.0.1:1/shop"))
