"""A server as a process, tried with small programs that are no JVM."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.local import server as server_module
from headrace.local.ports import free_port, is_free, listens
from headrace.local.server import Program, Server
from tests.waiting import until

# Listens where it is told after a moment, and notes each of its starts and how it was told to end.
LISTENING = """
import pathlib, signal, socket, sys, time
port, notes = int(sys.argv[1]), pathlib.Path(sys.argv[2])
def note(word):
    with open(notes, "a") as file:
        file.write(word + "\\n")
note("begun")
print("hello", flush=True)
def end(number, frame):
    note(signal.Signals(number).name)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGQUIT):
    signal.signal(number, end)
time.sleep(0.2)
server = socket.create_server(("127.0.0.1", port))
while True:
    server.accept()[0].close()
"""
# Fails as long as a file is there, as one does whose predecessor has not gone yet; makes another file once it runs.
HELD = """
import pathlib, sys, time
lock = pathlib.Path(sys.argv[1])
if lock.exists():
    sys.exit("the lock is held")
lock.with_name("runs").touch()
time.sleep(600)
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def make(script: str, *arguments: object, port: int = 0, answers: Callable[[], bool] | None = None, **more: object):
        program = Program(
            name="thing",
            address=f"127.0.0.1:{port}",
            port=port,
            command=[sys.executable, "-c", script, *map(str, arguments)],
            answers=answers or (lambda: listens(port)),
            **more,  # type: ignore[arg-type]
        )
        servers.append(Server(program, tmp_path / "thing.log"))
        return servers[-1]

    yield make
    for server in servers:
        server.kill()


@pytest.mark.parametrize(
    ("end", "noted"),
    [(Server.stop, ["begun", "SIGTERM"]), (Server.discard, ["begun", "SIGQUIT"]), (Server.kill, ["begun"])],
)
def test_the_three_ends_of_a_server(
    made: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Server], None],
    noted: list[str],
) -> None:
    monkeypatch.setattr(server_module, "_END_SECONDS", 300.0)
    port = free_port()
    server = made(LISTENING, port, tmp_path / "notes", port=port, farewell="QUIT")
    assert (server.is_running, server.pid) == (False, None)
    server.start()
    assert server.is_running
    assert server.seconds > 0.2
    end(server)
    assert (server.is_running, server.pid) == (False, None)
    assert is_free(port)
    assert (tmp_path / "notes").read_text().split() == noted
    end(server)


def test_a_server_is_started_again_on_its_port(made: Callable[..., Server], tmp_path: Path) -> None:
    port = free_port()
    server = made(LISTENING, port, tmp_path / "notes", port=port)
    server.start()
    first = server.pid
    server.start()
    assert server.pid == first, "one that runs is left alone"
    server.restart()
    assert server.pid not in (None, first)
    assert listens(port)
    assert server.log.read_text() == "hello\nhello\n", "what it said before stays"


def test_one_that_ends_while_it_starts_tells_its_last_words(made: Callable[..., Server]) -> None:
    server = made("print('\\n'.join(f'line {n}' for n in range(100))); raise SystemExit('no disk')")
    with pytest.raises(SetupError, match="thing ended while it was started") as told:
        server.start()
    assert "no disk" in told.value.detail
    assert "line 50" not in told.value.detail
    assert str(server.log) in told.value.hint


def test_one_that_never_answers_is_an_error(made: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_START_SECONDS", 0.5)
    server = made("import time; time.sleep(600)", answers=lambda: False)
    with pytest.raises(SetupError, match="gave no answer"):
        server.start()


def test_one_whose_predecessor_has_not_let_go_is_launched_again(
    made: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_RELEASE_SECONDS", 300.0)
    lock = tmp_path / "held"
    lock.touch()
    server = made(HELD, lock, answers=(tmp_path / "runs").exists, held=("lock is held",))

    def let_go_once_it_failed() -> None:
        until(lambda: server.log.exists() and "the lock is held" in server.log.read_text())
        lock.unlink()

    lets_go = threading.Thread(target=let_go_once_it_failed)
    lets_go.start()
    server.start()
    lets_go.join()
    assert server.is_running


def test_one_that_stays_held_is_an_error(
    made: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_RELEASE_SECONDS", 0.5)
    (tmp_path / "held").touch()
    server = made(HELD, tmp_path / "held", answers=lambda: False, held=("lock is held",))
    with pytest.raises(SetupError, match="ended while it was started"):
        server.start()


def test_a_log_does_not_grow_without_end(
    made: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_LONGEST_LOG", 100)
    port = free_port()
    server = made(LISTENING, port, tmp_path / "notes", port=port)
    server.log.write_text("x" * 200)
    server.start()
    assert server.log.read_text() == "hello\n"
    assert (tmp_path / "thing.log.old").read_text() == "x" * 200


def test_one_that_ignores_its_end_is_killed(made: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_END_SECONDS", 0.3)
    server = made("import time\nwhile True: time.sleep(1)", answers=lambda: True, stop_signal=signal.SIGINT)
    server.start()
    server.stop()
    assert not server.is_running
