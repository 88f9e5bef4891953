"""Where a home says who owns it, on a disk or in an object store.

On a disk that is `owner.json`. Its modification time is the owner's heartbeat, so that a full disk silences nobody; it
is only ever replaced as a whole, under a short lock on `owner.lock`, which also keeps the fence: a number that rises
with every owner. In an object store there are no locks, but a name is given only once: each owner has an object of its
own, `owner/<fence>.json`, which nobody else writes, and the highest is the owner.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from headrace.errors import HomeBusy, SetupError
from headrace.storage.objects import Location, ObjectPath


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


# Power that fails at the wrong moment may leave a file without content: then only its time can be judged.
_UNREADABLE = Owner("an unknown host", "", 0, "", "", 0, "an unknown time", 30.0)


@dataclass(frozen=True)
class Sighting:
    """An owner and when it was last heard, by the storage's clock; in an object store each beat has its own tag."""

    owner: Owner
    heard_at: float
    tag: str = ""

    def silent_for(self, now: float) -> float:
        """Seconds since the last heartbeat; a clock that was set back makes them negative, which says nothing."""
        return abs(now - self.heard_at)


class Register(Protocol):
    """What is asked of either storage."""

    def look(self) -> Sighting | None:
        """What the home says about its owner, dead or alive."""
        ...

    def turn(self, patience: float) -> Any:
        """A context in which nobody else changes the register, where the storage can promise that."""
        ...

    def now(self) -> float:
        """The time by the clock that also stamps the heartbeats."""
        ...

    def enter(self, seen: Sighting | None, owner: Owner) -> Owner | None:
        """Let an owner follow what was seen, with the next fence; None if it is no longer so."""
        ...

    def rewrite(self, owner: Owner) -> bool:
        """Describe an owner anew; whether it still is the owner."""
        ...

    def beat(self, owner: Owner) -> bool:
        """Let an owner be heard; whether it still is the owner."""
        ...

    def leave(self, owner: Owner) -> None:
        """Let go of the home; what another owner has written meanwhile stays."""
        ...


def register_of(home: Location) -> Register:
    """The register of a home."""
    return FileRegister(home) if isinstance(home, Path) else ObjectRegister(home)


class FileRegister:
    """The register of a home on a disk."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "owner.json"
        self._lock = -1

    def look(self) -> Sighting | None:
        try:
            with open(self._file, "rb") as file:
                heard_at = os.fstat(file.fileno()).st_mtime
                owner = _parse(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Sighting(owner or _UNREADABLE, heard_at)

    @contextmanager
    def turn(self, patience: float) -> Generator[None, None, None]:
        """Hold the lock for a moment; one who was stopped while holding it is not waited for forever."""
        lock = self._open_lock()
        try:
            until = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if self._is_named(lock):
                        break
                    # Whoever held it gave up the home that it had begun, and removed the file: others lock another.
                    os.close(lock)
                    lock = -1
                    lock = self._open_lock()
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise HomeBusy(
                            f"the home {self._home} is in use",
                            detail="Another process has been opening or closing it for a long time; it may be stopped.",
                            hint="continue or end that process, or open the home with read_only=True",
                        ) from None
                    time.sleep(0.01)
            self._lock = lock
            try:
                yield
            finally:
                # Said aloud, because a fork in between would keep the lock beyond the closing here.
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            if lock >= 0:
                os.close(lock)

    def _open_lock(self) -> int:
        return os.open(self._home / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _is_named(self, lock: int) -> bool:
        """Whether an open lock is the file that others find by its name."""
        try:
            return os.path.samestat(os.fstat(lock), (self._home / "owner.lock").stat())
        except FileNotFoundError:
            return False

    def now(self) -> float:
        # On a network disk this is the server's clock.
        os.utime(self._lock)
        return os.fstat(self._lock).st_mtime

    def enter(self, seen: Sighting | None, owner: Owner) -> Owner | None:
        fence = 1 + max(self._fence(), seen.owner.fence if seen else 0)
        # In place and of fixed width: it can neither be torn nor grow, also where the disk is full.
        os.pwrite(self._lock, f"{fence:020d}\n".encode(), 0)
        os.fsync(self._lock)
        entered = replace(owner, fence=fence)
        self._write(entered)
        return entered

    def rewrite(self, owner: Owner) -> bool:
        seen = self.look()
        if seen is None or seen.owner.token != owner.token:
            return False
        self._write(owner)
        return True

    def beat(self, owner: Owner) -> bool:
        # Through the open file: if it is replaced in between, the touch goes to the one that nobody reads any more.
        try:
            with open(self._file, "rb") as file:
                written = _parse(file.read())
                if written is None or written.token != owner.token:
                    return False
                os.utime(file.fileno())
        except FileNotFoundError:
            return False
        return True

    def leave(self, owner: Owner) -> None:
        seen = self.look()
        if seen is not None and seen.owner.token == owner.token:
            self._file.unlink()

    def _fence(self) -> int:
        try:
            return int(os.pread(self._lock, 64, 0))
        except ValueError:
            return 0

    def _write(self, owner: Owner) -> None:
        """Replace owner.json as a whole, durably; the caller holds the lock."""
        fresh = self._home / "owner.json.new"
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(asdict(owner), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self._file)
        folder = os.open(self._home, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def outrank_owners(home: Location) -> None:
    """Have the next owner of a home outrank the owners of the home that it takes the place of: by the time of day."""
    fence = int(time.time())
    if isinstance(home, ObjectPath):
        (home / "owner" / f"{fence:020d}.json").write_bytes(json.dumps({"released": True}).encode())
    else:
        (home / "owner.lock").write_bytes(f"{fence:020d}\n".encode())


class ObjectRegister:
    """The register of a home in an object store."""

    def __init__(self, home: ObjectPath) -> None:
        self._folder = home / "owner"
        self._beats = 0

    def look(self) -> Sighting | None:
        return self._look()[1]

    def _look(self) -> tuple[int, Sighting | None]:
        """The newest number, and the owner that has it; none where it was released or there never was one."""
        while True:
            newest = self._newest()
            if newest == 0:
                return 0, None
            try:
                held = self._file(newest).tagged()
            except FileNotFoundError:
                continue  # its successor has come, and removed it
            if _parts(held.content).get("released"):
                return newest, None
            owner = _parse(held.content) or replace(_UNREADABLE, fence=newest)
            return newest, Sighting(owner, held.modified_at, held.tag)

    @contextmanager
    def turn(self, patience: float) -> Generator[None, None, None]:
        yield

    def now(self) -> float:
        clock = self._folder / "clock"
        clock.write_bytes(b"")
        return clock.stat().st_mtime

    def enter(self, seen: Sighting | None, owner: Owner) -> Owner | None:
        newest, current = self._look()
        if current != seen:
            return None
        entered = replace(owner, fence=newest + 1)
        try:
            self._file(entered.fence).create(self._content(entered))
        except FileExistsError:
            return None
        self._refuse_careless_store(entered.fence)
        if self._newest() != entered.fence:
            # A number that was removed because there are higher ones is no turn.
            self._file(entered.fence).unlink(missing_ok=True)
            return None
        for number in self._numbers():
            if number < entered.fence:
                self._file(number).unlink(missing_ok=True)
        return entered

    def _refuse_careless_store(self, number: int) -> None:
        """A store that gives a name twice would let two owners commit the same version."""
        try:
            self._file(number).create(b"{}")
        except FileExistsError:
            return
        raise SetupError(
            f"{self._folder.parent} cannot hold a home",
            detail="Its object store gives a name that is taken to other content; it must refuse that.",
            hint="use a store with conditional puts (If-None-Match), or a folder",
        )

    def rewrite(self, owner: Owner) -> bool:
        if self._newest() != owner.fence:
            return False
        self._file(owner.fence).write_bytes(self._content(owner))
        return True

    def beat(self, owner: Owner) -> bool:
        return self.rewrite(owner)

    def leave(self, owner: Owner) -> None:
        # It stays, for its number: the next owner's is higher.
        if self._newest() == owner.fence:
            self._file(owner.fence).write_bytes(json.dumps({"released": True}).encode())

    def _content(self, owner: Owner) -> bytes:
        # Each beat is other content and so has another tag: the time of an object may be in whole seconds.
        self._beats += 1
        return json.dumps({**asdict(owner), "beat": self._beats}).encode()

    def _file(self, number: int) -> ObjectPath:
        return self._folder / f"{number:012d}.json"

    def _newest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        return [int(one.stem) for one in self._folder.iterdir() if one.stem.isdigit()]


def _parts(content: bytes) -> dict[str, Any]:
    try:
        parts = json.loads(content)
    except ValueError:
        return {}
    return parts if isinstance(parts, dict) else {}


def _parse(content: bytes) -> Owner | None:
    try:
        parts = _parts(content)
        owner = Owner(**{field.name: parts[field.name] for field in fields(Owner)})
        return replace(owner, pid=int(owner.pid), fence=int(owner.fence), timeout=float(owner.timeout))
    except (ValueError, TypeError, KeyError):
        return None
