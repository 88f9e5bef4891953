"""What an idempotency key stands for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from headrace.epoch.calls import Call
from headrace.epoch.digest import digest, digest_of
from headrace.epoch.loop import Loop
from headrace.errors import ChangesRejected
from tests.small_engine import Host, table

ROW = {"insert": {"id": 1, "price": Decimal("1.50"), "day": dt.date(2025, 1, 2), "raw": b"\x00", "x": 0.5}}


def test_the_same_changes_however_they_are_written() -> None:
    turned = {"insert": dict(reversed(ROW["insert"].items()))}
    in_json = {"insert": {"id": 1, "price": "1.50", "day": "2025-01-02", "raw": "AA==", "x": 0.5}}
    assert digest_of({"t": [ROW]}) == digest_of({"T": (turned,)}) == digest_of({"t": [in_json]})


@pytest.mark.parametrize(
    "other",
    [
        {"t": []},
        {"u": [ROW]},
        {"t": [ROW, ROW]},
        {"t": [{"delete": ROW["insert"]}]},
        {"t": [{"insert": {**ROW["insert"], "id": 2}}]},
        {"t": [ROW], "u": []},
    ],
)
def test_other_changes_are_told_apart(other: dict[str, list[Any]]) -> None:
    assert digest_of(other) != digest_of({"t": [ROW]})


def test_what_has_no_form_is_still_told_apart() -> None:
    odd: list[Any] = [{"insert": {1: "a", "b": 2}}, {"insert": {"\ud800": object}}, {"insert": {"n": float("nan")}}, 7]
    assert len({digest_of({"t": [one]}) for one in odd}) == len(odd)
    inside: dict[str, Any] = {}
    inside["insert"] = inside
    assert digest_of({"t": [inside]}) != digest_of({"t": odd})


def test_what_has_no_text_is_left_to_intake_with_a_key_as_without() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (10**5000, deep):
        changes = {"t": [{"insert": {"id": 1, "n": value}}]}
        for call in (Call(changes), Call(changes, "k", digest_of(changes))):
            with pytest.raises(ChangesRejected, match="1 change rejected"):
                Loop(Host(table("t"))).submit(call)
        assert digest_of(changes) not in ("", digest_of({"t": [ROW]}))


def test_no_part_passes_for_the_end_of_another() -> None:
    assert len({digest(b"t", b"x"), digest(b"tx", b""), digest(b"", b"tx"), digest(b"tx")}) == 4
