"""Delivery to Kafka exactly once: events and the feed's progress in one transaction.

The id of its transactions is the feed's: whoever opens the feed ends what another had begun, and keeps that one from
committing anything more. A transaction of which it is not known whether it was committed is looked up in the progress.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from headrace.capture.kafka_settings import kafka_library
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.kafka_messages import Messages, messages_of, resolved_message, sorted_by_size, without
from headrace.feeds.kafka_progress import Progress, read_progress
from headrace.feeds.kafka_sending import PROGRESS, Sending
from headrace.feeds.kafka_topic import Topic
from headrace.feeds.sink import EventsRefused, LogDelivery, SinkEnded, SinkUnavailable, Target

# How long brokers have for one step of a transaction, and a commit in all: after that it is looked up.
_STEP_SECONDS = 10.0
_COMMIT_SECONDS = 30.0
_PROBES = 5


class KafkaTransactions(LogDelivery):
    """An open topic, and the topic of its progress."""

    keeps_marks = True

    def __init__(self, target: Target, topic: Topic, progress_topic: str, tombstones: bool) -> None:
        self._kafka = kafka_library()
        self._target = target
        self._topic = topic
        self._progress_topic = progress_topic
        self._tombstones = tombstones
        self._sending: Sending | None = None
        self._progress = Progress(target.fence, "")
        # The transaction whose commit was not answered, with the numbers of its events.
        self._in_doubt: tuple[str, frozenset[int]] | None = None
        # The events of the last batch that was committed: they are left out if it is sent again.
        self._last_committed: frozenset[int] = frozenset()
        self._begin()

    def known_mark(self) -> Mark | None:
        """The mark of the last transaction that was committed."""
        if self._sending is None:
            self._begin(again=True)
        return self._progress.mark

    def deliver(self, batch: Batch) -> None:
        """Commit what was not told before, together with the progress."""
        if self._sending is None:
            self._begin(again=True)
        messages = messages_of(batch, self._tombstones)
        refused = sorted_by_size(messages, self._topic.most_bytes).refused
        while True:
            found = without(messages, refused)
            sent = [index for index in found.sent if not self._has_told(messages.sequences[index])]
            guilty = self._commit_events(batch, messages, sent, refused, found.held)
            if not guilty:
                break
            refused = {**refused, **self._probe(messages, guilty)}
        if refused:
            raise EventsRefused(found.refused, found.held)

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """A message to every partition, in a transaction of its own."""
        if self._sending is None:
            self._begin(again=True)
        message = resolved_message(self._target.feed, self._target.table, mark, epoch_committed_at)
        if self._transaction(lambda sending: sending.send(message, [0]), "", ()):
            raise SinkEnded("the broker refuses resolved marks; unset the option resolved")

    def close(self) -> None:
        """Let go of the producer: what is not committed never will be."""
        self._discard()

    def _has_told(self, sequence: int) -> bool:
        return sequence in self._last_committed or self._progress.has_told(sequence)

    def _begin(self, again: bool = False) -> None:
        """Open a producer, which ends the transactions of all before it, and learn what those had committed."""
        if again:
            # One that was stopped while another took over must not take it back.
            self._refuse_newer(read_progress(self._target, self._progress_topic))
        identity = {"transactional.id": f"headrace-{self._target.feed_id}"}
        self._sending = sending = Sending(self._target, self._topic, identity)
        try:
            self._step(lambda: sending.producer.init_transactions(_STEP_SECONDS))
            found = read_progress(self._target, self._progress_topic)
            self._refuse_newer(found)
            self._progress = found or Progress(self._target.fence, "")
            if self._in_doubt is not None and self._in_doubt[0] == self._progress.transaction:
                self._last_committed = self._in_doubt[1]
            self._in_doubt = None
            if found is None or found.fence < self._target.fence:
                # Before anything else: an owner that was before this one sees it.
                self._progress = replace(self._progress, fence=self._target.fence)
                self._transaction(lambda sending: self._send_progress(sending, self._progress), "", ())
        except BaseException:
            self._discard()
            raise

    def _refuse_newer(self, found: Progress | None) -> None:
        if found is not None and found.fence > self._target.fence:
            self._discard()
            raise SinkUnavailable("another process owns the home by now, and delivers this feed")

    def _commit_events(
        self, batch: Batch, messages: Messages, sent: Sequence[int], refused: Iterable[int], held: Iterable[int]
    ) -> list[int]:
        """Commit events and the progress after them; else the indices of those that the broker refused."""
        left = sorted({*refused, *held})
        mark = batch.mark_without(left)
        numbers = messages.sequences
        told = [numbers[index] for index in sent]
        name = uuid.uuid4().hex
        progress = self._progress.after(name, mark, numbers, told, [numbers[index] for index in left])
        if not sent and progress == replace(self._progress, transaction=name):
            return []

        def events(sending: Sending) -> None:
            sending.send(messages, sent)
            self._send_progress(sending, progress)

        guilty = self._transaction(events, name, told)
        if not guilty:
            self._progress = progress
            self._last_committed = frozenset(numbers).difference(numbers[index] for index in left)
        return [index for index in sent if numbers[index] in guilty]

    def _probe(self, messages: Messages, suspects: Sequence[int]) -> dict[int, str]:
        """Which messages the broker refuses alone: each is tried in a transaction that is given up."""
        found: dict[int, str] = {}
        for index in suspects:
            if (reason := self._refusal(messages, index)) is not None:
                found[index] = reason
        if not found:
            raise SinkUnavailable("the broker refused messages that it takes one by one")
        return found

    def _refusal(self, messages: Messages, index: int) -> str | None:
        for _ in range(_PROBES):
            sending = self._producing()
            self._step(sending.producer.begin_transaction)
            sending.send(messages, [index])
            self._wait(sending)
            error = sending.failed.get(messages.sequences[index])
            self._abort()
            sending.failed.clear()
            if error is None:
                return None
            if sending.own_fault(error):
                return f"the broker refused it: {error.str()}"
            # After a transaction with a refused message, the client gives up the next one, too.
        raise SinkUnavailable("the broker neither takes nor refuses a message alone")

    def _transaction(self, send: Callable[[Sending], None], name: str, numbers: Iterable[int]) -> set[int]:
        """Commit what is sent; the numbers of events that were refused for their own fault, if nothing was."""
        sending = self._producing()
        self._step(sending.producer.begin_transaction)
        try:
            send(sending)
        except SinkUnavailable:
            self._discard()
            raise
        self._wait(sending)
        failed, sending.failed = sending.failed, {}
        if failed:
            others = [error for error in failed.values() if not sending.own_fault(error)]
            reason = sending.reason(f"refused messages: {others[0].str()}") if others else ""
            self._abort()
            if others:
                raise SinkUnavailable(reason)
            if PROGRESS in failed:
                raise SinkEnded(
                    f"the broker refuses the feed's record in topic {self._progress_topic}, so no event can be "
                    f"committed; raise max.message.bytes of that topic: {failed[PROGRESS].str()}"
                )
            return set(failed)
        self._commit(sending, name, numbers)
        return set()

    def _wait(self, sending: Sending) -> None:
        try:
            sending.wait()
        except SinkUnavailable:
            # Nothing of it was committed, and nothing will be.
            self._discard()
            raise

    def _commit(self, sending: Sending, name: str, numbers: Iterable[int]) -> None:
        until = time.monotonic() + _COMMIT_SECONDS
        while True:
            try:
                sending.producer.commit_transaction(_STEP_SECONDS)
                return
            except self._kafka.KafkaException as error:
                told = error.args[0]
                if told.txn_requires_abort():
                    self._abort()
                    raise sending.failure(error) from error
                if not told.retriable() or time.monotonic() > until:
                    self._in_doubt = (name, frozenset(numbers))
                    self._discard()
                    raise sending.failure(error) from error

    def _abort(self) -> None:
        sending = self._producing()
        try:
            sending.producer.abort_transaction(_STEP_SECONDS)
        except self._kafka.KafkaException:
            # The next producer of this id ends it.
            self._discard()

    def _step(self, step: Callable[[], Any]) -> None:
        try:
            step()
        except self._kafka.KafkaException as error:
            raised = self._producing().failure(error)
            self._discard()
            raise raised from error

    def _send_progress(self, sending: Sending, progress: Progress) -> None:
        sending.send_record(self._progress_topic, self._target.feed_id.encode(), progress.to_bytes(self._target.feed))

    def _producing(self) -> Sending:
        if self._sending is None:
            raise SinkUnavailable("the producer of the last transaction has ended")
        return self._sending

    def _discard(self) -> None:
        if self._sending is not None:
            self._sending.close()
            self._sending = None
