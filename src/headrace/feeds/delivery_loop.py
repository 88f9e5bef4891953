"""The delivery of a relation's events to an open sink, until the feed is stopped or something fails.

It holds one step of the log and one batch of events. While the sink is unavailable, the same call is repeated on the
same open delivery. Any other failure ends the loop; the runner then opens the sink again, and the next loop resumes
where the checkpoint, or the sink itself, knows the feed to be.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from headrace import tracing
from headrace.epoch.core import Core
from headrace.errors import EpochExpired, FeedError
from headrace.feeds.batch import NOWHERE, Batch, Events, Mark
from headrace.feeds.blocked import Blocked, GivenUp
from headrace.feeds.checkpoint import FeedCheckpoint
from headrace.feeds.cursor import change_events, reset_event, scan_events
from headrace.feeds.filter import filtered
from headrace.feeds.open_feed import OpenFeed
from headrace.feeds.progress import Progress
from headrace.feeds.refusals import RefusalJudge
from headrace.feeds.replay import ReplayRequests
from headrace.feeds.resume import refuse_older_copy, rescan, resume
from headrace.feeds.retry import Retry, Stopped
from headrace.feeds.sink import Delivery, EventsRefused, SinkUnavailable
from headrace.reading.following import Changes, Dropped, Position, Reset, Step

# Back-pressure: while so many events wait for refused events of their keys, the whole feed waits.
_LEAST_HELD = 1_000
_LOOK_SECONDS = 1.0
# A batch has no more bytes than these, unless a single event has more.
_BATCH_BYTES = 16 * 1024 * 1024
# How many times the size of a batch its last epoch may have, where readers should see whole epochs.
_LARGER_BATCH = 10


class Again(Exception):
    """The relation was altered or replaced, so the feed is to be opened again with the new one."""


@dataclass(frozen=True)
class RunnerParts:
    """The parts of the feed's runner that the loop uses."""

    core: Core
    wake: threading.Event
    retry: Retry
    replays: ReplayRequests
    # Stores refused events in the table of parked events, all in one epoch.
    park: Callable[[Sequence[GivenUp]], None]
    # Counts delivered events.
    delivered: Callable[[int], None]
    # Called whenever nothing is left to deliver.
    caught_up: Callable[[], None]


class DeliveryLoop:
    """Delivers the events of a relation to an open sink, batch by batch."""

    def __init__(
        self, runner: RunnerParts, opened: OpenFeed, delivery: Delivery, checkpoint: FeedCheckpoint, blocked: Blocked
    ) -> None:
        self._runner = runner
        self._core = runner.core
        self._opened = opened
        self._feed = opened.feed
        self._options = opened.options
        self._relation = opened.relation
        self._filter = opened.row_filter
        self._delivery = delivery
        self._checkpoint = checkpoint
        self._blocked = blocked
        self._judge = RefusalJudge()
        self._form = opened.form
        self._key = [self._form.columns.names.index(name) for name in self._form.key]
        # Each the events of one epoch.
        self._pending = deque[Events]()
        self._count = 0
        # The number of the last event that was put into a batch, and the position after that.
        self._sequence = 0
        self._mark = NOWHERE
        self._flushed_at = 0.0
        self._resolved_at = 0.0
        self._resolved_epoch = -1
        # Whether the sink may be another copy than the one that confirmed the last position.
        self._was_unavailable = False
        # Events that arrived since the position was noted last.
        self._uncounted = 0

    def run(self) -> None:
        """Deliver all events, and wait for more; return only if the feed has a last event, and it is delivered."""
        progress = resume(self._core, self._opened, self._delivery, self._checkpoint)
        self._mark, self._sequence = progress.mark, progress.mark.sequence
        if progress.reset_due:
            progress = self._deliver_reset(progress)
        if progress.scanning:
            progress = self._scan(progress)
        if self._options.initial_scan == "only":
            self._checkpoint.record(replace(self._progress, done=True), now=True)
            return
        self._follow(progress)

    @property
    def _progress(self) -> Progress:
        assert self._checkpoint.progress is not None
        return self._checkpoint.progress

    # Resets, scans and resolved marks.

    def _deliver_reset(self, progress: Progress) -> Progress:
        """Deliver the RESET that says: what was delivered before does not count any more."""
        epoch = progress.scan_epoch if progress.scan_epoch is not None else progress.mark.epoch
        # Events that were delivered and not recorded have smaller numbers.
        self._sequence = max(self._sequence, self._checkpoint.sent) + 1
        self._mark = Mark(epoch, 0 if progress.scanning else None, self._sequence)
        self._checkpoint.reserve(self._sequence)
        if self._delivery.tells_resets:
            reset = reset_event(self._relation.schema, epoch, self._committed_at(epoch))
            self._send(Batch.of(self._form, reset, self._mark), self._mark)
        delivered, self._uncounted = self._progress.delivered + self._uncounted, 0
        progress = replace(self._progress, mark=self._mark, reset_due=False, delivered=delivered)
        self._checkpoint.record(progress, now=True)
        return progress

    def _scan(self, progress: Progress) -> Progress:
        """Deliver the rows that the relation had at an epoch, without those that were delivered before."""
        epoch = progress.scan_epoch
        assert epoch is not None
        try:
            state, schema = self._core.relations_at(epoch)[self._relation.name]
        except (EpochExpired, KeyError):
            # It has gone in just this moment; what is to be done then is found out at the beginning.
            raise Again from None
        last = begun = (progress.mark.event or 0) if progress.mark.epoch == epoch else 0
        # Once, even if the first rows were refused and wait: the rows behind them are in the sink already.
        if not begun and not progress.begun:
            self._send_out(lambda: self._delivery.begin_scan(schema))
            self._checkpoint.record(replace(self._progress, begun=True), now=True)
        for events in scan_events(state, schema, epoch, self._committed_at(epoch), begun):
            last = int(events.places[-1])
            self._push(events)
            while self._count >= self._options.batch_size:
                self._wait_for_room()
                self._deliver_batch()
            if not self._count:
                self._mark_all(Mark(epoch, last, self._sequence))
            self._look()
        self._drain()
        mark = self._mark = Mark(epoch, None, self._sequence)
        self._send_out(lambda: self._delivery.end_scan(mark))
        self._checkpoint.record(replace(self._progress, mark=mark, scanning=False), now=True)
        return self._progress

    def _resolve(self) -> None:
        """Deliver a resolved mark as often as the option asks for: all events up to an epoch were delivered."""
        interval, epoch = self._options.resolved, self._mark.epoch
        if interval is None or epoch == self._resolved_epoch or self._blocked.keys:
            return
        now = time.monotonic()
        if now - self._resolved_at >= interval:
            mark, at = self._mark, self._committed_at(epoch)
            self._send_out(lambda: self._delivery.resolved(mark, at.timestamp()))
            self._resolved_at, self._resolved_epoch = now, epoch

    # Changes.

    def _follow(self, progress: Progress) -> None:
        following, name = self._core.following, self._relation.name
        mark = progress.mark
        # An epoch that was delivered in part is read again.
        self._mark, skip = mark, 0 if mark.event is None or mark.epoch == progress.scan_epoch else mark.event
        position = self._position(mark.epoch - 1 if skip else mark.epoch)
        forget = following.listen(self._runner.wake.set)
        try:
            while True:
                self._runner.wake.clear()
                self._look()
                if self._count < self._options.batch_size and not self._is_full:
                    step = self._step(position)
                    if isinstance(step, Dropped):
                        feed = self._feed.name
                        raise FeedError(
                            f"{name} was dropped at epoch {step.epoch}, and changefeed {feed} has nothing to deliver",
                            hint=f"DROP CHANGEFEED {feed}, or create {name} again and RESUME CHANGEFEED {feed}",
                        )
                    if isinstance(step, Reset):
                        raise self._reset_position(step, position)
                    if isinstance(step, Changes):
                        for one in step.epochs:
                            events = change_events(one, self._key)
                            if one.epoch == mark.epoch:
                                events = events.part(slice(skip, None))
                            self._push(events)
                    position = step.position
                    if self._count >= self._options.batch_size:
                        continue
                self._deliver_due(position.epoch or 0)
        finally:
            forget()

    def _step(self, position: Position) -> Step:
        try:
            return self._core.following.step(position)
        except EpochExpired as error:
            raise self._expired(error) from None

    def _position(self, epoch: int) -> Position:
        try:
            position = self._core.following.begin(self._relation.name, max(0, epoch))
        except EpochExpired as error:
            raise self._expired(error) from None
        columns_at = self._progress.columns_at
        if columns_at <= epoch:
            return position
        return replace(position, columns=self._core.catalog.history.at(self._relation.name, columns_at))

    def _expired(self, error: EpochExpired) -> FeedError:
        return FeedError(
            f"changefeed {self._feed.name} is further behind than the log is kept for it",
            detail=f"{error.message}. {error.detail} Its option retention_epochs is {self._options.retention_epochs}.",
            hint="RESYNC CHANGEFEED delivers all rows again; or DROP CHANGEFEED",
        )

    def _reset_position(self, reset: Reset, before: Position) -> Again:
        """Move the checkpoint to a relation that was replaced or altered: to a scan of it, or to its next changes."""
        self._drain()
        epoch, columns = reset.position.epoch, reset.position.columns
        assert epoch is not None
        assert columns is not None
        progress = rescan(self._progress, epoch)
        if self._options.on_reset == "ignore":
            progress = replace(progress, scanning=False)
            if before.epoch is not None and before.columns is not None and not before.columns.goes_on_as(columns):
                # Go on right after the last change that was delivered: those from before the alteration are read under
                # the new columns. Only changes of a definition that was replaced cannot be read any more.
                mark = replace(progress.mark, epoch=max(before.epoch, columns.born))
                progress = replace(progress, mark=mark, scan_epoch=None, columns_at=columns.since)
        self._checkpoint.record(progress, now=True)
        return Again()

    def _deliver_due(self, epoch: int) -> None:
        """Deliver a batch that is full or has waited long enough; else wait for whatever comes first."""
        now = time.monotonic()
        if self._is_full:
            self._wait(_LOOK_SECONDS)
            return
        if self._count >= self._options.batch_size:
            self._deliver_batch()
            return
        left = self._flushed_at + self._options.flush_seconds - now
        if self._count and left <= 0:
            self._deliver_batch()
            return
        if not self._count:
            if epoch > self._mark.epoch or (epoch == self._mark.epoch and self._mark.event is not None):
                self._mark_all(Mark(epoch, None, self._sequence))
            self._resolve()
            self._checkpoint.record(self._progress)
            self._runner.caught_up()
            left = _LOOK_SECONDS
        if epoch >= self._core.epoch:
            self._wait(min(left, _LOOK_SECONDS))

    @property
    def _is_full(self) -> bool:
        return self._blocked.count >= max(_LEAST_HELD, 10 * self._options.batch_size)

    def _wait(self, seconds: float) -> None:
        due = self._blocked.next_at
        if due is not None:
            seconds = min(seconds, due - time.monotonic())
        interval = None if self._count or self._blocked.keys else self._options.resolved
        if interval is not None and self._mark.epoch != self._resolved_epoch:
            seconds = min(seconds, self._resolved_at + interval - time.monotonic())
        if seconds > 0:
            self._runner.wake.wait(seconds)

    # Batches.

    def _push(self, events: Events) -> None:
        if self._filter is not None:
            events = filtered(events, self._filter, self._options.filter_exits)
        if len(events):
            self._pending.append(events)
            self._count += len(events)

    def _drain(self) -> None:
        """Deliver all that waits, refused events included: they arrive, or are parked."""
        while self._count:
            self._wait_for_room()
            self._deliver_batch()
        while self._blocked.keys:
            self._wait_and_look()

    def _wait_for_room(self) -> None:
        """Wait while as many events are refused, and wait, as may."""
        while self._is_full:
            self._wait_and_look()

    def _wait_and_look(self) -> None:
        # New epochs wake it, and are none of its business here.
        self._runner.wake.clear()
        self._refuse_stopped()
        self._wait(_LOOK_SECONDS)
        self._look()

    def _deliver_batch(self) -> None:
        self._look()
        self._deliver(self._next_batch())
        self._flushed_at = time.monotonic()

    def _next_batch(self) -> Batch:
        """The next events, numbered."""
        taken: list[Events] = []
        left, room = self._options.batch_size, _BATCH_BYTES
        is_whole = True
        while left > 0 and self._pending and (room > 0 or not taken):
            first = self._pending.popleft()
            most, event_bytes = left, first.event_bytes
            if self._delivery.keeps_epochs_whole and not first.scan and len(first) <= _LARGER_BATCH * left:
                most = len(first)
            most = min(most, max(1, room // event_bytes))
            is_whole = len(first) <= most
            if not is_whole:
                self._pending.appendleft(first.part(slice(most, None)))
                first = first.part(slice(most))
            taken.append(first)
            left -= len(first)
            room -= len(first) * event_bytes
        events = Events.concatenate(taken)
        self._count -= len(events)
        self._sequence += len(events)
        self._checkpoint.reserve(self._sequence)
        # More rows of a scan may follow.
        place = None if is_whole and not events.scan else int(events.places[-1])
        return Batch.of(self._form, events, Mark(int(events.epochs[-1]), place, self._sequence))

    def _deliver(self, batch: Batch) -> None:
        """Have a batch arrive, but for what waits for refused events; then note how far the feed is."""
        part = self._blocked.parted(batch)
        if part is not None:
            refused = None
            try:
                self._send(part, batch.after)
            except EventsRefused as error:
                refused = error
                self._blocked.refuse(part, error)
            # Before anything of it is parked: if the sink refuses everything, nothing is.
            self._judge.note(len(part), refused)
        self._mark_all(batch.after)
        if self._blocked.keys:
            self._look()

    def _mark_all(self, mark: Mark, parked: int = 0) -> None:
        self._mark = mark
        self._checkpoint.advance(self._blocked.first_mark() or mark, self._uncounted, parked)
        self._uncounted = 0

    def _send(self, batch: Batch, mark: Mark, *, again: bool = True) -> None:
        """Have a batch arrive, with the position after it unless earlier events wait, and count its events."""
        after = self._blocked.first_mark() or mark
        given = batch if batch.after == after else replace(batch, after=after)
        try:
            with tracing.span("feed batch", feed=self._feed.name, events=len(given), epoch=after.epoch):
                self._send_out(lambda: self._delivery.deliver(given), again=again)
        except EventsRefused as refused:
            self._count_delivered(len(batch) - len(refused.undelivered))
            raise
        self._count_delivered(len(batch))
        if self._delivery.keeps_marks:
            self._checkpoint.confirm(after.sequence)

    def _count_delivered(self, count: int) -> None:
        """Count events that arrived; they are noted with the next position."""
        self._uncounted += count
        self._runner.delivered(count)

    def _send_out(self, send: Callable[[], None], *, again: bool = True) -> None:
        """Call the sink as the owner of the home, again and again while it is unavailable, if so asked."""

        def call() -> None:
            self._refuse_stopped()
            self._core.check_owner()
            if self._was_unavailable:
                refuse_older_copy(self._feed, self._delivery, self._progress)
                self._was_unavailable = False
            try:
                send()
            except SinkUnavailable:
                self._was_unavailable = True
                raise

        if again:
            self._runner.retry.call(call)
        else:
            call()

    def _look(self) -> None:
        """Between two batches: stop if asked, and deliver refused and parked events that are due."""
        self._refuse_stopped()
        self._runner.replays.serve(partial(self._deliver_late, again=False), self._form)
        if self._blocked.next_at is not None:
            self._blocked.retry(self._deliver_late, self._park)

    def _deliver_late(self, batch: Batch, again: bool = True) -> None:
        """Deliver refused or parked events."""
        self._send(batch, self._mark, again=again)
        self._mark_all(self._mark)

    def _park(self, events: Sequence[GivenUp]) -> None:
        """Store refused events as parked, and have the sink no longer wait for them."""
        self._runner.park(events)
        self._mark_all(self._mark, len(events))
        sequences = [one.batch.sequences[0] for one in events]
        self._send_out(lambda: self._delivery.give_up(sequences))

    def _refuse_stopped(self) -> None:
        if self._runner.retry.stopped.is_set():
            raise Stopped

    def _committed_at(self, epoch: int) -> datetime:
        """When an epoch was committed, as far as that is known."""
        present = self._core.present
        if epoch >= present.epoch:
            return present.committed_at
        heads = self._core.ledger.heads()
        return next((one.committed_at for one in reversed(heads) if one.epoch <= epoch), present.committed_at)
