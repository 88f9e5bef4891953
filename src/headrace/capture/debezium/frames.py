"""What a batch of the engine holds, as bytes: schemas, each told once, and records."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NUMBER = struct.Struct(">i")


@dataclass(frozen=True)
class Sent:
    """A record as a connector made it, and where the connector is after it."""

    topic: str
    key: bytes | None
    value: bytes | None
    offset: dict[str, Any]


class FrameReader:
    """Reads the batches of one engine in their order."""

    def __init__(self) -> None:
        # What stands before a payload in the bytes of a value with its schema.
        self._wrappers: dict[int, bytes] = {}
        self._offset: tuple[bytes | None, dict[str, Any]] = (None, {})
        # How its tables came to be what they are, as a connector that must remember it has written it down.
        self.history: str | None = None
        # The last answer to what tables there are, row by row; whoever has seen it takes it away.
        self.tables: list[list[str | None]] | None = None

    def records(self, content: bytes) -> Iterator[Sent]:
        """The records of a batch."""
        at = 0
        while at < len(content):
            kind = content[at : at + 1]
            at += 1
            if kind == b"S":
                number, at = _number(content, at)
                schema, at = _field(content, at)
                assert schema is not None
                self._wrappers[number] = b'{"schema":' + schema + b',"payload":'
            elif kind == b"H":
                history, at = _field(content, at)
                self.history = (history or b"").decode()
            elif kind == b"T":
                tables, at = _field(content, at)
                self.tables = json.loads(tables or b"[]")
            else:
                topic, at = _field(content, at)
                key, at = self._wrapped(content, at)
                value, at = self._wrapped(content, at)
                offset, at = _field(content, at)
                yield Sent((topic or b"").decode(), key, value, self._read_offset(offset))

    def _wrapped(self, content: bytes, at: int) -> tuple[bytes | None, int]:
        number, at = _number(content, at)
        payload, at = _field(content, at)
        if payload is None or number < 0:
            return payload, at
        return self._wrappers[number] + payload + b"}", at

    def _read_offset(self, content: bytes | None) -> dict[str, Any]:
        # All rows of a snapshot have the same.
        if content != self._offset[0]:
            read: dict[str, Any] = json.loads(content or b"{}")
            # The messages of heartbeats are counted under the name of an object, another each time.
            self._offset = content, {name: value for name, value in read.items() if "MessageId@" not in name}
        return self._offset[1]


def _number(content: bytes, at: int) -> tuple[int, int]:
    return _NUMBER.unpack_from(content, at)[0], at + 4


def _field(content: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _number(content, at)
    return (None, at) if length < 0 else (content[at : at + length], at + length)
