"""Which of the things that brokers refuse stop a source, and which are tried again."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.capture.kafka_refusals import Refusals
from headrace.errors import SourceError, SourceUnavailable

kafka: Any = pytest.importorskip("confluent_kafka")
WRONG = "SASL authentication error: Authentication failed: Invalid username or password (after 301ms in state AUTH_REQ)"
TOKEN = "Failed to acquire SASL OAUTHBEARER token: the server did not answer"
CERTIFICATE = "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: no issuer"
GONE = "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (after 1ms)"


def raised(code: str, words: str, **settings: str) -> type[Exception] | None:
    heard = Refusals(kafka, "broker:9093", "s", {name.replace("_", "."): value for name, value in settings.items()})
    heard.hear(kafka.KafkaError(getattr(kafka.KafkaError, code), words))
    try:
        heard.raise_heard()
    except SourceError as error:
        # Told once.
        heard.raise_heard()
        return type(error) if words in error.detail else None
    return None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
def test_a_wrong_password_is_one_for_good(mechanism: str) -> None:
    for name in ("sasl_mechanism", "sasl_mechanisms"):
        assert raised("_AUTHENTICATION", WRONG, **{name: mechanism}) is SourceError


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", ""])
def test_who_gives_tokens_may_be_back(mechanism: str) -> None:
    assert raised("_AUTHENTICATION", TOKEN, sasl_mechanism=mechanism) is SourceUnavailable


def test_a_certificate_of_nobody_known_is_one_for_good_and_a_broker_that_goes_is_not() -> None:
    assert raised("_SSL", CERTIFICATE) is SourceError
    for code, words in (("_SSL", GONE), ("_TRANSPORT", "Connection refused"), ("_ALL_BROKERS_DOWN", "1/1 are down")):
        assert raised(code, words) is None
