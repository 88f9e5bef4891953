"""Leftovers of a run: new or changed files in the checkout, and processes that outlive their tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

# What git, the environment, Python, pytest, Hypothesis and the linters keep in a checkout.
_KEPT = {".git", ".venv", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache", ".import_linter_cache"}
_PROC = Path("/proc")


def checkout_files(root: Path) -> set[str]:
    """Return the files and folders below a folder, and "changed: NAME" for each file that differs from its commit."""
    found: set[str] = set()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _KEPT]
        found.update(str((Path(folder) / name).relative_to(root)) for name in (*folders, *files))
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "diff", "--name-only", "-z", "HEAD"]
        changed = subprocess.run(command, capture_output=True, check=False).stdout
        found.update(f"changed: {name}" for name in changed.decode(errors="surrogateescape").split("\0") if name)
    return found


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
