"""A Delta table that others write, followed commit by commit: what each changed in its rows, and nothing else.

Where the table keeps a change data feed, that is read. Where not, what a commit did is the difference between the rows
of the files that it removed and of those that it added: so an OPTIMIZE, a VACUUM or a rewrite gives nothing, and an
overwrite or a MERGE exactly what it changed. A commit is a transaction of its source, and never split.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.capture.connector import GONE, Arrival, Connector, Description, Lag, Position
from headrace.capture.delta import local_path, open_snapshot
from headrace.capture.messages import Origin, RowChange
from headrace.capture.messages import Position as SourcePosition
from headrace.capture.record import Record
from headrace.errors import SourceError, SourceUnavailable
from headrace.json_forms import json_form
from headrace.state.delta import consolidate

_LOOK_SECONDS = 0.1
_FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}

OPTIONS: Mapping[str, str] = {
    "mode": "snapshot (read once), follow (from now on), or snapshot_and_follow (the default).",
    "version": "The version that is read as a snapshot, or followed from; the newest if it is not given.",
}


class DeltaReading:
    """The commits of a table after a version."""

    def __init__(self, description: Description, position: Position) -> None:
        self._location = description.location
        self._table = open_snapshot(description.location).table
        self._begins_late = "version" not in position
        if self._begins_late:
            position = {"version": description.options.get("version", self._table.version())}
        self._version = int(position["version"])
        # Of the next commit, how many changes were taken already: one of them may have parted it.
        self._taken = int(position.get("taken", 0))
        if self._version > self._table.version():
            raise SourceError(
                f"the Delta table {self._location} is at version {self._table.version()}, before {self._version}",
                detail="It was restored or made anew since it was read.",
                hint="DROP SOURCE, empty its table, and CREATE SOURCE again to read it whole",
            )

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        """The changes of the next commits; whole commits, until there are so many changes or no more commits."""
        ends = time.monotonic() + seconds
        arrivals: list[Arrival] = []
        while len(arrivals) < most:
            if self._table.version() <= self._version and not self._look():
                if arrivals or time.monotonic() >= ends:
                    break
                time.sleep(_LOOK_SECONDS)
                continue
            self._version += 1
            arrivals.extend(self._commit(self._version))
        return arrivals

    def begins_at(self) -> Position:
        """The version that it is followed from: the newest is another after a restart."""
        return {"version": self._version} if self._begins_late else {}

    def confirm(self, position: Position) -> None:
        """A Delta table keeps nothing for its readers."""

    def lag(self) -> Lag:
        """How many commits there are that were not read; what they changed is known when they are."""
        return Lag(max(0, self._table.version() - self._version))

    def close(self) -> None:
        """Nothing is held."""

    def _look(self) -> bool:
        """Whether there are newer commits."""
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise SourceUnavailable(f"the Delta table {self._location} cannot be read", detail=f"{error}.") from error
        return self._table.version() > self._version

    def _commit(self, version: int) -> list[Arrival]:
        rows = self._feed(version) if self._feeds_changes() else self._difference(version)
        taken, self._taken = self._taken, 0
        return [
            self._arrival(version, number, sign, row, last=number + 1 == len(rows))
            for number, (sign, row) in enumerate(rows)
            if number >= taken
        ]

    def _arrival(self, version: int, number: int, sign: int, row: Mapping[str, Any], *, last: bool) -> Arrival:
        kind = "insert" if sign > 0 else "delete"
        payload = json.dumps({kind: json_form(row)}).encode()
        record = Record(payload, topic=Path(self._location).name, partition=version, offset=number)
        origin = Origin("delta", position=SourcePosition(str(version), (version, number)))
        message = RowChange(
            "create" if sign > 0 else "delete",
            ({kind: row},),
            None if sign > 0 else row,
            row if sign > 0 else None,
            origin=origin,
        )
        # Before the last change of a commit no epoch ends, unless a view fails on one of them.
        advance = {"version": version, "taken": GONE} if last else {"version": version - 1, "taken": number + 1}
        return Arrival(record, advance, message, whole=last)

    def _feeds_changes(self) -> bool:
        configuration: Mapping[str, Any] = self._table.metadata().configuration
        return str(configuration.get("delta.enableChangeDataFeed", "")).lower() == "true"

    def _feed(self, version: int) -> list[tuple[int, dict[str, Any]]]:
        try:
            found = pa.table(self._table.load_cdf(starting_version=version, ending_version=version))
        except (DeltaError, OSError, ValueError) as error:
            raise self._cleaned(version, error) from error
        kinds = found.column("_change_type").to_pylist() if found.num_rows else []
        rows = found.drop_columns([name for name in _FEED_COLUMNS if name in found.column_names]).to_pylist()
        signed = [(_SIGNS[kind], row) for kind, row in zip(kinds, rows, strict=True)]
        # What goes comes first: an update of a key is then a delete and an insert of it. And the order is the same
        # when it is read again.
        return sorted(signed, key=lambda one: (one[0], json.dumps(json_form(one[1]))))

    def _difference(self, version: int) -> list[tuple[int, dict[str, Any]]]:
        """What a commit changed, by the files that it names."""
        folder = local_path(self._location)
        if folder is None:
            raise SourceError(
                f"the Delta table {self._location} keeps no change data feed",
                detail="It does not lie on this machine, where its files could be compared.",
                hint="ALTER TABLE ... SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
            )
        actions = self._actions(folder, version)
        removed = [one["remove"] for one in actions if one.get("remove", {}).get("dataChange")]
        added = [one["add"] for one in actions if one.get("add", {}).get("dataChange")]
        parts: list[pa.Table] = []
        weights: list[np.ndarray] = []
        for files, sign in ((removed, -1), (added, 1)):
            for table in self._rows(folder, version if sign > 0 else version - 1, files):
                parts.append(table)
                weights.append(np.full(table.num_rows, sign, dtype=np.int64))
        if not parts:
            return []
        rows = pa.concat_tables(parts, promote_options="default")
        names = rows.column_names
        if not removed:
            return [(1, row) for row in rows.to_pylist()]
        net = consolidate(rows.rename_columns([f"c{i}" for i in range(len(names))]), np.concatenate(weights))
        signed = list(zip(net.weights.tolist(), net.rows.rename_columns(names).to_pylist(), strict=True))
        gone = [(-1, row) for weight, row in signed for _ in range(max(0, -weight))]
        return gone + [(1, row) for weight, row in signed for _ in range(max(0, weight))]

    def _actions(self, folder: Path, version: int) -> list[dict[str, Any]]:
        path = folder / "_delta_log" / f"{version:020d}.json"
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        except OSError as error:
            raise self._cleaned(version, error) from error

    def _rows(self, folder: Path, version: int, files: Sequence[Mapping[str, Any]]) -> Iterator[pa.Table]:
        """The rows of files as they are at a version: without those that deletion vectors take away."""
        if not files:
            return
        vectors = self._vectors(version) if any(one.get("deletionVector") for one in files) else {}
        partitions = {one["path"]: one.get("partitionValues") or {} for one in files}
        schema = pa.schema(DeltaTable(self._location, version=version).schema().to_arrow())
        for name, values in partitions.items():
            path = folder / unquote(name)
            try:
                table = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
            except FileNotFoundError as error:
                raise self._cleaned(version, error) from error
            if name in vectors:
                table = table.filter(pa.array(vectors[name]))
            for column, value in values.items():
                kind = schema.field(column).type
                held = pa.array([value] * table.num_rows, pa.string()).cast(kind)
                table = table.append_column(column, pa.chunked_array([held]))
            yield pa.table([_column(table, one) for one in schema], schema=schema)

    def _vectors(self, version: int) -> dict[str, list[bool]]:
        """Which rows of which files are still there."""
        found = pa.table(DeltaTable(self._location, version=version).deletion_vectors()).to_pylist()
        return {Path(str(one["filepath"])).name: one["selection_vector"] for one in found}

    def _cleaned(self, version: int, error: Exception) -> SourceError:
        return SourceError(
            f"the Delta table {self._location} no longer tells what version {version} changed",
            detail=f"Its log or its files were cleaned before they were read: {error}.",
            hint="DROP SOURCE, empty its table, and CREATE SOURCE again to read it whole",
        )


def _column(table: pa.Table, field: pa.Field) -> Any:
    """A column in its type now; one that was added after the file was written is NULL."""
    if field.name not in table.column_names:
        return pa.nulls(table.num_rows, field.type)
    return table.column(field.name).cast(field.type)


def _check(description: Description) -> None:
    mode = description.options.get("mode", "snapshot_and_follow")
    if mode not in ("snapshot", "follow", "snapshot_and_follow"):
        raise SourceError(
            f"there is no mode {mode!r}", hint="write mode = 'snapshot', 'follow' or 'snapshot_and_follow'"
        )
    open_snapshot(description.location)


DELTA = Connector("DELTA", OPTIONS, DeltaReading, _check)
