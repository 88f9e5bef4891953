"""Messages between a server and its query processes: a head of JSON and parts of bytes, over a pair of sockets.

    4 bytes  length of the head      8 bytes  length of all parts
    the head, UTF-8 JSON; "parts" in it has the length of each part
    the parts, one after the other

Nothing that is read is ever executed, and no more is read than was agreed on: neither side need trust the other.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

_LENGTHS = struct.Struct(">IQ")
_MOST_HEAD = 64 * 1024 * 1024
_PIECE = 1024 * 1024


class WireBroken(Exception):
    """The other side is gone, or says what it must not."""


@dataclass(frozen=True)
class Message:
    """What one side said: a head, and parts that it speaks of by number."""

    head: Mapping[str, Any]
    parts: Sequence[bytes] = ()


def send(wire: socket.socket, message: Message) -> None:
    """Say something; callers take turns."""
    head = json.dumps({**message.head, "parts": [len(part) for part in message.parts]}).encode()
    try:
        wire.sendall(_LENGTHS.pack(len(head), sum(map(len, message.parts))) + head)
        for part in message.parts:
            wire.sendall(part)
    except OSError as error:
        raise WireBroken("the other side does not listen") from error


def receive(wire: socket.socket, most: int) -> Message:
    """The next message, whose parts have at most so many bytes; blocks until it is whole."""
    head_length, parts_length = _LENGTHS.unpack(_exactly(wire, _LENGTHS.size))
    if head_length > _MOST_HEAD or parts_length > most:
        raise WireBroken(f"a message of {head_length} and {parts_length} bytes is too long")
    try:
        head: Any = json.loads(_exactly(wire, head_length))
    except ValueError as error:
        raise WireBroken("the head of a message is not JSON") from error
    lengths: Any = cast(dict[str, Any], head).get("parts") if isinstance(head, dict) else None
    if not isinstance(lengths, list) or not all(type(one) is int and one >= 0 for one in cast(list[Any], lengths)):
        raise WireBroken("the head of a message does not tell the length of its parts")
    known = cast(list[int], lengths)
    if sum(known) != parts_length:
        raise WireBroken("the parts of a message are not as long as its head says")
    return Message(cast(dict[str, Any], head), [_exactly(wire, one) for one in known])


def _exactly(wire: socket.socket, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        try:
            piece = wire.recv(min(_PIECE, count - len(content)))
        except OSError as error:
            raise WireBroken("the other side cannot be heard") from error
        if not piece:
            raise WireBroken("the other side has ended")
        content += piece
    return bytes(content)


def to_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def to_table(content: bytes) -> pa.Table:
    """The table of an Arrow stream; one that is none breaks the wire."""
    try:
        return pa.ipc.open_stream(content).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise WireBroken("a part is no Arrow stream") from error
