"""Java's files of properties."""

from __future__ import annotations

from collections.abc import Mapping


def properties(values: Mapping[str, str]) -> str:
    """The text of a file of properties: a line for each, in ASCII, which is all that Java reads alike everywhere."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in values.items())


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if escaped[:1] == " ":
        escaped = "\\" + escaped
    units = escaped.encode("utf-16-be")
    pairs = (units[place] << 8 | units[place + 1] for place in range(0, len(units), 2))
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in pairs)
