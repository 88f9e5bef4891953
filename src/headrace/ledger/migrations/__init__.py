"""Homes that an older release wrote, brought forward one numbered step at a time.

A step is a module m<number>_<sentence>.py with `applies(home)` and `migrate(home)`; a step that was interrupted is
finished by running it again. The number of the newest step is the format of the home.
"""

from __future__ import annotations

from pathlib import Path

from headrace.ledger.migrations import m0002_files_carry_their_checksums, m0003_a_delta_may_lie_in_several_files
from headrace.storage.objects import Location

STEPS = (m0002_files_carry_their_checksums, m0003_a_delta_may_lie_in_several_files)


def pending(home: Location) -> bool:
    """Whether a home must be brought forward before this release can read it."""
    # In object stores there are no homes of the formats that these steps begin with.
    return isinstance(home, Path) and any(step.applies(home) for step in STEPS)


def migrate(home: Location) -> None:
    """Bring a home forward to this release; only its owner may."""
    for step in STEPS:
        if isinstance(home, Path) and step.applies(home):
            step.migrate(home)
