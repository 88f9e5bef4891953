"""What people are told beside an answer, and programs are not."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import typer

_told: set[str] = set()
# Nobody reads along where no verb is at work, such as in a thread of a server.
_to_people: ContextVar[bool] = ContextVar("to_people", default=False)


@contextmanager
def notes_shown(shown: bool) -> Generator[None, None, None]:
    """Inside, notes are told on stderr, or not."""
    before = _to_people.set(shown)
    try:
        yield
    finally:
        _to_people.reset(before)


def note_once(text: str) -> None:
    """Tell something that is worth a line, the first time that it comes up."""
    if _to_people.get() and text not in _told:
        _told.add(text)
        typer.echo(f"note: {text}", err=True)
