"""Delivery to a webhook: a batch is one request; what its receiver finds fault with is searched for by halves."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.json_events import event_texts, key_texts, moment_text
from headrace.feeds.sink import EventsRefused, LogDelivery, SinkEnded, SinkUnavailable, Target
from headrace.feeds.webhook_addresses import AddressRefused, NameUnknown
from headrace.feeds.webhook_answers import Refused, judge_answer
from headrace.feeds.webhook_signing import message_id, signed_headers
from headrace.feeds.webhook_transport import PinnedTransport
from headrace.version import release

# How long and how much is read of what a receiver says beside its status.
_BODY_SECONDS = 1.0
_BODY_BYTES = 65_536
_SHOWN = 200


@dataclass(frozen=True)
class Request:
    """How requests of a feed are made."""

    url: httpx.URL
    headers: Mapping[str, str]
    keys: Sequence[bytes]
    compressed: bool
    seconds: float
    connect_seconds: float


@dataclass
class _Attempt:
    """A batch on its way: which events are still to be sent, in which requests, and which were refused."""

    batch: Batch
    texts: Sequence[bytes]
    event_keys: Sequence[bytes]
    # The events of each request that is still to be made; the next request is the last.
    requests: list[list[int]]
    refused: dict[int, str] = field(default_factory=dict[int, str])
    held: set[int] = field(default_factory=set[int])
    blocked: set[bytes] = field(default_factory=set[bytes])


class WebhookDelivery(LogDelivery):
    """One receiver, and a connection to it that is kept."""

    keeps_marks = False

    def __init__(self, target: Target, request: Request, transport: PinnedTransport) -> None:
        self._target = target
        self._request = request
        self._transport = transport
        self._client = httpx.Client(
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(request.seconds, connect=request.connect_seconds),
            headers={"user-agent": f"headrace/{release()}", "accept": "*/*", "accept-encoding": "identity"},
        )
        self._attempt: _Attempt | None = None

    def known_mark(self) -> Mark | None:
        """A receiver keeps nothing for us."""
        return None

    def deliver(self, batch: Batch) -> None:
        """Send the events as one array; halve an array that the receiver refuses, to find the refused events.

        A batch that is delivered again after `SinkUnavailable` continues with the request that failed.
        """
        attempt = self._attempt
        if attempt is None or attempt.batch is not batch:
            attempt = self._attempt = _Attempt(batch, event_texts(batch), key_texts(batch), [list(range(len(batch)))])
        while attempt.requests:
            self._send_next(attempt)
        self._attempt = None
        if attempt.refused:
            raise EventsRefused(attempt.refused, frozenset(attempt.held))

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """An array with the mark alone."""
        at = moment_text(datetime.fromtimestamp(epoch_committed_at, UTC))
        told = {"resolved": mark.epoch, "sequence": mark.sequence, "timestamp": at}
        told |= {"table": self._target.table, "feed": self._target.feed}
        body = json.dumps([told], separators=(",", ":"), ensure_ascii=False).encode()
        try:
            self._post(body, message_id(self._target.feed_id, (mark.epoch, mark.sequence), "resolved"))
        except Refused as error:
            raise SinkEnded(f"the receiver refuses resolved marks; unset the option resolved: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _send_next(self, attempt: _Attempt) -> None:
        """Make the next request; the events after a refused event of the same key are held."""
        indices = attempt.requests[-1]
        sent = [index for index in indices if attempt.event_keys[index] not in attempt.blocked]
        attempt.held.update(set(indices).difference(sent))
        halves: list[list[int]] = []
        if sent:
            numbers = [attempt.batch.sequences[index] for index in sent]
            try:
                self._post(_array(attempt.texts, sent), message_id(self._target.feed_id, numbers))
            except Refused as error:
                if len(sent) > 1:
                    middle = len(sent) // 2
                    halves = [sent[middle:], sent[:middle]]
                else:
                    attempt.refused[sent[0]] = str(error)
                    attempt.blocked.add(attempt.event_keys[sent[0]])
        # A request that failed otherwise is still the next.
        attempt.requests[-1:] = halves

    def _post(self, body: bytes, identity: str) -> None:
        """Return if the receiver took it. Its status decides, whatever becomes of the rest of the answer."""
        asked = self._request
        headers = {
            "content-type": "application/json",
            **asked.headers,
            **signed_headers(asked.keys, identity, int(time.time()), body),
        }
        if asked.compressed:
            headers["content-encoding"] = "gzip"
            body = gzip.compress(body, compresslevel=6, mtime=0)
        self._transport.deadline.begin(asked.seconds)
        where = f"{asked.url.scheme}://{asked.url.netloc.decode()}"
        try:
            # What one answer sets is not sent with the next request.
            self._client.cookies.clear()
            with self._client.stream("POST", asked.url, headers=headers, content=body) as answer:
                said = self._said(answer)
                judge_answer(answer.status_code, answer.headers, said)
        except (AddressRefused, NameUnknown) as error:
            raise SinkUnavailable(f"{where} is not asked: {error}") from error
        except httpx.TimeoutException as error:
            raise SinkUnavailable(f"{where} does not answer in time") from error
        except httpx.HTTPError as error:
            raise SinkUnavailable(f"{where} cannot be asked: {error}") from error

    def _said(self, answer: httpx.Response) -> str:
        """The beginning of what an answer says; none of it is waited for."""
        found = bytearray()
        self._transport.deadline.shorten(_BODY_SECONDS)
        try:
            for piece in answer.iter_raw():
                found += piece
                if len(found) > _BODY_BYTES:
                    break
        except httpx.HTTPError:
            # The status was heard.
            pass
        text = bytes(found[: 4 * _SHOWN]).decode("utf-8", "replace")
        return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:_SHOWN]


def _array(texts: Sequence[bytes], indices: Sequence[int]) -> bytes:
    return b"[" + b",".join(texts[index] for index in indices) + b"]"
