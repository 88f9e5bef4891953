"""The record that PostgreSQL has of a feed: its position, its owner, and its runs with their counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import Connection, Cursor, errors, sql

from headrace.feeds.batch import Mark
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.postgres_target import Names
from headrace.feeds.sink import SinkEnded, SinkUnavailable, Target

_KEPT_RUNS = 200


@dataclass(frozen=True)
class State:
    """A feed's row in headrace_feeds, locked until the transaction ends."""

    mark: Mark | None
    # Which events are written.
    told: DeliveredSequences
    # Where a scan goes: 'direct' into a target that was empty, 'beside' to take the place of its rows, or 'append' to
    # be added to them; none if no scan is under way.
    scan: str | None
    target: str
    made: bool
    # Whether events of the feed are parked.
    has_parked: bool = False

    @property
    def is_beside(self) -> bool:
        """Whether the rows of a scan are gathered beside the target."""
        return self.scan in ("beside", "append")

    def at(self, mark: Mark) -> State:
        """Return the state at a mark, or at its own mark if that is further."""
        return self if self.mark is not None and mark <= self.mark else replace(self, mark=mark)


@dataclass
class Counts:
    """Numbers of batches, events and rows of a transaction."""

    batches: int = 0
    events: int = 0
    written: int = 0
    deleted: int = 0
    refused: int = 0


@dataclass
class FeedRecord:
    """The feed's row in headrace_feeds, and its runs."""

    names: Names
    target: Target
    # The run that is under way, if it has a record already.
    run: int | None = field(default=None)

    def end_other_owner(self, connection: Connection[Any]) -> None:
        """End the session of an earlier owner, which may hold locks for as long as its process is stopped."""
        row = connection.execute(
            sql.SQL(
                "SELECT f.backend FROM {} f JOIN pg_stat_activity a ON a.pid = f.backend "
                "AND a.backend_start = f.backend_started_at "
                "WHERE f.feed_id = %s AND f.fence <= %s AND f.backend <> pg_backend_pid()"
            ).format(self.names.feeds),
            (self.target.feed_id, self.target.fence),
        ).fetchone()
        connection.commit()
        if row is None:
            return
        try:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", row)
        except errors.InsufficientPrivilege:
            # Another user's: its locks go when it does.
            pass
        finally:
            connection.rollback()

    def refuse_second(self, cursor: Cursor[Any], target: str) -> None:
        """Refuse a table that another feed delivers to: each would take away what the other wrote.

        A feed of the same name that was dropped while the database did not answer has nobody at work, and goes.
        """
        other = cursor.execute(
            sql.SQL(
                "SELECT f.feed, f.feed_id, f.feed = %(feed)s AND a.pid IS NULL FROM {feeds} f "
                "LEFT JOIN pg_stat_activity a ON a.pid = f.backend AND a.backend_start = f.backend_started_at "
                "WHERE f.target = %(target)s AND f.feed_id <> %(id)s AND NOT EXISTS "
                "(SELECT FROM {feeds} WHERE feed_id = %(id)s AND target = %(target)s) ORDER BY 3 LIMIT 1"
            ).format(feeds=self.names.feeds),
            {"feed": self.target.feed, "target": target, "id": self.target.feed_id},
        ).fetchone()
        if other is None:
            return
        feed, feed_id, is_over = other
        if not is_over:
            raise SinkUnavailable(
                f"changefeed {feed} delivers to {target} already: give this one another table, or drop that one; if "
                f"it is there no more, DELETE FROM headrace_feeds WHERE feed_id = '{feed_id}'"
            )
        FeedRecord(self.names, replace(self.target, feed_id=feed_id)).forget(cursor)

    def take_over(self, cursor: Cursor[Any], target: str, *, made: bool) -> State:
        """Become the owner of the feed; raise `SinkEnded` if there is a later owner."""
        cursor.execute(
            sql.SQL(
                "INSERT INTO {} (feed_id, feed, relation, target, made, fence) VALUES (%s, %s, %s, %s, %s, %s) "
                "ON CONFLICT (feed_id) DO NOTHING"
            ).format(self.names.feeds),
            (self.target.feed_id, self.target.feed, self.target.table, target, made, self.target.fence),
        )
        state = self.locked(cursor)
        cursor.execute(
            sql.SQL(
                "UPDATE {} f SET fence = %s, feed = %s, backend = a.pid, backend_started_at = a.backend_start "
                "FROM pg_stat_activity a WHERE a.pid = pg_backend_pid() AND feed_id = %s"
            ).format(self.names.feeds),
            (self.target.fence, self.target.feed, self.target.feed_id),
        )
        return state

    def locked(self, cursor: Cursor[Any]) -> State:
        """Return the state of the feed, locked until this transaction ends."""
        row = cursor.execute(
            sql.SQL(
                "SELECT epoch, event, sequence, told, scan, target, made, fence, "
                "EXISTS (SELECT FROM {} p WHERE p.feed_id = f.feed_id) FROM {} f WHERE feed_id = %s FOR UPDATE OF f"
            ).format(self.names.parked, self.names.feeds),
            (self.target.feed_id,),
        ).fetchone()
        if row is None:
            raise SinkEnded("how far the feed is was removed from headrace_feeds: RESYNC CHANGEFEED")
        epoch, event, sequence, told, scan, target, made, fence, has_parked = row
        if fence > self.target.fence:
            raise SinkEnded(f"another process, with the number {fence}, delivers this feed now")
        mark = None if epoch is None else Mark.stored(epoch, event, sequence)
        return State(mark, DeliveredSequences.from_json(told), scan, target, made, has_parked)

    def keep(self, cursor: Cursor[Any], state: State, committed_at: object = None) -> None:
        """Write the state of the feed, to be committed with the rows of the transaction."""
        mark = state.mark
        cursor.execute(
            sql.SQL(
                "UPDATE {} SET epoch = %s, event = %s, sequence = %s, told = %s, scan = %s, "
                "target = %s, made = %s, committed_at = greatest(%s, committed_at), updated_at = clock_timestamp() "
                "WHERE feed_id = %s"
            ).format(self.names.feeds),
            (
                *((None, None, None) if mark is None else (mark.epoch, mark.stored_event, mark.sequence)),
                state.told.as_json(),
                state.scan,
                state.target,
                state.made,
                committed_at,
                self.target.feed_id,
            ),
        )

    def begin_run(self, cursor: Cursor[Any], kind: str) -> None:
        """Begin the record of a run; a run that is still recorded as running was interrupted."""
        values = {"runs": self.names.runs}
        cursor.execute(
            sql.SQL(
                "UPDATE {runs} SET state = 'interrupted', ended_at = clock_timestamp() "
                "WHERE feed_id = %s AND state = 'running'"
            ).format(**values),
            (self.target.feed_id,),
        )
        row = cursor.execute(
            sql.SQL("INSERT INTO {runs} (feed_id, kind) VALUES (%s, %s) RETURNING run_id").format(**values),
            (self.target.feed_id, kind),
        ).fetchone()
        assert row is not None
        self.run = row[0]
        cursor.execute(
            sql.SQL(
                "DELETE FROM {runs} WHERE feed_id = %s AND run_id <= (SELECT run_id FROM {runs} WHERE feed_id = %s "
                "ORDER BY run_id DESC OFFSET %s LIMIT 1)"
            ).format(**values),
            (self.target.feed_id, self.target.feed_id, _KEPT_RUNS),
        )

    def find_run(self, cursor: Cursor[Any], kind: str) -> bool:
        """Find the run of a kind that a restart cut short, to go on with it; return whether there is one."""
        row = cursor.execute(
            sql.SQL("SELECT run_id FROM {} WHERE feed_id = %s AND state = 'running' AND kind = %s").format(
                self.names.runs
            ),
            (self.target.feed_id, kind),
        ).fetchone()
        self.run = None if row is None else row[0]
        return row is not None

    def count(self, cursor: Cursor[Any], counts: Counts) -> None:
        """Add to the record of the run."""
        cursor.execute(
            sql.SQL(
                "UPDATE {} SET batches = batches + %s, events = events + %s, written = written + %s, "
                "deleted = deleted + %s, refused = refused + %s, updated_at = clock_timestamp() WHERE run_id = %s"
            ).format(self.names.runs),
            (counts.batches, counts.events, counts.written, counts.deleted, counts.refused, self.run),
        )

    def end_run(self, cursor: Cursor[Any], state: str = "success") -> None:
        """End the record of the run with a state: 'success' or 'failed'."""
        cursor.execute(
            sql.SQL(
                "UPDATE {} SET state = %s, ended_at = clock_timestamp() WHERE run_id = %s AND state = 'running'"
            ).format(self.names.runs),
            (state, self.run),
        )
        self.run = None

    def forget(self, cursor: Cursor[Any]) -> None:
        """Delete all rows about the feed from headrace_feeds, headrace_feed_runs and headrace_feed_parked."""
        for table in (self.names.feeds, self.names.runs, self.names.parked):
            cursor.execute(sql.SQL("DELETE FROM {} WHERE feed_id = %s").format(table), (self.target.feed_id,))
