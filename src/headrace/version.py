"""Which release of Headrace this is, as its package says."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The number of the release; 0 where it runs from its sources, without having been installed."""
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "0"
