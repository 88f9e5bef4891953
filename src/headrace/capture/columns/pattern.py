"""The regular expressions of JSON that is accepted as columns, in the dialect of RE2, which takes linear time.

Each describes exactly what the reader of single records takes for the same value: no name twice, no NaN, no broken
text, no number that Python would refuse. Half of a surrogate pair is no text, so that escapes of pairs are left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?:[0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))*"'
# Of 19 digits those that surely fit into 64 bits.
INTEGER = r"-?(?:0|[1-9][0-9]{0,17}|[1-8][0-9]{18})"
BOOLEAN = r"true|false"
# Of whole ones only those that a double surely holds.
NUMBER = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"
_NUMBER = r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?"
SCALAR = rf"{TEXT}|{_NUMBER}|{BOOLEAN}|null"
BASE64 = r'"(?:[A-Za-z0-9+/]{4}){0,5}(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"'
UTC_TIME = (
    r'"[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])'
    r'T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?Z"'
)
# The last commit before a change in the log of PostgreSQL, and the change: text that is JSON itself.
LSN_PAIR = r'"\[(?:null|\\"[0-9]{1,18}\\"),\\"[0-9]{1,18}\\"\]"'


def decimal_number(precision: int, scale: int) -> str:
    """A number that a decimal holds as it is."""
    whole = precision - scale
    before = rf"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole > 0 else "0"
    after = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return f"-?{before}{after}"


def quoting(names: Sequence[str]) -> str:
    """Numbers of fields of these names, with what stands before each."""
    named = "|".join(re.escape(json.dumps(name, ensure_ascii=False)[1:-1]) for name in names)
    return f'("(?:{named})": ?)(-?[0-9][-+.eE0-9]*)'


def optional(pattern: str) -> str:
    """A value, or null."""
    return f"(?:{pattern}|null)"


def json_object(fields: Sequence[tuple[str, str]]) -> str:
    """An object with just these fields, in this order."""
    parts = [f"{re.escape(json.dumps(name, ensure_ascii=False))}: ?(?:{pattern})" for name, pattern in fields]
    return rf"\{{{', ?'.join(parts)}\}}"


def whole_text(pattern: str) -> str:
    """A pattern that all of a text must be of."""
    return rf"\A(?:{pattern})\z"
