"""A base: one relation at one epoch, as a plain Delta table that any reader can open.

    base(E) = base(E0) + the deltas after E0, up to E

Fold brings it forward in one commit: rows that only come are appended; files that hold a row that goes are written
anew without it; small files are joined on the way. The base of a hidden relation has a weight column and no change
feed. Beside each file lie the identities of its rows, so that neither fold nor recovery has to work them out again.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import LedgerError, LedgerNotWritten
from headrace.ledger.delta_log import Commit, DataFile, DeltaFolder
from headrace.ledger.delta_schema import delta_schema, stored_type
from headrace.ledger.durable import crash_point, digest_of, is_temporary, unread, withdraw, write_named
from headrace.state.change_images import change_images
from headrace.state.delta import Delta, combine, end_to_end, found_among, gather
from headrace.state.hashing import Hashes, identity
from headrace.storage.folders import make_folder, sync_folder
from headrace.storage.objects import Location, local_file

BASE_EPOCH = "headrace-base"
_CONFIGURATION = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "false",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
_IDENTITIES = "_identities"
_CHANGES = "_change_data"
_CHANGES_OF = re.compile(r"cdc-(\d+)-")
_FILE_ROWS = 1_000_000
_JOIN_AT = 8
_CHECKPOINT_EVERY = 20
# How far back the change feed of a base reaches, in folds.
_KEEP_COMMITS = 1000
_WEIGHT = "weight"


@dataclass(frozen=True)
class BaseSchema:
    """What a base holds: its columns by name, its key, and whether it is hidden state."""

    names: tuple[str, ...]
    schema: pa.Schema
    key: tuple[int, ...] = ()
    hidden: bool = False
    # The column by which its files are partitioned, if any: text that is never NULL.
    partition: str = ""

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns by which its files are partitioned."""
        return (self.partition,) if self.partition else ()

    @property
    def stored(self) -> pa.Schema:
        """The columns of its files."""
        fields = [pa.field(name, stored_type(one.type)) for name, one in zip(self.names, self.schema, strict=True)]
        return pa.schema([*fields, pa.field(_WEIGHT, pa.int64())] if self.hidden else fields)


class Base:
    """One relation's base on disk."""

    def __init__(self, path: Location, may_commit: Callable[[], None] = lambda: None) -> None:
        self.path = path
        # Asked right before a commit; raises where the home has another owner by now.
        self._may_commit = may_commit
        self._folder = DeltaFolder(path, _CONFIGURATION, (BASE_EPOCH,), _KEEP_COMMITS)
        # What the commit under way has written, and which identities were found whole since this was opened.
        self._fresh: list[Location] = []
        self._under_way: Commit | None = None
        self._whole_identities: set[str] = set()
        # By commit, the files of changes that it names, as far as somebody asked.
        self._changes_of: dict[int, frozenset[str]] = {}
        self.exists = self._folder.load()

    @property
    def epoch(self) -> int:
        """The epoch that it stands at; 0 when there is none yet."""
        return self._folder.numbers.get(BASE_EPOCH, 0)

    @property
    def rows(self) -> int:
        """How many rows its files have."""
        return sum(one.rows for one in self._folder.files.values())

    @property
    def files(self) -> list[Location]:
        """Its data files."""
        return [self.path / name for name in self._folder.files]

    @property
    def size(self) -> int:
        """The bytes of its data files."""
        return sum(one.size for one in self._folder.files.values())

    def fits(self, base_schema: BaseSchema) -> bool:
        """Whether it exists with just these columns."""
        return (
            self.exists
            and self._folder.partitioned_by == base_schema.partitioned_by
            and json.loads(self._folder.schema_string) == json.loads(delta_schema(base_schema.stored))
        )

    def contents(self, base_schema: BaseSchema) -> Iterator[Delta]:
        """All rows, a file at a time; equal rows of different files are not summed."""
        for one in self._folder.files.values():
            rows, weights = self._rows(one, base_schema)
            yield combine(rows, weights, *self._identities(one, rows))

    def fold(self, base_schema: BaseSchema, net: Delta, epoch: int) -> None:
        """Bring the base forward by the net change since its own epoch, in one commit."""
        with self._whole_or_not():
            self._fold(base_schema, net, epoch)
        self._folder.checkpoint(_CHECKPOINT_EVERY)

    def move_on(self, epoch: int) -> None:
        """Stand at a later epoch with the same rows: what the log brought since has cancelled out."""
        with self._whole_or_not():
            self._commit(Commit("FOLD", numbers={BASE_EPOCH: epoch}, note={"epoch": epoch}))
        self._folder.checkpoint(_CHECKPOINT_EVERY)

    def fence(self) -> None:
        """Take the version that an owner which was replaced meanwhile might still be about to commit."""
        with self._whole_or_not():
            self._commit(Commit("CLAIM"))

    def _commit(self, commit: Commit) -> None:
        crash_point("base written")
        self._may_commit()
        self._under_way = commit
        self._folder.commit(commit)
        known = self._whole_identities
        self._whole_identities = {name for name in known if _described(name) in self._folder.files}
        crash_point("base committed")

    def _fold(self, base_schema: BaseSchema, net: Delta, epoch: int) -> None:
        come = np.flatnonzero(net.weights > 0)
        go = np.flatnonzero(net.weights < 0)
        removed, adds = self._rewrite(base_schema, net, go) if len(go) else ([], [])
        if len(come):
            adds.extend(self._write(base_schema, net if len(come) == len(net) else gather(net, come)))
        if not removed:
            removed, joined = self._join(base_schema)
            adds.extend(joined)
        changes = self._write_changes(base_schema, net) if removed and not base_schema.hidden and len(net) else []
        sync_folder(self.path)
        numbers, note = {BASE_EPOCH: epoch}, {"epoch": epoch}
        self._commit(Commit("FOLD", adds=adds, removes=removed, changes=changes, numbers=numbers, note=note))

    def replace(self, base_schema: BaseSchema, contents: Iterable[Delta], epoch: int) -> None:
        """Hold just these rows, whatever was held before: for a relation whose columns are new."""
        with self._whole_or_not():
            self._replace(base_schema, contents, epoch)
        self.exists = True
        self._folder.checkpoint(_CHECKPOINT_EVERY)

    @contextmanager
    def _whole_or_not(self) -> Generator[None, None, None]:
        """Inside, files are written and named by one commit; where that fails, they go."""
        self._fresh.clear()
        self._under_way = None
        try:
            yield
        except BaseException as error:
            if self._folder.missed(self._under_way):
                withdraw(self._fresh)
            if isinstance(error, OSError):
                raise LedgerNotWritten(
                    f"the base {self.path.name} cannot be written",
                    detail=f"{error}. Nothing is lost: it stays at epoch {self.epoch}, and the log has the rest.",
                    hint="free space or mend the rights of the home; the next fold tries again",
                ) from error
            raise

    def _replace(self, base_schema: BaseSchema, contents: Iterable[Delta], epoch: int) -> None:
        removed = list(self._folder.files.values())
        make_folder(self.path)
        adds = [file for content in contents for file in self._write(base_schema, content)]
        sync_folder(self.path)
        numbers, note = {BASE_EPOCH: epoch}, {"epoch": epoch}
        schema, partitioned_by = base_schema.stored, base_schema.partitioned_by
        self._commit(
            Commit(
                "FOLD",
                adds=adds,
                removes=removed,
                numbers=numbers,
                schema=schema,
                partitioned_by=partitioned_by,
                note=note,
            )
        )

    def _rewrite(
        self, base_schema: BaseSchema, net: Delta, go: npt.NDArray[np.int64]
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Write the files anew that hold rows which go; every copy of such a row goes, those left come back."""
        gone_low, gone_high = net.low[go], net.high[go]
        order = np.lexsort((gone_high, gone_low))
        gone_low, gone_high = gone_low[order], gone_high[order]
        held = np.zeros(len(go), dtype=np.int64)
        removed: list[DataFile] = []
        adds: list[DataFile] = []
        for one in list(self._folder.files.values()):
            low, high = self._identities(one, None, base_schema, keep=True)
            owner, hit = found_among(low, high, gone_low, gone_high)
            if not bool(hit.any()):
                continue
            rows, weights = self._rows(one, base_schema)
            np.add.at(held, owner[hit], weights[hit])
            kept = np.flatnonzero(~hit)
            removed.append(one)
            if len(kept):
                adds.extend(self._write(base_schema, gather(Delta(rows, weights, low, high), kept)))
        left = held + net.weights[go][order]
        if bool((left < 0).any()):
            raise LedgerError(
                f"the base {self.path.name} does not hold a row that the log removes",
                detail=f"{int((left < 0).sum())} rows are affected.",
                hint="run 'headrace verify --storage', and restore from a backup what it names",
            )
        stay = np.flatnonzero(left > 0)
        if len(stay):
            adds.extend(self._write(base_schema, replace(gather(net, go[order][stay]), weights=left[stay])))
        return removed, adds

    def _join(self, base_schema: BaseSchema) -> tuple[list[DataFile], list[DataFile]]:
        """Join files of one size class once there are many of them."""
        classes: dict[tuple[int, tuple[str, ...]], list[DataFile]] = {}
        for one in self._folder.files.values():
            if one.rows < _FILE_ROWS // 2:
                size = int(math.log(max(one.rows, 1), _JOIN_AT))
                classes.setdefault((size, tuple(one.partition.values())), []).append(one)
        removed = [one for files in classes.values() if len(files) >= _JOIN_AT for one in files]
        parts: list[Delta] = []
        for one in removed:
            rows, weights = self._rows(one, base_schema)
            parts.append(Delta(rows, weights, *self._identities(one, rows)))
        if not parts:
            return [], []
        return removed, self._write(base_schema, Delta(*end_to_end(parts)))

    def _write(self, base_schema: BaseSchema, content: Delta) -> list[DataFile]:
        """Data files of rows, each with the identities of its rows beside it."""
        if not base_schema.hidden and bool(np.any(content.weights != 1)):
            repeated = gather(content, np.repeat(np.arange(len(content)), content.weights))
            content = replace(repeated, weights=np.ones(len(repeated), dtype=np.int64))
        written: list[DataFile] = []
        for partition, positions in _partitions(base_schema, content.rows):
            chosen = content if positions is None else gather(content, positions)
            written.extend(self._write_partition(base_schema, chosen, partition))
        return written

    def _write_partition(self, base_schema: BaseSchema, content: Delta, partition: Mapping[str, str]) -> list[DataFile]:
        written: list[DataFile] = []
        for start in range(0, len(content), _FILE_ROWS):
            part = slice(start, start + _FILE_ROWS)
            rows = content.rows.slice(start, _FILE_ROWS)
            table = _stored(rows, base_schema, content.weights[part])
            # A name of its own even for the same content: a relation without a key may hold the same rows twice.
            name, size = write_named(
                self.path,
                f"rows-{secrets.token_hex(4)}-",
                lambda sink, table=table: pq.write_table(table, sink, compression="zstd"),
            )
            self._fresh.append(self.path / name)
            crash_point("rows written")
            self._write_identities(name, content.low[part], content.high[part])
            written.append(DataFile(name, size, table.num_rows, partition=partition))
        return written

    def _write_identities(self, name: str, low: Hashes, high: Hashes) -> None:
        identities = np.stack([low, high])
        folder = self.path / _IDENTITIES
        make_folder(folder)
        made, _ = write_named(folder, f"{name}-", lambda sink: np.lib.format.write_array(sink, identities), ".npy")
        if name not in self._folder.files:
            self._fresh.append(folder / made)
        self._whole_identities.add(made)

    def _write_changes(self, base_schema: BaseSchema, net: Delta) -> list[DataFile]:
        make_folder(self.path / _CHANGES)
        positions, kinds = change_images(net.rows, net.weights, base_schema.key)
        images = net.rows.take(pa.array(positions))
        written: list[DataFile] = []
        for partition, chosen in _partitions(base_schema, images):
            table = _stored(images, base_schema, None).append_column("_change_type", kinds)
            if chosen is not None:
                table = table.take(pa.array(chosen))
            name, size = write_named(
                self.path / _CHANGES,
                f"cdc-{self._folder.version + 1}-",
                lambda sink, table=table: pq.write_table(table, sink, compression="zstd"),
            )
            self._fresh.append(self.path / _CHANGES / name)
            written.append(DataFile(f"{_CHANGES}/{name}", size, table.num_rows, partition=partition))
        sync_folder(self.path / _CHANGES)
        return written

    def _rows(self, one: DataFile, base_schema: BaseSchema) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        try:
            with local_file(self.path / one.path) as path, pq.ParquetFile(path) as file:
                table = file.read()
        except (OSError, pa.ArrowInvalid) as error:
            hint = "run 'headrace verify --storage', and restore from a backup what it names"
            raise unread(f"the file {one.path} of the base {self.path.name}", error, hint) from error
        width = len(base_schema.schema)
        weights = np.ones(table.num_rows, dtype=np.int64)
        if base_schema.hidden:
            weights = table.column(width).to_numpy().astype(np.int64)
        columns = [_restored(table.column(i), base_schema.schema.field(i).type) for i in range(width)]
        return pa.table(columns, schema=base_schema.schema), weights

    def _identities(
        self, one: DataFile, rows: pa.Table | None, base_schema: BaseSchema | None = None, keep: bool = False
    ) -> tuple[Hashes, Hashes]:
        """The identities of a file's rows, in their order; worked out anew where they are not at hand or damaged."""
        for path in self.identity_files(one.path):
            try:
                with local_file(path) as file:
                    if path.name not in self._whole_identities and digest_of(file) not in path.name:
                        continue
                    found = np.load(file, mmap_mode="r")
            except (OSError, ValueError):
                continue
            if found.shape == (2, one.rows):
                self._whole_identities.add(path.name)
                return found[0], found[1]
        if rows is None:
            assert base_schema is not None
            low, high = identity(self._rows(one, base_schema)[0].columns, one.rows)
        else:
            low, high = identity(rows.columns, one.rows)
        if keep:
            self._write_identities(one.path, low, high)
        return low, high

    def identity_files(self, name: str) -> Iterator[Location]:
        """Where the identities of a file's rows lie; they are a cache."""
        return (self.path / _IDENTITIES).glob(f"{name}-*.npy")

    def copy_log(self, path: Location) -> None:
        """Begin a base elsewhere, to which the same files were copied."""
        self._folder.copy_log(path, {"epoch": self.epoch})

    def unreferenced(self) -> Iterator[Location]:
        """Files that the base no longer names."""
        yield from self._folder.unreferenced()
        for file in (self.path / _IDENTITIES).glob("*"):
            if is_temporary(file.name) or _described(file.name) not in self._folder.files:
                yield file
        kept = range(self._folder.oldest_version(), self._folder.version + 1)
        self._changes_of = {version: names for version, names in self._changes_of.items() if version in kept}
        for file in (self.path / _CHANGES).glob("*"):
            found = _CHANGES_OF.match(file.name)
            if found is None or int(found[1]) not in kept or not self._has_changes(int(found[1]), file.name):
                yield file

    def _has_changes(self, version: int, name: str) -> bool:
        """Whether a commit names a file of changes: one that a crash cut short had the number of the next, too."""
        if version not in self._changes_of:
            self._changes_of[version] = self._folder.changes_of(version)
        return f"{_CHANGES}/{name}" in self._changes_of[version]


def _partitions(
    base_schema: BaseSchema, rows: pa.Table
) -> Iterator[tuple[dict[str, str], npt.NDArray[np.int64] | None]]:
    """Which rows go together into files, by the value that they have; None for all of them.

    The column itself lies in the files too, so that a base is read back whole; other readers take the value.
    """
    if not base_schema.partition:
        yield {}, None
        return
    column = rows.column(base_schema.names.index(base_schema.partition)).combine_chunks().dictionary_encode()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.string()).dictionary_encode()
    codes = column.indices.to_numpy(zero_copy_only=False)
    for code, value in enumerate(column.dictionary.to_pylist()):
        yield {base_schema.partition: value}, np.flatnonzero(codes == code)


def _described(name: str) -> str:
    """The file whose rows' identities lie in a file of this name."""
    return name.split(".parquet-")[0] + ".parquet"


def _stored(rows: pa.Table, base_schema: BaseSchema, weights: npt.NDArray[np.int64] | None) -> pa.Table:
    schema = base_schema.stored
    columns: list[Any] = []
    for i, column in enumerate(rows.columns):
        wanted = schema.field(i).type
        columns.append(column if column.type.equals(wanted) else column.cast(wanted))
    names = list(base_schema.names)
    if base_schema.hidden and weights is not None:
        columns.append(pa.array(weights))
        names.append(_WEIGHT)
    return pa.table(columns, names=names)


def _restored(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(wanted):
        return column
    if pa.types.is_null(wanted):
        return pa.chunked_array([pa.nulls(len(column))])
    return column.cast(wanted)
