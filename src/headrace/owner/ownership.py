"""Who owns a home: one process at a time, known to all others, replaced at once when it is gone.

The home's register says who the owner is and when it was last heard. An owner that was stopped, and replaced meanwhile,
finds another token there. That is a courtesy: between looking and writing it may be stopped again, so the ledger has
the last word.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from headrace.errors import HomeBusy, LedgerError, LedgerNotWritten, OwnerLost
from headrace.owner.register import Owner, Register, Sighting, register_of
from headrace.spark.proc import start_time
from headrace.storage.folders import make_folder
from headrace.storage.objects import Location

_log = logging.getLogger("headrace.owner")
_BEATS_IN_A_TIMEOUT = 6
# So often a folder that went away under who opens the home is made anew, after a moment in which others do the same.
_TRIES = 20
_TRY_AGAIN_SECONDS = 0.01
_HINT = "close it there, or open it with read_only=True"

# The tokens of what this process owns now. A fork owns nothing of it: its threads, the heartbeat too, stayed behind.
_held: set[str] = set()
os.register_at_fork(after_in_child=_held.clear)


class Ownership:
    """This process's hold on a home, kept by a heartbeat until it is released or lost."""

    def __init__(self, home: Location, register: Register, owner: Owner, made_folder: bool = False) -> None:
        self._home = home
        self._register = register
        self._owner = owner
        self._made_folder = made_folder
        self._over = threading.Event()
        self._lost = threading.Event()
        self._speaking = threading.Lock()
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

    @property
    def is_lost(self) -> bool:
        """Whether another has the home, as the heartbeat or a check has found; once it is so, it stays so."""
        return self._lost.is_set()

    def check(self) -> None:
        """Return if this process still owns the home; once it does not, it never will again."""
        if os.getpid() != self._owner.pid:
            raise OwnerLost(
                f"this process does not own the home {self._home}",
                detail=f"It was forked from {self._owner}, which does.",
                hint="open the home in the process that uses it",
            )
        try:
            seen = look(self._home)
        except OSError as error:
            raise LedgerNotWritten(
                f"it cannot be told who owns the home {self._home}",
                detail=f"{error}. Nothing was committed.",
                hint="mend the cause, then send the call again",
            ) from error
        if seen is None or seen.owner.token != self.token:
            self._let_go()
        if self.token not in _held:
            raise _lost(self._home, seen)

    def announce(self, address: str) -> None:
        """Tell others where this owner listens."""
        with _writing(self._home), self._register.turn(self._owner.timeout):
            self.check()
            told = replace(self._owner, address=address)
            with self._speaking:
                if self._register.rewrite(told):
                    self._owner = told

    def release(self) -> None:
        """Let go of the home; what another owner has written meanwhile stays."""
        self._over.set()
        if self.token not in _held:
            return
        self._heart.join()
        # Where the register cannot be written, it names an owner that this process no longer has: nobody minds it long.
        with suppress(OSError, HomeBusy), self._register.turn(self._owner.timeout):
            self._register.leave(self._owner)
        _held.discard(self.token)

    def abandon(self) -> None:
        """Let go of a home that could not be opened; a folder that was made for it goes, if it is empty."""
        self.release()
        if not self._made_folder or not isinstance(self._home, Path):
            return
        with suppress(OSError, HomeBusy), self._register.turn(self._owner.timeout):
            if [one.name for one in self._home.iterdir()] == ["owner.lock"]:
                (self._home / "owner.lock").unlink()
                self._home.rmdir()

    def _beat_on(self) -> None:
        while not self._over.wait(self._owner.timeout / _BEATS_IN_A_TIMEOUT):
            try:
                with self._speaking:
                    heard = self._register.beat(self._owner)
                if not heard:
                    self._let_go()
                    return
            except OSError:
                continue

    def _let_go(self) -> None:
        """Another has the home; what this process released by itself it has not lost."""
        _held.discard(self.token)
        if not self._over.is_set() and not self._lost.is_set():
            self._lost.set()
            _log.error("this process no longer owns the home %s: another took it over", self._home)


def take_ownership(home: Location, timeout: timedelta, *, create: bool = True) -> Ownership:
    """Become the owner of a home, or raise HomeBusy with who it is; its folder is made only where it may `create` one.

    An owner that ended is replaced at once. One that is only silent is replaced when it has been so for its own
    timeout and, because clocks can be set, stays so while it is watched.
    """
    seconds = timeout.total_seconds()
    register = register_of(home)
    silent: Sighting | None = None
    made = False
    tries = 0
    with _writing(home):
        while True:
            if create:
                made = made or (isinstance(home, Path) and not home.exists())
                make_folder(home)
            try:
                with register.turn(seconds):
                    seen = register.look()
                    if seen is None or seen == silent or _has_ended(seen.owner):
                        entered = register.enter(seen, _this_process(seconds))
                        if entered is not None:
                            return Ownership(home, register, entered, made)
                        continue
                    patience = _patience(seen, register.now())
            except FileNotFoundError as error:
                # Whoever had begun the home just now gave it up, and its folder with it; or no file can be made there.
                tries += 1
                if tries == _TRIES:
                    raise _no_place(home, error) from error
                time.sleep(_TRY_AGAIN_SECONDS)
                continue
            if not patience or _beats_within(home, seen, patience):
                raise _busy(home, seen.owner)
            silent = seen


class Watch:
    """Who owns a home, for one who looks again and again: by heartbeats that come, whatever the clocks say."""

    def __init__(self, home: Location) -> None:
        self._home = home
        self._seen: Sighting | None = None
        self._has_looked = False
        # When the register was first seen as it is now, by the clock of this process; none until it has changed.
        self._changed_at: float | None = None

    def living_owner(self) -> Owner | None:
        """The owner, if there is one that runs and is heard; raises OSError where that cannot be told."""
        seen = look(self._home)
        if self._has_looked and seen != self._seen:
            self._changed_at = time.monotonic()
        self._seen, self._has_looked = seen, True
        if seen is None or _has_ended(seen.owner):
            return None
        # How old the first heartbeat is only clocks can tell, and those of two machines may differ.
        since = self._changed_at
        silent = seen.silent_for(time.time()) if since is None else time.monotonic() - since
        return seen.owner if silent < seen.owner.timeout else None


def living_owner(home: Location) -> Owner | None:
    """The owner of a home, if there is one that runs and was heard lately."""
    try:
        seen = look(home)
    except OSError:
        return None  # whoever then opens the home is told why
    if seen is None or _has_ended(seen.owner) or seen.silent_for(time.time()) >= seen.owner.timeout:
        return None
    return seen.owner


def look(home: Location) -> Sighting | None:
    """What the home says about its owner, dead or alive."""
    return register_of(home).look()


def _has_ended(owner: Owner) -> bool:
    """Whether an owner is known to be gone; of another machine's processes nothing is known."""
    if owner.machine != _machine() or owner.pid <= 0:
        return False
    if owner.pid == os.getpid() and owner.started == start_time(owner.pid):
        return owner.token not in _held
    return not _runs(owner)


def _patience(seen: Sighting, now: float) -> float:
    """How long to watch an owner before it is replaced; zero if it must not be."""
    timeout = seen.owner.timeout
    if seen.owner.token in _held or seen.silent_for(now) < timeout:
        return 0.0
    # A heartbeat from the future does not tell how old it is, so the whole silence has to be seen.
    return timeout if seen.heard_at > now else 2 * timeout / _BEATS_IN_A_TIMEOUT


def _beats_within(home: Location, seen: Sighting, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(0.05, seconds / 10))
        now = look(home)
        if now is None or now.owner.token != seen.owner.token:
            return False
        if (now.heard_at, now.tag) != (seen.heard_at, seen.tag):
            return True
    return False


def _this_process(timeout: float) -> Owner:
    return Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=os.getpid(),
        started=start_time(os.getpid()) or "",
        token=secrets.token_hex(16),
        fence=0,
        acquired_at=datetime.now(UTC).isoformat(timespec="seconds"),
        timeout=timeout,
    )


@contextmanager
def _writing(home: Location) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"the home {home} cannot be written",
            detail=f"{error}.",
            hint="free space or mend the rights of the home, or open it with read_only=True",
        ) from error


def _no_place(home: Location, error: FileNotFoundError) -> LedgerError:
    return LedgerError(
        f"no file can be made in the home {home}",
        detail=f"{error}. Its folder is gone, takes no files, or has links that lead nowhere.",
        hint="name a folder that is there and takes files, and remove an owner.lock that is a link",
    )


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
    started = start_time(owner.pid)
    return started is None or started == owner.started


def _busy(home: Location, owner: Owner) -> HomeBusy:
    here = " (this process)" if owner.token in _held else ""
    return HomeBusy(f"the home {home} is in use", detail=f"It is held by {owner}{here}.", hint=_HINT)


def _lost(home: Location, seen: Sighting | None) -> OwnerLost:
    if seen is None:
        detail = "It was released meanwhile: closed here, or taken over and closed by another process."
    else:
        detail = f"It is held by {seen.owner}, which took it over while this process was silent."
    return OwnerLost(
        f"this process no longer owns the home {home}",
        detail=f"{detail} Nothing was committed.",
        hint="open the home again; every acknowledged change is in it",
    )
