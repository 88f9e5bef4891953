"""Webhooks: every event arrives, in order per key, signed, whatever the receiver does, and at no forbidden address."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from headrace.errors import FeedError
from headrace.feeds.batch import Mark
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable
from headrace.feeds.webhook import WebhookSink
from headrace.feeds.webhook_addresses import reason_to_refuse
from headrace.feeds.webhook_answers import seconds_to_wait
from headrace.feeds.webhook_signing import message_id
from tests.certificates import write_certificate
from tests.part_batches import batch, inserts, reset, target
from tests.webhook_receivers import (
    OK,
    Behaviour,
    Received,
    Receiver,
    drip,
    hang_up,
    hang_up_in_the_middle,
    pour,
    receiving,
    say_nothing,
    status,
)

SECRETS = ["whsec_" + base64.b64encode(bytes([letter]) * 32).decode() for letter in b"ab"]
LOCAL: dict[str, Any] = {"allow_insecure": True, "allow_private": True}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


def opened(receiver: Receiver, **options: Any) -> Any:
    told = target(f"http://127.0.0.1:{receiver.port}/hook?a=b", **{**LOCAL, **options})
    sink = WebhookSink()
    sink.check(told)
    return sink.open(told)


def delivered(delivery: Any, one: Any) -> int:
    """Deliver a batch as a runner does, again and again; how often it was not taken."""
    for failures in range(30):
        try:
            delivery.deliver(one)
            return failures
        except SinkUnavailable:
            time.sleep(0.01)
    raise AssertionError("it was never taken")


def numbers(events: Sequence[dict[str, Any]]) -> list[int]:
    return [one["sequence"] for one in events]


def test_a_batch_is_one_signed_request(receiver: Receiver) -> None:
    delivery = opened(receiver, secret=" ".join(SECRETS), token="t0ken", **{"header.x-tenant": "eu"})
    delivery.deliver(batch([("INSERT", 1, "ä"), ("DELETE", 2, "b")]))
    delivery.deliver(reset(3))
    delivery.resolved(Mark(3, 1, 3), 0.0)
    delivery.close()
    first, second, third = receiver.received
    assert first.path == "/hook?a=b"
    assert [one["operation"] for one in first.events] == ["INSERT", "DELETE"]
    assert second.events[0]["operation"] == "RESET"
    assert third.events[0]["resolved"] == 3
    for one in receiver.received:
        for secret in SECRETS:
            Webhook(secret).verify(one.body, one.headers)
        with pytest.raises(Exception, match="No matching signature"):
            Webhook("whsec_" + base64.b64encode(b"c" * 32).decode()).verify(one.body, one.headers)
    assert first.headers["content-type"] == "application/json"
    assert (first.headers["authorization"], first.headers["x-tenant"]) == ("Bearer t0ken", "eu")
    assert len({one.headers["webhook-id"] for one in receiver.received}) == 3
    assert receiver.connections == 1


def test_the_path_of_its_url_is_not_logged(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    delivery = opened(receiver)
    with caplog.at_level("DEBUG"):
        at_work = threading.Thread(target=lambda: delivery.deliver(inserts(1, 2)), name="headrace-feed-f")
        at_work.start()
        at_work.join()
    delivery.close()
    assert receiver.received[0].path == "/hook?a=b"
    assert "/hook" not in caplog.text


def test_the_text_is_signed_before_it_is_compressed(receiver: Receiver) -> None:
    delivery = opened(receiver, secret=SECRETS[0], gzip=True)
    delivery.deliver(inserts(1, 100))
    delivery.close()
    (one,) = receiver.received
    assert one.headers["content-encoding"] == "gzip"
    assert len(one.body) < len(one.text) / 3
    assert numbers(Webhook(SECRETS[0]).verify(one.text, one.headers)) == list(range(1, 101))


def test_every_event_arrives_whatever_the_receiver_does(receiver: Receiver) -> None:
    receiver.answers = [
        status(500, body=b"oops"),
        hang_up,
        hang_up_in_the_middle,
        status(429, "Retry-After: 1"),
        pour,
        status(503),
        b"HTTP/1.1 999 what\r\n\r\n",
        b"nonsense\r\n\r\n",
        OK,
        # It says that it has taken it, then lies about its length, and hangs up.
        lambda connection: connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nok"),
    ]
    delivery = opened(receiver, secret=SECRETS[0], timeout_ms=90_000)
    assert delivered(delivery, inserts(1, 50, keys=7)) == 8
    assert delivered(delivery, inserts(51, 50, keys=7)) == 0
    assert delivered(delivery, inserts(101, 50, keys=7)) == 0
    delivery.close()
    told = [one for request in receiver.received[8:] for one in numbers(request.events)]
    assert told == list(range(1, 151))
    for one in receiver.received:
        Webhook(SECRETS[0]).verify(one.body, one.headers)
    # The first batch has one id, however often it is sent; also by another process.
    assert {one.headers["webhook-id"] for one in receiver.received[:9]} == {message_id("f1", range(1, 51))}


@pytest.mark.parametrize("behaviour", [say_nothing, drip])
def test_a_receiver_that_does_not_come_to_an_end_is_hung_up_on(receiver: Receiver, behaviour: Behaviour) -> None:
    receiver.answers = [behaviour]
    delivery = opened(receiver, timeout_ms=400)
    with pytest.raises(SinkUnavailable):
        delivery.deliver(inserts(1, 1))
    delivery.close()


def test_an_answer_may_say_when_to_come_again(receiver: Receiver) -> None:
    receiver.answers = [status(429, "Retry-After: 7"), status(503, "Retry-After: 99999999"), status(429)]
    delivery = opened(receiver)
    waits: list[float | None] = []
    for _ in range(3):
        with pytest.raises(SinkUnavailable) as failed:
            delivery.deliver(inserts(1, 1))
        waits.append(failed.value.retry_after)
    delivery.close()
    assert waits == [7, 3600, None]
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    assert seconds_to_wait("Thu, 01 Jan 2026 12:00:30 GMT", now) == 30
    assert seconds_to_wait("Thu, 01 Jan 2026 11:00:00 GMT", now) == 0
    assert [seconds_to_wait(text) for text in ("soon", "-1", "", "1e9", "٣", "9" * 400)] == [None] * 5 + [3600]


@pytest.mark.parametrize(("code", "said"), [(401, "who we are"), (403, "let us in"), (404, "nothing at this URL")])
def test_what_may_pass_is_said_clearly(receiver: Receiver, code: int, said: str) -> None:
    receiver.answers = [status(code)]
    delivery = opened(receiver)
    with pytest.raises(SinkUnavailable, match=said):
        delivery.deliver(inserts(1, 2))
    delivery.close()
    assert len(receiver.received) == 1


def test_no_redirect_is_followed_and_410_is_the_end(receiver: Receiver) -> None:
    with receiving() as other:
        receiver.answers = [status(307, f"Location: http://127.0.0.1:{other.port}/"), status(410)]
        delivery = opened(receiver, token="t0ken")
        with pytest.raises(SinkUnavailable, match="redirect"):
            delivery.deliver(inserts(1, 1))
        with pytest.raises(SinkEnded):
            delivery.deliver(inserts(1, 1))
        delivery.close()
        assert other.received == []


def test_the_guilty_event_is_found_and_holds_its_key(receiver: Receiver) -> None:
    def judge(request: Received) -> bytes:
        guilty = any(one["new_row"]["name"] == "bad" for one in request.events)
        return status(422, body=b"name: bad\n") if guilty else OK

    receiver.judge = judge
    delivery = opened(receiver)
    names = ["a", "b", "c", "bad", "d", "e", "f", "g", "bad", "h"]
    keys = [1, 2, 3, 4, 5, 4, 6, 4, 7, 8]
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch([("INSERT", key, name) for key, name in zip(keys, names, strict=True)]))
    delivery.close()
    assert refused.value.refused == dict.fromkeys((3, 8), "the receiver refuses it (422): name: bad")
    assert refused.value.held == {5, 7}
    assert numbers(receiver.taken) == [1, 2, 3, 5, 7, 10]


def test_a_body_that_is_too_large_is_sent_in_parts(receiver: Receiver) -> None:
    receiver.judge = lambda request: status(413) if len(request.events) > 20 else OK
    delivery = opened(receiver)
    delivery.deliver(inserts(1, 100))
    delivery.close()
    assert numbers(receiver.taken) == list(range(1, 101))


def test_parts_that_were_taken_are_not_sent_again(receiver: Receiver) -> None:
    receiver.answers = [status(413), OK, status(500)]
    delivery = opened(receiver)
    assert delivered(delivery, inserts(1, 10)) == 1
    delivery.close()
    assert numbers(receiver.taken) == list(range(1, 11))


def test_tls_verifies_the_name_while_the_connection_goes_to_the_judged_address(tmp_path: Path) -> None:
    mine, key = tmp_path / "hooks.pem", tmp_path / "hooks.key"
    write_certificate((mine, key), "hooks.example", "hooks.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mine, key)
    asked: list[str] = []

    def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    with receiving(context) as receiver:
        for host, taken in (("hooks.example", True), ("other.example", False)):
            told = target(f"https://{host}:{receiver.port}/", allow_private=True, ca_cert=str(mine))
            delivery = WebhookSink(resolve).open(told)
            if taken:
                delivery.deliver(inserts(1, 2))
            else:
                with pytest.raises(SinkUnavailable, match="certificate"):
                    delivery.deliver(inserts(1, 2))
            delivery.close()
        untrusted = WebhookSink(resolve).open(target(f"https://hooks.example:{receiver.port}/", allow_private=True))
        with pytest.raises(SinkUnavailable, match="certificate"):
            untrusted.deliver(inserts(1, 2))
        untrusted.close()
        assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"
        assert len(receiver.received) == 1
    assert asked == ["hooks.example", "other.example", "hooks.example"]


def test_a_name_that_changes_after_it_was_judged_is_not_resolved_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver that gives a public address first and a private one next, as in DNS rebinding."""
    answers = [["93.184.216.34"], ["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "10.0.0.1"]]
    connected: list[Any] = []

    def connect(address: Any, *_given: Any, **_named: Any) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(socket, "create_connection", connect)
    sink = WebhookSink(lambda *_: answers.pop(0))
    told = target(f"http://rebound.example:{receiver.port}/", allow_insecure=True)
    sink.look_up(told.location, told.options)
    delivery = sink.open(told)
    for said in ("nobody there", "127.0.0.1, which is a loopback address", "10.0.0.1, which is a private address"):
        with pytest.raises(SinkUnavailable, match=said):
            delivery.deliver(inserts(1, 1))
    delivery.close()
    # Only the address that was judged, and no name, was ever connected to.
    assert connected == [("93.184.216.34", receiver.port)]
    assert receiver.received == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
        "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8", "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808",
        "64:ff9b:1::1", "2002:7f00:1::", "2001:0:4136:e378::", "nonsense",
    ],
)  # fmt: skip
def test_addresses_that_are_none_of_the_open_internet_are_refused(address: str) -> None:
    assert reason_to_refuse(address)
    if address != "nonsense":
        told = target("https://hooks.example/")
        with pytest.raises(FeedError, match="refused"):
            WebhookSink(lambda *_: ["8.8.8.8", address]).look_up(told.location, told.options)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "172.32.0.1", "100.128.0.1"])
def test_addresses_of_the_open_internet_are_allowed(address: str) -> None:
    assert reason_to_refuse(address) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://localhost:9/", "https://2130706433/", "https://0x7f.1/", "https://127.1/",
        "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://169.254.169.254/latest/", "https://0/",
    ],
)  # fmt: skip
def test_every_writing_of_a_private_address_is_refused(url: str) -> None:
    with pytest.raises(FeedError):
        WebhookSink().look_up(url, {})


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("http://hooks.example/", {}, "one of http"),
        ("ftp://hooks.example/", {}, "no URL of https"),
        ("https:///path", {}, "no URL of https"),
        ("https://me:pw@hooks.example/", {}, "user or a password"),
        ("https://hooks.example/#part", {}, "fragment"),
        ("https://hooks.example:99999/", {}, "no URL of https"),
        ("https://hooks.example/", {"secret": "plain"}, "secret number 1"),
        ("https://hooks.example/", {"secret": f"{SECRETS[0]} whsec_c2hvcnQ="}, "secret number 2"),
        ("https://hooks.example/", {"secret": " "}, "empty"),
        ("https://hooks.example/", {"header.webhook-id": "x"}, "cannot be given"),
        ("https://hooks.example/", {"header.host": "x"}, "cannot be given"),
        ("https://hooks.example/", {"header.x-a": "b\r\nx-c: d"}, "letters"),
        ("https://hooks.example/", {"header.a b": "c"}, "cannot be given"),
        ("https://hooks.example/", {"header.Authorization": "c"}, "large letters"),
        ("https://hooks.example/", {"token": "a", "header.authorization": "b"}, "both"),
        ("https://hooks.example/", {"gzip": "yes"}, "gzip cannot be"),
        ("https://hooks.example/", {"timeout_ms": 0}, "timeout_ms cannot be"),
        ("https://hooks.example/", {"client_key": "/key"}, "without client_cert"),
        ("https://hooks.example/", {"ca_cert": "/none"}, "certificates"),
    ],
)
def test_what_makes_no_request_is_refused(url: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(FeedError, match=said) as refused:
        WebhookSink(lambda *_: ["8.8.8.8"]).check(target(url, **options))
    # No secret stands in an error.
    assert "c2hvcnQ" not in str(refused.value)


def test_no_proxy_of_the_environment_is_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    delivery = opened(receiver)
    delivery.deliver(inserts(1, 1))
    delivery.close()
    assert len(receiver.received) == 1


def test_a_receiver_that_reads_slowly_has_no_more_time_than_others() -> None:
    """What is written is bounded in time as what is read is."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    told = target(f"http://127.0.0.1:{listener.getsockname()[1]}/", **LOCAL, timeout_ms=500)
    delivery = WebhookSink().open(told)
    with pytest.raises(SinkUnavailable, match="in time"):
        delivery.deliver(batch([("INSERT", 1, "x" * 20_000_000)]))
    delivery.close()
    listener.close()


def test_the_id_of_a_message_names_its_feed_and_events() -> None:
    assert message_id("f1", range(1, 4)) == message_id("f1", [1, 2, 3])
    others = (("f1", [1, 2]), ("f1", [1, 3]), ("f2", [1, 2]), ("f1", [12]))
    assert len({message_id(feed, seen) for feed, seen in others}) == 4
