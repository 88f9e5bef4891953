"""Rows in Parquet files, which any Spark of this machine can read: written once, gone with what they are made of."""

from __future__ import annotations

import shutil
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.ledger.written import Part
from headrace.state.delta import Delta, Weights, gather
from headrace.state.state import Stretch
from headrace.storage.scratch import let_read, make_again

IDENTITY = ("_headrace_low", "_headrace_high")
WEIGHT = "_headrace_weight"
_GRACE_SECONDS = 600.0


@dataclass(frozen=True)
class File:
    """Where rows lie; in a weighted file each lies once, and a column says how often it is there.

    The parts are what rows were read from, where it is a folder that Spark wrote: no other file in it counts.
    """

    path: Path
    weighted: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether nobody has removed it, or torn a part of it."""
        return all(part.is_there for part in self.parts) if self.parts else self.path.exists()

    @property
    def paths(self) -> tuple[Path, ...]:
        """What is to be read for its rows."""
        return tuple(part.file for part in self.parts) or (self.path,)


class Files:
    """The files of a folder, for as long as a home or a process; it does not matter how many Sparks read them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._count = 0
        self._written: weakref.WeakKeyDictionary[Stretch, Future[File]] = weakref.WeakKeyDictionary()
        # Folders that Spark wrote, by the id of the rows that were read from them.
        self._kept: dict[int, tuple[weakref.ref[pa.Table], File]] = {}
        self._discarded: deque[tuple[float, Path]] = deque()

    def new_path(self, kind: str) -> Path:
        """A path that nothing has yet."""
        make_again(self._folder)
        with self._lock:
            self._count += 1
            return self._folder / f"{kind}-{self._count}.parquet"

    def of(self, stretch: Stretch) -> File:
        """The file of the rows that a stretch brings, with their identities."""
        with self._lock:
            written = self._written.get(stretch)
            if written is not None and _is_lost(written):
                written = None
            ours = written is None
            if written is None:
                written = self._written[stretch] = Future()
        # Only who wants the same stretch waits while it is written.
        if ours:
            try:
                file = self._write_stretch(stretch.delta)
                weakref.finalize(stretch, self._discard, file.path)
                written.set_result(file)
            except BaseException as error:
                with self._lock:
                    del self._written[stretch]
                written.set_exception(error)
        return written.result()

    def as_written(self, stretch: Stretch) -> File:
        """Where the rows lie that a stretch brings: in Spark's own files where it was made of them."""
        return self.written(stretch.delta.rows) or self.of(stretch)

    def written(self, rows: pa.Table) -> File | None:
        """The folder that rows were read from, if it is kept."""
        made, file = self._kept.get(id(rows), (None, None))
        if file is None or made is None or made() is not rows:
            return None
        if not file.is_there:
            self._kept.pop(id(rows), None)
            return None
        return file

    def keep(self, rows: pa.Table, file: File) -> None:
        """Keep the folder that rows were read from for as long as they are there."""
        self._kept[id(rows)] = weakref.ref(rows), file
        weakref.finalize(rows, self._let_go, id(rows), file.path)

    def write(self, rows: pa.Table) -> File:
        """A file of its own for rows, which may have weights; whoever asks for it removes it."""
        path = self.new_path("rows")
        _write(path, lambda unfinished: pq.write_table(rows, unfinished))
        return File(path, WEIGHT in rows.column_names)

    def _write_stretch(self, delta: Delta) -> File:
        brought = np.flatnonzero(delta.weights > 0)
        if len(brought) < len(delta):
            delta = gather(delta, brought)
        rows = weighed(delta.rows, delta.weights)
        for name, half in zip(IDENTITY, (delta.low, delta.high), strict=True):
            rows = rows.append_column(name, pa.array(half.view(np.int64)))
        # Numbers of other columns seldom repeat, and to find that out costs more than it saves.
        strings = [field.name for field in rows.schema if pa.types.is_string(field.type)]
        path = self.new_path("run")
        _write(
            path,
            lambda unfinished: pq.write_table(
                rows,
                unfinished,
                row_group_size=250_000,
                use_dictionary=strings,  # pyright: ignore[reportArgumentType]
                coerce_timestamps="us",
            ),
        )
        return File(path, WEIGHT in rows.column_names)

    def _discard(self, path: Path) -> None:
        """Let go of a file whose run is gone, once no query that was made of it can still be running."""
        now = time.monotonic()
        self._discarded.append((now, path))
        while self._discarded and now - self._discarded[0][0] > _GRACE_SECONDS:
            remove(self._discarded.popleft()[1])

    def _let_go(self, rows: int, path: Path) -> None:
        self._kept.pop(rows, None)
        self._discard(path)


def _is_lost(written: Future[File]) -> bool:
    """Whether a file was written, and is no longer there."""
    return written.done() and written.exception() is None and not written.result().is_there


def weighed(rows: pa.Table, weights: Weights) -> pa.Table:
    """Rows as c0, c1, ..., with their weights as a last column unless each is there once."""
    named = pa.table(list(rows.columns), names=[f"c{i}" for i in range(rows.num_columns)])
    return named if bool(np.all(weights == 1)) else named.append_column(WEIGHT, pa.array(weights))


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, write: Callable[[Path], None]) -> None:
    """Have a file written whole, or not at all."""
    unfinished = path.with_suffix(".unfinished")
    try:
        write(unfinished)
        let_read(unfinished)
        unfinished.rename(path)
    except BaseException:
        remove(unfinished)
        raise
