"""Standing by: a second process that follows a home with a warm Spark, until the home has no owner any more."""

from __future__ import annotations

import time
from contextlib import suppress

import typer

from headrace.errors import HeadraceError, HomeBusy
from headrace.home import Home
from headrace.owner.ownership import living_owner

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_FAR = 1.0
_FOLLOW_SECONDS = 0.5
# Of its time, the part that following may take: what it reads grows with the ledger, and the owner needs the machine.
_FOLLOW_SHARE = 10


def stand_by(home: Home) -> None:
    """Follow a home that another process owns, and own it when that one is gone.

    What the first write needs is there by then: Spark, the rules of all views, compiled, and the state, followed to a
    second ago. Several may stand by: one takes over, and the others go on to.
    """
    seconds = _LOOK_SECONDS if not hasattr(home.path, "bucket") else _LOOK_SECONDS_FAR
    follower = _Follower(home)
    follower.follow()
    owner = living_owner(home.path)
    if owner is not None:
        typer.echo(f"Standing by for {home.path} (epoch {home.core.epoch}), which {owner} serves; Ctrl-C ends it.")
    while True:
        if living_owner(home.path) is None:
            with suppress(HomeBusy):
                home.take_over()
                return
        else:
            follower.follow()
        time.sleep(seconds)


class _Follower:
    """Keeps a home that is open for reading at its owner's epoch, and the rules of its views compiled."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._next_at = 0.0
        self._rehearsed: list[object] = []

    def follow(self) -> None:
        """Be at the newest epoch, if it is time for that."""
        began = time.monotonic()
        if began < self._next_at:
            return
        # What cannot be followed now is read when the home is taken over.
        with suppress(HeadraceError):
            self._home.refresh()
            rules: list[object] = [view.rule for view in self._home.core.catalog.views()]
            if list(map(id, rules)) != list(map(id, self._rehearsed)):
                self._home.renewal.rehearse()
                self._rehearsed = rules
        took = time.monotonic() - began
        self._next_at = time.monotonic() + max(_FOLLOW_SECONDS, _FOLLOW_SHARE * took)
