"""Sources of a home: those with mode 'snapshot' are read whole, all of one script together into one epoch.

What a source is and how far it was read is recorded in the commit of the epoch that brings its rows: after a crash
either all of it is there, and it is not read again, or nothing is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql.types import StructField

from headrace.capture.delta import DeltaSnapshot, absolute, match_columns, open_snapshot
from headrace.catalog.catalog import Catalog, Source, Table, View
from headrace.epoch.batch import Batch
from headrace.epoch.bulk import Bulk
from headrace.epoch.core import Core
from headrace.epoch.work import Work
from headrace.errors import RelationNameError, SourceError
from headrace.progress import Step
from headrace.spark.requirements import check_delta
from headrace.sql.names import quoted
from headrace.sql.query_errors import query_error
from headrace.sql.syntax import CreateSource
from headrace.state import mapped
from headrace.state.delta import all_differ
from headrace.state.hashing import key_hashes


@dataclass(frozen=True)
class _Reading:
    """A source about to be read: its columns fit its table."""

    source: Source
    snapshot: DeltaSnapshot
    table: Table
    columns: list[StructField]


def source_of(statement: CreateSource) -> Source:
    """The source that a statement describes, not yet read."""
    options = dict(statement.options)
    mode = str(options.pop("mode", "snapshot_and_follow"))
    location = absolute(statement.location) if statement.connector == "delta" else statement.location
    return Source(statement.name, statement.table, statement.connector, location, mode, options)


@dataclass
class Readings:
    """What was read: the sources with their positions, and how many rows of each table."""

    sources: list[Source] = field(default_factory=list[Source])
    applied: dict[str, int] = field(default_factory=dict[str, int])
    stale: dict[str, int] = field(default_factory=dict[str, int])


def read_sources(
    core: Core, catalog: Catalog, work: Work, now: datetime, statements: Sequence[CreateSource]
) -> Readings:
    """Read snapshot sources whole: what they bring becomes part of the epoch under way."""
    # All are looked at before the first is read, which takes long.
    readings = [open_reading(catalog, statement) for statement in statements]
    names = [one.source.name for one in readings]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise name_taken(name)
    counts = dict.fromkeys(names, 0)
    changes: dict[str, Bulk | Sequence[object]] = {}
    for table in dict.fromkeys(one.table for one in readings):
        parts = (part for one in readings if one.table is table for part in _rows(core, one, counts))
        changes[table.name] = _changes(table, mapped.rows(table.store.schema, parts))
    batch = Batch(catalog, work, now, core.tombstone_retention)
    taken = batch.take(changes)
    for name, delta in batch.deltas().items():
        work.record(name, delta)
    return Readings([_read(one, counts[one.source.name]) for one in readings], taken.applied, taken.stale)


def open_reading(catalog: Catalog, statement: CreateSource) -> _Reading:
    """A source that can be read into its table, or an error that tells why it cannot."""
    if statement.name in catalog.sources:
        raise name_taken(statement.name)
    source = source_of(statement)
    table = table_into(catalog, source.table)
    try:
        snapshot = open_snapshot(source.location, source.options.get("version"))
        return _Reading(source, snapshot, table, match_columns(source.name, snapshot.schema, table.name, table.schema))
    except SourceError as error:
        error.about = source.name
        raise


def name_taken(name: str) -> RelationNameError:
    """The refusal of a second source of one name."""
    error = RelationNameError(
        f"source {name} exists already", hint="write CREATE SOURCE IF NOT EXISTS, or drop it first"
    )
    error.fault = "taken"
    return error


def table_into(catalog: Catalog, name: str, makes_tables: bool = False) -> Table:
    """The table that a source is to fill, or an error that says how there comes to be one."""
    found = catalog.relations.get(name.lower())
    if isinstance(found, View):
        error = RelationNameError(
            f"{name} is a view",
            detail="A view follows its query and takes no changes of its own.",
            hint="name a table after INTO",
        )
        error.fault = "kind"
        raise error
    if found is None:
        near = get_close_matches(name.lower(), [one.name for one in catalog.tables()], n=1)
        # One that is nearly called so may be filled by another source: it is named last, and not as what was meant.
        others = [f"there is {near[0]}"] if near else []
        unnamed = ["without INTO, tables are made as the records describe them"] if makes_tables else []
        raise RelationNameError(
            f"there is no table {name}",
            hint="; ".join([f"write CREATE TABLE {name} (...) first", *unnamed, *others]),
        )
    return catalog.open_table(name)


def _read(reading: _Reading, rows: int) -> Source:
    position = {"version": reading.snapshot.version, "table_id": reading.snapshot.table_id}
    state = "Done" if reading.source.mode == "snapshot" else "Running"
    return replace(reading.source, position=position, rows=rows, state=state)


def _changes(table: Table, rows: pa.Table) -> Bulk | Sequence[object]:
    """Rows as changes of their table: whole columns, unless sequences must be compared row by row."""
    sequence = table.contract.sequence
    if sequence is not None:
        assert table.tombstones is not None
        fresh = table.store.snapshot().is_empty and table.tombstones.snapshot().is_empty
        dated = not rows.column(table.schema.names.index(sequence)).null_count
        if not (fresh and dated and all_differ(key_hashes(rows, table.contract.key_indexes))):
            return [{"insert": row} for row in rows.rename_columns(table.schema.names).to_pylist()]
    return Bulk(rows.schema.empty_table(), rows, once=True)


def _rows(core: Core, reading: _Reading, counts: dict[str, int]) -> Iterator[pa.Table]:
    """The rows of a source in parts, in the columns and types of its table; they are counted and told as they come."""
    name, table, snapshot = reading.source.name, reading.table, reading.snapshot
    if snapshot.is_plain:
        parts = snapshot.rows(reading.columns, table.store.schema)
    else:
        parts = _by_spark(core, reading)
    total = snapshot.count or 0
    core.progress.tell(Step("table", table.name, 0, total))
    for part in parts:
        yield part
        counts[name] += part.num_rows
        core.progress.tell(Step("table", table.name, counts[name], max(total, counts[name])))
    core.progress.tell(Step("table", table.name, counts[name], counts[name]))


def _by_spark(core: Core, reading: _Reading) -> Iterator[pa.Table]:
    """By way of Spark, for tables with deletion vectors, mapped columns, partitions, or on another storage."""
    snapshot, frames = reading.snapshot, core.sessions.frames
    check_delta(frames.catalyst.session)
    reader = frames.catalyst.session.read.format("delta").option("versionAsOf", snapshot.version)
    try:
        frame = reader.load(snapshot.location).select(*(quoted(field.name) for field in reading.columns))
        rows = frames.collect(frame, reading.table.schema, large=True)
    except Exception as error:
        failed = SourceError(f"source {reading.source.name} cannot be read", detail=query_error(error).detail)
        failed.about = reading.source.name
        raise failed from error
    for start in range(0, rows.num_rows, mapped.LARGE):
        yield rows.slice(start, mapped.LARGE)
