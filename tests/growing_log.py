"""A log in memory that grows, and the source that reads it: `FROM PYTHON 'tests.growing_log:tail'`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import headrace

LOG: list[Any] = []


@headrace.source
def tail(position: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[Any]:
    """What stands in LOG, as a log that grows; an exception is raised where it stands."""
    at = int(position.get("at", 0))
    while True:
        if at >= len(LOG):
            yield None
            continue
        at += 1
        given = LOG[at - 1]
        if isinstance(given, BaseException):
            raise given
        yield given, {"at": at}


@pytest.fixture(autouse=True)
def empty_log() -> Iterator[None]:
    """A test begins and ends without records."""
    LOG.clear()
    yield
    LOG.clear()
