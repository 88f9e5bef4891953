"""A log tailer of one's own: a Python function that yields what comes after a position.

    @headrace.source
    def tail(position, options):
        for number, line in enumerate(open(options["path"]).read().splitlines()[position.get("line", 0):]):
            yield {"insert": json.loads(line)}, {"line": position.get("line", 0) + number + 1}

    CREATE SOURCE s INTO t FROM PYTHON 'my_module:tail' WITH (path = '/var/log/orders.ndjson')

It is called with the position that the last committed epoch left, and yields pairs of a change (or bytes, to be read by
the format of the source) and what the position is after it. It yields None where nothing more is there for now, and is
asked again later. When it ends, it is called anew from where it was. What it raises stops the source, unless it is an
OSError, which may pass.
"""

from __future__ import annotations

import importlib
import inspect
import json
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headrace.capture.connector import GONE, Arrival, Connector, Description, Lag, Position
from headrace.capture.messages import RowChange
from headrace.capture.record import Record
from headrace.errors import HeadraceError, SourceError
from headrace.json_forms import json_form

Yielded = tuple[Mapping[str, Any] | bytes, Position] | None
Tail = Callable[[Position, Mapping[str, Any]], Iterator[Yielded] | Generator[Yielded, None, None]]
T = TypeVar("T", bound=Tail)

# How long a function that has no more for now is left alone.
_LOOK_SECONDS = 0.1
_OPERATIONS = {"insert": "create", "update": "update", "delete": "delete"}


def source(tail: T) -> T:
    """Mark a function as a source: CREATE SOURCE ... FROM PYTHON 'module:function' takes no other."""
    tail.__headrace_source__ = True  # pyright: ignore[reportFunctionMemberAccess]
    return tail


class PythonReading:
    """A function that is asked for more."""

    def __init__(self, description: Description, position: Position, tail: Tail) -> None:
        self._description = description
        self._position = dict(position)
        # How many records have come with the position that it is at.
        self._count = 0
        self._tail = tail
        self._yielding: Iterator[Yielded] | None = None

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        """What the function yields until it has no more for now."""
        ends = time.monotonic() + seconds
        arrivals: list[Arrival] = []
        while len(arrivals) < most:
            one = self._next()
            if one is None:
                if arrivals or time.monotonic() >= ends:
                    break
                time.sleep(_LOOK_SECONDS)
                continue
            arrivals.append(self._arrival(*one))
        return arrivals

    def _next(self) -> Yielded:
        """What comes next, or None if nothing does for now."""
        try:
            if self._yielding is None:
                self._yielding = iter(self._tail(dict(self._position), self._description.options))
            return next(self._yielding)
        except StopIteration:
            self._yielding = None
            return None
        except (HeadraceError, OSError):
            raise
        except Exception as error:
            raise SourceError(
                f"{self._description.location} raised {type(error).__name__} {_line_of(self._tail, error)}",
                detail=f"{error}.",
                hint=f"mend what it reads, and RESUME SOURCE {self._description.name}; a function that was changed is "
                "read when the process that owns the home starts anew",
            ) from error

    def _arrival(self, given: Mapping[str, Any] | bytes, position: Position) -> Arrival:
        kept = self._as_kept(position)
        # What a function yields is its whole position.
        advance = {**dict.fromkeys(self._position, GONE), **kept}
        # Records that came with one position are told apart by their number.
        self._count = self._count + 1 if kept == self._position else 0
        self._position = kept
        topic = self._description.name + json.dumps(kept, sort_keys=True)
        if isinstance(given, bytes):
            return Arrival(Record(given, topic=topic, offset=self._count), advance)
        payload = json.dumps(json_form(given)).encode()
        record = Record(payload, topic=topic, offset=self._count)
        kind = next(iter(given), "insert")
        row = given.get(kind)
        image = row if isinstance(row, Mapping) else None
        gone = kind == "delete"
        message = RowChange(
            _OPERATIONS.get(kind, "create"),  # pyright: ignore[reportArgumentType]
            (given,),
            image if gone else None,
            None if gone else image,
        )
        return Arrival(record, advance, message)

    def _as_kept(self, position: Position) -> dict[str, Any]:
        """A position as it is read back from an epoch: with lists for tuples, and texts for the names of its parts."""
        try:
            return json.loads(json.dumps(dict(position), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise SourceError(
                f"{self._description.location} yields a position that cannot be kept",
                detail=f"{error}.",
                hint="yield a dict of texts, numbers, lists and dicts, as JSON has them",
            ) from error

    def confirm(self, position: Position) -> None:
        """Nothing is kept for us."""

    def lag(self) -> Lag:
        """A function does not tell."""
        return Lag()

    def close(self) -> None:
        """Let the function end."""
        if isinstance(self._yielding, Generator):
            self._yielding.close()


def _line_of(tail: Tail, error: Exception) -> str:
    """Where a function raised: the line of it that was under way, whatever library that line called."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(inspect.unwrap(tail), "__code__", None)
    own = [one for one in frames if code is not None and one.filename == code.co_filename]
    found = (own or frames)[-1]
    return f"at {found.filename}, line {found.lineno}"


def _found(description: Description) -> Tail:
    module, _, name = description.location.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    # A module may do anything when it is read: to end this process is not for it to decide.
    except (Exception, SystemExit) as error:
        raise SourceError(
            f"there is no function {description.location}",
            detail=f"{error}."
            if isinstance(error, (ImportError, AttributeError))
            else f"{type(error).__name__}: {error}.",
            hint="write 'module:function', with the module on Python's path of the process that owns the home",
        ) from error
    if not getattr(found, "__headrace_source__", False):
        raise SourceError(f"{description.location} is no source", hint="put @headrace.source above the function")
    return found


def _open(description: Description, position: Position) -> PythonReading:
    return PythonReading(description, position, _found(description))


PYTHON = Connector(
    "PYTHON",
    {"*": "Whatever the function asks for."},
    _open,
    check=_found,
    has_format=True,
)
