"""A Delta table whose commits are ours: durable, and made at exactly the version that we expect.

On a disk a commit is synced and linked to its name, in an object store it is put if that name is absent. delta-rs
neither syncs what it writes nor refuses the blind append of a writer that lost its turn; so data files and
commits are written here, and delta-rs reads the log and makes its checkpoints.
"""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.errors import LedgerError, LedgerNotWritten, LedgerOutOfSight, OwnerLost
from headrace.ledger.delta_schema import NO_ZONE, delta_schema, protocol
from headrace.ledger.durable import crash_point, digest_of, is_temporary, put_if_absent, replace_file
from headrace.ledger.log_files import (
    LOG,
    by_name,
    checksum,
    checksum_file,
    commit_lines,
    damage,
    log_files,
    needed_but_damaged,
)
from headrace.storage.folders import make_folder, sync_folder
from headrace.storage.objects import Location, ObjectPath, Unconfirmed

_PARTITION = "partition."
# A log is listed so often before it is called broken, after moments in which who writes to it goes on.
_LISTINGS = 5
_LIST_AGAIN_SECONDS = 0.02


@dataclass(frozen=True)
class DataFile:
    """A file of a Delta table."""

    path: str
    size: int
    rows: int
    low: Mapping[str, Any] = field(default_factory=dict[str, Any])
    high: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # The one value that all of its rows have in each column that the table is partitioned by.
    partition: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Commit:
    """What one commit does: files come and go, a schema is set, an application's number moves."""

    operation: str
    adds: Sequence[DataFile] = ()
    removes: Sequence[DataFile] = ()
    changes: Sequence[DataFile] = ()
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    schema: pa.Schema | str | None = None
    # With a schema: the columns by which the files are partitioned from now on.
    partitioned_by: tuple[str, ...] = ()
    note: Mapping[str, Any] = field(default_factory=dict[str, Any])
    moves_rows: bool = True


@dataclass(frozen=True)
class _Known:
    """What a table is at one version, and the commit that brought it there, if it was ours."""

    version: int = -1
    files: Mapping[str, DataFile] = field(default_factory=dict[str, DataFile])
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    schema_string: str = ""
    commit: Commit | None = None
    partitioned_by: tuple[str, ...] = ()
    # The checksum of that commit as it was read, by which the table is known again; empty if it was not.
    mark: str = ""


@dataclass(frozen=True)
class _Attempt:
    """A commit under way: the content of its log file, and what is known once that file is there."""

    content: bytes
    after: _Known


class DeltaFolder:
    """One Delta table in a folder, written by one owner."""

    def __init__(
        self, path: Location, configuration: Mapping[str, str], applications: Sequence[str], keep_commits: int = 20
    ) -> None:
        self.path = path
        self._keep_commits = keep_commits
        # One value, so that whoever reads it, and whatever interrupts its change, finds one version.
        self._known = _Known()
        self._attempt: _Attempt | None = None
        self._configuration = configuration
        self._applications = applications
        self._id = str(uuid.uuid4())
        self._checkpointed = -1
        self._unconfirmed = -1

    @property
    def version(self) -> int:
        """The newest version; -1 when there is no table yet."""
        return self._known.version

    @property
    def files(self) -> Mapping[str, DataFile]:
        """The data files of the newest version, by path."""
        return self._known.files

    @property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of the applications."""
        return self._known.numbers

    @property
    def schema_string(self) -> str:
        """Its columns in Delta's own notation."""
        return self._known.schema_string

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns by which its files are partitioned."""
        return self._known.partitioned_by

    def load(self) -> bool:
        """Read the table's log; whether there is a table. One that was read before must still be there."""
        try:
            table = _read_beside_writers(self.path)
        except TableNotFoundError as error:
            try:
                if not log_files(self.path):
                    if self.version >= 0:
                        raise self._out_of_sight("There is none")
                    return False
            except OSError as unreachable:
                # No folder can have this name, so there is none: an older release let a relation be called so.
                if unreachable.errno == errno.ENAMETOOLONG:
                    return False
                raise self._unreadable(str(unreachable)) from unreachable
            raise self._unreadable(str(error)) from error
        except Exception as error:
            raise self._unreadable(str(error)) from error
        if needed_but_damaged(self.path):
            # Cut off between two lines, a commit still reads well, with some of its files left out.
            raise self._unreadable("A commit is not what was written")
        if self.version >= 0:
            self._refuse_other(table)
        self._checkpointed = self._last_checkpoint()
        self._id = str(table.metadata().id)
        numbers = {
            name: int(number) for name in self._applications if (number := table.transaction_version(name)) is not None
        }
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        files = {action["path"]: _data_file(action) for action in actions}
        partitioned_by = tuple(table.metadata().partition_columns)
        self._known = _Known(
            table.version(),
            files,
            numbers,
            table.schema().to_json(),
            partitioned_by=partitioned_by,
            mark=self._mark_of(table.version()),
        )
        return True

    def _refuse_other(self, table: DeltaTable) -> None:
        """Refuse a table that does not go on from what is known."""
        known = self._known
        # The commit itself may have gone since, summed up in a checkpoint.
        found = self._mark_of(known.version)
        if str(table.metadata().id) != self._id or (found and known.mark and found != known.mark):
            raise self._out_of_sight("Another one lies there")
        if table.version() < known.version:
            raise self._out_of_sight(f"Version {known.version} was read, and it ends with version {table.version()}")

    def _mark_of(self, version: int) -> str:
        lines = commit_lines(self.log_file(version))
        return "" if lines is None else checksum(lines)

    def follow(self) -> bool:
        """Read the commits after the version that is known; False where that is not enough, and all must be loaded.

        It is not where commits may have gone since then, summed up in a checkpoint, where one is damaged, where one
        sets other columns, and where the one that is known is not there: no commit after it says nothing then.
        """
        known, checkpointed = self._known, self._last_checkpoint()
        if known.version < 0 or checkpointed > known.version:
            return False
        if not known.mark or self._mark_of(known.version) != known.mark:
            return False
        version, files, numbers, mark = known.version, dict(known.files), dict(known.numbers), known.mark
        while (lines := commit_lines(file := self.log_file(version + 1))) is not None:
            actions = [json.loads(line) for line in lines]
            if any("metaData" in action or "protocol" in action for action in actions):
                return False
            self._follow_commit(actions, files, numbers)
            version, mark = version + 1, checksum(lines)
        try:
            if file.is_file():
                return False
        except OSError:
            return False
        if version > known.version:
            self._known = replace(known, version=version, files=files, numbers=numbers, commit=None, mark=mark)
        self._checkpointed = checkpointed
        return True

    def _follow_commit(
        self, actions: Sequence[Mapping[str, Any]], files: dict[str, DataFile], numbers: dict[str, int]
    ) -> None:
        for action in actions:
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
            elif "add" in action:
                files[action["add"]["path"]] = _added_file(action["add"])
            elif "txn" in action and action["txn"]["appId"] in self._applications:
                numbers[action["txn"]["appId"]] = int(action["txn"]["version"])

    def _last_checkpoint(self) -> int:
        try:
            return int(json.loads((self.path / LOG / "_last_checkpoint").read_bytes())["version"])
        except (OSError, ValueError, KeyError):
            return -1

    def commit(self, commit: Commit) -> None:
        """Make one commit durable, at exactly the version that follows the one we know.

        Where it ends in an error, `missed` tells whether it exists nevertheless.
        """
        self.resolve_attempt()
        version = self.version + 1
        if version == 0:
            # The folder of a log that goes on is there; one that is not, because a mount is gone, must not be made.
            make_folder(self.path / LOG)
        if version == self._unconfirmed:
            raise self._not_confirmed("That was an earlier commit; nothing of this one was done")
        attempt = self._attempted(commit, version)
        self._attempt = attempt
        try:
            put_if_absent(self.log_file(version), attempt.content)
        except FileExistsError:
            self._attempt = None
            raise OwnerLost(
                "another process has taken over this home",
                detail=f"Version {version} of {self.path.name} was written by it. Nothing of this epoch was committed.",
                hint="open the home again, if the other process has gone",
            ) from None
        except OSError as error:
            if not isinstance(error, Unconfirmed):
                if not self._may_be_named(version):
                    self._attempt = None
                    raise
                # What failed came after the naming: a commit whose log file is whole and synced is one all the same.
                self.resolve_attempt()
                if self._known is attempt.after:
                    return
            self._unconfirmed = version
            raise self._not_confirmed(f"{error}. The commit may be there, or may not outlive a power cut") from error
        self._known = attempt.after

    def _may_be_named(self, version: int) -> bool:
        try:
            return self.log_file(version).is_file()
        except OSError:
            return True

    def _attempted(self, commit: Commit, version: int) -> _Attempt:
        """All that a commit writes, and all that is known after it."""
        actions: list[dict[str, Any]] = []
        now = int(time.time() * 1000)
        schema_string, partitioned_by = self.schema_string, self.partitioned_by
        if commit.schema is not None:
            partitioned_by = commit.partitioned_by
            schema_string = commit.schema if isinstance(commit.schema, str) else delta_schema(commit.schema)
            if self.version < 0 or NO_ZONE in schema_string:
                actions.append({"protocol": protocol(schema_string)})
            actions.append({"metaData": self._metadata(schema_string, partitioned_by, now)})
        for name, number in commit.numbers.items():
            actions.append({"txn": {"appId": name, "version": number, "lastUpdated": now}})
        # A file that is written again under its old name, because its content is the same, stays.
        added = {one.path for one in commit.adds}
        removes = [one for one in commit.removes if one.path not in added]
        actions.extend({"remove": _remove(one, now, commit.moves_rows)} for one in removes)
        actions.extend({"add": _add(one, now, commit.moves_rows)} for one in commit.adds)
        actions.extend(
            {
                "cdc": {
                    "path": one.path,
                    "partitionValues": dict(one.partition),
                    "size": one.size,
                    "dataChange": False,
                }
            }
            for one in commit.changes
        )
        lines = [json.dumps(action, separators=(",", ":")) for action in actions]
        info = {
            "timestamp": now,
            "operation": commit.operation,
            "operationParameters": {},
            "isBlindAppend": not removes,
            "engineInfo": "headrace",
            # The id tells this commit from another writer's with the same content in the same millisecond.
            "userMetadata": json.dumps({**commit.note, "id": uuid.uuid4().hex, "sha256": checksum(lines)}),
        }
        lines.insert(0, json.dumps({"commitInfo": info}, separators=(",", ":")))
        gone = {one.path for one in removes}
        kept = {path: one for path, one in self.files.items() if path not in gone}
        files = {**kept, **{one.path: one for one in commit.adds}}
        after = _Known(version, files, {**self.numbers, **commit.numbers}, schema_string, commit, partitioned_by)
        return _Attempt(("\n".join(lines) + "\n").encode(), after)

    def missed(self, commit: Commit | None) -> bool:
        """Whether a commit that ended in an error, or never began, does not exist and never will.

        One that exists after all is known from here on.
        """
        self.resolve_attempt()
        if self._known.commit is not None and self._known.commit is commit:
            return False
        attempt = self._attempt
        return attempt is None or attempt.after.commit is not commit or attempt.after.version != self._unconfirmed

    def resolve_attempt(self) -> None:
        """Find out what became of a commit that was cut short between two steps: its log file tells."""
        attempt = self._attempt
        if attempt is None or attempt.after.version != self.version + 1 or attempt.after.version == self._unconfirmed:
            return
        file = self.log_file(attempt.after.version)
        try:
            ours = file.read_bytes() == attempt.content
            if ours:
                sync_folder(file.parent)
        except OSError as error:
            # A name on a disk is given at once or never; a request that was sent to a store may still arrive.
            if isinstance(file, ObjectPath) or not isinstance(error, FileNotFoundError):
                self._unconfirmed = attempt.after.version
                return
            ours = False
        if ours:
            self._known = attempt.after
        else:
            self._attempt = None

    def log_file(self, version: int) -> Location:
        """The file of one commit."""
        return self.path / LOG / f"{version:020d}.json"

    def checkpoint(self, every: int) -> None:
        """Sum up the log in a checkpoint when it has grown, and drop the commits that it covers."""
        if self.version - self._checkpointed < every:
            return
        log = self.path / LOG
        try:
            # Commits may go on meanwhile: what is summed up is the log as it was found here.
            table = delta_table(self.path)
            version = table.version()
            table.create_checkpoint()
            for file in log.glob("*.checkpoint.parquet"):
                _sync_file(file)
            _sync_file(log / "_last_checkpoint")
            crash_point("checkpoint written")
            # delta-rs names no checksum anywhere; without one, what was altered later would go unseen.
            made = log / f"{version:020d}.checkpoint.parquet"
            replace_file(checksum_file(made), digest_of(made).encode())
        except (OSError, DeltaError) as error:
            raise LedgerNotWritten(
                f"the log of {self.path.name} cannot be summed up in a checkpoint",
                detail=f"{error}. Nothing is lost: its commits are all there.",
                hint="free space or mend the rights of the home's folder; the next fold tries again",
            ) from error
        self._checkpointed = version
        crash_point("checkpoint sealed")
        # The oldest first, so that those left have no gap, wherever this ends.
        for file in sorted(log.iterdir(), key=by_name):
            number = file.name.split(".")[0]
            if number.isdigit() and int(number) < version - (self._keep_commits if file.suffix == ".json" else 0):
                file.unlink(missing_ok=True)
                crash_point("log trimmed")

    def copy_log(self, path: Location, note: Mapping[str, Any]) -> None:
        """Begin a table elsewhere, in one commit, that names this one's columns, files and numbers."""
        copy = DeltaFolder(path, self._configuration, self._applications)
        files = list(self.files.values())
        copy.commit(
            Commit(
                "COPY",
                adds=files,
                numbers=self.numbers,
                schema=self.schema_string,
                partitioned_by=self.partitioned_by,
                note=note,
            )
        )

    def oldest_version(self) -> int:
        """The oldest commit that is still there by itself."""
        return min((int(file.stem) for file in (self.path / LOG).glob("*.json")), default=0)

    def changes_of(self, version: int) -> frozenset[str]:
        """The files of changes that a commit names."""
        actions = map(json.loads, self.log_file(version).read_bytes().splitlines())
        return frozenset(action["cdc"]["path"] for action in actions if "cdc" in action)

    def unreferenced(self) -> Iterable[Location]:
        """Files in the folder that no commit names: left by a crash, or removed since."""
        if not self.path.exists():
            return
        for file in self.path.iterdir():
            if file.name not in self.files and file.is_file():
                yield file
        for file in (self.path / LOG).iterdir() if (self.path / LOG).exists() else ():
            # delta-rs writes a checkpoint under its name and a number first.
            if is_temporary(file.name) or "#" in file.name:
                yield file

    def _unreadable(self, why: str) -> LedgerError:
        return LedgerError(
            f"the log of {self.path.name} cannot be read",
            detail=f"{why.strip().rstrip('.')}. {damage(self.path)}".strip(),
            hint="run 'headrace verify --storage', and restore from a backup what it names",
        )

    def _out_of_sight(self, why: str) -> LedgerOutOfSight:
        return LedgerOutOfSight(
            f"the log of {self.path.name} that was read before is out of sight",
            detail=f"{why}: perhaps a mount is gone, or the home was moved or replaced. Nothing was changed.",
            hint="bring the home back to where it was; if it was put back from a backup, open it again",
        )

    def _not_confirmed(self, why: str) -> LedgerError:
        return LedgerError(
            f"the storage has not confirmed a commit of {self.path.name}",
            detail=f"{why}.",
            hint="mend the storage and open the home again: its newest epoch says what is there",
        )

    def _metadata(self, schema_string: str, partitioned_by: Sequence[str], now: int) -> dict[str, Any]:
        return {
            "id": self._id,
            "name": self.path.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_string,
            "partitionColumns": list(partitioned_by),
            "configuration": dict(self._configuration),
            "createdTime": now,
        }


def delta_table(path: Location) -> DeltaTable:
    """A Delta table as delta-rs reads it."""
    return DeltaTable(str(path), storage_options=path.bucket.options if isinstance(path, ObjectPath) else None)


def _read_beside_writers(path: Location) -> DeltaTable:
    """The same of a table that another process may write to: a list of its log made meanwhile may leave commits out."""
    for _ in range(_LISTINGS - 1):
        try:
            return delta_table(path)
        except TableNotFoundError:
            raise
        except DeltaError:
            time.sleep(_LIST_AGAIN_SECONDS)
    return delta_table(path)


def _add(one: DataFile, now: int, moves_rows: bool) -> dict[str, Any]:
    stats = {"numRecords": one.rows, "minValues": dict(one.low), "maxValues": dict(one.high), "nullCount": {}}
    return {
        "path": one.path,
        "partitionValues": dict(one.partition),
        "size": one.size,
        "modificationTime": now,
        "dataChange": moves_rows,
        "stats": json.dumps(stats),
    }


def _remove(one: DataFile, now: int, moves_rows: bool) -> dict[str, Any]:
    return {
        "path": one.path,
        "deletionTimestamp": now,
        "dataChange": moves_rows,
        "extendedFileMetadata": True,
        "partitionValues": dict(one.partition),
        "size": one.size,
    }


def _data_file(action: Mapping[str, Any]) -> DataFile:
    low = {key[4:]: value for key, value in action.items() if key.startswith("min.") and value is not None}
    high = {key[4:]: value for key, value in action.items() if key.startswith("max.") and value is not None}
    partition = {key[len(_PARTITION) :]: value for key, value in action.items() if key.startswith(_PARTITION)}
    return DataFile(action["path"], action["size_bytes"], action["num_records"] or 0, low, high, partition)


def _added_file(action: Mapping[str, Any]) -> DataFile:
    """A file as the commit that added it describes it."""
    stats = json.loads(action["stats"])
    partition = dict(action.get("partitionValues") or {})
    low, high = stats.get("minValues", {}), stats.get("maxValues", {})
    return DataFile(action["path"], action["size"], stats.get("numRecords") or 0, low, high, partition)


def _sync_file(path: Location) -> None:
    if isinstance(path, ObjectPath):
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
