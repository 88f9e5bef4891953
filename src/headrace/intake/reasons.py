"""Why a value was refused, in one short sentence."""

from __future__ import annotations

import reprlib
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

SHOWN_LENGTH = 60

_short = reprlib.Repr()
_short.maxstring = _short.maxother = SHOWN_LENGTH
_short.maxlong = SHOWN_LENGTH
_short.maxlevel = 3


class BadValue(ValueError):
    """A value that does not become its column's type exactly."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def within(self, path: str) -> BadValue:
        """The same refusal, seen from the outside of `path`."""
        separator = "" if self.reason.startswith(("[", ".")) else ": "
        return BadValue(f"{path}{separator}{self.reason}")


def shown(value: object) -> str:
    """A value as a reader recognises it, never longer than a line."""
    if value is None:
        return "NULL"
    if isinstance(value, (Decimal, timedelta)):
        text = str(value)
    elif isinstance(value, (datetime, date, time)):
        text = value.isoformat()
    elif isinstance(value, int) and value.bit_length() > 1000:
        # Python refuses to spell out integers of thousands of digits.
        text = f"an integer of {value.bit_length()} bits"
    else:
        return _short.repr(value)
    return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 3]}..."


def expected(what: str, type_name: str, value: object) -> BadValue:
    """A refusal because the value is of another kind."""
    return BadValue(f"expected {what} for {type_name}, got {shown(value)}")


def out_of_range(type_name: str, value: object) -> BadValue:
    """A refusal because the type has no room for the value."""
    return BadValue(f"{shown(value)} is out of range for {type_name}")


def rounded(type_name: str, value: object) -> BadValue:
    """A refusal because the type could only hold a neighbour of the value."""
    return BadValue(f"{shown(value)} would be rounded to fit {type_name}")


def plain(value: Any) -> Any:
    """The Python value inside an Arrow or NumPy one; any other value as it is."""
    module = type(value).__module__.partition(".")[0]
    if module == "pyarrow" and hasattr(value, "as_py"):
        return value.as_py()
    if module == "numpy" and hasattr(value, "tolist"):
        inner = value.tolist()
        # Nanosecond instants come out as bare integers; their text keeps the meaning.
        return str(value) if type(inner) is int and hasattr(value, "astype") and value.dtype.kind in "mM" else inner
    return value
