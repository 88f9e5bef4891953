"""What is asked of processes, and told to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.proc import set_niceness, start_time
from tests.waiting import until

THREADS = """
import sys, threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("begun", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed by Linux only")
def test_every_thread_of_a_process_gives_way() -> None:
    """Linux counts niceness by thread; a process that has ended is nobody's fault."""
    command = [sys.executable, "-c", THREADS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        set_niceness(process.pid, 19)
        threads = [int(one.name) for one in Path(f"/proc/{process.pid}/task").iterdir()]
        assert [os.getpriority(os.PRIO_PROCESS, thread) for thread in threads] == [19] * 4
        process.communicate("")
    set_niceness(process.pid, 19)


@pytest.mark.parametrize("proc", [Path("/proc"), Path("/nowhere")], ids=["/proc", "ps"])
def test_the_start_of_a_process_is_known_until_it_ends(monkeypatch: pytest.MonkeyPatch, proc: Path) -> None:
    monkeypatch.setattr("headrace.spark.proc._PROC", proc)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        started = start_time(process.pid)
        assert started
        assert start_time(process.pid) == started
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_time(process.pid) == "", "it has ended, and nobody has reaped it"
    assert start_time(process.pid) is None


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="Linux alone shows such a process")
def test_a_process_whose_first_thread_has_ended_goes_on() -> None:
    """As a zombie, by the state that the system shows."""
    script = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        assert start_time(process.pid)
        process.kill()
