"""What the system tells of a process; nothing, where it tells nothing."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def start_time(pid: int) -> str | None:
    """Return when a process was started, in the system's notation: of two processes with one number, they differ.

    The result is empty for a process that has ended and waits for its parent to reap it, and None where there is no
    such process or where the system does not show it.
    """
    fields = _stat(pid)
    if fields:
        # The first thread of a process may end a moment before the others, which hold its files and locks until then.
        return "" if fields[0] in "ZX" and int(fields[17]) <= 1 else fields[19]
    return None if (_PROC / "self/stat").exists() else _start_time_by_ps(pid)


def _start_time_by_ps(pid: int) -> str | None:
    listed = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, started = listed.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip() or None


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped a process, so that it does nothing until it is continued."""
    fields = _stat(pid)
    return bool(fields) and fields[0] in "Tt"


def processor_seconds(pid: int) -> float:
    """How much of the processor a process has used; 0 where that cannot be known."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def resident_bytes(pid: int) -> int:
    """How much of the machine's memory a process has; 0 where that cannot be known."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def set_niceness(pid: int, niceness: int) -> bool:
    """Give way to others, with all threads of a process: Linux counts niceness by thread. Whether that was allowed."""
    threads = _PROC / str(pid) / "task"
    # Twice, for a thread that was begun meanwhile by one that was not told yet.
    for _ in range(2 if threads.is_dir() else 0):
        for thread in _numbers(threads):
            try:
                os.setpriority(os.PRIO_PROCESS, thread, niceness)
            except ProcessLookupError:
                continue
            except OSError:
                return False
    if not threads.is_dir():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, niceness)
    return True


def _numbers(threads: Path) -> list[int]:
    with suppress(OSError):
        return [int(one.name) for one in threads.iterdir()]
    return []


def give_way_when_woken() -> None:
    """Never take the processor from another the moment there is work, with all that this process starts from now on."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _stat(pid: int) -> list[str]:
    """The fields of a process after its name, from its state on; none where they cannot be had."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
