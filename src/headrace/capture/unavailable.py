"""The values that Debezium writes for what it does not have: the row keeps what it had there."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any
from uuid import UUID


def unavailable_test(placeholder: str) -> Callable[[Any], bool]:
    """Whether a value, as it was read from JSON or Avro, is one of the forms of the placeholder.

    Text, bytes (and their base64, URL-safe base64 or hexadecimal digits), a list with one of these, a list with the
    numbers of its bytes, a list with the UUID that is made of it, and a map, or the text of one, from it to itself.
    """
    content = bytes.fromhex(placeholder[4:]) if placeholder.startswith("hex:") else placeholder.encode()
    text = content.decode("utf-8", "replace")
    encoded = base64.b64encode(content).decode("ascii")
    # Java's own UUID of a name: its MD5, without a namespace.
    digest = bytearray(hashlib.md5(content, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    texts = {text, encoded, encoded.translate(str.maketrans("+/", "-_")), content.hex(), content.hex().upper()}
    in_list = {*texts, str(UUID(bytes=bytes(digest)))}
    documents = {f'{{"{text}":"{text}"}}', f'{{"{text}": "{text}"}}', f'{{"{text}" : "{text}"}}'}
    # Bytes of Java have a sign.
    numbers = [byte - 256 if byte > 127 else byte for byte in content]

    def test(value: Any) -> bool:
        kind = type(value)
        if kind is str:
            return value in texts or value in documents
        if kind is bytes:
            return value == content
        if kind is list:
            if len(value) == 1:
                (only,) = value
                return (type(only) is str and only in in_list) or (type(only) is bytes and only == content)
            return value == numbers
        return kind is dict and len(value) == 1 and value.get(text) == text

    return test
