"""The log of a server: lines for people or JSON for programs, a level that can change, and what SIGHUP reads anew."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from queue import SimpleQueue

_log = logging.getLogger("headrace.operation")
# What a record may carry beside its text; whoever logs gives it as extra.
_FIELDS = ("epoch", "source", "feed", "view", "relation", "who")


class LogFormat(str, Enum):  # noqa: UP042 - typer shows the values of such a one
    """How a line of the log is written."""

    text = "text"
    json = "json"


class JsonLines(logging.Formatter):
    """A line of JSON a record: when, how grave, where, what, and the fields that it carries."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; what a text brings along stays inside of it."""
        told: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class TextLines(logging.Formatter):
    """A line for people; control characters of what it tells are written out."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and below it the stack of an error."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in record.getMessage())
        fields = "".join(f" {name}={getattr(record, name)}" for name in _FIELDS if hasattr(record, name))
        stack = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{at} {record.levelname.lower():<7} {record.name}: {text}{fields}{stack}"


def begin_log(form: LogFormat, level: str) -> None:
    """Write the log of Headrace to stderr in a form, from a level on."""
    root = logging.getLogger("headrace")
    told = logging.StreamHandler(sys.stderr)
    told.setFormatter(JsonLines() if form is LogFormat.json else TextLines())
    root.handlers = [told]
    root.propagate = False
    set_level(level)


def set_level(level: str) -> None:
    """Write what is of this level, and what is graver."""
    logging.getLogger("headrace").setLevel(level.upper())


@contextmanager
def reloading(again: Callable[[], str]) -> Generator[None, None, None]:
    """Inside, SIGHUP reads anew what can change; what cannot be read stays as it was, and the log says so.

    A signal comes in the middle of whatever the main thread does, which may hold a lock that the reading needs. So it
    is only noted, in a queue that may be put to at any moment, and a thread reads: once for all that came meanwhile.
    """
    asked: SimpleQueue[bool] = SimpleQueue()

    def read_on() -> None:
        while asked.get():
            while not asked.empty():
                if not asked.get():
                    return
            try:
                _log.warning("read anew: %s", again())
            except Exception as error:
                _log.error("not read anew: %s", error)

    threading.Thread(target=read_on, name="headrace-reload", daemon=True).start()
    before = signal.signal(signal.SIGHUP, lambda *_: asked.put(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        asked.put(False)
