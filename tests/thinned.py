"""Parameters of tests of which only some run by default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], step: int) -> list[Any]:
    """Return parameters of which all but each `step`-th are marked slow; a tuple has a value for each name."""
    return [
        value
        if index % step == 0
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for index, value in enumerate(values)
    ]
