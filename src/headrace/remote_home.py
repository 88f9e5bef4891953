"""A home that another process has open: verbs that write are run there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from headrace.owner.control import ask_owner
from headrace.settings import Settings, read_settings
from headrace.statements.answers import Result, from_answer
from headrace.storage.objects import location_of


def ask_home(
    home: str | os.PathLike[str], verb: str, arguments: Mapping[str, Any], settings: Settings | None = None
) -> dict[str, Any] | None:
    """What a verb comes to when the process that has the home open runs it; none when no process has."""
    return ask_owner(location_of(home, (settings or read_settings()).storage_options), verb, arguments)


def result_of(answer: Mapping[str, Any]) -> Result:
    """What the statements came to that the other process has executed."""
    return from_answer(answer)
