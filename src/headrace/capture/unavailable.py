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
    content, text, texts, documents = _written(placeholder)
    # Java's own UUID of a name: its MD5, without a namespace.
    digest = bytearray(hashlib.md5(content, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    in_list = {*texts, str(UUID(bytes=bytes(digest)))}
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


def unavailable_texts(placeholder: str) -> frozenset[str]:
    """All texts that stand for the placeholder where a value is text."""
    _, _, texts, documents = _written(placeholder)
    return texts | documents


def _written(placeholder: str) -> tuple[bytes, str, frozenset[str], frozenset[str]]:
    """The placeholder's bytes, the text of them, the texts of their encodings, and texts of a map of it to itself."""
    content = bytes.fromhex(placeholder[4:]) if placeholder.startswith("hex:") else placeholder.encode()
    text = content.decode("utf-8", "replace")
    encoded = base64.b64encode(content).decode("ascii")
    texts = {text, encoded, encoded.translate(str.maketrans("+/", "-_")), content.hex(), content.hex().upper()}
    documents = {f'{{"{text}":"{text}"}}', f'{{"{text}": "{text}"}}', f'{{"{text}" : "{text}"}}'}
    return content, text, frozenset(texts), frozenset(documents)
