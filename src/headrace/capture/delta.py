"""Delta tables as sources: one version of a table, read whole, column by column under the names of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql.types import StructField, StructType

from headrace.errors import SourceError

# What a table may ask of its readers and still have its rows in plain Parquet files, all of them in force.
_PLAIN_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_BATCH = 250_000


@dataclass(frozen=True, eq=False)
class DeltaSnapshot:
    """One version of a Delta table."""

    location: str
    table: DeltaTable

    @property
    def version(self) -> int:
        """The version."""
        return self.table.version()

    @cached_property
    def table_id(self) -> str:
        """The id that stays with the table, wherever it is moved."""
        return str(self.table.metadata().id)

    @cached_property
    def schema(self) -> StructType:
        """Its columns, as Spark types them."""
        return StructType.fromJson(json.loads(self.table.schema().to_json()))

    @cached_property
    def count(self) -> int | None:
        """About how many rows it has, where its log tells: those that deletion vectors take away are counted too."""
        counts = pa.table(self.table.get_add_actions(flatten=True)).to_pydict().get("num_records", [])
        return None if None in counts else sum(counts)

    @property
    def is_plain(self) -> bool:
        """Whether its rows are just those of its files, which lie on this machine."""
        protocol = self.table.protocol()
        features = set(protocol.reader_features or ())
        return (
            not self.table.metadata().partition_columns
            and (protocol.min_reader_version < 2 or (protocol.min_reader_version == 3 and features <= _PLAIN_FEATURES))
            and all(local_path(uri) is not None for uri in self.table.file_uris())
        )

    def rows(self, wanted: Sequence[StructField], schema: pa.Schema) -> Iterator[pa.Table]:
        """All rows of a plain table in parts: the wanted columns, in this order, in these Arrow types."""
        for uri in self.table.file_uris():
            path = local_path(uri)
            assert path is not None, "asked only of a plain table"
            try:
                with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
                    held = {name.lower(): name for name in file.schema_arrow.names}
                    names = [held.get(field.name.lower()) for field in wanted]
                    for batch in file.iter_batches(_BATCH, columns=[name for name in names if name is not None]):
                        yield _arranged(batch, names, schema)
            except FileNotFoundError as error:
                raise SourceError(
                    f"a file of the Delta table {self.location} is gone",
                    detail=f"Version {self.version} names {path}.",
                    hint="read a newer version; VACUUM removes the files of older ones",
                ) from error
            except (OSError, pa.ArrowException) as error:
                raise SourceError(
                    f"a file of the Delta table {self.location} cannot be read", detail=f"{path}: {error}"
                ) from error


def absolute(location: str) -> str:
    """A path that means the same from every folder; what names another storage stays as it is."""
    path = local_path(location)
    return location if path is None else str(path.expanduser().resolve())


def open_snapshot(location: str, version: int | None = None) -> DeltaSnapshot:
    """A Delta table at a version, the newest if none is given, or SourceError."""
    path = local_path(location)
    if path is not None and not path.is_dir():
        raise SourceError(
            f"there is no Delta table at {location}",
            detail="The folder does not exist." if not path.exists() else "It is a file, not a folder.",
            hint="name the folder that holds _delta_log",
        )
    try:
        return DeltaSnapshot(location, DeltaTable(location, version=version))
    except TableNotFoundError as error:
        raise SourceError(
            f"{location} is not a Delta table",
            detail="It has no _delta_log.",
            hint="name the folder that holds _delta_log",
        ) from error
    except (DeltaError, OSError, ValueError) as error:
        what = f"version {version} of the Delta table {location}" if version is not None else f"{location}"
        raise SourceError(
            f"{what} cannot be read", detail=str(error), hint="leave the version out to read the newest"
        ) from error


def match_columns(source: str, found: StructType, table: str, wanted: StructType) -> list[StructField]:
    """The table's columns among those that are found, in the table's order; all that does not fit is told at once."""
    by_name = {field.name.lower(): field for field in found.fields}
    faults: list[str] = []
    matched: list[StructField] = []
    for field in wanted.fields:
        other = by_name.pop(field.name.lower(), None)
        if other is None:
            faults.append(f"column {field.name} {field.dataType.simpleString()} is missing")
        elif other.dataType.simpleString() != field.dataType.simpleString():
            faults.append(
                f"column {field.name} is {other.dataType.simpleString()}, not {field.dataType.simpleString()}"
            )
        else:
            matched.append(other)
    faults.extend(f"column {name} {field.dataType.simpleString()} is not in {table}" for name, field in by_name.items())
    if faults:
        raise SourceError(
            f"the columns of source {source} are not those of table {table}",
            detail="; ".join(faults) + ".",
            hint="make the table with these columns, or change it by ALTER TABLE",
        )
    return matched


def _arranged(batch: pa.RecordBatch, names: Sequence[str | None], schema: pa.Schema) -> pa.Table:
    """The columns of a file in the wanted order and types; one that was added after the file was written is NULL."""
    columns: list[Any] = []
    for name, field in zip(names, schema, strict=True):
        if name is None:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.table(columns, schema=schema)


def local_path(location: str) -> Path | None:
    """A path on this machine, or none if it lies elsewhere."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return Path(location) if len(parsed.scheme) < 2 else None
