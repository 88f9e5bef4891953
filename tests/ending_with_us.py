"""Commands whose processes outlive no run of the tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterable


def ending_with_us(command: Iterable[object]) -> list[str]:
    """Return a command whose process is killed when the thread that starts it ends, with its process or by itself.

    Only Linux can do so; elsewhere the command is returned as it is.
    """
    prefix = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
    return [*prefix, *map(str, command)]
