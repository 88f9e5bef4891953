"""What a statement about a source cannot have this process do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.capture.connector import Description
from headrace.capture.formats.avro import Avro
from headrace.capture.formats.registry import RegisteredSchema
from headrace.capture.messages import Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import Record
from headrace.errors import SourceError
from headrace.serving.dead_letters import edited_text
from headrace.serving.problems import Refusal
from headrace.serving.sources import refuse_functions
from headrace.sources.connectors import CONNECTORS, check
from headrace.sources.intake import payload_bytes


def checked(connector: str, where: str, **options: Any) -> None:
    check(Description("s", where, options, "t"), CONNECTORS[connector])


@pytest.mark.parametrize(
    "name", ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers"]
)
def test_kafka_loads_no_code(name: str) -> None:
    with pytest.raises(SourceError, match="cannot be given"):
        checked("kafka", "localhost:1/t", **{f"kafka.{name}": "/tmp/anything"})
    checked("kafka", "localhost:1/t", **{"kafka.security.protocol": "SSL"})


@pytest.mark.parametrize(
    "name", ["socketFactory", "loggerFile", "password", "sslpassword", "user", "hostname", "sslfactory"]
)
def test_the_url_of_a_database_says_where_it_is_and_no_more(name: str) -> None:
    with pytest.raises(SourceError, match="a parameter that it cannot have"):
        checked("postgres", f"postgresql://u@localhost/d?sslmode=require&{name}=x")
    checked("postgres", "postgresql://u@localhost/d?sslmode=require&connectTimeout=5")


@pytest.mark.parametrize("where", ["..x:y", "venv.__main__:x", "nowhere:x", "json:loads"])
def test_a_module_that_is_no_source_is_told_whatever_it_does(where: str) -> None:
    with pytest.raises(SourceError):
        checked("python", where)


def test_no_module_is_named_over_http() -> None:
    for name in ("python", "PYTHON"):
        with pytest.raises(Refusal) as refused:
            refuse_functions(name)
        assert refused.value.status == 403
    refuse_functions("kafka")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://u:pw@localhost:1/", "keep a secret"),
        ("http://u@localhost:1/", "keep a secret"),
        ("http://[::1", "at no URL"),
        ("http://localhost:999999", "at no URL"),
        ("http://localhost/\r\nX: y", "at no URL"),
        ("http://", "at no URL"),
    ],
)
def test_a_registry_is_at_a_url_without_a_secret(url: str, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        checked("kafka", "localhost:1/t", format="avro", registry=url)
    checked("kafka", "localhost:1/t", format="avro", registry="http://localhost:8081/apis/ccompat/v7")


class Registered:
    """A registry of one schema."""

    def __init__(self, schema: Any) -> None:
        self._text = json.dumps(schema)

    def schema(self, number: int) -> RegisteredSchema:
        return RegisteredSchema(self._text)


@pytest.mark.parametrize("fields", [[], [{"name": "x", "type": "int"}]])
def test_an_avro_schema_that_unfolds_without_end_is_refused(fields: list[Any]) -> None:
    schema: Any = {"type": "record", "name": "R0", "fields": fields}
    for number in range(1, 20):
        twice = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": twice}
    whole = {"type": "record", "name": "T", "fields": [{"name": "u", "type": ["null", schema]}]}
    for one in (schema, whole):
        avro = Avro(None, FormatOptions(), Registered(one))  # pyright: ignore[reportArgumentType]
        with pytest.raises(Undecodable, match="unfolds into more than"):
            avro.decode(Record(b"\0\0\0\0\1\0"))


def test_a_letter_that_is_edited_as_a_document_keeps_its_digits() -> None:
    row = '{"insert":{"id":1.10,"d":0.12345678901234567890123456789}}'
    assert edited_text(f'{{"payload": {row}}}'.encode()) == row
    assert edited_text(b'{"payload": "as it is"}') == "as it is"
    assert edited_text(b"{}") is None


def test_a_payload_that_is_neither_text_nor_bytes_is_refused() -> None:
    for text in ("\\xzz", "\\x1", "\ud800"):
        with pytest.raises(SourceError, match="neither text nor bytes"):
            payload_bytes(text)
    assert payload_bytes("\\x00ff") == b"\x00\xff"
