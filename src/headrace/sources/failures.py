"""Failures of sources: whether one may pass by itself, and how it is told."""

from __future__ import annotations

from headrace.errors import HeadraceError


def may_pass(error: Exception) -> bool:
    """Whether it is worth to try again."""
    if isinstance(error, HeadraceError):
        return error.transient
    # What a library raises while it talks to a server may pass; a fault of ours shows again and again, and is told.
    return isinstance(error, (OSError, TimeoutError))


def told(error: BaseException) -> str:
    """What it says, in a line."""
    if isinstance(error, HeadraceError):
        return error.in_a_line()
    return f"{type(error).__name__}: {error}"
