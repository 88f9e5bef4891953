"""A broker that lets in whom it knows, over TLS: SCRAM and PLAIN, secrets by reference, refusals that say why."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.local.kafka import kafka_program
from headrace.local.packages import kafka_jars
from headrace.local.ports import HOST, free_port
from headrace.local.server import Server
from tests.bare_home import BareHome
from tests.e2e.test_capture_kafka import put
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.java
ITEMS = StructType([StructField("id", IntegerType(), False), StructField("n", IntegerType())])
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="{}";'


@dataclass(frozen=True)
class Secured:
    """Where a broker listens for everybody, where for those it knows, and whose signature its certificate has."""

    plain: str
    secured: str
    authority: Path


def _signed(
    name: str, issuer: x509.Name | None, signer: ec.EllipticCurvePrivateKey | None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
    )
    return key, made.sign(signer or key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority_key, authority = _signed("an authority", None, None)
    key, certificate = _signed(HOST, authority.subject, authority_key)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "broker.pem").write_bytes(private + _pem(certificate))
    (folder / "authority.pem").write_bytes(_pem(authority))
    (folder / "other.pem").write_bytes(_pem(_signed("another authority", None, None)[1]))
    port, controller, secured = free_port(), free_port(), free_port()
    given = {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller},SASL_SSL://{HOST}:{secured}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},SASL_SSL://{HOST}:{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN.format("plain secret"),
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
    }
    server = Server(kafka_program(folder, kafka_jars(), port, controller, given), folder / "kafka.log")
    try:
        server.start()
        kafka: Any = confluent_kafka.admin
        admin = kafka.AdminClient({"bootstrap.servers": f"{HOST}:{port}"})
        how = kafka.ScramCredentialInfo(kafka.ScramMechanism.SCRAM_SHA_256, 4096)
        upserted = kafka.UserScramCredentialUpsertion("reader", how, b"scram secret")
        for made in admin.alter_user_scram_credentials([upserted]).values():
            made.result(PATIENCE)
        topics = [kafka.NewTopic(name, 2, 1) for name in ("shop.items", "shop.parts", "other.items")]
        for made in admin.create_topics(topics).values():
            made.result(PATIENCE)
        produce(f"{HOST}:{port}", "shop.items", range(50))
        produce(f"{HOST}:{port}", "shop.parts", range(20))
        produce(f"{HOST}:{port}", "other.items", range(1000, 1005))
        yield Secured(f"{HOST}:{port}", f"{HOST}:{secured}", folder / "authority.pem")
    finally:
        server.discard()


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, put(number), str(number))
    assert producer.flush(30) == 0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[BareHome]:
    made = BareHome(tmp_path / "home")
    for name in ("items", "parts"):
        made.create_table(name, ITEMS, ("id",))
    yield made
    made.close()


def create(home: BareHome, broker: Secured, topics: str = "shop.*", **options: str) -> None:
    given = {
        "format": "insert_delete",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(broker.authority),
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "reader",
        "kafka.sasl.password": "env:READER_PASSWORD",
        **options,
    }
    told = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    home.execute(f"CREATE SOURCE s FROM KAFKA '{broker.secured}/{topics}' WITH ({told})")


def shown(home: BareHome) -> dict[str, Any]:
    (row,) = home.execute("SHOW SOURCES").to_pylist()
    return row


def numbers(home: BareHome, table: str) -> list[int]:
    return sorted(row["id"] for row in home.query(f"SELECT * FROM {table}").to_pylist())


@pytest.mark.parametrize(
    ("mechanism", "password"), [("SCRAM-SHA-256", "scram secret"), ("PLAIN", "plain secret")], ids=["scram", "plain"]
)
def test_topics_of_a_pattern_are_read_by_whom_the_broker_knows(
    home: BareHome,
    broker: Secured,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    mechanism: str,
    password: str,
) -> None:
    monkeypatch.setenv("READER_PASSWORD", password)
    create(home, broker, **{"kafka.sasl.mechanism": mechanism})
    until(lambda: shown(home)["applied"] >= 70)
    assert (numbers(home, "items"), numbers(home, "parts")) == (list(range(50)), list(range(20)))
    told = shown(home)
    assert (told["state"], told["applied"], told["dead"], told["error"]) == ("Running", 70, 0, None)
    assert password not in str(home.core.catalog.sources["s"])
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_wrong_password_is_told_and_mended_by_two_statements(
    home: BareHome,
    broker: Secured,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("READER_PASSWORD", "a wrong guess")
    with caplog.at_level(logging.DEBUG):
        create(home, broker)
        until(lambda: shown(home)["state"] == "Error")
    error = shown(home)["error"]
    assert "does not let the source in" in error
    assert "SASL" in error
    assert "a wrong guess" not in error + caplog.text
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("MENDED_PASSWORD", "scram secret")
    home.execute("ALTER SOURCE s SET ('kafka.sasl.password' = 'env:MENDED_PASSWORD')")
    home.execute("RESUME SOURCE s")
    until(lambda: shown(home)["applied"] == 70)
    assert shown(home)["state"] == "Running"


@pytest.mark.slow
def test_a_certificate_that_nobody_trusts_is_told(
    home: BareHome, broker: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("READER_PASSWORD", "scram secret")
    create(home, broker, **{"kafka.ssl.ca.location": str(broker.authority.with_name("other.pem"))})
    until(lambda: shown(home)["state"] == "Error")
    assert "certificate" in shown(home)["error"]
    assert numbers(home, "items") == []
