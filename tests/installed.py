"""Real servers for tests, which come from Maven and lie unpacked beside the jars."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.settings import read_settings
from headrace.spark.jars import paths


def installed(name: str, lock: str, unpack: Callable[[Path, Path], None]) -> Path:
    """The folder of a server beside the jars; downloaded once, checked, and unpacked into a folder that is made."""
    folder = read_settings().jars / name
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{name}-") as scratch:
        draft = Path(scratch) / "draft"
        (package,) = paths(Path(scratch), lock)
        unpack(package, draft)
        try:
            os.replace(draft, folder)
        except OSError:
            # Another test run was faster.
            assert folder.exists()
    return folder
