"""A process that is watched as the JVM is, and a guard that ends it with us; none of them is a JVM here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.jvm import _GUARD, Account, Gateway, Guard, Jvm, has_ended, heap_bytes, patience
from headrace.spark.proc import is_stopped, processor_seconds
from tests.waiting import PATIENCE, until

# Answers every line that ends a command as Py4J does, on a port that it prints; uses the processor while told to.
ANSWERING = """
import socket, sys, threading, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
mute_after = float(sys.argv[1])
begun = time.monotonic()
while True:
    if not connection.recv(4096):
        break
    if time.monotonic() - begun > mute_after:
        while sys.argv[2] == "busy":
            pass
        time.sleep(3600)
    collecting = sys.argv[2].startswith("collecting")
    spent = int((time.monotonic() - begun) * (980 if collecting else 100))
    in_vain = collecting and sys.argv[2] != "collecting-well"
    connection.sendall(b"!ys%d %d %d\\n" % ((spent, 95, 1) if in_vain else (spent, 40, 60)))
"""


def started(mute_after: float = 1e9, how: str = "idle") -> tuple[subprocess.Popen[bytes], Gateway]:
    command = [sys.executable, "-c", ANSWERING, str(mute_after), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, Gateway("127.0.0.1", int(process.stdout.readline()), "secret")


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for one in made:
        one.kill()
        one.wait()
        if one.stdout is not None:
            one.stdout.close()


def watched(process: subprocess.Popen[bytes], gateway: Gateway, silence: float) -> tuple[Jvm, threading.Event]:
    jvm, ended = Jvm(process, Guard(), gateway, silence, "1g"), threading.Event()
    jvm.watch(ended.set)
    return jvm, ended


def test_one_that_answers_is_left_alone(processes: list[subprocess.Popen[bytes]]) -> None:
    process, gateway = started()
    processes.append(process)
    # On a busy machine an answer takes a second or two.
    jvm, ended = watched(process, gateway, 4.0)
    assert not ended.wait(9.0)
    assert not has_ended(process)
    process.kill()
    assert ended.wait(PATIENCE)
    assert "ended with -9" in jvm.why


def test_one_that_was_stopped_is_ended(processes: list[subprocess.Popen[bytes]]) -> None:
    process, gateway = started()
    processes.append(process)
    jvm, ended = watched(process, gateway, 4.0)
    os.kill(process.pid, signal.SIGSTOP)
    assert ended.wait(PATIENCE)
    assert has_ended(process)
    assert "stopped" in jvm.why


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "told"), [("busy", "of the processor"), ("idle", "silent for")])
def test_one_that_falls_silent_is_ended(processes: list[subprocess.Popen[bytes]], how: str, told: str) -> None:
    process, gateway = started(0.5, how)
    processes.append(process)
    jvm, ended = watched(process, gateway, 1.0)
    assert ended.wait(PATIENCE)
    assert told in jvm.why


def test_one_that_only_collects_garbage_is_ended(processes: list[subprocess.Popen[bytes]]) -> None:
    process, gateway = started(how="collecting")
    processes.append(process)
    jvm, ended = watched(process, gateway, 2.0)
    assert ended.wait(PATIENCE)
    assert "collect garbage" in jvm.why


@pytest.mark.thorough
def test_one_that_collects_much_and_finds_it_is_left_alone(processes: list[subprocess.Popen[bytes]]) -> None:
    process, gateway = started(how="collecting-well")
    processes.append(process)
    _, ended = watched(process, gateway, 4.0)
    assert not ended.wait(9.0)
    process.kill()
    assert ended.wait(PATIENCE)


def test_a_larger_heap_may_be_silent_for_longer() -> None:
    assert [patience(5.0, size) for size in ("512m", "2g", "4g", "16g")] == [5.0, 5.0, 5.0, 20.0]


def test_heaps_in_bytes() -> None:
    assert [heap_bytes(one) for one in ("512m", "1g", "3K")] == [512 * 1024**2, 1024**3, 3072]


def test_the_processor_is_read_of_the_process() -> None:
    before = processor_seconds(os.getpid())
    enough = time.process_time() + 0.2
    while time.process_time() < enough:
        pass
    assert processor_seconds(os.getpid()) - before > 0.1
    assert not is_stopped(os.getpid())


@pytest.mark.thorough
def test_a_guard_ends_what_was_stopped_when_its_keeper_is_killed(tmp_path: Path) -> None:
    """The keeper has a forked child that outlives it, which must not keep the guard waiting."""
    keeper = """
import os, time
from headrace.spark.jvm import Guard
guard = Guard()
kept = guard.start(["sleep", "300"], os.environ)
forked = os.fork()
if forked:
    print(kept.pid, forked, flush=True)
os.close(1)
time.sleep(300)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", keeper], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    kept, forked = map(int, process.stdout.readline().split())
    process.stdout.close()
    try:
        os.kill(kept, signal.SIGSTOP)
        until(lambda: is_stopped(kept))
        process.kill()
        process.wait()
        until(lambda: not is_stopped(kept))
    finally:
        process.kill()
        os.kill(forked, signal.SIGKILL)


def test_a_guard_leaves_another_process_of_the_same_number_alone(processes: list[subprocess.Popen[bytes]]) -> None:
    """What has ended is nothing to guard any more, whoever may get its number."""
    guard = Guard()
    gone = guard.start(["true"], os.environ)
    gone.communicate()
    other = subprocess.Popen(["sleep", "60"])
    processes.append(other)
    guard.close()
    assert other.poll() is None


@pytest.mark.parametrize("same", [True, False])
def test_a_guard_kills_a_process_that_it_saw_begin_and_no_other_of_its_number(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]], same: bool
) -> None:
    """The start of a process is read from files that are written here, so that it is another's the second time."""
    other = subprocess.Popen(["sleep", "60"])
    processes.append(other)
    stat = tmp_path / "proc" / str(other.pid) / "stat"
    stat.parent.mkdir(parents=True)
    begun = Path(f"/proc/{other.pid}/stat").read_text()
    os.mkfifo(stat)
    script = _GUARD.replace("/proc/", f"{tmp_path}/proc/")
    guard = subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE)
    processes.append(guard)
    assert guard.stdin is not None
    guard.stdin.write(b"%d\n" % other.pid)
    guard.stdin.flush()
    # It goes on here when the guard reads it.
    stat.write_text(begun)
    stat.unlink()
    name, _, rest = begun.rpartition(") ")
    fields = rest.split()
    fields[19] = fields[19] if same else str(int(fields[19]) + 1)
    stat.write_text(f"{name}) {' '.join(fields)}\n")
    guard.stdin.close()
    assert guard.wait(PATIENCE) == 0
    assert (has_ended(other, PATIENCE if same else 0.0), other.poll()) == ((True, -9) if same else (False, None))


def test_a_guard_ends_when_all_is_over() -> None:
    guard = Guard()
    process = guard.start(["sleep", "3600"], os.environ)
    process.kill()
    process.communicate()
    guard.close()


# Ends in good order when it is asked to, and says so.
ASKED = """
import signal, sys, time
signal.signal(signal.SIGQUIT, lambda *_: (print("asked", flush=True), sys.exit(0)))
print("here", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("farewell", "said"), [("QUIT", "here\nasked\n"), ("KILL", "here\n")])
def test_a_guard_asks_before_it_kills(tmp_path: Path, farewell: str, said: str) -> None:
    guard = Guard(farewell)
    with open(tmp_path / "said", "wb") as output:
        process = guard.start([sys.executable, "-c", ASKED], os.environ, output=output)
    until((tmp_path / "said").read_text)
    assert os.getsid(process.pid) == process.pid
    guard.let_go()
    assert has_ended(process, PATIENCE)
    process.communicate()
    guard.close()
    assert (tmp_path / "said").read_text() == said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
def test_what_is_guarded_can_run_as_another(tmp_path: Path) -> None:
    guard = Guard("KILL")
    with open(tmp_path / "said", "wb") as output:
        guard.start(["id"], os.environ, output=output, account=Account(65534, 65534)).communicate()
    guard.close()
    words = (tmp_path / "said").read_text().split()
    assert (words[0].partition("(")[0], words[1].partition("(")[0]) == ("uid=65534", "gid=65534")
    assert all("65534" in word for word in words), "no group of root's is left"


def test_a_guard_that_never_started_anything_ends() -> None:
    guard = Guard()
    with pytest.raises(FileNotFoundError):
        guard.start(["/nowhere/java"], os.environ)
    guard.close()


def test_what_is_guarded_hears_no_interrupt_and_inherits_no_line(processes: list[subprocess.Popen[bytes]]) -> None:
    """A line that it inherited would stay open when its keeper has ended."""
    guard = Guard()
    process = guard.start(["sleep", "60"], os.environ)
    processes.append(process)
    assert process.stdin is not None
    os.kill(process.pid, signal.SIGINT)
    line = Path(f"/proc/self/fd/{guard._process.stdin.fileno()}").readlink()  # type: ignore[union-attr]
    assert line not in {one.readlink() for one in Path(f"/proc/{process.pid}/fd").iterdir()}
    assert process.poll() is None
    process.kill()
    process.communicate()
    guard.close()


def test_starting_one_takes_nothing_from_other_threads() -> None:
    """A fork in which Python goes on lets go of their thread-locals, and py4j then shuts its connections down."""
    ours, theirs = socket.socketpair()

    class Connection:
        def __del__(self) -> None:
            theirs.shutdown(socket.SHUT_RDWR)

    held, began, over = threading.local(), threading.Event(), threading.Event()

    def talk() -> None:
        held.connection = Connection()
        began.set()
        over.wait(10.0)

    thread = threading.Thread(target=talk)
    thread.start()
    began.wait(10.0)
    guard = Guard()
    guard.start(["true"], os.environ, output=subprocess.DEVNULL).communicate()
    try:
        theirs.send(b"still here")
        assert ours.recv(100) == b"still here"
    finally:
        over.set()
        thread.join()
        guard.close()
        ours.close()
        theirs.close()


def test_one_whose_guard_never_heard_of_it_ends(processes: list[subprocess.Popen[bytes]]) -> None:
    guard = Guard()
    guard._process.kill()
    guard._process.wait()
    with pytest.raises(OSError, match=r"[Pp]ipe"):
        guard.start(["sleep", "60"], os.environ)
    guard.let_go()


def test_a_broken_connection_ends_it(processes: list[subprocess.Popen[bytes]]) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    process = subprocess.Popen(["sleep", "60"])
    processes.append(process)
    jvm, ended = watched(process, Gateway("127.0.0.1", server.getsockname()[1], "secret"), 1.0)
    server.accept()[0].close()
    assert ended.wait(10.0)
    assert jvm.why == "it closed its connection"
    server.close()
