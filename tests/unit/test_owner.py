"""One owner per home, against real processes that are killed, stopped and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace.owner.ownership
from headrace.errors import HomeBusy, LedgerError, OwnerLost
from headrace.owner.ownership import Ownership, Watch, living_owner, look, take_ownership
from headrace.owner.register import FileRegister, register_of
from headrace.storage.objects import Location, ObjectPath
from tests.waiting import until

# For what only files can show.
on_disk = pytest.mark.parametrize("location", ["disk"], indirect=True)

# A short one is waited for; a long one is longer than any machine makes a test last.
SHORT, LONG = timedelta(seconds=1), timedelta(seconds=600)
BEATS, MANY_BEATS = headrace.owner.ownership._BEATS_IN_A_TIMEOUT, 6000  # pyright: ignore[reportPrivateUsage]

# Without the public face of the package, which imports Spark: eight of these start within a second.
CHILD = f"""
import json, os, sys, types
from datetime import timedelta
package = types.ModuleType("headrace")
package.__path__ = [{str(Path(headrace.__file__).parent)!r}]
sys.modules["headrace"] = package
from headrace.errors import HeadraceError
from headrace.storage.objects import location_of
from headrace.owner import ownership
from headrace.owner.ownership import take_ownership
home, seconds = location_of(sys.argv[1], {{}}), float(sys.argv[2])
ownership._BEATS_IN_A_TIMEOUT = int(sys.argv[3])
print(json.dumps("ready"), flush=True)
pid, held = os.getpid(), None
for word in sys.stdin:
    try:
        if word.strip() == "take":
            held = take_ownership(home, timedelta(seconds=seconds))
            answer = held.fence
        elif word.strip() == "check":
            answer = held.check()
        elif word.strip() == "fork":
            if os.fork():
                os.wait()
                continue
            held.release()
            answer = held.check()
        else:
            answer = held.release()
        print(json.dumps(answer), flush=True)
    except HeadraceError as error:
        print(json.dumps([error.code, error.message, error.detail, error.hint]), flush=True)
    if os.getpid() != pid:
        os._exit(0)
"""


class Child:
    """Another process that takes, checks and releases as it is told."""

    def __init__(self, home: Location, timeout: timedelta, beats: int = BEATS, folder: Path | None = None) -> None:
        # Another process gets what it needs to reach an object store from its environment.
        options = home.bucket.options if isinstance(home, ObjectPath) else {}
        environment = {name.upper().replace("ALLOW_HTTP", "AWS_ALLOW_HTTP"): value for name, value in options.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(home), str(timeout.total_seconds()), str(beats)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=folder,
        )
        assert self.hear() == "ready"

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, word: str) -> Any:
        self.tell(word)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Children:
    """Starts children of one home, and ends them with the test."""

    def __init__(self, home: Location, stack: ExitStack) -> None:
        self._home, self._stack = home, stack

    def __call__(self, timeout: timedelta = LONG, beats: int = BEATS) -> Child:
        child = Child(self._home, timeout, beats)
        self._stack.callback(child.end)
        return child


@pytest.fixture
def home(location: Location) -> Location:
    return location / "home"


@pytest.fixture
def child(home: Location) -> Iterator[Children]:
    with ExitStack() as stack:
        yield Children(home, stack)


@pytest.fixture
def owned(home: Location) -> Iterator[Ownership]:
    ownership = take_ownership(home, LONG)
    yield ownership
    ownership.release()


def holder(home: Location) -> int:
    """The process that the home names as its owner."""
    seen = look(home)
    assert seen is not None
    return seen.owner.pid


def heard_at(home: Location) -> float:
    """Return the time of the last heartbeat."""
    seen = look(home)
    assert seen is not None
    return seen.heard_at


def rewrite(home: Location, **parts: Any) -> None:
    """Let the home say something else of its owner."""
    file = home / "owner.json" if isinstance(home, Path) else max((home / "owner").glob("*.json"))
    file.write_bytes(json.dumps({**json.loads(file.read_bytes()), **parts}).encode())


def test_a_second_process_is_refused_with_who_holds_the_home(home: Location, child: Children) -> None:
    first, second = child(), child()
    assert first.do("take") == 1
    code, message, detail, hint = second.do("take")
    assert code == "home_busy"
    assert str(home) in message
    assert f"process {first.pid} on {os.uname().nodename} since 20" in detail
    assert "read_only=True" in hint
    assert first.do("check") is None


def test_a_released_home_is_free_and_the_fence_rises(home: Location, child: Children) -> None:
    first, second = child(), child()
    assert first.do("take") == 1
    assert first.do("release") is None
    assert look(home) is None
    assert second.do("take") == 2
    assert first.do("check")[0] == "owner_lost"
    assert first.do("release") is None
    assert second.do("check") is None
    assert holder(home) == second.pid


@pytest.mark.parametrize("fetched", [True, False], ids=["fetched", "zombie"])
def test_a_killed_owner_is_replaced_at_once(home: Location, child: Children, fetched: bool) -> None:
    first = child()
    assert first.do("take") == 1
    first.process.kill()
    if fetched:
        first.process.wait()
    else:
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    ownership = take_ownership(home, LONG)
    assert ownership.fence == 2
    ownership.release()


@pytest.mark.thorough
def test_a_stopped_owner_is_replaced_and_finds_out_when_it_wakes(home: Location, child: Children) -> None:
    first, second = child(SHORT), child(SHORT)
    first.do("take")
    first.process.send_signal(signal.SIGSTOP)
    until(lambda: second.do("take") == 2)
    first.process.send_signal(signal.SIGCONT)
    code, _, detail, _ = first.do("check")
    assert code == "owner_lost"
    assert f"process {second.pid} on" in detail
    time.sleep(0.5)
    assert second.do("check") is None
    assert first.do("release") is None
    assert holder(home) == second.pid


def test_a_stopped_owner_finds_out_even_if_the_next_one_has_left(home: Location, child: Children) -> None:
    first, second = child(SHORT), child(SHORT)
    first.do("take")
    first.process.send_signal(signal.SIGSTOP)
    until(lambda: second.do("take") == 2)
    second.do("release")
    first.process.send_signal(signal.SIGCONT)
    assert first.do("check")[0] == "owner_lost"
    time.sleep(0.5)
    assert look(home) is None


def test_an_owner_that_beats_keeps_its_home_beyond_the_timeout(home: Location, child: Children) -> None:
    first = child(SHORT)
    first.do("take")
    begun_at = heard_at(home)
    until(lambda: heard_at(home) - begun_at > 2 * SHORT.total_seconds())
    until(lambda: living_owner(home) is not None)
    assert first.do("check") is None


def test_the_owner_says_how_long_it_may_be_silent(home: Location, child: Children) -> None:
    first, hasty = child(LONG), child(SHORT)
    first.do("take")
    first.process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    assert hasty.do("take")[0] == "home_busy"


def test_a_reused_pid_is_no_owner(home: Location, child: Children) -> None:
    first = child()
    first.do("take")
    rewrite(home, started="1")
    ownership = take_ownership(home, LONG)
    assert ownership.fence == 2
    assert first.do("check")[0] == "owner_lost"
    ownership.release()


@pytest.mark.thorough
def test_of_another_machine_only_the_heartbeat_counts(home: Location, child: Children) -> None:
    first = child()
    first.do("take")
    first.end()
    rewrite(home, machine="elsewhere", host="elsewhere")
    with pytest.raises(HomeBusy, match=f"process {first.pid} on elsewhere"):
        take_ownership(home, LONG)
    rewrite(home, timeout=1.0)
    second = child()
    until(lambda: second.do("take") == 2)


@on_disk
def test_two_openings_in_one_process_are_refused_however_old_the_heartbeat(home: Path, owned: Ownership) -> None:
    os.utime(home / "owner.json", (1, 1))
    with pytest.raises(HomeBusy, match=f"process {os.getpid()} on .* \\(this process\\)"):
        take_ownership(home, LONG)
    owned.check()
    owned.release()
    take_ownership(home, LONG).release()


@on_disk
def test_a_home_that_could_not_be_released_is_free_in_its_own_process(home: Path) -> None:
    first = take_ownership(home, LONG)
    kept = (home / "owner.json").read_bytes()
    first.release()
    (home / "owner.json").write_bytes(kept)
    second = take_ownership(home, LONG)
    assert second.fence == 2
    second.release()


@pytest.mark.parametrize("remains", ["nothing", "a dead owner"])
def test_of_racing_processes_one_wins(home: Location, child: Children, remains: str) -> None:
    if remains == "a dead owner":
        dead = child()
        dead.do("take")
        dead.end()
    racers = [child() for _ in range(8)]
    for racer in racers:
        racer.tell("take")
    answers = [racer.hear() for racer in racers]
    winners = [racer for racer, answer in zip(racers, answers, strict=True) if isinstance(answer, int)]
    assert len(winners) == 1
    assert [racer.do("check") for racer in winners] == [None]
    assert {answer[0] for answer in answers if not isinstance(answer, int)} == {"home_busy"}


def test_of_those_who_wait_for_a_silent_owner_one_wins(home: Location, child: Children) -> None:
    first = child(SHORT)
    first.do("take")
    first.process.send_signal(signal.SIGSTOP)
    racers = [child() for _ in range(4)]
    time.sleep(1.2)
    for racer in racers:
        racer.tell("take")
    answers = [racer.hear() for racer in racers]
    assert sorted(answer if isinstance(answer, int) else 0 for answer in answers) == [0, 0, 0, 2]


@on_disk
@pytest.mark.parametrize("moved", [-3600, 3600], ids=["clock set forward", "clock set back"])
def test_a_clock_that_was_set_takes_no_home_from_its_owner(home: Path, child: Children, moved: int) -> None:
    first, second = child(LONG, MANY_BEATS), child()
    first.do("take")
    heard = time.time() + moved
    os.utime(home / "owner.json", (heard, heard))
    assert second.do("take")[0] == "home_busy"
    assert first.do("check") is None


@on_disk
def test_a_heartbeat_from_the_future_protects_nobody_who_is_silent(home: Path, child: Children) -> None:
    first, second = child(SHORT), child(SHORT)
    first.do("take")
    first.process.send_signal(signal.SIGSTOP)
    heard = time.time() + 3600
    os.utime(home / "owner.json", (heard, heard))
    assert second.do("take") == 2


@on_disk
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}'])
def test_an_unreadable_file_is_judged_by_its_time(home: Path, content: bytes) -> None:
    take_ownership(home, LONG).release()
    (home / "owner.json").write_bytes(content)
    with pytest.raises(HomeBusy, match="unknown"):
        take_ownership(home, LONG)
    assert living_owner(home) is not None


@on_disk
def test_a_removed_file_is_a_lost_home(home: Path, owned: Ownership) -> None:
    (home / "owner.json").unlink()
    with pytest.raises(OwnerLost):
        owned.check()
    rewritten = owned.owner
    with pytest.raises(OwnerLost):
        owned.announce("anywhere")
    assert owned.owner == rewritten
    assert not (home / "owner.json").exists()


@on_disk
def test_lost_is_lost_also_if_the_file_comes_back(home: Path, owned: Ownership) -> None:
    kept = (home / "owner.json").read_bytes()
    (home / "owner.json").unlink()
    with pytest.raises(OwnerLost):
        owned.check()
    (home / "owner.json").write_bytes(kept)
    with pytest.raises(OwnerLost):
        owned.check()


def test_a_fork_does_not_own_what_its_parent_owns(home: Location, child: Children) -> None:
    first = child()
    first.do("take")
    assert first.do("fork")[0] == "owner_lost"
    assert first.do("check") is None
    assert holder(home) == first.pid


def test_the_address_is_for_all_to_see(home: Location, owned: Ownership) -> None:
    assert living_owner(home) == owned.owner
    owned.announce("/somewhere/control")
    seen = living_owner(home)
    assert seen is not None
    assert (seen.address, seen.token, seen.fence) == ("/somewhere/control", owned.token, owned.fence)
    owned.check()
    owned.release()
    assert living_owner(home) is None


@on_disk
def test_nothing_but_the_lock_stays_behind(home: Path, owned: Ownership) -> None:
    owned.announce("/somewhere/control")
    owned.release()
    assert [path.name for path in home.iterdir()] == ["owner.lock"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError) as caught:
        take_ownership(tmp_path / "file" / "home", LONG)
    assert "read_only=True" in caught.value.hint


def test_a_check_that_cannot_look_is_no_loss(home: Location, owned: Ownership, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(home: Location) -> None:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(headrace.owner.ownership, "look", failing)
        with pytest.raises(LedgerError) as told:
            owned.check()
        assert told.value.transient
    owned.check()


def test_the_name_of_a_new_home_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())))
    take_ownership(tmp_path / "new" / "home", timedelta(seconds=30)).release()
    assert {str(tmp_path), str(tmp_path / "new")} <= set(synced)


def test_the_heartbeat_of_an_owner_that_was_replaced_tells_it(home: Location, caplog: pytest.LogCaptureFixture) -> None:
    ownership = take_ownership(home, SHORT)
    assert not ownership.is_lost
    register = register_of(home)
    with register.turn(1):
        assert register.enter(register.look(), replace(ownership.owner, token="of another", machine="elsewhere"))
    until(lambda: ownership.is_lost)
    assert "another took it over" in caplog.text


def test_what_an_owner_releases_it_has_not_lost(home: Location) -> None:
    ownership = take_ownership(home, SHORT)
    ownership.release()
    with pytest.raises(OwnerLost):
        ownership.check()
    assert not ownership.is_lost


@on_disk
def test_who_waits_for_a_home_that_is_given_up_makes_it_anew(home: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that others lock goes with the folder: who waits for it must not hold on to what nobody else finds."""
    assert isinstance(home, Path)
    given_up = take_ownership(home, LONG)
    taken: list[Ownership] = []
    waiting = threading.Thread(target=lambda: taken.append(take_ownership(home, LONG)))
    register_type = type(register_of(home))
    looked = threading.Event()
    open_lock = register_type._open_lock  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]

    def opened(register: Any) -> int:
        lock = open_lock(register)
        if threading.current_thread() is waiting:
            looked.set()
        return lock

    monkeypatch.setattr(register_type, "_open_lock", opened)
    listed = Path.iterdir

    def held_up(folder: Path) -> Iterator[Path]:
        # While the one that gives up has the lock, the other opens it and waits.
        if folder == home and waiting.ident is None:
            waiting.start()
            assert looked.wait(90)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", held_up)
    given_up.abandon()
    waiting.join(90)
    (owner,) = taken
    owner.check()
    with pytest.raises(HomeBusy):
        take_ownership(home, LONG)
    owner.release()


@on_disk
def test_who_waited_for_a_lock_that_was_removed_has_no_turn_by_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    late = FileRegister(home)
    open_lock = late._open_lock  # pyright: ignore[reportPrivateUsage]
    opened = [open_lock()]
    (home / "owner.lock").unlink()
    monkeypatch.setattr(late, "_open_lock", lambda: opened.pop() if opened else open_lock())
    with FileRegister(home).turn(1):
        with pytest.raises(HomeBusy), late.turn(0.1):
            pass
        assert not opened
    with late.turn(1):
        pass


@on_disk
@pytest.mark.parametrize("place", ["a link that leads nowhere", "a removed folder", "no folder for files"])
def test_where_no_file_can_be_made_is_told(home: Path, place: str) -> None:
    home.mkdir()
    where = {"a removed folder": Path(), "no folder for files": Path("/proc/self")}.get(place, home)
    child = Child(where, LONG, folder=home)
    try:
        if place == "a link that leads nowhere":
            (home / "owner.lock").symlink_to(home / "none" / "owner.lock")
        if place == "a removed folder":
            home.rmdir()
        told, _ = child.process.communicate("take\n", timeout=90)
    finally:
        child.end()
    code, message, detail, hint = json.loads(told)
    assert code == "ledger_error"
    assert str(where) in message
    assert "owner.lock" in detail
    assert hint


@on_disk
def test_a_home_that_must_be_there_is_not_made(home: Path) -> None:
    with pytest.raises(LedgerError):
        take_ownership(home / "below", LONG, create=False)
    assert not home.exists()
    home.mkdir()
    take_ownership(home, LONG, create=False).release()


def test_who_watches_sees_an_owner_that_beats_whatever_the_clock_says(
    home: Location, child: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = child(LONG, MANY_BEATS)
    first.do("take")
    watch = Watch(home)
    assert watch.living_owner() is not None
    elsewhere = lambda _: False  # noqa: E731 - of another machine's processes nothing is known
    monkeypatch.setattr(headrace.owner.ownership, "_has_ended", elsewhere)
    monkeypatch.setattr("time.time", lambda: 0.0)
    until(lambda: watch.living_owner() is not None)
    beaten_at = heard_at(home)
    while heard_at(home) == beaten_at:
        assert watch.living_owner() is not None
    first.process.send_signal(signal.SIGSTOP)
    assert watch.living_owner() is not None
    rewrite(home, timeout=1.0)
    assert watch.living_owner() is not None
    until(lambda: watch.living_owner() is None)
    first.process.send_signal(signal.SIGCONT)


def test_who_watches_for_the_first_time_goes_by_the_clock(
    home: Location, child: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Watch(home).living_owner() is None
    first = child()
    first.do("take")
    rewrite(home, machine="elsewhere")
    first.end()
    watch = Watch(home)
    assert watch.living_owner() is not None
    later = time.time() + 2 * LONG.total_seconds()
    monkeypatch.setattr("time.time", lambda: later)
    assert Watch(home).living_owner() is None
    assert watch.living_owner() is None


def test_who_watches_is_told_what_it_cannot_see(home: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(home: Location) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(headrace.owner.ownership, "look", failing)
    with pytest.raises(OSError, match="input/output error"):
        Watch(home).living_owner()
