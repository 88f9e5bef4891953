"""What one source brings goes into epochs: records one by one or as columns, with the position after them.

An epoch that fails leaves the source where it was; of one that a view fails on, what cannot be taken becomes dead
letters, and the rest is taken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from headrace import tracing
from headrace.capture.columns.records import Records
from headrace.capture.connector import Arrival, Connector, Position
from headrace.capture.messages import Message, Truncation
from headrace.catalog.catalog import Source
from headrace.epoch.batch import Changes, Verdicts
from headrace.epoch.calls import Basis, Call, Outdated
from headrace.epoch.loop import Loop
from headrace.epoch.work import Work
from headrace.errors import MemoryExceeded, SourceUnavailable, ViewEvaluationError
from headrace.sources.ahead import Ahead, Ready
from headrace.sources.bulk import Backlog, Prepared, Ways, call_of, prepare
from headrace.sources.connectors import most_bytes_of, positions_of
from headrace.sources.decoders import Decoders
from headrace.sources.guilty import guilty_changes
from headrace.sources.intake import Decoded, Progress, Torn, call_for, call_to_begin, decode
from headrace.sources.pace import Pace
from headrace.sources.pieces import Pieces
from headrace.sources.replaced_letters import counted_once
from headrace.sources.schema_changes import SchemaChanges
from headrace.sources.schema_policy import policy_of
from headrace.sources.system_tables import fitting_letters
from headrace.sources.transactions import committable

_log = logging.getLogger("headrace.sources")
# So often a backlog is made anew because its tables have been defined otherwise meanwhile.
_ATTEMPTS = 3


class Taking:
    """Brings the records of one source into epochs. Used by the thread of its runner; how far it is, all may ask."""

    def __init__(
        self,
        loop: Loop,
        source: Source,
        connector: Connector,
        table_of: Callable[[Arrival], str],
        decode_of: Decoders,
        read_progress: Callable[[], Progress],
        pace: Pace,
        most: int,
        stopped: threading.Event,
    ) -> None:
        self._loop = loop
        self._source = source
        self._options = source.options
        self._keeps_raw = bool(source.options.get("raw", True))
        self._table_of = table_of
        self._decode_of = decode_of
        self._read_progress = read_progress
        self._pace = pace
        self._stopped = stopped
        self._schemas = SchemaChanges(loop, source.name, policy_of(source.options), decode_of)
        self._positions = positions_of(source, connector)
        # What the last call was given, if a view failed on it.
        self._failed: Work | None = None
        self._pieces = Pieces(self._decoded, self._commit, most, self._guilty)
        self._progress = Progress()
        # What will have been received once all that is on its way is committed.
        self._awaited = 0

    @property
    def position(self) -> Position:
        """Where the source is after what it brought last."""
        return self._progress.position

    @property
    def standing(self) -> tuple[Progress, int]:
        """What is committed by now, and how many changes are on their way: each of them counts once."""
        # What is committed is read last: an epoch that comes between the two takes its changes off those on their way.
        awaited = self._awaited
        progress = self._read_progress()
        return progress, max(0, awaited - progress.received)

    def look_again(self) -> None:
        """Go on where the last committed epoch ends."""
        self._progress = self._read_progress()

    def await_changes(self, count: int) -> None:
        """So many changes are on their way, or none any more."""
        self._awaited = self._read_progress().received + count if count else 0

    def changes_of(self, message: Message) -> int:
        """How many changes a message counts as."""
        return int(self._schemas.takes_truncation) if isinstance(message, Truncation) else len(message.changes)

    def _await_at_least(self, count: int) -> None:
        """So many changes are on their way, and others perhaps that are awaited already."""
        self._awaited = max(self._awaited, self._read_progress().received + count)

    def begin(self, position: Position) -> None:
        """Commit where the source begins, so that whatever comes before its first change is not lost by a restart."""
        if position:
            call, reached = self._guarded({}, lambda before: call_to_begin(self._source.name, position, before))
            self._loop.receipt_of(self._loop.enter(call))
            self._progress = reached()

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Bring records into epochs: one, unless columns change between them, or a view fails on some.

        They are awaited until their runner says otherwise: it knows what else was read.
        """
        rest = list(arrivals)
        while rest:
            decoded = self._decoded(rest)
            self._await_at_least(decoded.received)
            need = self._schemas.first_need(decoded, self._table_of)
            # What comes before is committed under the columns that it has, but no transaction is split for that.
            split = need is not None and not self._options.get("transactions")
            before = len(rest) if need is None else committable(rest[: need.index]) if split else 0
            if before:
                decoded = decoded if need is None else self._decoded(rest[:before])
                self._pieces.take(decoded)
            if need is not None:
                self._schemas.make(need)
            del rest[:before]

    def made(self, records: Records, backlog: Backlog) -> Ready:
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

    def take_backlog(self, ready: Ready, ahead: Ahead, backlog: Backlog) -> bool:
        """Bring many records into one epoch as columns; False if they must go the way of single ones.

        They are awaited still, whichever way they go.
        """
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
                ready = self.made(ready.records, backlog)
            except (Torn, ViewEvaluationError, MemoryExceeded):
                # Which of them it is that cannot be taken shows when they come one by one.
                return False
        return False

    def _commit_backlog(self, prepared: Prepared, basis: Basis) -> None:
        name, raw = self._source.name, self._keeps_raw
        changes = dict(prepared.changes)
        call, reached = self._guarded(changes, lambda before: call_of(name, prepared, before, raw=raw))
        call.basis = basis
        call.asks_row = False
        self._await_at_least(prepared.received)
        count = len(prepared.records)
        self._bring(call, count)
        self._pace.committed([prepared.records.arrival(count - 1)], self._progress, reached(), count)
        self._progress = reached()

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
        with tracing.span("source batch", source=self._source.name, records=records):
            epoch = self._loop.receipt_of(self._loop.enter(call)).epoch
        _log.debug("%d records came with epoch %d", records, epoch, extra={"source": self._source.name, "epoch": epoch})

    def _commit(self, decoded: Decoded, ask: bool) -> None:
        """Bring records into one epoch; if it fails on a view, with the row that it is, if asked."""
        name, raw = self._source.name, self._keeps_raw
        call, reached = self._guarded(decoded.captured, lambda before: call_for(name, decoded, before, raw=raw))
        call.asks_row = ask
        try:
            self._bring(call, len(decoded.arrivals))
        finally:
            self._failed = call.failed
        self._pace.committed(decoded.arrivals, self._progress, reached())
        self._progress = reached()

    def _guilty(self, decoded: Decoded, error: ViewEvaluationError) -> list[tuple[str, int, ViewEvaluationError]]:
        """The changes of a piece that a view fails on, each by itself."""
        failed, self._failed = self._failed, None
        if failed is None:
            return []
        return guilty_changes(self._loop, decoded, failed, error, lambda: not self._stopped.is_set())

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
                raise SourceUnavailable(f"source {self._source.name} is read by somebody else by now")
            call, known = make(before)
            assert call.after is not None
            kept = call.after(verdicts)
            kept, reached[0] = counted_once(self._loop.core, self._source.name, kept, known())
            return {**fitting_letters(self._loop.core.catalog, kept), **self._schemas.unsaved()}

        def done() -> Progress:
            self._schemas.saved()
            return reached[0]

        return Call(changes, after=after), done
