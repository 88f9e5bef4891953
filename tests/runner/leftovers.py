"""Leftovers of a run: new or changed files in the checkout, and processes that outlive their tests."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

# What git, the environment, Python, pytest, Hypothesis and the linters keep in a checkout.
_KEPT = {".git", ".venv", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache", ".import_linter_cache"}
_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36


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


def adopt_orphans() -> None:
    """Make this process the parent of each descendant whose own parent ends; Linux only.

    A process may leave its session and overwrite its environment, but not its ancestors.
    """
    if _PROC.exists():
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> dict[int, str]:
    """Return the command lines, by process id, of the running descendants of this process; Linux only."""
    parents: dict[int, int] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        with suppress(OSError):
            # The command's name, in parentheses, may itself have blanks and parentheses.
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(stat.parent.name)] = int(parent)
    found: dict[int, str] = {}
    level = {os.getpid()}
    while level := {process for process, parent in parents.items() if parent in level}:
        for process in level:
            with suppress(OSError):
                command = (_PROC / str(process) / "cmdline").read_bytes()
                found[process] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def wait_for_descendants(seconds: float, except_for: Collection[int] = ()) -> dict[int, str]:
    """Wait until this process has no further descendant; return those that remain after so many seconds."""
    ends_at = time.monotonic() + seconds
    while True:
        remaining = {process: command for process, command in descendants().items() if process not in except_for}
        if not remaining or time.monotonic() > ends_at:
            return remaining
        time.sleep(0.2)


def kill(processes: Iterable[int]) -> None:
    """Kill descendants of this process."""
    for process in set(processes) & descendants().keys():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def reap() -> None:
    """Wait for the adopted processes that have ended, so that their processor time is counted."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
