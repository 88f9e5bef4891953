"""The ledger: one Delta table, one append per epoch.

Before the append an epoch does not exist; after it, it always will.

Each row is one relation's delta in one epoch, hidden state included: small deltas lie in the row as Arrow bytes,
larger ones in a file that the row names; one that executors of Spark wrote as several files has a row for each. The row
with an empty relation name is the epoch's head: its time, the definitions it made, and the idempotency keys it used up.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset
import pyarrow.parquet as pq

from headrace.errors import HeadraceError, LedgerError, LedgerNotWritten
from headrace.ledger.delta_log import Commit, DataFile, DeltaFolder
from headrace.ledger.delta_rows import delta_rows, mark, write_large
from headrace.ledger.durable import crash_point, unread, withdraw, write_named
from headrace.ledger.names import CUT_CONTENT
from headrace.ledger.written import Written
from headrace.state.delta import Delta, consolidate, empty
from headrace.storage.folders import make_folder, sync_folder
from headrace.storage.objects import Location, local_file

_SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("relation", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("delta", pa.binary()),
        pa.field("file", pa.string()),
        pa.field("head", pa.string()),
        pa.field("committed_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
_HEAD_COLUMNS = ("epoch", "head", "committed_at")
_ENTRY_COLUMNS = ("epoch", "relation", "delta", "file", "committed_at")
RESTORING = "restoring"
FORMAT = 3
_OWNER, _FORMAT, NEWEST_EPOCH, OLDEST_EPOCH = "headrace-owner", "headrace-format", "headrace-epoch", "headrace-oldest"
COMPACTED_EPOCH = "headrace-compacted"
_CONFIGURATION = {"delta.deletedFileRetentionDuration": "interval 1 hours"}
_CHECKPOINT_EVERY = 100
# What is joined, and so held in memory, at a time: bytes on disk, a third to a tenth of those in memory.
_SEGMENT_BYTES = 16 * 1024 * 1024
_DEFINING = ("define", "drop", "reset", "sources", "drop_sources", "feeds", "drop_feeds")
_OUR_FILE = re.compile(r"(epoch-\d{12}-)?(?P<last>\d{12})-")


@dataclass(frozen=True)
class Head:
    """What an epoch is, beside its deltas."""

    epoch: int
    committed_at: datetime
    content: Mapping[str, Any]

    @property
    def defines(self) -> bool:
        """Whether the epoch made, changed or dropped a definition."""
        return any(self.content.get(word) for word in _DEFINING)


@dataclass(frozen=True, eq=False)
class Entry:
    """One relation's delta in one epoch."""

    epoch: int
    committed_at: datetime
    relation: str
    rows: pa.Table
    weights: Any


class Ledger:
    """The committed epochs of one home."""

    def __init__(self, home: Location, inline_bytes: int) -> None:
        self._folder = DeltaFolder(
            home / "ledger", _CONFIGURATION, (_OWNER, _FORMAT, NEWEST_EPOCH, OLDEST_EPOCH, COMPACTED_EPOCH)
        )
        self._home = home
        self._deltas = home / "deltas"
        self._inline_bytes = inline_bytes
        # One commit at a time; whatever takes long is written before.
        self._turn = threading.Lock()
        self._claimed = False
        self._heads: list[Head] = []
        # The files whose heads are among them.
        self._headed: frozenset[str] = frozenset()

    def open(self) -> None:
        """Find the ledger of the home, if there is one."""
        try:
            unfinished = (self._home / RESTORING).is_file()
        except OSError as error:
            raise LedgerError(
                f"the home {self._home} cannot be read",
                detail=f"{error}.",
                hint="mend the rights of the home, or how it is reached: see the setting storage_options",
            ) from error
        if unfinished:
            raise LedgerError(
                f"the home {self._home} was not restored to the end",
                hint="remove what is there, and run 'headrace restore' again",
            )
        self.load()

    def load(self) -> None:
        """Read the ledger of the home, also of one that is being restored."""
        if not self._folder.load() and any(self._home.glob("*/*/_delta_log")):
            raise LedgerError(
                f"the ledger of the home {self._home} is missing",
                detail="There are tables, but nothing that says which epochs they belong to. Nothing was changed.",
                hint="put the folder 'ledger' back, or restore the home from a backup",
            )
        if self._folder.numbers.get(_FORMAT, FORMAT) > FORMAT:
            raise LedgerError(
                f"the home {self._home} was written by a newer release",
                detail=f"It has format {self._folder.numbers[_FORMAT]}; this release reads up to {FORMAT}.",
                hint="open it with that release or a later one",
            )
        self._heads = _heads_in(self._read(_HEAD_COLUMNS, relation=""))
        self._headed = frozenset(self._folder.files)

    def follow(self) -> None:
        """Be where the owner is by now, as `open` would; only what is new is read, as long as nothing old has gone."""
        if self._headed and not self._claimed and self._folder.follow():
            files = self._folder.files
            if self._headed <= files.keys() and self._folder.numbers.get(_FORMAT, FORMAT) <= FORMAT:
                fresh = [one for path, one in files.items() if path not in self._headed]
                wanted = pc.field("relation") == ""
                found = [self._parquet(self._folder.path / one.path, _HEAD_COLUMNS, wanted) for one in fresh]
                newer = [head for table in found for head in _heads_in(table)]
                self._heads = [*self._heads, *sorted(newer, key=lambda one: one.epoch)]
                self._headed = frozenset(files)
                return
        self.open()

    def claim(self, fence: int) -> None:
        """Let no commit of an earlier owner through any more; a home without a ledger gets one."""
        with self._turn:
            schema = _SCHEMA if self._folder.version < 0 else None
            number = max(fence, self._folder.numbers.get(_OWNER, 0) + 1)
            numbers = {_OWNER: number, _FORMAT: FORMAT}
            self._guarded(lambda: self._folder.commit(Commit("CLAIM", schema=schema, numbers=numbers)))
            self._claimed = True

    def heads(self) -> Sequence[Head]:
        """All kept epochs in order, and the older ones that made a definition."""
        return self._heads

    @property
    def oldest(self) -> int:
        """The oldest epoch that can still be read: changes after it are all there."""
        return self._folder.numbers.get(OLDEST_EPOCH, 0)

    @property
    def exists(self) -> bool:
        """Whether the home has one."""
        return self._folder.version >= 0

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self._folder.numbers.get(NEWEST_EPOCH, 0)

    def committed_epoch(self) -> int:
        """The newest epoch, that of a commit included which was cut short after it had happened."""
        with self._turn:
            self._folder.resolve_attempt()
        return self.epoch

    @property
    def compacted(self) -> int:
        """The epoch up to which the log has no rows of hidden relations any more: their bases have them."""
        return self._folder.numbers.get(COMPACTED_EPOCH, 0)

    @property
    def files(self) -> list[DataFile]:
        """Its data files."""
        return list(self._folder.files.values())

    def large_files(self) -> set[str]:
        """The names of the files of large deltas that its rows name."""
        return set(self._read(["epoch", "file"]).column("file").drop_null().to_pylist())

    def copy_log(self, home: Location) -> None:
        """Begin the ledger of another home, to which the same files were copied."""
        self._folder.copy_log(home / "ledger", {"epoch": self.epoch})

    @property
    def size(self) -> int:
        """The bytes of its files, those of large deltas not included."""
        return sum(one.size for one in list(self._folder.files.values()))

    def commit(self, epoch: int, at: datetime, head: Mapping[str, Any], deltas: Mapping[str, Delta | Written]) -> None:
        """Make an epoch exist, with all of its deltas at once."""
        self._guarded(lambda: self._commit(epoch, at, head, deltas))

    def _commit(self, epoch: int, at: datetime, head: Mapping[str, Any], deltas: Mapping[str, Delta | Written]) -> None:
        if epoch != self.committed_epoch() + 1:
            raise LedgerError(
                f"epoch {epoch} does not follow epoch {self.epoch}, which is the newest",
                detail="Nothing was committed by this call.",
                hint="open the home again: its newest epoch says what is there",
            )
        rows: list[dict[str, Any]] = [
            {"epoch": epoch, "relation": "", "rows": 0, "head": json.dumps(head), "committed_at": at}
        ]
        made = Head(epoch, at, head)
        written: list[Location] = []
        commit: Commit | None = None
        try:
            for relation, delta in deltas.items():
                if len(delta) == 0:
                    continue
                for one in delta_rows(self._deltas, self._inline_bytes, epoch, relation, delta):
                    rows.append({"epoch": epoch, "relation": relation, "committed_at": at, **one})
                    if "file" in one:
                        written.append(self._deltas / one["file"])
            if written:
                sync_folder(self._deltas)
            crash_point("files written")
            file = self._write_rows(pa.Table.from_pylist(rows, schema=_SCHEMA))
            written.append(self._folder.path / file.path)
            crash_point("data written")
            with self._turn:
                schema = _SCHEMA if self._folder.version < 0 else None
                numbers, note = {NEWEST_EPOCH: epoch}, {"epoch": epoch}
                commit = Commit("EPOCH", adds=[file], numbers=numbers, note=note, schema=schema)
                self._folder.commit(commit)
                self._heads.append(made)
        except BaseException:
            self._withdraw(commit, written)
            raise
        crash_point("committed")

    def _withdraw(self, commit: Commit | None, written: Sequence[Location]) -> None:
        """Remove the files of a commit that does not exist: once its log file is named it does, whatever was raised."""
        with self._turn:
            missed = self._folder.missed(commit)
        if missed:
            withdraw(written)

    def _write_rows(self, batch: pa.Table) -> DataFile:
        make_folder(self._folder.path)
        epochs = np.asarray(batch.column("epoch"))
        first, last = int(epochs.min()), int(epochs.max())
        name, size = write_named(
            self._folder.path,
            f"epoch-{first:012d}-{last:012d}-{mark()}-",
            lambda sink: pq.write_table(
                batch,
                sink,
                compression="zstd",
                row_group_size=1000,
                use_dictionary=["relation"],  # pyright: ignore[reportArgumentType]
                write_statistics=["epoch", "relation"],  # pyright: ignore[reportArgumentType]
            ),
        )
        sync_folder(self._folder.path)
        return DataFile(name, size, batch.num_rows, {"epoch": first}, {"epoch": last})

    def write_large(self, epoch: int, relation: str, table: pa.Table) -> str:
        """Write a large delta; the name of its file, for the row that will name it."""
        return write_large(self._deltas, epoch, relation, table)

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except HeadraceError:
            raise
        except (OSError, pa.ArrowInvalid) as error:
            # Not the path, which is in what the error says: senders are told this.
            raise LedgerNotWritten(
                "the ledger cannot be written",
                detail=f"{getattr(error, 'strerror', None) or error}. Nothing of it was committed.",
                hint="free space or mend the rights of the home, then send the call again",
            ) from error

    def entries(self, relation: str | None = None, since: int = 0, until: int | None = None) -> Iterator[Entry]:
        """The deltas after an epoch, up to and including another, in order; of one relation or of all that go on."""
        table = self._read(_ENTRY_COLUMNS, relation, since, until)
        rows = (row for batch in table.to_batches(max_chunksize=100) for row in batch.to_pylist())
        goes_on = (row for row in rows if relation is not None or not row["relation"].endswith(CUT_CONTENT))
        yield from self._entries(row for row in goes_on if row["relation"] != "")

    def first_commit(self, relation: str, since: int) -> datetime | None:
        """Return the time of the first kept commit after an epoch that changed a relation."""
        found = self._read(("epoch", "committed_at"), relation, since)
        return found.column("committed_at")[0].as_py() if found.num_rows else None

    def entries_after(self, since: Mapping[str, int]) -> Iterator[Entry]:
        """The deltas of these relations, each after an epoch of its own, in order."""
        names: dict[int, list[str]] = {}
        for name, epoch in since.items():
            names.setdefault(epoch, []).append(name)
        wanted = reduce(or_, [(pc.field("epoch") > e) & pc.field("relation").isin(n) for e, n in names.items()])
        # A relation that rests has an old base, and a file may be newer without a row of it. So what is in a file is
        # asked before its deltas are read.
        rows: list[dict[str, Any]] = []
        for file in list(self._folder.files.values()):
            path = self._folder.path / file.path
            if file.high["epoch"] > min(names) and self._parquet(path, ["epoch"], wanted).num_rows:
                rows.extend(self._parquet(path, _ENTRY_COLUMNS, wanted).to_pylist())
        return self._entries(sorted(rows, key=lambda row: row["epoch"]))

    def _entries(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
        """The deltas of rows in the order of their epochs; rows of one delta follow each other."""
        for _, parts in groupby(rows, key=lambda row: (row["epoch"], row["relation"])):
            yield self._entry(list(parts))

    def _entry(self, rows: Sequence[Mapping[str, Any]]) -> Entry:
        row = rows[0]
        try:
            content = pa.concat_tables([self._content(part) for part in rows])
        except LedgerError:
            # Only what has expired goes, and whoever asks is told that it has.
            self._has_moved_on(self._folder.version)
            raise
        width = content.num_columns - 1
        weights = content.column(width).to_numpy()
        return Entry(row["epoch"], row["committed_at"], row["relation"], content.select(list(range(width))), weights)

    def _content(self, row: Mapping[str, Any]) -> pa.Table:
        if row["delta"] is not None:
            return pa.ipc.open_stream(row["delta"]).read_all()
        return self._parquet(self._deltas / row["file"])

    def _read(
        self, columns: Sequence[str], relation: str | None = None, since: int = 0, until: int | None = None
    ) -> pa.Table:
        known = self._folder.version
        try:
            return self._read_files(columns, relation, since, until)
        except LedgerError:
            if not self._has_moved_on(known):
                raise
            return self._read_files(columns, relation, since, until)

    def _has_moved_on(self, known: int) -> bool:
        """Whether another process, which owns the home, has committed since: it may have joined or dropped files."""
        if self._claimed:
            return False
        with self._turn:
            if self._folder.version == known:
                self._folder.load()
            return self._folder.version != known

    def _read_files(self, columns: Sequence[str], relation: str | None, since: int, until: int | None) -> pa.Table:
        tables = [pa.schema([_SCHEMA.field(c) for c in columns]).empty_table()]
        wanted = pc.field("epoch") > since
        if until is not None:
            wanted &= pc.field("epoch") <= until
        if relation is not None:
            wanted &= pc.field("relation") == relation
        for file in list(self._folder.files.values()):
            if file.high["epoch"] > since and (until is None or file.low["epoch"] <= until):
                tables.append(self._parquet(self._folder.path / file.path, columns, wanted).cast(tables[0].schema))
        return pa.concat_tables(tables).sort_by("epoch")

    def _parquet(self, path: Location, columns: Sequence[str] | None = None, wanted: Any = None) -> pa.Table:
        try:
            with local_file(path) as file:
                return dataset.dataset(file, format="parquet").to_table(
                    columns=columns and list(columns), filter=wanted
                )
        except (OSError, pa.ArrowInvalid) as error:
            hint = "run 'headrace verify --storage' to see which epoch is still whole, or restore a backup"
            raise unread(f"the file {path.name}", error, hint) from error

    def compact(self, until: int, expired: int, keep: Callable[[str], bool], small_files: int) -> None:
        """Join small files of epochs up to one into few, without the rows that are no longer wanted.

        Rows of hidden relations (those for which `keep` says no) go, rows up to the expired epoch too; what made a
        definition stays.
        """
        files = [
            one
            for one in list(self._folder.files.values())
            if one.high["epoch"] <= until and (one.size < _SEGMENT_BYTES // 2 or one.low["epoch"] <= expired)
        ]
        stale = expired > self.oldest
        if len(files) < small_files and not stale:
            return
        tables = (self._joined(part, expired, keep) for part in _parts(files))
        numbers = {COMPACTED_EPOCH: until, OLDEST_EPOCH: max(expired, self.oldest)}
        self._guarded(lambda: self._replace(files, tables, numbers, stale))
        if stale:
            with self._turn:
                self._heads = [head for head in self._heads if head.epoch >= expired or head.defines]
        crash_point("segment committed")

    def _joined(self, files: Sequence[DataFile], expired: int, keep: Callable[[str], bool]) -> pa.Table:
        """The rows of some files that stay, each relation's together."""
        table = pa.concat_tables([self._parquet(self._folder.path / one.path) for one in files]).cast(_SCHEMA)
        stays = np.array([self._stays(row, expired, keep) for row in table.drop_columns(["delta"]).to_pylist()], bool)
        return _sorted(table.filter(pa.array(stays)))

    def _replace(
        self, files: Sequence[DataFile], tables: Iterable[pa.Table], numbers: Mapping[str, int], stale: bool
    ) -> None:
        """Let other files hold the rows that these have held."""
        adds: list[DataFile] = []
        commit: Commit | None = None
        try:
            for table in tables:
                if table.num_rows:
                    adds.append(self._write_rows(table))
            crash_point("segment written")
            with self._turn:
                commit = Commit("COMPACT", adds=adds, removes=files, numbers=numbers, moves_rows=stale)
                self._folder.commit(commit)
        except BaseException:
            kept = {one.path for one in files}
            self._withdraw(commit, [self._folder.path / one.path for one in adds if one.path not in kept])
            raise

    def import_rows(self, table: pa.Table) -> None:
        """Take over all rows of a ledger that was written otherwise."""
        table = table.select(_SCHEMA.names).cast(_SCHEMA)
        newest = int(np.asarray(table.column("epoch")).max())
        per_file = max(1, int(table.num_rows * _SEGMENT_BYTES / max(table.nbytes, 1)))
        parts = (_sorted(table.slice(start, per_file)) for start in range(0, table.num_rows, per_file))
        self._replace([], parts, {NEWEST_EPOCH: newest}, stale=True)

    def _stays(self, row: Mapping[str, Any], expired: int, keep: Callable[[str], bool]) -> bool:
        if row["relation"] == "":
            # The expired epoch itself can still be read, and is asked for by its time.
            return row["epoch"] >= expired or Head(0, row["committed_at"], json.loads(row["head"])).defines
        return row["epoch"] > expired and keep(row["relation"])

    def tidy(self) -> None:
        """Keep the log of the ledger's own table short."""
        self._folder.checkpoint(_CHECKPOINT_EVERY)

    def unreferenced(self, newest: int | None) -> Iterator[Location]:
        """Files that no epoch names; with the newest epoch given, not those of an epoch under way."""
        for file in self._folder.unreferenced():
            if newest is None or _last_epoch(file.name) <= newest:
                yield file
        large = list(self._deltas.iterdir()) if self._deltas.exists() else []
        named = self.large_files() if large else set[str]()
        for file in large:
            if file.name not in named and (newest is None or _last_epoch(file.name) <= newest):
                yield file


def _heads_in(rows: pa.Table) -> list[Head]:
    return [Head(row["epoch"], row["committed_at"], json.loads(row["head"])) for row in rows.to_pylist()]


def _parts(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Files in the order of their epochs, so many at a time as make a segment."""
    part: list[DataFile] = []
    for file in sorted(files, key=lambda one: one.low["epoch"]):
        if part and sum(one.size for one in part) + file.size > _SEGMENT_BYTES:
            yield part
            part = []
        part.append(file)
    if part:
        yield part


def _sorted(rows: pa.Table) -> pa.Table:
    """Each relation's rows together, in the order of their epochs."""
    return rows.sort_by([("relation", "ascending"), ("epoch", "ascending")])


def _last_epoch(name: str) -> float:
    """The last epoch of a file of ours, by its name; of any other file, and of one under way, it is never over."""
    found = _OUR_FILE.match(name)
    return int(found["last"]) if found else math.inf


def summed(schema: pa.Schema, entries: Sequence[Entry]) -> Delta:
    """The state that a relation's deltas come to."""
    tables = [pa.table(entry.rows.columns, schema=schema) for entry in entries if len(entry.weights)]
    if not tables:
        return empty(schema)
    weights = np.concatenate([entry.weights for entry in entries if len(entry.weights)])
    return consolidate(pa.concat_tables(tables), weights.astype(np.int64))


def now_utc() -> datetime:
    """The time of day, in UTC, to the microsecond."""
    return datetime.now(UTC)
