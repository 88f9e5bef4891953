"""What relations hold, in the form in which query processes get it; made once for each state of a relation."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict

import pyarrow as pa

from headrace.engine.frames import Content, Frames
from headrace.state.store import Run, Snapshot

_KEPT = 128


class Contents:
    """The contents of snapshots, those asked for last kept for the next query."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[pa.Schema, tuple[int, ...]], tuple[list[weakref.ref[Run]], Content]] = (
            OrderedDict()
        )

    def of(self, snapshot: Snapshot) -> Content:
        """The content of a snapshot: the same object for the same runs, so that a process need not hear it twice."""
        # By weak references: what is kept here must not keep runs, and their files, that the home has merged away.
        key = snapshot.schema, tuple(map(id, snapshot.runs))
        with self._lock:
            found = self._kept.get(key)
            if found is not None and all(ref() is run for ref, run in zip(found[0], snapshot.runs, strict=True)):
                self._kept.move_to_end(key)
                return found[1]
        content = self._frames.content(snapshot)
        with self._lock:
            self._kept[key] = [weakref.ref(run) for run in snapshot.runs], content
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return content
