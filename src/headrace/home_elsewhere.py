"""A home that another process has open: verbs are run there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.owner.control import ask_owner
from headrace.settings import Settings, read_settings
from headrace.statements.answers import Result, from_answer
from headrace.storage.objects import location_of

# The owner ended while it read, runs another release, or cannot read its home as others can.
_NOT_ANSWERED = ("not_known", "not_understood", "home_closed", "home_broken", "owner_lost")


def ask_home(
    home: str | os.PathLike[str], verb: str, arguments: Mapping[str, Any], settings: Settings | None = None
) -> dict[str, Any] | None:
    """What a verb comes to when the process that has the home open runs it; none when no process has."""
    return ask_owner(location_of(home, (settings or read_settings()).storage_options), verb, arguments)


def ask_to_read(
    home: str | os.PathLike[str], verb: str, arguments: Mapping[str, Any], settings: Settings | None = None
) -> dict[str, Any] | None:
    """What a verb that changes nothing comes to in the process that has the home open; none if it is to be read here.

    That is so where no process has the home open, and where that process is out of reach, leaves it to who asks, or
    may be able to a little later.
    """
    try:
        answer = ask_home(home, verb, arguments, settings)
    except HeadraceError as error:
        if error.transient or error.code in _NOT_ANSWERED:
            return None
        raise
    return None if answer is None or "left" in answer else answer


def result_of(answer: Mapping[str, Any]) -> Result:
    """What the statements came to that the other process has executed."""
    return from_answer(answer)


def rows_of(text: str) -> pa.Table:
    """Rows as the other process has sent them."""
    rows = from_answer({"rows": text})
    assert isinstance(rows, pa.Table)
    return rows
