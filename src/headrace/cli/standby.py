"""Standing by: a second process that follows a home with a warm Spark, until the home has no owner any more."""

from __future__ import annotations

import time
from contextlib import suppress

import typer

from headrace.cli.homes import ChosenHome
from headrace.cli.opening import opened
from headrace.errors import HeadraceError
from headrace.offline import existing
from headrace.owner.ownership import living_owner
from headrace.storage.objects import Location

_LOOK_SECONDS = 0.1
_LOOK_SECONDS_FAR = 1.0
_FOLLOW_SECONDS = 1.0


def stand_by(chosen: ChosenHome) -> None:
    """Follow a home that another process owns; return when that one is gone, with a Spark that is warm by then."""
    place: Location = existing(chosen.location, chosen.settings)
    seconds = _LOOK_SECONDS if not hasattr(place, "bucket") else _LOOK_SECONDS_FAR
    with opened(chosen) as hr:
        owner = living_owner(place)
        if owner is not None:
            typer.echo(f"Standing by for {chosen.location} (epoch {hr.epoch}), which {owner} serves; Ctrl-C ends it.")
        followed_at = time.monotonic()
        while living_owner(place) is not None:
            time.sleep(seconds)
            if time.monotonic() - followed_at >= _FOLLOW_SECONDS:
                # What cannot be followed now is read when the home is taken over.
                with suppress(HeadraceError):
                    hr.refresh()
                followed_at = time.monotonic()
