"""Delivery into PostgreSQL: each batch is one transaction, which also writes the position of the feed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psycopg
from psycopg import Cursor, sql
from pyspark.sql.types import StructType

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.postgres_names import Described
from headrace.feeds.postgres_parked import ParkedEvents, event_keys
from headrace.feeds.postgres_resync import begin_beside, bring_rows
from headrace.feeds.postgres_rows import Lines, lines_of
from headrace.feeds.postgres_session import Session, limit_for, limit_long, open_session
from headrace.feeds.postgres_state import Counts, FeedRecord, State
from headrace.feeds.postgres_target import (
    FEEDS,
    PARKED,
    Layout,
    Names,
    allow_null_keys,
    can_hold_null_keys,
    find_names,
    find_unique,
    fit_table,
    has_rows,
    is_there,
    lock_definitions,
    make_beside,
    make_table,
)
from headrace.feeds.postgres_types import Faults
from headrace.feeds.postgres_write import TableWriter, is_of_a_row, make_stage, reason_of
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable, Target

# Called at each step of a delivery: tests end the process there.
Step = Callable[[str], None]


class PostgresDelivery:
    """An open target; connected when it is needed, and again after a failure."""

    keeps_marks = keeps_epochs_whole = True
    tells_resets = False

    def __init__(self, target: Target, described: Described, step: Step = lambda _: None) -> None:
        self._target = target
        self._described = described
        self._step = step
        self._connection: Session | None = None
        # Known while there is a connection.
        self._record: FeedRecord
        self._layout: Layout | None = None
        # The record of the run, which a new connection goes on with.
        self._run: int | None = None
        # Why the table cannot be followed on, until a scan brings it all.
        self._lost = ""
        # Whether the feed has ended with an error that the table or the database is to blame for.
        self._has_failed = False
        # Sequences that were parked since the last transaction.
        self._given_up: set[int] = set()
        with self._transaction():
            pass

    def known_mark(self) -> Mark | None:
        """Return the position of the feed as the database has it."""
        with self._transaction() as cursor:
            return self._record.locked(cursor).mark

    def deliver(self, batch: Batch) -> None:
        """Bring the newest row of each key into the table and write the position, in one transaction."""
        with self._transaction() as cursor:
            limit_for(cursor, len(batch))
            self._step("began")
            refused = self._write(cursor, batch, self._locked(cursor))
            self._step("before commit")
        self._given_up.clear()
        self._step("after commit")
        if refused:
            raise EventsRefused(refused)

    def give_up(self, sequences: Collection[int]) -> None:
        """Take that refused events were parked; the next transaction notes it.

        They are not missing any more, and the feed's row does not name them from then on. Each can still be delivered,
        as long as no later event of its key has come.
        """
        self._given_up.update(sequences)

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Keep that all up to a mark was delivered: readers of the table see how fresh it is."""
        with self._transaction() as cursor:
            state = self._locked(cursor)
            if not self._lost:
                self._record.keep(cursor, state.at(mark), datetime.fromtimestamp(epoch_committed_at, UTC))
        if not self._lost:
            self._given_up.clear()

    def begin_scan(self, columns: StructType) -> None:
        """Direct the rows of a scan into a table beside the target, or into the target itself where that is empty."""
        with self._transaction() as cursor:
            state = self._record.locked(cursor)
            lock_definitions(cursor)
            made = state.made and state.target == self._place
            if not is_there(cursor, self._names.schema, self._described.table):
                make_table(cursor, self._names, self._described, columns)
                made = True
            is_first = self._is_first(state)
            if is_first and not made:
                self._refuse_rows(cursor)
            layout = self._fit(cursor, columns)
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._names.scan))
            scan = "direct"
            if has_rows(cursor, self._names):
                scan = "append" if is_first and self._described.mode == "insert" else "beside"
                begin_beside(cursor, self._names, self._described, layout)
            self._record.begin_run(cursor, "resync")
            # The scan has what came of older events that were refused.
            self._parked.clear(cursor)
            self._record.keep(
                cursor, State(state.mark, DeliveredSequences(state.told.highest), scan, self._place, made)
            )
        self._lost = ""
        self._given_up.clear()

    def end_scan(self, mark: Mark) -> None:
        """Bring the rows of the scan into the target, all at once."""
        with self._transaction() as cursor:
            state = self._locked(cursor)
            if state.is_beside:
                layout, append = self._known_layout(cursor), state.scan == "append"
                try:
                    with cursor.connection.transaction():
                        counts = bring_rows(cursor, self._names, self._described, layout, append=append)
                except psycopg.Error as error:
                    if is_of_a_row(error):
                        raise SinkEnded(
                            f"a row of the scan breaks what somebody demands of the table: {reason_of(error)}"
                        ) from error
                    raise
                self._record.count(cursor, counts)
            if state.scan is not None:
                self._step("before the end of a scan")
                limit_long(cursor)
                cursor.execute(sql.SQL("ANALYZE {}").format(self._names.target))
                self._record.end_run(cursor)
                self._record.begin_run(cursor, "follow")
            told = state.told if state.told.highest is not None else DeliveredSequences(mark.sequence)
            self._record.keep(cursor, replace(state.at(mark), told=told, scan=None))

    def close(self) -> None:
        """End the run, and close the connection."""
        if self._connection is None or self._connection.closed:
            return
        with contextlib.suppress(psycopg.Error, SinkEnded, SinkUnavailable), self._transaction() as cursor:
            state = self._locked(cursor)
            if self._given_up:
                self._record.keep(cursor, state)
            if state.scan is None:
                self._record.end_run(cursor, "failed" if self._has_failed else "success")
        self._disconnect()

    def _locked(self, cursor: Cursor[Any]) -> State:
        """Return the locked state of the feed, without the events among the missing that were parked meanwhile."""
        state = self._record.locked(cursor)
        if not self._given_up:
            return state
        self._parked.add(cursor, self._given_up, state.told)
        return replace(state, told=state.told.give_up(self._given_up), has_parked=True)

    def _write(self, cursor: Cursor[Any], batch: Batch, state: State) -> Faults:
        """Write the events that are due and the position of the feed; return the events that are refused."""
        if self._lost:
            raise SinkEnded(self._lost)
        if len(batch) and state.told.highest is None and state.scan is None and batch.sequences[0] > 1:
            raise SinkEnded("the database no longer has what was delivered: RESYNC CHANGEFEED tells all rows anew")
        numbers = np.asarray(batch.sequences, dtype=np.int64)
        missing = state.told.lacks(batch.sequences)
        parked = set[int]()
        if state.has_parked and not missing.all():
            parked = self._parked.find(cursor, numbers[~missing].tolist())
        due = np.flatnonzero(missing | np.isin(numbers, list(parked)))
        refused: Faults = {}
        keys: dict[int, str] = {}
        counts = Counts(batches=1, events=len(due))
        if len(due) and batch.scan and state.scan is None:
            raise SinkEnded("the database no longer has the scan under way: RESYNC CHANGEFEED delivers all rows again")
        if len(due):
            layout = self._known_layout(cursor)
            if layout.columns != batch.columns:
                layout = self._fit(cursor, batch.columns)
            lines, faults = lines_of(batch, due, self._described)
            self._fit_null_keys(cursor, layout, lines, faults, state)
            self._step("before COPY")
            refused = self._writer(cursor, state, counts).write(lines, faults)
            self._step("after the rows")
            counts.refused = len(refused)
            if self._described.keys and (refused or state.told.refused or state.has_parked):
                keys = event_keys(lines)
            if state.is_beside:
                # They are in the target when the scan ends.
                counts.written = counts.deleted = 0
        late = {int(numbers[event]): keys.get(event, "") for event in refused}
        newest = {key: batch.sequences[event] for event, key in keys.items() if event not in refused}
        told = state.told.with_events(
            batch.sequences,
            {number: key for number, key in late.items() if number not in parked},
            newest,
        )
        if state.has_parked:
            self._parked.remove(cursor, parked - late.keys(), newest)
        mark = min(batch.after, batch.mark_before(min(refused))) if refused else batch.after
        committed_at = batch.committed_at[-1] if len(batch) and not refused else None
        self._record.keep(cursor, replace(state.at(mark), told=told), committed_at)
        self._record.count(cursor, counts)
        return refused

    def _writer(self, cursor: Cursor[Any], state: State, counts: Counts) -> TableWriter:
        table, name = self._names.target, self._described.table
        if state.is_beside:
            table, name = self._names.scan, self._described.scan_table
        return TableWriter(cursor, table, name, self._known_layout(cursor), self._described, counts)

    def _fit_null_keys(self, cursor: Cursor[Any], layout: Layout, lines: Lines, faults: Faults, state: State) -> None:
        """Let the table take keys with a NULL, or add them to the faults."""
        null = lines.null_key & ~lines.gone
        if layout.unique is None or layout.unique.nulls_equal or not null.any():
            return
        if not can_hold_null_keys(cursor, layout, self._described, made=state.made):
            keys = ", ".join(self._described.keys)
            for event in lines.events[null].tolist():
                faults.setdefault(event, f"its key ({keys}) has a NULL, and the table's has none")
            return
        allow_null_keys(cursor, self._names, self._described, layout.unique)
        unique = find_unique(cursor, self._names, self._described)
        self._layout = Layout(layout.columns, layout.types, unique)

    def _known_layout(self, cursor: Cursor[Any]) -> Layout:
        return self._layout if self._layout is not None else self._fit(cursor, self._target.columns)

    def _fit(self, cursor: Cursor[Any], columns: StructType) -> Layout:
        """Make the target fit the columns of the relation, and the temporary table that of the target."""
        layout = fit_table(cursor, self._names, self._described, columns)
        make_stage(cursor, self._names, layout)
        self._layout = layout
        return layout

    @property
    def _names(self) -> Names:
        return self._record.names

    @property
    def _parked(self) -> ParkedEvents:
        return ParkedEvents(self._names, self._target.feed_id)

    @property
    def _place(self) -> str:
        return f"{self._names.schema}.{self._described.table}"

    @contextlib.contextmanager
    def _transaction(self) -> Generator[Cursor[Any], None, None]:
        """Run a transaction; raise the errors of PostgreSQL as `SinkUnavailable`."""
        try:
            if self._connection is None or self._connection.closed:
                self._connect()
            assert self._connection is not None
            self._connection.reset_limit()
            with self._connection.transaction(), self._connection.cursor() as cursor:
                # A constraint that a row breaks is reported with the row, and not by the commit.
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                yield cursor
        except psycopg.Error as error:
            # What the session knew of the tables may be wrong now.
            self._disconnect()
            raise SinkUnavailable(_reason(error)) from error
        except BaseException as error:
            self._has_failed |= isinstance(error, SinkEnded)
            # A definition that was made in it is not there any more.
            self._layout = None
            raise

    def _connect(self) -> None:
        connection = open_session(self._target, self._described)
        self._layout = None
        try:
            with connection.transaction(), connection.cursor() as cursor:
                names = find_names(cursor, self._described)
                make_beside(cursor, names)
            self._record = FeedRecord(names, self._target, self._run)
            self._record.end_other_owner(connection)
            with connection.transaction(), connection.cursor() as cursor:
                self._prepare(cursor)
        except BaseException:
            connection.close()
            raise
        self._connection, self._run = connection, self._record.run

    def _prepare(self, cursor: Cursor[Any]) -> None:
        """Take the feed over, and make or check its table."""
        lock_definitions(cursor)
        there = is_there(cursor, self._names.schema, self._described.table)
        self._record.refuse_second(cursor, self._place)
        state = self._record.take_over(cursor, self._place, made=not there)
        self._lost = ""
        if state.target != self._place:
            self._lost = f"this feed was delivered to {state.target} so far: RESYNC CHANGEFEED tells all rows anew"
        elif not there and state.told.highest is not None:
            self._lost = f"the table {self._place} is gone with all its rows: RESYNC CHANGEFEED tells them anew"
        elif not there:
            make_table(cursor, self._names, self._described, self._target.columns)
        elif self._is_first(state) and not state.made:
            self._refuse_rows(cursor)
        if not self._lost:
            self._fit(cursor, self._target.columns)
        if self._record.run is None and (state.scan is None or not self._record.find_run(cursor, "resync")):
            self._record.begin_run(cursor, "follow" if state.scan is None else "resync")

    def _is_first(self, state: State) -> bool:
        """Return whether the feed has not written anything into its target so far."""
        return state.target != self._place or (state.told.highest is None and state.scan is None)

    def _refuse_rows(self, cursor: Cursor[Any]) -> None:
        """Refuse a table that has rows already, if the feed would delete them and nobody allows it."""
        if self._described.mode == "mirror" and not self._described.take_over and has_rows(cursor, self._names):
            raise SinkEnded(
                f"{self._place} has rows that this feed did not write, and mode 'mirror' would delete those that "
                f"{self._target.table} does not have: give take_over = true if it may, or another mode or table"
            )

    def _disconnect(self) -> None:
        connection, self._connection, self._layout = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def forget(target: Target, described: Described) -> None:
    """Delete all rows about a feed, and the table beside its target; the target stays."""
    try:
        with open_session(target, described) as connection, connection.cursor() as cursor:
            names = find_names(cursor, described)
            if is_there(cursor, names.schema, FEEDS) and is_there(cursor, names.schema, PARKED):
                FeedRecord(names, target).forget(cursor)
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(names.scan))
    except psycopg.Error as error:
        raise SinkUnavailable(_reason(error)) from error


def _reason(error: psycopg.Error) -> str:
    if error.sqlstate is not None:
        return f"PostgreSQL: {reason_of(error)}"
    # A message of libpq about a connection has several lines.
    return "PostgreSQL: " + " ".join(str(error).split())
