"""Leftovers of a run: files in the checkout that git does not know, and processes that outlive their tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

# What Python, pytest, Hypothesis and the linters keep between runs.
_CACHES = ("__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache", ".import_linter_cache")
_PROC = Path("/proc")


def checkout_files(root: Path) -> set[str]:
    """Return what git reports as changed, untracked or ignored, caches excepted; nothing outside a checkout."""
    if not (root / ".git").exists():
        return set()
    command = [
        "git",
        "-C",
        str(root),
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=normal",
        "--ignored=traditional",
    ]
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="surrogateescape")
    # A renamed file has a second entry for its old name, without a status before it.
    paths = {entry[3:] for entry in listed.split("\0") if entry[2:3] == " "}
    return {path for path in paths if not any(part in _CACHES for part in Path(path).parts)}


def processes_with(mark: str) -> dict[int, str]:
    """Return the command lines, by process id, of processes whose environment contains a text; Linux only."""
    found: dict[int, str] = {}
    for folder in _PROC.glob("[0-9]*"):
        number = int(folder.name)
        with suppress(OSError):
            if number != os.getpid() and mark.encode() in (folder / "environ").read_bytes():
                found[number] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def wait_for_processes(mark: str, seconds: float) -> dict[int, str]:
    """Wait until no process has the text in its environment; return those that remain after so many seconds."""
    ends_at = time.monotonic() + seconds
    while (found := processes_with(mark)) and time.monotonic() < ends_at:
        time.sleep(0.2)
    return found


def kill(processes: dict[int, str], mark: str) -> None:
    """Kill processes that still have the text in their environment."""
    for number in processes.keys() & processes_with(mark).keys():
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
