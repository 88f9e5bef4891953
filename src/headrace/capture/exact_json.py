"""JSON read exactly and safely: numbers with a point are decimals, names are unique, nesting is bounded."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from json import JSONDecodeError, JSONDecoder
from typing import Any, cast

from headrace.capture.messages import Undecodable

SPACE = " \t\r\n"
# Deeper than any schema or row that anybody writes, and far from where Python gives up.
DEEPEST = 64
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_record(content: bytes) -> Any:
    """The JSON value that fills these bytes; `Undecodable` if they are anything else, or nested too deeply."""
    value = read_json(as_text(content))
    if content.count(b"{") + content.count(b"[") > DEEPEST:
        refuse_depth(value)
    return value


def as_text(content: bytes) -> str:
    """Bytes as the text that they are in UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Undecodable(no_text(content[error.start]), "text") from None


def no_text(byte: int) -> str:
    """Why bytes with this one among them are no text."""
    return f"not UTF-8: byte 0x{byte:02x} cannot be read"


def read_json(text: str) -> Any:
    """One JSON value that fills the text, numbers exact; `Undecodable` if it is anything else."""
    begin = 0 if text.startswith("{") else len(text) - len(text.lstrip(SPACE))
    value, end = decode_at(text, begin)
    if _SURROGATE.search(text):
        _refuse_half_pairs(value)
    if end != len(text) and (rest := text[end:].lstrip(SPACE)):
        raise Undecodable(f"not JSON: unexpected text after the value, at column {len(text) - len(rest) + 1}", "text")
    return value


def _refuse_half_pairs(value: Any) -> None:
    """Nothing, or `Undecodable` if a text within a value cannot be written as UTF-8, and so nowhere be kept."""
    try:
        json_text(value).encode()
    except UnicodeEncodeError:
        raise Undecodable("a text holds half a surrogate pair, which is no text", "text") from None
    except RecursionError:
        raise Undecodable("nested too deeply", "text") from None


def decode_at(text: str, begin: int) -> tuple[Any, int]:
    """The JSON value that begins at a position of the text, and where it ends."""
    try:
        return _decoder.raw_decode(text, begin)
    except JSONDecodeError as error:
        unreadable = Undecodable(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}, at column {error.colno}", "text")
        unreadable.line = error.lineno
        raise unreadable from None
    except RecursionError:
        raise Undecodable("nested too deeply", "text") from None
    except Undecodable:
        raise
    except ArithmeticError:
        raise Undecodable("not a number that can be read: its exponent is too large", "text") from None
    except ValueError as error:
        raise Undecodable(f"not a number that can be read: {error}", "text") from None


class Digits(float):
    """A number that JSON had with other digits than the nearest float has: it counts as that, and is written as those.

    So 9.50 stays 9.50 and 1e400 stays 1e400, and who computes with them computes with floats.
    """

    __slots__ = ("text",)

    def __new__(cls, text: str) -> Digits:
        """The number of a text of JSON."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[Digits], tuple[str]]:
        return Digits, (self.text,)


def read_kept(text: str) -> Any:
    """JSON that was written here, as Python's own values: ints, floats that keep their digits, texts."""
    return _kept.decode(text)


def _float(text: str) -> float:
    plain = float(text)
    return plain if repr(plain) == text else Digits(text)


def canonical(value: Any) -> str:
    """The same text for the same value, in whatever order its objects name their parts; 1 is neither 1.0 nor true."""
    return json_text(_ordered(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(part) for name, part in sorted(cast("dict[str, Any]", value).items())}
    if isinstance(value, list):
        return [_ordered(part) for part in cast("list[Any]", value)]
    return value


def refuse_depth(value: Any) -> None:
    """Nothing, or `Undecodable` if a value is nested deeper than `DEEPEST`."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise Undecodable("nested too deeply", "text")


def json_text(value: Any) -> str:
    """A value that was read as compact JSON again, its numbers with the digits that they had."""
    match value:
        case dict():
            content = cast("dict[str, Any]", value)
            return "{" + ",".join(f"{_text(name)}:{json_text(part)}" for name, part in content.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(json_text, cast("list[Any]", value))) + "]"
        case Decimal():
            return str(value) if value.is_finite() else f'"{value}"'
        case Digits():
            return value.text
        case float():
            return json.dumps(value) if math.isfinite(value) else f'"{Decimal(value)}"'
        case None | bool() | int():
            return json.dumps(value)
        case bytes():
            return f'"{base64.b64encode(value).decode("ascii")}"'
        case datetime() | date() | time():
            return f'"{value.isoformat()}"'
        case _:
            return _text(str(value))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inside(value: Any) -> list[Any]:
    if type(value) is dict:
        return [part for part in cast("dict[str, Any]", value).values() if type(part) is dict or type(part) is list]
    if type(value) is list:
        return [part for part in cast("list[Any]", value) if type(part) is dict or type(part) is list]
    return []


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise Undecodable(f"the name {twice[:60]!r} is given twice in one object", "text")
    return content


def _no_constant(name: str) -> Any:
    raise Undecodable(f'{name} is not JSON; write it as the string "{name}"', "text")


_parse_float: Callable[[str], Any] = Decimal
_kept = JSONDecoder(parse_float=_float)
_decoder = JSONDecoder(parse_float=_parse_float, parse_constant=_no_constant, object_pairs_hook=_unique)
