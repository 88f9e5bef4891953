"""What relations hold, in the form in which query processes get it; made once for each state of a relation."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from dataclasses import dataclass

from headrace.reading.frames import Content, Frames
from headrace.state.state import State

_KEPT_BYTES = 64 * 1024 * 1024
_Key = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Kept:
    """A content, how much it takes, and what it was made of, which it does not keep."""

    content: Content
    size: int
    parts: list[weakref.ref[object]]


class Contents:
    """The contents of snapshots, those asked for last kept for the next query while what they are made of is there."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._gone: deque[_Key] = deque()
        self._size = 0

    @property
    def kept(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def of(self, snapshot: State) -> Content:
        """The content of a snapshot: the same object for the same parts, so that a process need not hear it twice."""
        parts = snapshot.made_of
        key = tuple(map(id, parts))
        with self._lock:
            self._sweep()
            found = self._kept.get(key)
            # A number may have come to be that of another part.
            if found is not None and all(ref() is part for ref, part in zip(found.parts, parts, strict=True)):
                self._kept.move_to_end(key)
            else:
                found = None
        if found is not None and found.content.is_there:
            return found.content
        content = self._frames.content(snapshot)
        if parts:
            self._keep(key, parts, content)
        return content

    def _keep(self, key: _Key, parts: tuple[object, ...], content: Content) -> None:
        size = content.size
        # By weak references: what is kept here must not keep runs, and their files, that the home has merged away.
        refs = [weakref.ref(part, lambda _: self._part_is_gone(key)) for part in parts]
        with self._lock:
            self._sweep()
            self._forget(key)
            self._kept[key] = _Kept(content, size, refs)
            self._size += size
            while self._size > _KEPT_BYTES and len(self._kept) > 1:
                self._forget(next(iter(self._kept)))

    def _part_is_gone(self, key: _Key) -> None:
        """Called wherever the last who holds a part lets go of it, which may be by one who has the lock."""
        self._gone.append(key)
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._gone:
            key = self._gone.popleft()
            kept = self._kept.get(key)
            if kept is not None and any(ref() is None for ref in kept.parts):
                self._forget(key)

    def _forget(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size
