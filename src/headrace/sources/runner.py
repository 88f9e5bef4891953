"""One source at work: polled, taken into epochs and confirmed, by a thread of its own.

What is transient is tried again, less and less often; what is not stops the source, which says why, and waits to be
resumed. Nothing else waits for it: a call of a source stands in line like any other.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from headrace.capture.columns.records import Records, RecordsReading
from headrace.capture.connector import Arrival, BeginsLate, Connector, Description, Lag, Reading
from headrace.capture.messages import Message, Undecodable
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.errors import HomeBroken, HomeClosed, OwnerLost, SourceError
from headrace.sources.ahead import Ahead
from headrace.sources.bulk import Backlog
from headrace.sources.connectors import lag_warning_of
from headrace.sources.decoders import Decoders
from headrace.sources.failures import may_pass, told
from headrace.sources.intake import NoTable, Progress
from headrace.sources.pace import Pace
from headrace.sources.rate import Rate
from headrace.sources.retention import outlived, retention_of
from headrace.sources.secrets import hidden
from headrace.sources.status import State, Status
from headrace.sources.system_tables import DEAD_LETTERS
from headrace.sources.taking import Taking
from headrace.sources.transactions import MOST_HELD, Transactions, Unfinished

_log = logging.getLogger("headrace.sources")
_POLL_SECONDS = 0.5
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_LAG_SECONDS = 2.0
# A database that cannot be reached is known to be so by then.
_REACHED_SECONDS = 60.0
_MOST_RECORDS = 10_000
_LET_GO_SECONDS = 10.0
# Who waits longer for a source's last reader to end says so.
_LATE_SECONDS = 5.0
# Whoever closes a home or stops a source waits no longer for one that does not answer, such as a function that sleeps.
STOP_SECONDS = 20.0


class Runner:
    """Reads one source until it is stopped."""

    def __init__(
        self,
        loop: Loop,
        source: Source,
        connector: Connector,
        description: Description,
        table_of: Callable[[Arrival], str],
        decode_of: Decoders,
        read_progress: Callable[[], Progress],
        before: Runner | None = None,
        totals: Counter[str] | None = None,
        backlog: Backlog | None = None,
        heard_at: dict[str, datetime] | None = None,
    ) -> None:
        self.source = source
        self._loop = loop
        self._connector = connector
        self._description = description
        self._table_of = table_of
        self._decode_of = decode_of
        self._read_progress = read_progress
        # Who read the source until now, and may still be at its last epoch.
        self._before = before
        self._backlog = backlog
        self._options: Mapping[str, Any] = source.options
        self._retention = retention_of(source.options)
        self._let_go_at = 0.0
        self._most = int(self._options.get("max_records", _MOST_RECORDS))
        self._rate = Rate(source.options)
        self._stopped = threading.Event()
        self._state: State = "Running"
        self._error: str | None = None
        self._lag = Lag()
        self._lag_at = 0.0
        self._opened_at = 0.0
        warn_after = lag_warning_of(source.options)
        self._pace = Pace(source.name, warn_after, totals if totals is not None else Counter(), heard_at)
        self._taking = Taking(
            loop,
            source,
            connector,
            table_of,
            decode_of,
            read_progress,
            self._pace,
            self._most,
            self._stopped,
        )
        self._thread = threading.Thread(target=self._run, name=f"headrace-source-{source.name}", daemon=True)

    def start(self) -> None:
        """Begin to read, where the last committed epoch ends."""
        self._thread.start()

    @property
    def runs(self) -> Source:
        """The source that it reads."""
        return self.source

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is under way any more."""
        return not self._thread.is_alive()

    def stop(self, wait: bool = True) -> None:
        """Finish the epoch under way, and read no further; who waits does so no longer than some seconds."""
        self._stopped.set()
        if wait and not self._ends_within(STOP_SECONDS):
            # Whatever it still brings is refused: it was told to stop.
            _log.warning(
                "source %s has not ended within %s seconds, and is left alone",
                self.source.name,
                STOP_SECONDS,
                extra=self._fields,
            )

    def _ends_within(self, seconds: float) -> bool:
        """Wait until it has ended, or for so long; who asks within it does not wait for itself."""
        if self._thread is threading.current_thread():
            return True
        if not self.has_ended:
            self._thread.join(seconds)
        return self.has_ended

    @property
    def _fields(self) -> dict[str, object]:
        """What a line of the log carries: whose it is, and the epoch after which it is written."""
        return {"source": self.source.name, "epoch": self._loop.core.epoch}

    @property
    def status(self) -> Status:
        """How it fares now."""
        progress, pending = self._taking.standing
        if self._state != "Running":
            # How far the source has gone meanwhile, nobody has asked.
            return Status(self._state, progress, pending, error=self._error)
        pace = self._pace
        return Status(
            self._state,
            progress,
            pending,
            self._lag.records,
            pace.lag_seconds,
            self._error,
            pace.records_per_second,
            pace.warning or self._lag.note,
            pace.failing_since,
        )

    def _run(self) -> None:
        if self._before is not None:
            self._wait_for(self._before)
            self._before = None
        try:
            self._read_on()
        # A library or a function of somebody's own may raise what would end its thread without a word.
        except BaseException as error:
            self._halt(error)
        finally:
            self._taking.await_changes(0)

    def _wait_for(self, before: Runner) -> None:
        """Wait until nobody else reads the source, and say so while that takes long: it may never answer."""
        before.stop(wait=False)
        told_at = datetime.now(UTC)
        while not before._ends_within(_LATE_SECONDS):
            # Before the error, so that a status with the error has the time as well.
            self._pace.failed()
            if self._error is None:
                self._error = f"it waits for its last reader, which was told to stop at {told_at:%H:%M:%S} UTC"
                _log.warning("source %s cannot begin: %s", self.source.name, self._error, extra=self._fields)
        self._error = None

    def _read_on(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began_at = time.monotonic()
            try:
                self._taking.look_again()
                self._read()
                return
            except (OwnerLost, HomeBroken, HomeClosed):
                raise
            except Exception as error:
                if not may_pass(error):
                    raise
                if self._stopped.is_set():
                    # What it still brought was refused, and nobody tries again.
                    return
                self._error = self._told(error)
                self._pace.failed()
                # One that worked for a while begins with short pauses.
                pause = _FIRST_PAUSE if time.monotonic() - began_at > _LONGEST_PAUSE else pause
                _log.warning(
                    "source %s is tried again in %.1f seconds: %s",
                    self.source.name,
                    pause,
                    self._error,
                    extra=self._fields,
                )
                self._stopped.wait(pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _halt(self, error: BaseException) -> None:
        self._state, self._error = "Error", self._told(error)
        _log.error("source %s has stopped: %s", self.source.name, self._error, extra=self._fields)

    def _told(self, error: BaseException) -> str:
        # What a library says of its settings may have a secret among them, and SHOW and the log are for everybody.
        return hidden(told(error), self._options, self._description.options)

    def _read(self) -> None:
        reading = self._connector.open(self._description, self._taking.position)
        self._opened_at, self._lag_at = time.monotonic(), 0.0
        held = Transactions(self._reads_topic, MOST_HELD, self.source.name, self._taking.changes_of)
        waiting = held if self._options.get("transactions") else None
        try:
            if isinstance(reading, BeginsLate):
                self._taking.begin(reading.begins_at())
            if self._backlog is not None and waiting is None and isinstance(reading, RecordsReading):
                self._read_backlog(reading, reading, self._backlog)
            else:
                self._read_arrivals(reading, waiting)
        finally:
            # What was read and not taken is awaited still: it is read again, unless this was the end.
            self._pace.rest()
            reading.close()

    def _read_arrivals(self, reading: Reading, waiting: Transactions | None) -> None:
        # Of transactions that have not come whole yet; they are read again after a restart.
        held = Unfinished(self._changes_of)
        while not self._stopped.is_set():
            self._rate.wait(self._stopped)
            if self._stopped.is_set():
                return
            arrivals = reading.poll(self._rate.most(self._most), _POLL_SECONDS)
            self._rate.took(len(arrivals))
            if self._stopped.is_set():
                return
            self._look_at_lag(reading, force=not arrivals)
            self._let_go()
            if waiting is not None:
                self._take_transactions(waiting, arrivals, reading)
            elif arrivals:
                self._take_whole(held, arrivals, reading)
            self._taking.await_changes(held.held if waiting is None else waiting.held)
            self._note_success(heard=bool(arrivals))

    def _note_success(self, heard: bool) -> None:
        """The source has answered, and what it gave was taken: what failed before does so no longer.

        One that was polled in vain while it is still being reached has not answered; one that fails does so in a while.
        """
        if heard or self._lag.is_heard or time.monotonic() - self._opened_at > _REACHED_SECONDS:
            self._error = None
            self._pace.succeeded()

    def _read_backlog(self, reading: Reading, records: RecordsReading, backlog: Backlog) -> None:
        """Read records together; many of them are taken as columns, and others one by one."""
        held = Unfinished(self._changes_of)
        ahead = Ahead(
            self.source.name,
            lambda: self._polled(records, backlog),
            lambda polled: self._taking.made(polled, backlog),
        )
        try:
            while not self._stopped.is_set():
                ready = ahead.next()
                if self._stopped.is_set():
                    return
                self._look_at_lag(reading, force=not ready.records)
                self._let_go()
                if not ready.records:
                    self._taking.await_changes(held.held)
                    self._note_success(heard=False)
                    continue
                if held.arrivals or not self._taking.take_backlog(ready, ahead, backlog):
                    # They go the way of single records, no more of them at once than that takes.
                    ahead.settle()
                    for start in range(0, len(ready.records), self._most):
                        piece = range(start, min(start + self._most, len(ready.records)))
                        self._take_whole(held, [ready.records.arrival(index) for index in piece], reading)
                else:
                    self._confirm(reading)
                self._taking.await_changes(held.held)
                self._note_success(heard=True)
        finally:
            ahead.close()

    def _polled(self, records: RecordsReading, backlog: Backlog) -> Records:
        self._rate.wait(self._stopped)
        polled = records.poll_records(self._rate.most(backlog.most), backlog.large, _POLL_SECONDS)
        self._rate.took(len(polled))
        return polled

    def _take_whole(self, held: Unfinished, arrivals: Sequence[Arrival], reading: Reading) -> None:
        """Bring records into epochs, with those held before them, but for what a transaction holds back."""
        ready = held.take(arrivals)
        self._pace.began(ready or held.arrivals)
        if ready:
            self._taking.take(ready)
            self._confirm(reading)

    def _confirm(self, reading: Reading) -> None:
        reading.confirm(self._taking.position)
        self._refuse_too_many_letters()

    def _take_transactions(self, waiting: Transactions, arrivals: Sequence[Arrival], reading: Reading) -> None:
        """Bring the transactions into epochs that have come whole."""
        waiting.add(arrivals, self._message_of)
        # While some are taken, the others count too.
        self._taking.await_changes(waiting.held)
        ready = waiting.take(at_head=not arrivals or (self._lag.records or 0) <= len(arrivals))
        if ready:
            self._pace.began(ready)
            self._taking.take(ready)
            self._confirm(reading)

    def _let_go(self) -> None:
        """Let go of what was kept long enough, now and then, a part at a time."""
        now = time.monotonic()
        if self._retention is None or not self._options.get("raw", True) or now < self._let_go_at:
            return
        self._let_go_at = now + _LET_GO_SECONDS
        core, name, retention = self._loop.core, self.source.name, self._retention
        receipt = self._loop.change_alone(lambda: outlived(core, name, retention, self._read_progress()))
        if receipt.applied:
            self._taking.look_again()
            # There may be more of it.
            self._let_go_at = now

    def _reads_topic(self, topic: str) -> bool:
        return self._connector.reads_topic(self._description, topic)

    def _message_of(self, arrival: Arrival) -> Message:
        """What a record says, whether or not there is a table for it."""
        if arrival.message is not None:
            return arrival.message
        try:
            table = self._table_of(arrival)
        except NoTable:
            table = ""
        return self._decode_of(table)(arrival.record)

    def _changes_of(self, arrival: Arrival) -> int:
        """How many changes a record counts as; one that cannot be read is one."""
        try:
            return self._taking.changes_of(self._message_of(arrival))
        except Undecodable:
            return 1

    def _look_at_lag(self, reading: Reading, force: bool) -> None:
        """Ask how far behind it is, now and then: that may cost a round trip."""
        now = time.monotonic()
        if now - self._lag_at >= (0.2 if force else _LAG_SECONDS):
            self._lag, self._lag_at = reading.lag(), now
            self._pace.looked(self._lag)

    def _refuse_too_many_letters(self) -> None:
        limit = self._options.get("dead_letter_limit")
        if limit is None:
            return
        held = self._loop.core.relations()[DEAD_LETTERS][0].count
        if held > int(limit):
            raise SourceError(
                f"source {self.source.name} is paused: there are {held} dead letters, and its limit is {limit}",
                hint="SELECT * FROM dead_letters shows them; REPLAY or DISCARD them, then RESUME SOURCE",
            )
