"""One source at work: polled, decoded, taken into epochs and confirmed, by a thread of its own.

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
from typing import Any

from headrace import tracing
from headrace.capture.columns.records import Records, RecordsReading
from headrace.capture.connector import Arrival, BeginsLate, Connector, Description, Lag, Position, Reading
from headrace.capture.messages import Message
from headrace.catalog.catalog import Source
from headrace.epoch.batch import Changes, Verdicts
from headrace.epoch.calls import Basis, Call, Outdated
from headrace.epoch.loop import Loop
from headrace.epoch.work import Work
from headrace.errors import (
    HomeBroken,
    HomeClosed,
    MemoryExceeded,
    OwnerLost,
    SourceError,
    SourceUnavailable,
    ViewEvaluationError,
)
from headrace.sources.ahead import Ahead, Ready
from headrace.sources.bulk import Backlog, Prepared, Ways, call_of, prepare
from headrace.sources.connectors import lag_warning_of, most_bytes_of, positions_of
from headrace.sources.decoders import Decoders
from headrace.sources.failures import may_pass, told
from headrace.sources.guilty import guilty_changes
from headrace.sources.intake import Decoded, NoTable, Progress, Torn, call_for, call_to_begin, decode
from headrace.sources.pace import Pace
from headrace.sources.pieces import Pieces
from headrace.sources.rate import Rate
from headrace.sources.retention import outlived, retention_of
from headrace.sources.schema_changes import SchemaChanges
from headrace.sources.schema_policy import policy_of
from headrace.sources.secrets import hidden
from headrace.sources.status import State, Status
from headrace.sources.system_tables import DEAD_LETTERS, fitting_letters
from headrace.sources.transactions import MOST_HELD, Transactions, committable

_log = logging.getLogger("headrace.sources")
_POLL_SECONDS = 0.5
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_LAG_SECONDS = 2.0
_MOST_RECORDS = 10_000
_LET_GO_SECONDS = 10.0
# Whoever closes a home or stops a source waits no longer for one that does not answer, such as a function that sleeps.
STOP_SECONDS = 20.0
# So often a backlog is made anew because its tables have been defined otherwise meanwhile.
_ATTEMPTS = 3


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
    ) -> None:
        self.source = source
        self._loop = loop
        self._connector = connector
        self._description = description
        self._table_of = table_of
        self._decode_of = decode_of
        self._schemas = SchemaChanges(loop, source.name, policy_of(source.options), decode_of)
        self._read_progress = read_progress
        # Who read the source until now, and may still be at its last epoch.
        self._before = before
        self._backlog = backlog
        self._options: Mapping[str, Any] = source.options
        self._retention = retention_of(source.options)
        self._let_go_at = 0.0
        self._most = int(self._options.get("max_records", _MOST_RECORDS))
        self._rate = Rate(source.options)
        self._positions = positions_of(source, connector)
        # What the last call was given, if a view failed on it.
        self._failed: Work | None = None
        self._pieces = Pieces(self._decoded, self._commit, self._most, self._guilty)
        self._stopped = threading.Event()
        self._state: State = "Running"
        self._error: str | None = None
        self._lag = Lag()
        self._lag_at = 0.0
        self._pace = Pace(source.name, lag_warning_of(source.options), totals if totals is not None else Counter())
        self._pending = 0
        self._progress = Progress()
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
        if wait:
            self._join(STOP_SECONDS)

    def _join(self, seconds: float | None) -> None:
        if self._thread is threading.current_thread() or self._thread.ident is None:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            # Whatever it still brings is refused: it was told to stop.
            _log.warning(
                "source %s has not ended within %s seconds, and is left alone",
                self.source.name,
                seconds,
                extra=self._fields,
            )

    @property
    def _fields(self) -> dict[str, object]:
        """What a line of the log carries: whose it is, and the epoch after which it is written."""
        return {"source": self.source.name, "epoch": self._loop.core.epoch}

    @property
    def status(self) -> Status:
        """How it fares now."""
        if self._state != "Running":
            # How far the source has gone meanwhile, nobody has asked.
            return Status(self._state, self._progress, self._pending, error=self._error)
        pace = self._pace
        return Status(
            self._state,
            self._progress,
            self._pending,
            self._lag.records,
            pace.lag_seconds,
            self._error,
            pace.records_per_second,
            pace.warning or self._lag.note,
        )

    def _run(self) -> None:
        if self._before is not None:
            self._before.stop(wait=False)
            self._before._join(None)
            self._before = None
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began_at = time.monotonic()
            try:
                self._progress = self._read_progress()
                self._read()
                return
            except (OwnerLost, HomeBroken, HomeClosed) as error:
                self._halt(error)
                return
            except Exception as error:
                if not may_pass(error):
                    self._halt(error)
                    return
                self._error = self._told(error)
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
        reading = self._connector.open(self._description, self._progress.position)
        held = Transactions(self._reads_topic, MOST_HELD, self.source.name)
        waiting = held if self._options.get("transactions") else None
        try:
            if isinstance(reading, BeginsLate):
                self._begin(reading.begins_at())
            if self._backlog is not None and waiting is None and isinstance(reading, RecordsReading):
                self._read_backlog(reading, reading, self._backlog)
            else:
                self._read_arrivals(reading, waiting)
        finally:
            self._pending = 0
            self._pace.rest()
            reading.close()

    def _begin(self, position: Position) -> None:
        """Commit where the source begins, so that whatever comes before its first change is not lost by a restart."""
        if position:
            call, reached = self._guarded({}, lambda before: call_to_begin(self.source.name, position, before))
            self._loop.receipt_of(self._loop.enter(call))
            self._progress = reached()

    def _read_arrivals(self, reading: Reading, waiting: Transactions | None) -> None:
        # Of transactions that have not come whole yet; they are read again after a restart.
        held: list[Arrival] = []
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
                self._error = None
                self._take_whole(held, arrivals, reading)

    def _read_backlog(self, reading: Reading, records: RecordsReading, backlog: Backlog) -> None:
        """Read records together; many of them are taken as columns, and others one by one."""
        held: list[Arrival] = []
        ahead = Ahead(
            self.source.name,
            lambda: self._polled(records, backlog),
            lambda polled: self._made(polled, backlog),
        )
        try:
            while not self._stopped.is_set():
                ready = ahead.next()
                if self._stopped.is_set():
                    return
                self._look_at_lag(reading, force=not ready.records)
                self._let_go()
                if not ready.records:
                    continue
                self._error = None
                if held or not self._take_backlog(ready, ahead, backlog):
                    # They go the way of single records, no more of them at once than that takes.
                    ahead.settle()
                    for start in range(0, len(ready.records), self._most):
                        piece = range(start, min(start + self._most, len(ready.records)))
                        self._take_whole(held, [ready.records.arrival(index) for index in piece], reading)
                else:
                    self._confirm(reading)
        finally:
            ahead.close()

    def _polled(self, records: RecordsReading, backlog: Backlog) -> Records:
        self._rate.wait(self._stopped)
        polled = records.poll_records(self._rate.most(backlog.most), backlog.large, _POLL_SECONDS)
        self._rate.took(len(polled))
        return polled

    def _take_whole(self, held: list[Arrival], arrivals: Sequence[Arrival], reading: Reading) -> None:
        """Bring records into epochs, with those held before them, but for what a transaction holds back."""
        held.extend(arrivals)
        self._pace.began(held)
        whole = committable(held)
        if whole:
            self._take(held[:whole])
            del held[:whole]
            self._confirm(reading)

    def _confirm(self, reading: Reading) -> None:
        reading.confirm(self._progress.position)
        self._refuse_too_many_letters()

    def _made(self, records: Records, backlog: Backlog) -> Ready:
        """Many records as columns, under the definitions of now; few of them as they are."""
        core = self._loop.core
        basis = Basis(core.epoch, core.definitions, frozenset())
        if len(records) < backlog.large:
            return Ready(records, None, basis)
        most_bytes = most_bytes_of(self._options)
        alone: list[Decoded] = []

        def decode_alone(arrivals: Sequence[Arrival]) -> Decoded:
            alone.append(self._decoded(arrivals))
            return alone[-1]

        ways = Ways(
            backlog.table_of, backlog.contract_of, backlog.columns_of, decode_alone, most_bytes, self._positions
        )
        prepared = prepare(records, ways)
        # Other columns than the table has show in those that were read alone.
        if any(self._schemas.first_need(one, self._table_of) is not None for one in alone):
            prepared = None
        return Ready(records, prepared, basis)

    def _take_backlog(self, ready: Ready, ahead: Ahead, backlog: Backlog) -> bool:
        """Bring many records into one epoch as columns; False if they must go the way of single ones."""
        times = ready.records.timestamps
        for attempt in range(_ATTEMPTS):
            # Where single records are to be looked for, all of them together fail.
            if ready.prepared is None or not self._pieces.whole:
                return False
            self._pace.began([ready.records.arrival(min(range(len(times)), key=times.__getitem__))])
            if attempt == 0:
                ahead.begin()
            try:
                self._commit_backlog(ready.prepared, ready.basis)
                return True
            except Outdated:
                # Columns are those of the table as it was defined when they were made.
                ahead.settle()
                ready = self._made(ready.records, backlog)
            except (Torn, ViewEvaluationError, MemoryExceeded):
                # Which of them it is that cannot be taken shows when they come one by one.
                return False
            finally:
                self._pending = 0
        return False

    def _commit_backlog(self, prepared: Prepared, basis: Basis) -> None:
        name, raw = self.source.name, bool(self._options.get("raw", True))
        changes = dict(prepared.changes)
        call, reached = self._guarded(changes, lambda before: call_of(name, prepared, before, raw=raw))
        call.basis = basis
        call.asks_row = False
        self._pending = prepared.received
        count = len(prepared.records)
        self._bring(call, count)
        self._pace.committed([prepared.records.arrival(count - 1)], self._progress, reached(), count)
        self._progress = reached()

    def _take_transactions(self, waiting: Transactions, arrivals: Sequence[Arrival], reading: Reading) -> None:
        """Bring the transactions into epochs that have come whole."""
        if arrivals:
            self._error = None
        waiting.add(arrivals, self._message_of)
        ready = waiting.take(at_head=not arrivals or (self._lag.records or 0) <= len(arrivals))
        if ready:
            self._pace.began(ready)
            self._take(ready)
            self._confirm(reading)
        self._pending = waiting.held

    def _let_go(self) -> None:
        """Let go of what was kept long enough, now and then, a part at a time."""
        now = time.monotonic()
        if self._retention is None or not self._options.get("raw", True) or now < self._let_go_at:
            return
        self._let_go_at = now + _LET_GO_SECONDS
        core, name, retention = self._loop.core, self.source.name, self._retention
        receipt = self._loop.change_alone(lambda: outlived(core, name, retention, self._read_progress()))
        if receipt.applied:
            self._progress = self._read_progress()
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

    def _look_at_lag(self, reading: Reading, force: bool) -> None:
        """Ask how far behind it is, now and then: that may cost a round trip."""
        now = time.monotonic()
        if now - self._lag_at >= (0.2 if force else _LAG_SECONDS):
            self._lag, self._lag_at = reading.lag(), now
            self._pace.looked(self._lag)

    def _take(self, arrivals: Sequence[Arrival]) -> None:
        """Bring records into epochs: one, unless columns change between them, or a view fails on some."""
        rest = list(arrivals)
        while rest:
            decoded = self._decoded(rest)
            need = self._schemas.first_need(decoded, self._table_of)
            # What comes before is committed under the columns that it has, but no transaction is split for that.
            split = need is not None and not self._options.get("transactions")
            before = len(rest) if need is None else committable(rest[: need.index]) if split else 0
            if before:
                decoded = decoded if need is None else self._decoded(rest[:before])
                self._pending = decoded.received
                self._pieces.take(decoded)
                self._pending = 0
            if need is not None:
                self._schemas.make(need)
            del rest[:before]

    def _decoded(self, arrivals: Sequence[Arrival]) -> Decoded:
        return decode(
            arrivals,
            self._table_of,
            self._decode_of,
            most_bytes=most_bytes_of(self._options),
            positions=self._positions,
            truncates=self._schemas.takes_truncation,
        )

    def _bring(self, call: Call, records: int) -> None:
        """Have a call of so many records committed."""
        with tracing.span("source batch", source=self.source.name, records=records):
            epoch = self._loop.receipt_of(self._loop.enter(call)).epoch
        _log.debug("%d records came with epoch %d", records, epoch, extra={"source": self.source.name, "epoch": epoch})

    def _commit(self, decoded: Decoded, ask: bool) -> None:
        """Bring records into one epoch; if it fails on a view, with the row that it is, if asked."""
        call, reached = self._call(decoded, raw=bool(self._options.get("raw", True)))
        call.asks_row = ask
        try:
            self._bring(call, len(decoded.arrivals))
        finally:
            self._failed = call.failed
        self._advance(decoded.arrivals, reached())
        self._pending = max(0, self._pending - decoded.received)

    def _guilty(self, decoded: Decoded, error: ViewEvaluationError) -> list[tuple[str, int, ViewEvaluationError]]:
        """The changes of a piece that a view fails on, each by itself."""
        failed, self._failed = self._failed, None
        if failed is None:
            return []
        return guilty_changes(self._loop, decoded, failed, error, lambda: not self._stopped.is_set())

    def _advance(self, arrivals: Sequence[Arrival], reached: Progress) -> None:
        self._pace.committed(arrivals, self._progress, reached)
        self._progress = reached

    def _call(self, decoded: Decoded, raw: bool) -> tuple[Call, Callable[[], Progress]]:
        """The call for records, and how far the source is after it."""
        name = self.source.name
        return self._guarded(decoded.captured, lambda before: call_for(name, decoded, before, raw=raw))

    def _guarded(
        self, changes: Changes, make: Callable[[Progress], tuple[Call, Callable[[], Progress]]]
    ) -> tuple[Call, Callable[[], Progress]]:
        """A call that is refused if the source is elsewhere than its records follow on."""
        expected = self._progress.position
        reached = [self._progress]

        def after(verdicts: Verdicts) -> Changes:
            # Its counts may have changed meanwhile, as by a replay of dead letters; its position may not.
            before = self._read_progress()
            if self._stopped.is_set() or before.position != expected:
                raise SourceUnavailable(f"source {self.source.name} is read by somebody else by now")
            call, known = make(before)
            assert call.after is not None
            kept = call.after(verdicts)
            reached[0] = known()
            return {**fitting_letters(self._loop.core.catalog, kept), **self._schemas.unsaved()}

        def done() -> Progress:
            self._schemas.saved()
            return reached[0]

        return Call(changes, after=after), done

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
