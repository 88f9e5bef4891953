"""Avro by the schemas of a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from headrace.capture.formats import avro
from headrace.capture.formats.registry import Registry, RegistrySettings
from headrace.capture.messages import RowChange, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import Record
from headrace.errors import SourceUnavailable
from tests.schema_registry import SchemaRegistry
from tests.unit.test_formats_avro import ENVELOPE, KEYED, VALUE, event, row, written
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as found:
        yield found


def test_records_are_read_by_the_schemas_of_a_registry(server: SchemaRegistry) -> None:
    envelope = server.register("shop.things-value", json.dumps(ENVELOPE))
    plain = server.register("shop.rows-value", json.dumps(VALUE))
    assert envelope != plain
    registry = Registry(RegistrySettings(server.url, timeout_seconds=PATIENCE))
    decoder = avro.decoder(KEYED, FormatOptions(), registry)
    contents = [
        event("c", None, row(1, "a", "1.50"), number=envelope),
        written(row(2, "b", "-2.25"), VALUE, plain),
        event("d", row(1, None, None), number=envelope),
    ]
    found: list[Any] = []
    for content in contents:
        message = decoder.decode(Record(content))
        assert isinstance(message, RowChange)
        found.extend(message.changes)
    assert [KEYED.decode(change).row for change in found] == [
        (1, "a", Decimal("1.50")),
        (2, "b", Decimal("-2.25")),
        None,
    ]
    with pytest.raises(Undecodable, match="does not know schema 4711"):
        decoder.decode(Record(written(row(2, "b", None), VALUE, 4711)))
    registry.close()


def test_references_of_a_real_registry(server: SchemaRegistry) -> None:
    inner = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    outer = {
        "type": "record",
        "name": "Person",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "shop.Address"]}],
    }
    server.register("address", json.dumps(inner))
    number = server.register(
        "person", json.dumps(outer), [{"name": "shop.Address", "subject": "address", "version": 1}]
    )
    registry = Registry(RegistrySettings(server.url, timeout_seconds=PATIENCE))
    decoder = avro.decoder(KEYED, FormatOptions(), registry)
    whole = {**outer, "fields": [outer["fields"][0], {"name": "name", "type": ["null", inner]}]}
    message = decoder.decode(Record(written({"id": 1, "name": {"city": "Oslo"}}, whole, number)))
    assert message.changes == ({"insert": {"id": 1, "name": '{"city":"Oslo"}'}},)
    registry.close()


@pytest.mark.slow
def test_a_registry_that_ends_is_transient_and_known_schemas_go_on() -> None:
    with SchemaRegistry() as server:
        number = server.register("rows", json.dumps(VALUE))
        registry = Registry(RegistrySettings(server.url, timeout_seconds=PATIENCE))
        decoder = avro.decoder(KEYED, FormatOptions(), registry)
        known = Record(written(row(1, "a", None), VALUE, number))
        assert decoder.decode(known).changes
    assert decoder.decode(known).changes
    with pytest.raises(SourceUnavailable):
        decoder.decode(Record(written(row(1, "a", None), VALUE, number + 1)))
    registry.close()
