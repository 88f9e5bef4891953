"""A Delta table whose commits are ours: synced to disk, and made at exactly the version that we expect.

delta-rs neither syncs what it writes nor refuses the blind append of a writer that lost its turn; so data files and
commits are written here, and delta-rs reads the log and makes its checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from headrace.errors import LedgerError, OwnerLost
from headrace.ledger.durable import is_temporary, make_folder, put_if_absent, sync_folder

_LOG = "_delta_log"
_NO_ZONE = "timestamp_ntz"


@dataclass(frozen=True)
class DataFile:
    """A file of a Delta table."""

    path: str
    size: int
    rows: int
    low: Mapping[str, Any] = field(default_factory=dict[str, Any])
    high: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Commit:
    """What one commit does: files come and go, a schema is set, an application's number moves."""

    operation: str
    adds: Sequence[DataFile] = ()
    removes: Sequence[DataFile] = ()
    changes: Sequence[DataFile] = ()
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    schema: pa.Schema | None = None
    note: Mapping[str, Any] = field(default_factory=dict[str, Any])
    moves_rows: bool = True


class DeltaFolder:
    """One Delta table in a folder, written by one owner."""

    def __init__(
        self, path: Path, configuration: Mapping[str, str], applications: Sequence[str], keep_commits: int = 20
    ) -> None:
        self.path = path
        self._keep_commits = keep_commits
        self.version = -1
        self.files: dict[str, DataFile] = {}
        self.numbers: dict[str, int] = {}
        self.schema_string = ""
        self._configuration = configuration
        self._applications = applications
        self._id = str(uuid.uuid4())
        self._checkpointed = -1

    def load(self) -> bool:
        """Read the table's log; whether there is a table."""
        try:
            table = DeltaTable(str(self.path))
        except TableNotFoundError:
            return False
        except Exception as error:
            raise LedgerError(
                f"the log of {self.path.name} cannot be read",
                detail=f"{error}. {damage(self.path)}".strip(),
                hint="run 'headrace verify --storage', and restore from a backup what it names",
            ) from error
        self.version = table.version()
        self._checkpointed = self.version
        self._id = str(table.metadata().id)
        self.schema_string = table.schema().to_json()
        self.numbers = {
            name: int(number) for name in self._applications if (number := table.transaction_version(name)) is not None
        }
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        self.files = {action["path"]: _data_file(action) for action in actions}
        return True

    def commit(self, commit: Commit) -> None:
        """Make one commit durable, at exactly the version that follows the one we know."""
        actions: list[dict[str, Any]] = []
        now = int(time.time() * 1000)
        if commit.schema is not None:
            schema_string = delta_schema(commit.schema)
            if self.version < 0 or _NO_ZONE in schema_string:
                actions.append({"protocol": _protocol(schema_string)})
            actions.append({"metaData": self._metadata(schema_string, now)})
            self.schema_string = schema_string
        for name, number in commit.numbers.items():
            actions.append({"txn": {"appId": name, "version": number, "lastUpdated": now}})
        actions.extend({"remove": _remove(one, now, commit.moves_rows)} for one in commit.removes)
        actions.extend({"add": _add(one, now, commit.moves_rows)} for one in commit.adds)
        actions.extend(
            {"cdc": {"path": one.path, "partitionValues": {}, "size": one.size, "dataChange": False}}
            for one in commit.changes
        )
        lines = [json.dumps(action, separators=(",", ":")) for action in actions]
        info = {
            "timestamp": now,
            "operation": commit.operation,
            "operationParameters": {},
            "isBlindAppend": not commit.removes,
            "engineInfo": "headrace",
            "userMetadata": json.dumps({**commit.note, "sha256": checksum(lines)}),
        }
        lines.insert(0, json.dumps({"commitInfo": info}, separators=(",", ":")))
        make_folder(self.path / _LOG)
        version = self.version + 1
        try:
            put_if_absent(self.log_file(version), ("\n".join(lines) + "\n").encode())
        except FileExistsError:
            raise OwnerLost(
                "another process has taken over this home",
                detail=f"Version {version} of {self.path.name} was written by it. Nothing of this epoch was committed.",
                hint="open the home again, if the other process has gone",
            ) from None
        self.version = version
        self.numbers.update(commit.numbers)
        for one in commit.removes:
            self.files.pop(one.path, None)
        self.files.update({one.path: one for one in commit.adds})

    def log_file(self, version: int) -> Path:
        """The file of one commit."""
        return self.path / _LOG / f"{version:020d}.json"

    def checkpoint(self, every: int) -> None:
        """Sum up the log in a checkpoint when it has grown, and drop the commits that it covers."""
        if self.version - self._checkpointed < every:
            return
        DeltaTable(str(self.path)).create_checkpoint()
        log = self.path / _LOG
        for file in log.glob("*.checkpoint*.parquet"):
            _sync_file(file)
        _sync_file(log / "_last_checkpoint")
        sync_folder(log)
        self._checkpointed = self.version
        for file in log.iterdir():
            number = file.name.split(".")[0]
            if number.isdigit() and int(number) < self.version - (self._keep_commits if file.suffix == ".json" else 0):
                file.unlink(missing_ok=True)

    def oldest_version(self) -> int:
        """The oldest commit that is still there by itself."""
        return min((int(file.stem) for file in (self.path / _LOG).glob("*.json")), default=0)

    def unreferenced(self) -> Iterable[Path]:
        """Files in the folder that no commit names: left by a crash, or removed since."""
        if not self.path.exists():
            return
        for file in self.path.iterdir():
            if file.is_file() and file.name not in self.files:
                yield file
        for file in (self.path / _LOG).iterdir() if (self.path / _LOG).exists() else ():
            if is_temporary(file.name):
                yield file

    def _metadata(self, schema_string: str, now: int) -> dict[str, Any]:
        return {
            "id": self._id,
            "name": self.path.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_string,
            "partitionColumns": [],
            "configuration": dict(self._configuration),
            "createdTime": now,
        }


def checksum(lines: Sequence[str]) -> str:
    """What a commit's own note says of its other lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def damaged_commits(path: Path) -> list[Path]:
    """The commit files whose content is not what was written."""
    found: list[Path] = []
    for file in sorted((path / _LOG).glob("*.json")):
        try:
            first, *rest = file.read_text().splitlines()
            note = json.loads(json.loads(first)["commitInfo"]["userMetadata"])
            if note["sha256"] != checksum(rest):
                found.append(file)
        except (ValueError, KeyError, TypeError):
            found.append(file)
    return found


def damage(path: Path) -> str:
    """A sentence that names the damaged commit files, if there are any."""
    found = damaged_commits(path)
    return f"Damaged: {', '.join(file.name for file in found)}." if found else ""


def delta_schema(schema: pa.Schema) -> str:
    """An Arrow schema in Delta's own notation."""
    return json.dumps({"type": "struct", "fields": [_field(one) for one in schema]})


def stored_type(kind: pa.DataType) -> pa.DataType:
    """How a type lies in a Delta table: what Delta lacks is kept as a near type."""
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, stored_type(one.type), True) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(stored_type(kind.value_type))
    return kind


def _field(one: pa.Field) -> dict[str, Any]:
    return {"name": one.name, "type": _type(stored_type(one.type)), "nullable": True, "metadata": {}}


def _type(kind: pa.DataType) -> Any:
    simple = {
        pa.int8(): "byte",
        pa.int16(): "short",
        pa.int32(): "integer",
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.bool_(): "boolean",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }
    if kind in simple:
        return simple[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else _NO_ZONE
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(one) for one in kind]}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type),
            "valueType": _type(kind.item_type),
            "valueContainsNull": True,
        }
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": True}
    raise AssertionError(f"no Delta type for {kind}")


def _protocol(schema_string: str) -> dict[str, Any]:
    if _NO_ZONE not in schema_string:
        return {"minReaderVersion": 1, "minWriterVersion": 4}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["appendOnly", "invariants", "changeDataFeed", "timestampNtz"],
    }


def _add(one: DataFile, now: int, moves_rows: bool) -> dict[str, Any]:
    stats = {"numRecords": one.rows, "minValues": dict(one.low), "maxValues": dict(one.high), "nullCount": {}}
    return {
        "path": one.path,
        "partitionValues": {},
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
        "partitionValues": {},
        "size": one.size,
    }


def _data_file(action: Mapping[str, Any]) -> DataFile:
    low = {key[4:]: value for key, value in action.items() if key.startswith("min.") and value is not None}
    high = {key[4:]: value for key, value in action.items() if key.startswith("max.") and value is not None}
    return DataFile(action["path"], action["size_bytes"], action["num_records"] or 0, low, high)


def _sync_file(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
