"""Who owns a home: one process at a time, known to all others, replaced at once when it is gone.

`owner.json` in the home says who the owner is; its modification time is the owner's heartbeat, so that a full disk
silences nobody. It is only ever replaced as a whole, under a short lock on `owner.lock`, which also keeps the fence:
a number that rises with every owner. An owner that was stopped, and replaced meanwhile, finds another token in the
file. That is a courtesy: between looking and writing it may be stopped again, so the ledger has the last word.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from headrace.errors import HomeBusy, LedgerError, OwnerLost

_BEATS_IN_A_TIMEOUT = 6
_HINT = "close it there, or open it with read_only=True"

# The tokens of what this process owns now. A fork owns nothing of it: its threads, the heartbeat too, stayed behind.
_held: set[str] = set()
os.register_at_fork(after_in_child=_held.clear)


@dataclass(frozen=True)
class Owner:
    """An owner as the home's owner.json describes it; `started` tells it from a later process with the same pid."""

    host: str
    machine: str
    pid: int
    started: str
    token: str
    fence: int
    acquired_at: str
    timeout: float
    address: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.acquired_at}"


@dataclass(frozen=True)
class Sighting:
    """An owner and when it was last heard, by the file system's clock."""

    owner: Owner
    heard_at: float

    def silent_for(self, now: float) -> float:
        """Seconds since the last heartbeat; a clock that was set back makes them negative, which says nothing."""
        return abs(now - self.heard_at)


class Ownership:
    """This process's hold on a home, kept by a heartbeat until it is released or lost."""

    def __init__(self, home: Path, owner: Owner) -> None:
        self._home = home
        self._owner = owner
        self._over = threading.Event()
        _held.add(owner.token)
        self._heart = threading.Thread(target=self._beat_on, name="headrace-heartbeat", daemon=True)
        self._heart.start()

    @property
    def owner(self) -> Owner:
        """This process, as others see it."""
        return self._owner

    @property
    def fence(self) -> int:
        """The number of this owner: higher than that of all before it."""
        return self._owner.fence

    @property
    def token(self) -> str:
        """The random name of this owner, never used by another."""
        return self._owner.token

    def check(self) -> None:
        """Return if this process still owns the home; once it does not, it never will again."""
        try:
            seen = look(self._home)
        except OSError as error:
            raise LedgerError(
                f"it cannot be told who owns the home {self._home}",
                detail=f"{error}. Nothing was committed.",
                hint="mend the cause, then send the call again",
            ) from error
        if seen is None or seen.owner.token != self.token:
            _held.discard(self.token)
        if self.token not in _held:
            raise _lost(self._home, seen)

    def announce(self, address: str) -> None:
        """Tell others where this owner listens."""
        with _writing(self._home), _locked(self._home, self._owner.timeout):
            self.check()
            self._owner = replace(self._owner, address=address)
            _write(self._home, self._owner)

    def release(self) -> None:
        """Let go of the home; what another owner has written meanwhile stays."""
        self._over.set()
        if self.token not in _held:
            return
        self._heart.join()
        # Where the file cannot be removed, it names an owner that this process no longer has: nobody minds it long.
        with suppress(OSError, HomeBusy), _locked(self._home, self._owner.timeout):
            seen = look(self._home)
            if seen is not None and seen.owner.token == self.token:
                _file(self._home).unlink()
        _held.discard(self.token)

    def _beat_on(self) -> None:
        while not self._over.wait(self._owner.timeout / _BEATS_IN_A_TIMEOUT):
            try:
                if not self._beat():
                    _held.discard(self.token)
                    return
            except FileNotFoundError:
                _held.discard(self.token)
                return
            except OSError:
                continue

    def _beat(self) -> bool:
        # Through the open file: if it is replaced in between, the touch goes to the one that nobody reads any more.
        with open(_file(self._home), "rb") as file:
            owner = _parse(file.read())
            if owner is None or owner.token != self.token:
                return False
            os.utime(file.fileno())
        return True


def take_ownership(home: Path, timeout: timedelta) -> Ownership:
    """Become the owner of a home, or raise HomeBusy with who it is.

    An owner that ended is replaced at once. One that is only silent is replaced when it has been so for its own
    timeout and, because clocks can be set, stays so while it is watched.
    """
    seconds = timeout.total_seconds()
    silent: Sighting | None = None
    with _writing(home):
        home.mkdir(parents=True, exist_ok=True)
        while True:
            with _locked(home, seconds) as lock:
                seen = look(home)
                if seen is None or seen == silent or _has_ended(seen.owner):
                    return Ownership(home, _enter(home, lock, seen, seconds))
                patience = _patience(seen, _now(lock))
            if not patience or _beats_within(home, seen, patience):
                raise _busy(home, seen.owner)
            silent = seen


def living_owner(home: Path) -> Owner | None:
    """The owner of a home, if there is one that runs and was heard lately."""
    try:
        seen = look(home)
    except OSError:
        return None  # whoever then opens the home is told why
    if seen is None or _has_ended(seen.owner) or seen.silent_for(time.time()) >= seen.owner.timeout:
        return None
    return seen.owner


def look(home: Path) -> Sighting | None:
    """What the home says about its owner, dead or alive."""
    try:
        with open(_file(home), "rb") as file:
            heard_at = os.fstat(file.fileno()).st_mtime
            owner = _parse(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Sighting(owner or _UNREADABLE, heard_at)


# Power that fails at the wrong moment may leave a file without content: then only its time can be judged.
_UNREADABLE = Owner("an unknown host", "", 0, "", "", 0, "an unknown time", 30.0)


def _parse(content: bytes) -> Owner | None:
    try:
        parts: dict[str, Any] = json.loads(content)
        owner = Owner(**{field.name: parts[field.name] for field in fields(Owner)})
        return replace(owner, pid=int(owner.pid), fence=int(owner.fence), timeout=float(owner.timeout))
    except (ValueError, TypeError, KeyError):
        return None


def _has_ended(owner: Owner) -> bool:
    """Whether an owner is known to be gone; of another machine's processes nothing is known."""
    if owner.machine != _machine() or owner.pid <= 0:
        return False
    if owner.pid == os.getpid() and owner.started == _started(owner.pid):
        return owner.token not in _held
    return not _runs(owner)


def _patience(seen: Sighting, now: float) -> float:
    """How long to watch an owner before it is replaced; zero if it must not be."""
    timeout = seen.owner.timeout
    if seen.owner.token in _held or seen.silent_for(now) < timeout:
        return 0.0
    # A heartbeat from the future does not tell how old it is, so the whole silence has to be seen.
    return timeout if seen.heard_at > now else 2 * timeout / _BEATS_IN_A_TIMEOUT


def _beats_within(home: Path, seen: Sighting, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(0.05, seconds / 10))
        now = look(home)
        if now is None or now.owner.token != seen.owner.token:
            return False
        if now.heard_at != seen.heard_at:
            return True
    return False


def _enter(home: Path, lock: int, before: Sighting | None, timeout: float) -> Owner:
    fence = 1 + max(_fence(lock), before.owner.fence if before else 0)
    # In place and of fixed width: it can neither be torn nor grow, also where the disk is full.
    os.pwrite(lock, f"{fence:020d}\n".encode(), 0)
    os.fsync(lock)
    owner = Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=os.getpid(),
        started=_started(os.getpid()) or "",
        token=secrets.token_hex(16),
        fence=fence,
        acquired_at=datetime.now(UTC).isoformat(timespec="seconds"),
        timeout=timeout,
    )
    _write(home, owner)
    return owner


def _fence(lock: int) -> int:
    try:
        return int(os.pread(lock, 64, 0))
    except ValueError:
        return 0


def _write(home: Path, owner: Owner) -> None:
    """Replace owner.json as a whole, durably; the caller holds the lock."""
    fresh = home / "owner.json.new"
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(asdict(owner), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, _file(home))
    folder = os.open(home, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _file(home: Path) -> Path:
    return home / "owner.json"


@contextmanager
def _locked(home: Path, patience: float) -> Generator[int, None, None]:
    """Hold the lock for a moment; one who was stopped while holding it is not waited for forever."""
    lock = os.open(home / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise HomeBusy(
                        f"the home {home} is in use",
                        detail="Another process has been opening or closing it for a long time; it may be stopped.",
                        hint="continue or end that process, or open the home with read_only=True",
                    ) from None
                time.sleep(0.01)
        try:
            yield lock
        finally:
            # Said aloud, because a fork in between would keep the lock beyond the closing here.
            fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)


def _now(lock: int) -> float:
    """The time by the clock that also stamps the heartbeats, which on a network disk is the server's."""
    os.utime(lock)
    return os.fstat(lock).st_mtime


@contextmanager
def _writing(home: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"the home {home} cannot be written",
            detail=f"{error}.",
            hint="free space or mend the rights of the folder, or open it with read_only=True",
        ) from error


@cache
def _machine() -> str:
    """Where process ids mean the same: one boot of one machine and, in it, one namespace of processes."""
    boot = namespace = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return "/".join((socket.gethostname(), boot, namespace))


def _runs(owner: Owner) -> bool:
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, for another user
    started = _started(owner.pid)
    return started is None or started == owner.started


def _started(pid: int) -> str | None:
    """When a process started; empty for one that ended but was not yet fetched by its parent, none if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state in ("Z", "X") else rest[18]


def _started_by_ps(pid: int) -> str | None:
    listed = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return listed.stdout.strip() or None


def _busy(home: Path, owner: Owner) -> HomeBusy:
    here = " (this process)" if owner.token in _held else ""
    return HomeBusy(f"the home {home} is in use", detail=f"It is held by {owner}{here}.", hint=_HINT)


def _lost(home: Path, seen: Sighting | None) -> OwnerLost:
    if seen is None:
        detail = "It was released meanwhile: closed here, or taken over and closed by another process."
    else:
        detail = f"It is held by {seen.owner}, which took it over while this process was silent."
    return OwnerLost(
        f"this process no longer owns the home {home}",
        detail=f"{detail} Nothing was committed.",
        hint="open the home again; every acknowledged change is in it",
    )
