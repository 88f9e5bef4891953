"""Settings that a running server takes on: its limits; what else has changed waits for the next start."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import FastAPI

from headrace.settings import RELOADED, Settings


@dataclass(frozen=True)
class Reloaded:
    """What became of settings that were read anew, by name."""

    taken: tuple[str, ...]
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        taken = f"taken: {', '.join(self.taken)}" if self.taken else "nothing has changed that can be taken"
        return taken + (f"; for the next start: {', '.join(self.waiting)}" if self.waiting else "")


def reload(app: FastAPI, settings: Settings) -> Reloaded:
    """Have a server hold to other settings, as far as it can while it runs."""
    service = app.state.service
    before: Settings = service.settings
    changed = [name for name in Settings.model_fields if getattr(before, name) != getattr(settings, name)]
    taken = tuple(name for name in changed if name in RELOADED)
    now = before.model_copy(update={name: getattr(settings, name) for name in taken})
    service.limit(now)
    app.state.data.rates.limit(now.data_rate, now.data_burst)
    return Reloaded(taken, tuple(name for name in changed if name not in RELOADED))
