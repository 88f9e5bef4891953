"""How much may be under way at once: requests that bring changes, and the bytes they bring."""

from __future__ import annotations

import threading

from headrace.serving.problems import Refusal

RETRY_AFTER_SECONDS = 1
# What an object, any other value and a line of a body take as Python objects, until the epoch of their rows is over:
# a body of short rows becomes eighty times its size.
OBJECT_BYTES = 512
VALUE_BYTES = 256
LINE_BYTES = 256
# What one more row of a weight takes.
REPEAT_BYTES = 256


def becomes(body: bytes) -> int:
    """About how many bytes of memory a body's changes take, told without reading it."""
    # Every value but the first of an object or array follows a comma; text may hold commas, so more are not in it.
    values = OBJECT_BYTES * body.count(b"{") + VALUE_BYTES * (body.count(b"[") + body.count(b","))
    return len(body) + values + LINE_BYTES * body.count(b"\n")


class Pushes:
    """Bounds what is read and not yet committed, so that a flood is turned away instead of filling the memory."""

    def __init__(self, slots: int, body_bytes: int, room_bytes: int) -> None:
        self.body_bytes = body_bytes
        self._slots = slots
        self._room_bytes = room_bytes
        self._lock = threading.Lock()
        self._taken = 0
        self._held_bytes = 0

    def limit(self, slots: int, body_bytes: int, room_bytes: int) -> None:
        """Let so many in from now on."""
        with self._lock:
            self.body_bytes, self._slots, self._room_bytes = body_bytes, slots, room_bytes

    @property
    def under_way(self) -> int:
        """How many requests have a slot."""
        return self._taken

    def enter(self) -> PushSlot:
        """A slot for one request; 429 if all are taken."""
        with self._lock:
            if self._taken >= self._slots:
                raise _busy(f"{self._slots} requests with changes are under way, which is the limit.")
            self._taken += 1
        return PushSlot(self)

    def check(self, size: int) -> None:
        """413 for a body that is too large."""
        if size > self.body_bytes:
            raise too_large(self.body_bytes)

    def grow(self, size: int, more: int) -> None:
        """Account for more bytes of one body: 413 if it is too large, 429 if all bodies together are."""
        self.check(size + more)
        self.hold(size, more)

    def hold(self, size: int, more: int) -> None:
        """Account for what one body becomes: 413 if there can be no room for it, 429 if others have taken it."""
        if size + more > self._room_bytes:
            detail = f"Its changes would take {size + more} bytes of memory; all together may take {self._room_bytes}."
            raise too_large(self.body_bytes, detail)
        with self._lock:
            if self._held_bytes + more > self._room_bytes:
                raise _busy(f"Changes of {self._held_bytes} bytes wait for their epoch; {self._room_bytes} may.")
            self._held_bytes += more

    def shrink(self, size: int) -> None:
        """Give back the room and the slot of one request."""
        with self._lock:
            self._taken -= 1
            self._held_bytes -= size


class PushSlot:
    """One request's slot and the bytes it holds, given back once by `release`."""

    def __init__(self, pushes: Pushes) -> None:
        self._pushes = pushes
        self._size = 0
        self._released = False

    def check(self, size: int) -> None:
        """Refuse a body of this size, if it is too large, before it is read."""
        self._pushes.check(size)

    def grow(self, more: int) -> None:
        """Hold more bytes."""
        self._pushes.grow(self._size, more)
        self._size += more

    def become(self, size: int) -> None:
        """Hold what the body becomes instead of its bytes."""
        self._hold(max(size - self._size, 0))

    def repeat(self, rows: int) -> None:
        """Hold the rows that weights stand for as well."""
        self._hold(rows * REPEAT_BYTES)

    def _hold(self, more: int) -> None:
        self._pushes.hold(self._size, more)
        self._size += more

    @property
    def repeats(self) -> int:
        """How many rows the weights of one body may stand for beyond the rows that it names."""
        return self._pushes.body_bytes // REPEAT_BYTES

    def release(self) -> None:
        """Give everything back."""
        if not self._released:
            self._released = True
            self._pushes.shrink(self._size)


def too_large(limit: int, detail: str = "") -> Refusal:
    """The refusal of a body that is larger than the limit; the rest of it is not read."""
    return Refusal(
        413,
        "too_large",
        "the body is too large",
        detail=detail or f"The limit is {limit} bytes.",
        hint="send it in several requests; HEADRACE_SERVE_BODY_BYTES and HEADRACE_SERVE_ROOM_BYTES set how large "
        "a body with changes may be",
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
