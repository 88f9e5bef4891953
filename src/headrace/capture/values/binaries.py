"""Bytes in all the ways in which they are written as text."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from headrace.capture.values.encoding import Encoding, Kind
from headrace.intake.reasons import expected


def read_binary(value: Any, encoding: Encoding, type_name: str = "BINARY") -> bytes:
    """The bytes that a value stands for."""
    if encoding.kind is Kind.HEX and isinstance(value, str):
        try:
            return bytes.fromhex(value) if not any(map(str.isspace, value)) else _refuse(value, type_name)
        except ValueError:
            raise expected("hexadecimal text", type_name, value) from None
    if encoding.kind is Kind.BASE64_URL and isinstance(value, str):
        return from_base64(value.translate(_URL_SAFE) + "=" * (-len(value) % 4), type_name)
    return from_base64(value, type_name)


def from_base64(value: Any, type_name: str) -> bytes:
    """Bytes as they are, or those that base64 text stands for."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise expected("base64 text", type_name, value)


def _refuse(value: str, type_name: str) -> bytes:
    raise expected("hexadecimal text", type_name, value)


_URL_SAFE = str.maketrans("-_", "+/")
