"""How much may be under way at once: requests that bring changes, and the bytes they bring."""

from __future__ import annotations

import threading

from headrace.serving.problems import Refusal

RETRY_AFTER_SECONDS = 1
# What one value of a body takes as a Python object, and how many of the bytes allowed stand for one value: a body of
# nothing but brackets becomes many times its size.
VALUE_BYTES = 64
BYTES_PER_VALUE = 8
# What one more row of a weight takes until its epoch is over.
REPEAT_BYTES = 256


class Pushes:
    """Bounds what is read and not yet committed, so that a flood is turned away instead of filling the memory."""

    def __init__(self, places: int, body_bytes: int, room_bytes: int) -> None:
        self.body_bytes = body_bytes
        self._places = places
        self._room_bytes = room_bytes
        self._lock = threading.Lock()
        self._taken = 0
        self._held_bytes = 0

    @property
    def under_way(self) -> int:
        """How many requests have a place."""
        return self._taken

    def enter(self) -> Place:
        """A place for one request; 429 if all are taken."""
        with self._lock:
            if self._taken >= self._places:
                raise _busy(f"{self._places} requests with changes are under way, which is the limit.")
            self._taken += 1
        return Place(self)

    def check(self, size: int) -> None:
        """413 for a body that is too large."""
        if size > self.body_bytes:
            raise too_large(self.body_bytes)

    def grow(self, size: int, more: int) -> None:
        """Account for more bytes of one body: 413 if it is too large, 429 if all bodies together are."""
        self.check(size + more)
        with self._lock:
            if self._held_bytes + more > self._room_bytes:
                raise _busy(f"Changes of {self._held_bytes} bytes wait for their epoch; {self._room_bytes} may.")
            self._held_bytes += more

    def become(self, size: int, values: int) -> int:
        """Account for what a body of this size becomes once it is read, and how many bytes more that is.

        413 if it holds too many values; 429 if others hold the room that it needs. Alone it may take it all.
        """
        if values * BYTES_PER_VALUE > self.body_bytes:
            raise too_large(self.body_bytes, f"It holds {values} values; {self.body_bytes // BYTES_PER_VALUE} may.")
        more = max(values * VALUE_BYTES - size, 0)
        with self._lock:
            if self._held_bytes > size and self._held_bytes + more > self._room_bytes:
                raise _busy(f"Changes of {self._held_bytes} bytes wait for their epoch; {self._room_bytes} may.")
            self._held_bytes += more
        return more

    def shrink(self, size: int) -> None:
        """Give back the room and the place of one request."""
        with self._lock:
            self._taken -= 1
            self._held_bytes -= size


class Place:
    """One request's place and the bytes it holds, given back once by `leave`."""

    def __init__(self, pushes: Pushes) -> None:
        self._pushes = pushes
        self._size = 0
        self._left = False

    def check(self, size: int) -> None:
        """Refuse a body of this size, if it is too large, before it is read."""
        self._pushes.check(size)

    def grow(self, more: int) -> None:
        """Hold more bytes."""
        self._pushes.grow(self._size, more)
        self._size += more

    def become(self, values: int) -> None:
        """Hold what the body becomes as so many values."""
        self._size += self._pushes.become(self._size, values)

    @property
    def repeats(self) -> int:
        """How many rows the weights of one body may stand for beyond the rows that it names."""
        return self._pushes.body_bytes // REPEAT_BYTES

    def leave(self) -> None:
        """Give everything back."""
        if not self._left:
            self._left = True
            self._pushes.shrink(self._size)


def too_large(limit: int, detail: str = "") -> Refusal:
    """The refusal of a body that is larger than the limit; the rest of it is not read."""
    return Refusal(
        413,
        "too_large",
        "the body is too large",
        detail=detail or f"The limit is {limit} bytes.",
        hint="send it in several requests; HEADRACE_SERVE_BODY_BYTES sets how large a body with changes may be",
        headers={"Connection": "close"},
    )


def _busy(detail: str) -> Refusal:
    return Refusal(
        429,
        "too_busy",
        "too many changes are under way",
        detail=detail,
        hint="send the request again after the seconds that Retry-After names",
        # What the client is still sending will not be read.
        headers={"Retry-After": str(RETRY_AFTER_SECONDS), "Connection": "close"},
    )
