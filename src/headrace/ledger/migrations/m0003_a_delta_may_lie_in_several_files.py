"""From format 2, where a delta lies in one file, to format 3, where it may lie in several, each with a row of its own.

Nothing is to be done: what format 2 wrote is as it would be written now. The number keeps out releases that would take
each of these rows for a whole delta.
"""

from __future__ import annotations

from pathlib import Path


def applies(_: Path) -> bool:
    """Never: the owner notes the new format when it claims the home."""
    return False


def migrate(_: Path) -> None:
    """Do nothing."""
