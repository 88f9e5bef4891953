"""The sources of a home: which are at work, and what SHOW SOURCES tells of them."""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from headrace.capture.columns.debezium import ColumnDecoder, can_be_columns
from headrace.capture.connector import Arrival, Connector, Description
from headrace.capture.options import read_options
from headrace.catalog.catalog import Source
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.runners import Runners
from headrace.intake.table import TableContract
from headrace.reading.point_read import rows_where
from headrace.sources.bulk import Backlog
from headrace.sources.connectors import CONNECTORS, FORMAT_OPTIONS
from headrace.sources.decoders import Decoders
from headrace.sources.intake import NoTable, Progress
from headrace.sources.pace import seconds_since
from headrace.sources.runner import Runner
from headrace.sources.secrets import looked_up
from headrace.sources.status import State, Status
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, raw_name

_log = logging.getLogger("headrace.sources")
# From so many records on that come at once, they are a backlog, and so many of one are taken into an epoch at most.
_LARGE = 5_000
_MOST_AT_ONCE = 100_000


class Sources:
    """Runs the sources of one home, each in a thread of its own."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._runners: Runners[Source, Runner] = Runners(self._wanted, self._made, _say_unable)
        self.restart = self._runners.restart
        self.close = self._runners.close
        # By source and outcome, changes since this process began.
        self.totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        # By source, when it last answered, in this process.
        self._heard_at: dict[str, datetime] = {}

    def reconcile(self) -> None:
        """Run the sources that are to run, as they are defined now, and no others."""
        self._runners.reconcile()
        self._forget_dropped()

    def wait_for_stopped(self) -> None:
        """Wait until those that were paused or dropped have ended; not while it is one's turn to make epochs."""
        self._runners.wait_for_stopped()
        # One that was at its last epoch when it was dropped has noted since that it was heard.
        self._forget_dropped()

    def _forget_dropped(self) -> None:
        for name in list(self._heard_at):
            if name not in self._loop.core.catalog.sources:
                # Another of its name has not been heard yet.
                self._heard_at.pop(name, None)

    def _wanted(self) -> dict[str, Source]:
        return {one.name: one for one in self._loop.core.catalog.sources.values() if one.state == "Running"}

    def status_of(self, source: Source) -> Status:
        """How a source fares."""
        runner = self._runners.get(source.name)
        if runner is not None and runner.source == source:
            return self._with_silence(runner.status, source)
        unable = self._runners.unable(source.name, source)
        if unable is not None:
            return self._with_silence(Status("Error", progress_of(self._loop.core, source.name), error=unable), source)
        # As it is defined: another process may run it, or it is just about to begin here.
        state: State = "Done" if source.state == "Done" else "Paused" if source.state == "Paused" else "Running"
        found = progress_of(self._loop.core, source.name)
        return self._with_silence(Status(state, found, error=source.error or None), source)

    def _with_silence(self, status: Status, source: Source) -> Status:
        """How one fares, with how long it was not asked if it has stopped: since it answered, or brought something."""
        since = self._heard_at.get(source.name, status.progress.committed_at)
        if status.state not in ("Error", "Paused") or since is None:
            return status
        return replace(status, lag_seconds=seconds_since(since))

    def _made(self, source: Source, before: Runner | None) -> Runner:
        connector = CONNECTORS[source.connector]
        core = self._loop.core
        options = {"mode": source.mode, **looked_up(source.options)}
        description = Description(source.name, source.location, options, source.table)
        return Runner(
            self._loop,
            source,
            connector,
            description,
            partial(table_of, core, source),
            Decoders(core, source, connector),
            partial(progress_of, core, source.name),
            before,
            self.totals[source.name],
            backlog_of(core, source, connector),
            self._heard_at,
        )


def _say_unable(name: str, reason: str) -> None:
    _log.error("source %s cannot begin: %s", name, reason, extra={"source": name})


def table_of(core: Core, source: Source, arrival: Arrival) -> str:
    """The table that a record belongs to: the one that the statement names, or the one of its topic's last part."""
    return _table_of_topic(core, source, arrival.record.topic)


def _table_of_topic(core: Core, source: Source, topic: str) -> str:
    if source.table:
        return source.table
    name = topic.rpartition(".")[2].lower()
    if name not in core.catalog:
        raise NoTable(name, topic)
    return core.catalog.table(name).name


def tables_of(core: Core, source: Source) -> list[str]:
    """The tables that a source brings: the one that its statement names, or those whose topics have come."""
    if source.table:
        return [source.table]
    position = progress_of(core, source.name).position
    topics = [*position.get("topics", ()), *(key.rpartition(":")[0] for key in position if ":" in key)]
    names = {topic.rpartition(".")[2].lower() for topic in topics}
    return sorted(one.name for one in core.catalog.tables() if one.name.lower() in names)


def shared_tables(core: Core) -> dict[str, str]:
    """By source, a warning that others fill tables of it too; one that was read once fills its table no more."""
    filled = {
        one.name: {*tables_of(core, one), *_tables_named(core, one)}
        for one in core.catalog.sources.values()
        if one.state != "Done"
    }
    told: dict[str, str] = {}
    for name, tables in filled.items():
        shared = [
            f"{table} is filled by source {other} too"
            + (
                ""
                if core.catalog.table(table).contract.key
                else "; it has no key, so a row that both bring is there twice"
            )
            for table in sorted(tables)
            for other in filled
            if other != name and table in filled[other]
        ]
        if shared:
            told[name] = ". ".join(shared)
    return told


def _tables_named(core: Core, source: Source) -> list[str]:
    """The tables that a source without INTO names, before anything of them has come; what a * brings, nobody knows."""
    if source.table:
        return []
    named = source.location.rpartition("/")[2] if source.connector == "kafka" else str(source.options.get("tables", ""))
    names = {one.strip().rpartition(".")[2].lower() for one in named.split(",") if "*" not in one}
    return [one.name for one in core.catalog.tables() if one.name.lower() in names]


def backlog_of(core: Core, source: Source, connector: Connector) -> Backlog | None:
    """How many records at once are taken as columns; None where each is read alone."""
    options = looked_up(source.options)
    if not connector.has_format or options.get("format") != "debezium":
        return None
    least = min(_LARGE, int(options.get("max_records", _LARGE)) + 1)
    most = int(options.get("bulk_records", options.get("max_records", _MOST_AT_ONCE)))
    if most < least:
        return None
    format_options = read_options({name: value for name, value in options.items() if name in FORMAT_OPTIONS})

    @lru_cache(maxsize=1000)
    def made(contract: TableContract) -> ColumnDecoder | None:
        return ColumnDecoder(contract, format_options) if can_be_columns(contract) else None

    def contract_of(table: str) -> TableContract:
        return core.catalog.table(table).contract

    def columns_of(table: str) -> ColumnDecoder | None:
        return made(contract_of(table))

    return Backlog(least, most, partial(_table_of_topic, core, source), contract_of, columns_of)


def progress_of(core: Core, source: str) -> Progress:
    """How far a source is at the newest epoch."""
    relations = core.relations()
    if PROGRESS in relations:
        snapshot, schema = relations[PROGRESS]
        found = rows_where(snapshot, schema, {"source": source}).to_pylist()
        if found:
            return Progress.of_row(found[0])
    # One that was read whole by its statement has not brought a change since.
    known = core.catalog.sources.get(source)
    # What came may be there from an earlier source of this name.
    earlier = relations[raw_name(source)][0].count if raw_name(source) in relations else 0
    # And so may dead letters, which are its own from now on.
    letters = rows_where(*relations[DEAD_LETTERS], {"source": source}) if DEAD_LETTERS in relations else None
    dead = 0 if letters is None else sum(letters.column("changes").to_pylist())
    if known is None:
        return Progress(received=dead, dead=dead, recorded=earlier)
    return Progress(known.position, received=known.rows + dead, applied=known.rows, dead=dead, recorded=earlier)


def shown(core: Core, sources: Sources) -> pa.Table:
    """What SHOW SOURCES answers."""
    listed = list(core.catalog.sources.values())
    shared = shared_tables(core)
    told = [_row(one, sources.status_of(one), tables_of(core, one), shared.get(one.name)) for one in listed]
    return pa.Table.from_pylist(told, schema=_SHOWN)


_SHOWN = pa.schema(
    [
        ("name", pa.string()),
        ("table", pa.string()),
        ("state", pa.string()),
        ("received", pa.int64()),
        ("applied", pa.int64()),
        ("stale", pa.int64()),
        ("dead", pa.int64()),
        ("pending", pa.int64()),
        ("lag_records", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("error", pa.string()),
        ("connector", pa.string()),
        ("location", pa.string()),
        ("mode", pa.string()),
        ("position", pa.string()),
        ("version", pa.int64()),
        ("rows", pa.int64()),
        ("epoch", pa.int64()),
        ("records_per_second", pa.float64()),
        ("warning", pa.string()),
        ("tables", pa.list_(pa.string())),
        ("options", pa.string()),
    ]
)


def _row(source: Source, status: Status, tables: list[str], shared: str | None) -> dict[str, Any]:
    progress = status.progress
    warnings = [one for one in (status.warning, shared) if one]
    return {
        "name": source.name,
        "table": source.table,
        "state": status.state,
        "received": progress.received + status.pending,
        "applied": progress.applied,
        "stale": progress.stale,
        "dead": progress.dead,
        "pending": status.pending,
        "lag_records": status.lag_records,
        "lag_seconds": status.lag_seconds,
        "error": status.error,
        "connector": source.connector,
        "location": source.location,
        "mode": source.mode,
        "position": json.dumps(progress.position, sort_keys=True) if progress.position else None,
        "version": progress.position.get("version"),
        "rows": source.rows,
        "epoch": source.epoch,
        "records_per_second": round(status.records_per_second, 3),
        "warning": ". ".join(warnings) or None,
        "tables": tables,
        # Secrets are references already: in plain text no statement is taken.
        "options": json.dumps(dict(source.options), sort_keys=True),
    }
