"""A feed that is delivered into PostgreSQL: each batch is one transaction, with how far the feed is in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psycopg
from psycopg import Connection, Cursor, conninfo, sql
from pyspark.sql.types import StructType

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.postgres_names import Described
from headrace.feeds.postgres_resync import begin_beside, replace_rows
from headrace.feeds.postgres_rows import Lines, lines_of
from headrace.feeds.postgres_state import Book, Counts, State
from headrace.feeds.postgres_target import (
    FEEDS,
    Layout,
    Names,
    allow_null_keys,
    can_hold_null_keys,
    find_names,
    find_unique,
    fit_table,
    is_there,
    lock_definitions,
    make_beside,
    make_table,
)
from headrace.feeds.postgres_types import Faults
from headrace.feeds.postgres_write import is_of_a_row, make_stage, reason_of, write
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable, Target
from headrace.feeds.told import Told

# Called at each step of a delivery: tests end the process there.
Step = Callable[[str], None]

_CONNECT_SECONDS = 10
_SETTINGS = (
    "SET timezone = 'UTC'",
    # A large batch or a scan takes as long as it takes; who waits for a lock tells so, and tries again.
    "SET statement_timeout = 0",
    "SET lock_timeout = '30s'",
    "SET idle_in_transaction_session_timeout = '60s'",
    "SET default_transaction_isolation = 'read committed'",
    "SET default_transaction_read_only = off",
)


class PostgresDelivery:
    """An open target; connected when it is needed, and again after a failure."""

    keeps_marks = keeps_epochs_whole = True
    tells_resets = False

    def __init__(self, target: Target, described: Described, step: Step = lambda _: None) -> None:
        self._target = target
        self._described = described
        self._step = step
        self._connection: Connection[Any] | None = None
        # Known while there is a connection.
        self._book: Book
        self._layout: Layout | None = None
        # The record of the run, which a new connection goes on with.
        self._run: int | None = None
        # Why the table cannot be followed on, until a scan brings it all.
        self._lost = ""
        with self._transaction():
            pass

    def known_mark(self) -> Mark | None:
        """How far the database knows the feed to be."""
        with self._transaction() as cursor:
            return self._book.locked(cursor).mark

    def deliver(self, batch: Batch) -> None:
        """Bring the newest row of each key into the table and keep the mark, in one transaction."""
        with self._transaction() as cursor:
            self._step("began")
            refused = self._write(cursor, batch, self._book.locked(cursor))
            self._step("before commit")
        self._step("after commit")
        if refused:
            raise EventsRefused(refused)

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Keep that all up to a mark was told: who reads the table sees how fresh it is."""
        with self._transaction() as cursor:
            state = self._book.locked(cursor)
            if not self._lost:
                self._book.keep(cursor, state.at(mark), datetime.fromtimestamp(epoch_committed_at, UTC))

    def begin_scan(self, columns: StructType) -> None:
        """Have what comes next go into a table beside, or into the target itself where that is empty."""
        with self._transaction() as cursor:
            state = self._book.locked(cursor)
            lock_definitions(cursor)
            made = state.made
            if not is_there(cursor, self._names.schema, self._described.table):
                make_table(cursor, self._names, self._described, columns)
                made = True
            layout = self._fit(cursor, columns)
            row = cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(self._names.target)).fetchone()
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._names.scan))
            scan = "direct"
            if row == (True,):
                scan = "beside"
                begin_beside(cursor, self._names, self._described, layout)
            self._book.begin_run(cursor, "resync")
            # Older events that were refused say nothing any more: the scan has what came of them.
            self._book.keep(cursor, State(state.mark, Told(state.told.highest), scan, self._place, made))
        self._lost = ""

    def end_scan(self, mark: Mark) -> None:
        """Have the target hold what was told in the scan, all at once."""
        with self._transaction() as cursor:
            state = self._book.locked(cursor)
            if state.scan == "beside":
                try:
                    with cursor.connection.transaction():
                        counts = replace_rows(cursor, self._names, self._described, self._known_layout(cursor))
                except psycopg.Error as error:
                    if is_of_a_row(error):
                        raise SinkEnded(
                            f"a row of the scan breaks what somebody demands of the table: {reason_of(error)}"
                        ) from error
                    raise
                self._book.count(cursor, counts)
            if state.scan is not None:
                self._step("before the end of a scan")
                cursor.execute(sql.SQL("ANALYZE {}").format(self._names.target))
                self._book.end_run(cursor)
                self._book.begin_run(cursor, "follow")
            told = state.told if state.told.highest is not None else Told(mark.sequence)
            self._book.keep(cursor, replace(state.at(mark), told=told, scan=None))

    def close(self) -> None:
        """End the run and let go of the connection."""
        if self._connection is None or self._connection.closed:
            return
        with contextlib.suppress(psycopg.Error, SinkEnded, SinkUnavailable), self._transaction() as cursor:
            state = self._book.locked(cursor)
            if state.scan is None:
                self._book.end_run(cursor)
        self._disconnect()

    def _write(self, cursor: Cursor[Any], batch: Batch, state: State) -> Faults:
        """Write the events that are new, and how far the feed is then; return those that are refused."""
        if self._lost:
            raise SinkEnded(self._lost)
        if len(batch) and state.told.highest is None and state.scan is None and batch.sequences[0] > 1:
            raise SinkEnded("the database no longer has what was delivered: RESYNC CHANGEFEED tells all rows anew")
        due = np.flatnonzero(state.told.lacks(batch.sequences))
        refused: Faults = {}
        keys: dict[int, str] = {}
        newest: dict[str, int] = {}
        numbers = batch.sequences
        counts = Counts(batches=1, events=len(due))
        if len(due):
            layout = self._known_layout(cursor)
            if layout.columns != batch.columns:
                layout = self._fit(cursor, batch.columns)
            lines, faults = lines_of(batch, due, self._described)
            self._fit_null_keys(cursor, layout, lines, faults, state)
            table = self._names.scan if state.scan == "beside" else self._names.target
            self._step("before COPY")
            refused = write(cursor, table, self._known_layout(cursor), self._described.mode, lines, faults, counts)
            self._step("after the rows")
            counts.refused = len(refused)
            if self._described.keys and (refused or state.told.refused):
                keys, newest = _by_key(lines, numbers, refused)
            if state.scan == "beside":
                # They are in the target when the scan ends.
                counts.written = counts.deleted = 0
        told = state.told.with_events(numbers, {numbers[one]: keys.get(one, "") for one in refused}, newest)
        mark = min(batch.after, batch.mark_before(min(refused))) if refused else batch.after
        committed_at = batch.committed_at[-1] if len(batch) and not refused else None
        self._book.keep(cursor, replace(state.at(mark), told=told), committed_at)
        self._book.count(cursor, counts)
        return refused

    def _fit_null_keys(self, cursor: Cursor[Any], layout: Layout, lines: Lines, faults: Faults, state: State) -> None:
        """Have the table take keys with a NULL, or find fault with them."""
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
        return self._book.names

    @property
    def _place(self) -> str:
        return f"{self._names.schema}.{self._described.table}"

    @contextlib.contextmanager
    def _transaction(self) -> Generator[Cursor[Any], None, None]:
        """A transaction; what goes wrong in it is told as a sink tells it."""
        try:
            if self._connection is None or self._connection.closed:
                self._connect()
            assert self._connection is not None
            with self._connection.transaction(), self._connection.cursor() as cursor:
                # What a row breaks is told with the row, not by the commit.
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                yield cursor
        except psycopg.Error as error:
            # What the session knew of the tables may be wrong now.
            self._disconnect()
            raise SinkUnavailable(_told(error)) from error
        except BaseException:
            # A definition that was made in it is not there any more.
            self._layout = None
            raise

    def _connect(self) -> None:
        connection = connected(self._target, self._described)
        self._layout = None
        try:
            with connection.transaction(), connection.cursor() as cursor:
                names = find_names(cursor, self._described)
                make_beside(cursor, names)
            self._book = Book(names, self._target, self._run)
            self._book.end_other_owner(connection)
            with connection.transaction(), connection.cursor() as cursor:
                self._prepare(cursor)
        except BaseException:
            connection.close()
            raise
        self._connection, self._run = connection, self._book.run

    def _prepare(self, cursor: Cursor[Any]) -> None:
        """Take the feed over, and make or check its table."""
        lock_definitions(cursor)
        there = is_there(cursor, self._names.schema, self._described.table)
        self._book.refuse_second(cursor, self._place)
        state = self._book.take_over(cursor, self._place, made=not there)
        self._lost = ""
        if state.target != self._place:
            self._lost = f"this feed was delivered to {state.target} so far: RESYNC CHANGEFEED tells all rows anew"
        elif not there and state.told.highest is not None:
            self._lost = f"the table {self._place} is gone with all its rows: RESYNC CHANGEFEED tells them anew"
        elif not there:
            make_table(cursor, self._names, self._described, self._target.columns)
        if not self._lost:
            self._fit(cursor, self._target.columns)
        if self._book.run is None and (state.scan is None or not self._book.find_run(cursor, "resync")):
            self._book.begin_run(cursor, "follow" if state.scan is None else "resync")

    def _disconnect(self) -> None:
        connection, self._connection, self._layout = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def _by_key(lines: Lines, numbers: Sequence[int], refused: Faults) -> tuple[dict[int, str], dict[str, int]]:
    """The key of each refused event, and of each key the last number that was written."""
    pairs = list(zip(lines.events.tolist(), lines.keys.to_pylist(), strict=True))
    keys = {event: key for event, key in pairs if event in refused}
    return keys, {key: numbers[event] for event, key in pairs if event not in refused}


def connected(target: Target, described: Described) -> Connection[Any]:
    """A new session, with its settings."""
    given: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "application_name": f"headrace {target.feed}"[:60],
        "tcp_user_timeout": 30_000,
        "client_encoding": "UTF8",
    }
    password = target.options.get("password")
    if password is not None:
        given["password"] = str(password)
    connection = psycopg.connect(conninfo.make_conninfo(described.database, **given), prepare_threshold=1)
    for setting in _SETTINGS:
        connection.execute(setting)
    connection.commit()
    return connection


def forget(target: Target, described: Described) -> None:
    """Take a feed out of the tables of ours, and away what a scan has gathered; the target stays."""
    try:
        with connected(target, described) as connection, connection.cursor() as cursor:
            names = find_names(cursor, described)
            if is_there(cursor, names.schema, FEEDS):
                Book(names, target).forget(cursor)
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(names.scan))
    except psycopg.Error as error:
        raise SinkUnavailable(_told(error)) from error


def _told(error: psycopg.Error) -> str:
    if error.sqlstate is not None:
        return f"PostgreSQL: {reason_of(error)}"
    # What libpq says of a connection goes over several lines.
    return "PostgreSQL: " + " ".join(str(error).split())
