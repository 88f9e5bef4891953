"""Standing by: a second process that follows a home with a warm Spark, until the home has no owner any more."""

from __future__ import annotations

import logging
import time

import typer

from headrace.errors import HeadraceError, HomeBusy, LedgerError
from headrace.home import Home
from headrace.owner.ownership import Watch, living_owner

_log = logging.getLogger("headrace.operation")
_LOOK_SECONDS = 0.1
_LOOK_SECONDS_FAR = 1.0
_FOLLOW_SECONDS = 0.5
# Before a home that could not be taken over is tried again: each try writes to the home.
_PAUSE_SECONDS = 1.0
# Of its time, the part that following may take: what it reads grows with the ledger, and the owner needs the machine.
_FOLLOW_SHARE = 10


def stand_by(home: Home) -> None:
    """Follow a home that another process owns, and own it when that one is gone.

    What the first write needs is there by then: Spark, the rules of all views, compiled, and the state, followed to a
    second ago. Several may stand by: one takes over, and the others go on to. A home that cannot be reached, or is out
    of sight, is waited for: its owner may well go on.
    """
    seconds = _LOOK_SECONDS if not hasattr(home.path, "bucket") else _LOOK_SECONDS_FAR
    watch, follower = Watch(home.path), _Follower(home)
    trouble = _Trouble(f"the home {home.path} cannot be taken over", f"the home {home.path} has an owner again")
    follower.follow()
    owner = living_owner(home.path)
    if owner is not None:
        typer.echo(f"Standing by for {home.path} (epoch {home.core.epoch}), which {owner} serves; Ctrl-C ends it.")
    while True:
        try:
            if watch.living_owner() is None:
                home.take_over()
                return
            trouble.clear()
        except HomeBusy:
            trouble.clear()
            time.sleep(_PAUSE_SECONDS)
        except (OSError, LedgerError) as error:
            if home.core.closed:
                raise
            trouble.tell(error)
            time.sleep(_PAUSE_SECONDS)
        follower.follow()
        time.sleep(seconds)


class _Follower:
    """Keeps a home that is open for reading at its owner's epoch, and the rules of its views compiled."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._next_at = 0.0
        self._rehearsed: list[object] = []
        self._trouble = _Trouble(f"the home {home.path} cannot be followed", f"the home {home.path} is followed again")

    def follow(self) -> None:
        """Be at the newest epoch, if it is time for that."""
        began = time.monotonic()
        if began < self._next_at:
            return
        try:
            self._home.refresh()
            rules: list[object] = [view.rule for view in self._home.core.catalog.views()]
            if list(map(id, rules)) != list(map(id, self._rehearsed)):
                self._home.renewal.rehearse()
                self._rehearsed = rules
            self._trouble.clear()
        except (OSError, HeadraceError) as error:
            # What cannot be followed now is read when the home is taken over.
            self._trouble.tell(error)
        took = time.monotonic() - began
        self._next_at = time.monotonic() + max(_FOLLOW_SECONDS, _FOLLOW_SHARE * took)


class _Trouble:
    """Something that fails each time that it is tried: logged once when that begins, and once when it is over.

    Not by its text: an object store tells with each refusal how long that took.
    """

    def __init__(self, begins: str, is_over: str) -> None:
        self._begins = begins
        self._is_over = is_over
        self._is_there = False

    def tell(self, error: Exception) -> None:
        """It failed."""
        if not self._is_there:
            _log.error("%s: %s", self._begins, str(error).replace("\n", "; "))
        self._is_there = True

    def clear(self) -> None:
        """It did not fail."""
        if self._is_there:
            _log.warning("%s", self._is_over)
        self._is_there = False
