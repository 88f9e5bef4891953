"""Transactions of a source: none is ever split, and what is committed is a first part of every partition."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from headrace.capture.connector import Arrival
from headrace.capture.messages import NoChange, Origin, RowChange, Transaction, TransactionBoundary, Undecodable
from headrace.capture.record import Record
from headrace.sources import transactions
from headrace.sources.transactions import Piece, Transactions, whole_part


def piece(partition: str, transaction: str = "", offset: int = 0) -> Piece:
    return Piece(Arrival(Record(b"", topic=partition, offset=offset), {}), (partition, 0), transaction)


def best(pieces: list[Piece], whole: set[str]) -> list[bool]:
    """The largest part that may be committed, by trying all."""
    partitions = sorted({one.partition for one in pieces})
    listed = {name: [i for i, one in enumerate(pieces) if one.partition == name] for name in partitions}
    found: list[bool] = [False] * len(pieces)
    for ends in itertools.product(*(range(len(listed[name]) + 1) for name in partitions)):
        taken = {i for name, end in zip(partitions, ends, strict=True) for i in listed[name][:end]}
        names = {one.transaction for one in pieces if one.transaction}
        parts = {name: {i in taken for i, one in enumerate(pieces) if one.transaction == name} for name in names}
        split = [name for name, part in parts.items() if part != {False} and (part != {True} or name not in whole)]
        if not split and len(taken) > sum(found):
            found = [i in taken for i in range(len(pieces))]
    return found


@pytest.mark.parametrize("seed", range(300))
def test_the_largest_part_without_a_split_transaction_is_taken(seed: int) -> None:
    chance = random.Random(seed)
    names = ["", "a", "b", "c", "d"]
    pieces = [piece(chance.choice("xyz"), chance.choice(names)) for _ in range(chance.randrange(9))]
    whole = {name for name in names[1:] if chance.random() < 0.6}
    assert whole_part(pieces, whole) == best(pieces, whole)


class Log:
    """Records of a source by their ids, as they are read from its topics."""

    def __init__(self, most: int = 100, reads: str = "ab") -> None:
        self.waiting = Transactions(lambda topic: topic[-1] in reads, most)
        self.said: dict[str, Any] = {}

    def come(self, *words: str) -> list[str]:
        """Have records come, such as 'a:x1' (table a, transaction x, its first), 'END:x:a2,b1', '!a' (unreadable)."""
        arrivals = [self.arrival(word) for word in words]
        self.waiting.add(arrivals, self.read)
        return self.take()

    def take(self, idle: bool = False) -> list[str]:
        return [
            one.record.topic + one.record.value.decode() for one in self.waiting.take(at_head=idle) if one.record.value
        ]

    def arrival(self, word: str) -> Arrival:
        topic = word.partition(":")[0]
        name = "p.transaction" if topic in ("BEGIN", "END") else f"p.{topic.strip('!')}"
        return Arrival(Record(word.encode(), topic=name), {})

    def read(self, arrival: Arrival) -> Any:
        topic, _, rest = (arrival.record.value or b"").decode().partition(":")
        if topic.startswith("!"):
            raise Undecodable("no")
        if topic in ("BEGIN", "END"):
            name, _, counts = rest.partition(":")
            tables = {one[0]: int(one[1:]) for one in counts.split(",") if one}
            return TransactionBoundary("END" if topic == "END" else "BEGIN", name, None, sum(tables.values()), tables)
        if not rest:
            return NoChange("heartbeat")
        changes = ({"insert": {"id": 1}},)
        return RowChange("create", changes, origin=Origin(transaction=Transaction(rest[0], int(rest[1:]))))


def test_a_transaction_waits_for_its_end_and_for_all_that_it_has() -> None:
    log = Log()
    assert log.come("BEGIN:x", "a:x1", "a:x2") == []
    assert log.come("END:x:a2,b1") == []
    # Neither its beginning nor its end changes anything.
    assert log.waiting.held == 2
    assert len(log.come("b:x3")) == 5
    assert log.waiting.held == 0


def test_tables_that_the_source_does_not_read_are_not_waited_for() -> None:
    log = Log(reads="a")
    assert len(log.come("a:x1", "END:x:a1,b7")) == 2


def test_what_follows_an_open_transaction_in_its_partition_waits_with_it() -> None:
    log = Log()
    # A snapshot, a heartbeat and what cannot be read belong to no transaction.
    assert log.come("a", "!a", "a:x1", "a", "b") == ["p.aa", "p.a!a", "p.bb"]
    assert log.come("a:y1", "END:x:a1,b1", "END:y:a1") == []
    assert len(log.come("b:x2")) == 6


def test_transactions_are_committed_in_their_order() -> None:
    log = Log()
    assert log.come("BEGIN:x", "a:x1", "END:x:a1,b1", "BEGIN:y", "END:y:c1") == []
    assert len(log.come("b:x2")) == 6


def test_what_a_restarted_connector_sends_again_is_waited_for_no_more() -> None:
    log = Log()
    assert len(log.come("a:x1", "a:x2", "b:x3", "END:x:a2,b1")) == 4
    assert log.come("b:x3", "END:x:a2,b1") == ["p.bb:x3", "p.transactionEND:x:a2,b1"]
    # Doubles do not stand for what has not come.
    assert log.come("a:y1", "a:y1", "END:y:a2") == []
    assert len(log.come("a:y2")) == 4


def test_what_never_comes_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    log = Log()
    assert log.come("b:x3", "END:x:a2,b1", "a:y1") == []
    assert log.take(idle=True) == []
    monkeypatch.setattr(transactions, "_MISSING_SECONDS", -1.0)
    assert log.take() == []
    assert log.take(idle=True) == ["p.bb:x3", "p.transactionEND:x:a2,b1"]
    assert "of transaction x, 1 of 3 records have come" in caplog.text
    assert log.waiting.held == 1


def test_a_transaction_larger_than_all_that_is_held_comes_in_parts(caplog: Any) -> None:
    log = Log(most=3)
    assert log.come("a:x1", "a:x2") == []
    assert len(log.come("a:x3")) == 3
    assert "committed in parts" in caplog.text


def test_records_of_postgresql_name_their_transaction_each_with_its_own_lsn() -> None:
    waiting = Transactions(lambda _: True, 100)
    said: dict[str, Any] = {
        "begin": TransactionBoundary("BEGIN", "571:100"),
        "row": RowChange("create", (), origin=Origin(transaction=Transaction("571:104", 1))),
        "end": TransactionBoundary("END", "571:108", None, 1, {"public.a": 1}),
    }
    for word, expected in (("begin", 0), ("row", 0), ("end", 3)):
        topic = "shop.public.a" if word == "row" else "shop.transaction"
        waiting.add(
            [Arrival(Record(word.encode(), topic=topic), {})], lambda one: said[(one.record.value or b"").decode()]
        )
        assert len(waiting.take()) == expected
