"""Numbers of events have the digits that they were sent with, wherever they are read."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.exact_json import Digits, canonical, json_text, read_json, read_kept
from headrace.errors import EventsRejected
from headrace.events.for_others import events_verb
from headrace.events.outbox import append_of
from tests.small_events import SmallStore

_NUMBERS = ["12345678901234567890.123456789", "9.50", "1E+400", "1E-999999999", "0.1", "1.5", "-0.0", "7"]


@pytest.mark.parametrize("text", _NUMBERS)
@pytest.mark.parametrize("encrypted", [False, True])
def test_digits_are_kept(tmp_path: Path, text: str, encrypted: bool) -> None:
    store = SmallStore(tmp_path)
    if encrypted:
        store.register_schema("Paid", encrypted=["amount", "name"])
    data = read_json(f'{{"amount": {text}, "name": "Ada", "other": {text}}}')
    store.append("C", "a", [{"event_type": "Paid", "event_data": data}])
    assert json_text(store.state("C", "a")) == f'{{"amount":{text},"name":"Ada","other":{text}}}'
    assert store.snapshot("C", "a")
    assert json_text(store.state("C", "a")) == f'{{"amount":{text},"name":"Ada","other":{text}}}'
    assert store.read().to_pylist()[0]["event_data"] == f'{{"amount":{text},"name":"Ada","other":{text}}}'
    verb = events_verb(lambda _: store)
    assert f'"amount":{text},' in verb("state", None, "C", "a")["state"]
    assert f'"amount":{text},' in verb("read")["events"]
    sent = f'[{{"event_type": "Paid", "event_data": {{"amount": {text}}}}}]'
    assert verb("append", None, "C", "b", sent)["version"] == 1
    assert json_text(store.state("C", "b")) == f'{{"amount":{text}}}'


def test_digits_are_kept_in_a_map(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, data="map")
    for text in _NUMBERS:
        store.append("C", text, [{"event_type": "Paid", "event_data": {"amount": read_json(text)}}])
        assert store.state("C", text) == {"amount": text}


def test_floats_that_python_gave_come_back_as_they_were(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    data = {"price": 9.99, "n": 3, "big": 1e22, "small": 1e-7, "sum": 0.1 + 0.2}
    store.append("C", "a", [{"event_type": "Paid", "event_data": data}])
    found = store.state("C", "a")
    assert found == data
    assert [type(value) for value in (found or {}).values()] == [float, int, float, float, float]


def test_digits_count_as_floats_do() -> None:
    (value,) = read_kept("[9.50]")
    assert isinstance(value, Digits)
    assert (value + 1, value == 9.5, Decimal(str(value)), f"{value:.1f}") == (10.5, True, Decimal("9.50"), "9.5")
    assert json_text(pickle.loads(pickle.dumps([value]))) == "[9.50]"
    assert json.dumps([value]) == "[9.5]"


def test_a_number_that_was_read_is_sent_on_as_it_was(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    data = {"amount": read_kept("1e400"), "listed": [read_kept("9.50")]}
    store.append("C", "a", [{"event_type": "Paid", "event_data": data}])
    assert json_text(store.state("C", "a")) == '{"amount":1e400,"listed":[9.50]}'
    with pytest.raises(EventsRejected, match="names in event_data"):
        store.append("C", "a", [{"event_type": "Paid", "event_data": {**data, "a": {1: 2}}}])


def test_the_canonical_text_tells_what_json_tells_apart() -> None:
    def text(sent: str) -> str:
        return canonical(read_kept(sent))

    assert text('{"b": [{"d": 1, "c": 2}], "a": 1.50}') == text('{"a":1.50,"b":[{"c":2,"d":1}]}')
    assert len({text(one) for one in ("1", "true", "1.0", "1.00", '"1"', "1e400", "1e500")}) == 7


def test_the_payload_of_an_outbox_keeps_its_digits(tmp_path: Path) -> None:
    row: dict[str, Any] = {"id": 1, "aggregatetype": "A", "aggregateid": "a", "type": "T"}
    store = SmallStore(tmp_path)
    for text in _NUMBERS:
        found = append_of("events", {**row, "aggregateid": text, "payload": f'{{"amount": {text}}}'})
        store.append("A", text, [{**found["events"][0], "event_id": text}])
        assert json_text(store.state("A", text)) == f'{{"amount":{text}}}'
