"""What is given on the command line, as SQL writes it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import StatementError


def pair(given: str) -> tuple[str, str]:
    """The name and the value of an option that is given as name=value."""
    name, equals, text = given.partition("=")
    if not equals or not name:
        raise StatementError(f"{given!r} is no option", hint="write --option name=value")
    return name, text


def options_text(options: Sequence[str]) -> str:
    """Options as they stand in brackets."""
    return ", ".join(f"{string(name)} = {value(text)}" for name, text in map(pair, options))


def value(text: str) -> str:
    """The value of an option: a whole number, TRUE, FALSE, or a string."""
    if text.upper() in ("TRUE", "FALSE") or (text.isascii() and text.isdigit()):
        return text.upper()
    return string(text)


def quoted(name: str) -> str:
    """A name."""
    return "`" + name.replace("`", "``") + "`"


def string(text: str) -> str:
    """A string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
