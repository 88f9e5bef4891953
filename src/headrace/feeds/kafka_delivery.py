"""Delivery to Kafka at least once: an idempotent producer, and every message of a batch confirmed."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.kafka_messages import Messages, messages_of, resolved_message, sorted_by_size, without
from headrace.feeds.kafka_sending import Sending
from headrace.feeds.kafka_topic import Topic
from headrace.feeds.sink import EventsRefused, LogDelivery, SinkEnded, SinkUnavailable, Target


class KafkaDelivery(LogDelivery):
    """An open topic. Messages under way when the brokers go away stay with the client, which sends them later."""

    keeps_marks = False

    def __init__(self, target: Target, topic: Topic, tombstones: bool) -> None:
        self._target = target
        self._topic = topic
        self._tombstones = tombstones
        self._sending: Sending | None = None
        # Numbers of events that were handed over, and of which it is not known whether they arrived.
        self._under_way: set[int] = set()

    def known_mark(self) -> Mark | None:
        """A topic that many may write to says nothing about a feed."""
        return None

    def deliver(self, batch: Batch) -> None:
        """Hand over all messages at once, then wait until the broker has confirmed each."""
        messages = messages_of(batch, self._tombstones)
        found = sorted_by_size(messages, self._topic.most_bytes)
        sent = [index for index in found.sent if messages.sequences[index] not in self._under_way]
        self._send_all(messages, sent)
        refused = dict(found.refused)
        if failed := self._take_failures():
            refused |= self._send_alone(
                messages, found.sent, [index for index in found.sent if messages.sequences[index] in failed]
            )
        if refused:
            raise EventsRefused(refused, without(messages, refused).held)

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """A message to every partition."""
        message = resolved_message(self._target.feed, self._target.table, mark, epoch_committed_at)
        self._send_all(message, [0])
        if self._take_failures():
            raise SinkEnded("the broker refuses resolved marks; unset the option resolved")

    def close(self) -> None:
        """Let go of the producer."""
        if self._sending is not None:
            self._sending.close()
            self._sending = None
        self._under_way.clear()

    def _send_all(self, messages: Messages, indices: Sequence[int]) -> None:
        sending = self._open()
        done = 0
        try:
            for start in range(0, len(indices), 10_000):
                part = indices[start : start + 10_000]
                sending.send(messages, part)
                done = start + len(part)
            sending.wait()
        except SinkUnavailable:
            if sending.fatal:
                self.close()
            else:
                # What was begun of a part may be handed over twice: in order, after all that is under way.
                self._under_way.update(messages.sequences[index] for index in indices[:done])
            raise
        self._under_way.clear()

    def _take_failures(self) -> set[int]:
        """The numbers of events that the broker refused for their own fault; anything else fails the whole batch."""
        sending = self._open()
        failed, sending.failed = sending.failed, {}
        others = [error for error in failed.values() if not sending.own_fault(error)]
        if others or sending.fatal:
            reason = sending.reason(f"refused {len(others):,} messages: {others[0].str() if others else sending.fatal}")
            if sending.fatal:
                self.close()
            raise SinkUnavailable(reason)
        return set(failed)

    def _send_alone(self, messages: Messages, indices: Sequence[int], suspects: Sequence[int]) -> dict[int, str]:
        """Find which messages the broker refuses: it refuses all that came in one request with such a one.

        Later ones of their keys may have arrived; they are sent again after them, so that order holds once more.
        """
        first = {messages.keys[index]: index for index in reversed(suspects)}
        refused: dict[int, str] = {}
        for index in indices:
            key = messages.keys[index]
            if key not in first or index < first[key]:
                continue
            sending = self._open()
            sending.send(messages, [index])
            sending.wait()
            reports = list(sending.failed.values())
            if self._take_failures():
                refused[index] = f"the broker refused it: {reports[0].str()}"
                # Those after it wait.
                del first[key]
        return refused

    def _open(self) -> Sending:
        if self._sending is None:
            self._sending = Sending(self._target, self._topic)
        return self._sending
