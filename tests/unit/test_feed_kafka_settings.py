"""Settings of Kafka's client that a changefeed may bring; without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import FeedError
from headrace.feeds.kafka import KAFKA
from headrace.feeds.sink import SinkUnavailable
from tests.feed_batches import target_of

pytest.importorskip("confluent_kafka")


def check(**settings: Any) -> None:
    given = {f"kafka.{name.replace('__', '.')}": value for name, value in settings.items()}
    KAFKA.check(target_of("b:9092/t", options=given))


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("bootstrap.servers", "where events go"),
        ("metadata.broker.list", "where events go"),
        ("test.mock.num.brokers", "where events go"),
        ("partitioner", "the order of the events of a key"),
        ("topic.partitioner", "the order of the events of a key"),
        ("queuing.strategy", "the order of the events of a key"),
        ("max.in.flight", "the order of the events of a key"),
        ("max.in.flight.requests.per.connection", "the order of the events of a key"),
        ("retries", "the order of the events of a key"),
        ("message.send.max.retries", "the order of the events of a key"),
        ("acks", "that every event arrives"),
        ("request.required.acks", "that every event arrives"),
        ("topic.request.required.acks", "that every event arrives"),
        ("message.timeout.ms", "that every event arrives"),
        ("delivery.timeout.ms", "that every event arrives"),
        ("delivery.report.only.error", "that every event arrives"),
        ("enable.idempotence", "that no event is written twice"),
        ("enable.gapless.guarantee", "that no event is written twice"),
        ("transactional.id", "that no event is written twice"),
        ("isolation.level", "that no event is written twice"),
        ("api.version.request", "that no event is written twice"),
        ("compression.type", "the option compression"),
    ],
)
def test_what_a_promise_rests_on_is_refused(name: str, promise: str) -> None:
    with pytest.raises(FeedError, match="cannot be given") as refused:
        KAFKA.check(target_of("b:9092/t", options={f"kafka.{name}": "1"}))
    assert promise in refused.value.detail


@pytest.mark.parametrize("name", ["plugin.library.paths", "topic.plugin.library.paths", "sasl.kerberos.kinit.cmd"])
def test_what_runs_programs_is_refused(name: str) -> None:
    with pytest.raises(FeedError, match="cannot be given") as refused:
        KAFKA.check(target_of("b:9092/t", options={f"kafka.{name}": "x"}))
    assert "load code" in refused.value.detail


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nonsense": "1"}, 'No such configuration property: "nonsense"'),
        ({"linger__ms": "soon"}, "Invalid value"),
        ({"debug": "all the things"}, "Invalid value"),
        ({"stats_cb": "x"}, "stats_cb"),
        ({"default__topic__config": "x"}, "keys"),
    ],
)
def test_what_the_client_does_not_take_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(FeedError, match="does not take") as refused:
        check(**settings)
    assert said in refused.value.detail


def test_a_protocol_that_there_is_not_is_refused() -> None:
    with pytest.raises(FeedError, match="cannot be 'tls'"):
        check(security__protocol="TLS")


def test_other_settings_are_taken_without_asking_anybody() -> None:
    check(
        security__protocol="SASL_SSL",
        sasl__mechanism="PLAIN",
        sasl__username="me",
        sasl__password="hunter22",
        ssl__ca__location="/nowhere/ca.pem",
        client__id="shop",
        linger__ms=20,
    )


def test_settings_that_make_no_client_together_are_no_unforeseen_error() -> None:
    target = target_of("b:9092/t", options={"kafka.security.protocol": "sasl_ssl", "kafka.sasl.mechanism": "PLAIN"})
    KAFKA.check(target)
    with pytest.raises(SinkUnavailable, match="cannot be used as it is set"):
        KAFKA.open(target)
