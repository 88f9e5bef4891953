"""Calls that leave Spark without memory: each is tried alone for a while, and one that did it alone is told so."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.epoch import suspects
from headrace.epoch.bulk import Bulk
from headrace.epoch.calls import Basis, Call
from headrace.epoch.loop import Loop
from headrace.errors import ChangesRejected, LedgerNotWritten, MemoryExceeded, SparkLost, WorkFailed
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta
from tests.small_engine import COLUMNS, Following, Host, table, verdicts, view

POISON = 3_000_000


class Spark:
    """A view's rule that leaves Spark without memory on one value, as the epoch is then told."""

    def __init__(self) -> None:
        self.ended = 0
        self.alone = True
        self.batches: list[int] = []

    def __call__(self, epoch: Any) -> Delta:
        delta = epoch.delta_of("t")
        self.batches.append(len(delta))
        if any(value is not None and value >= POISON for value in delta.rows.column(1).to_pylist()):
            self.ended += 1
            lost = SparkLost("Spark ended while it worked")
            lost.of_memory, lost.alone = True, self.alone
            raise lost
        return delta


@pytest.fixture
def spark() -> Spark:
    return Spark()


@pytest.fixture
def host(spark: Spark) -> Host:
    return Host(table("t"), view("v", "t", rule=Following(spark)))


@pytest.fixture
def loop(host: Host) -> Loop:
    return Loop(host)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(suspects.time, "monotonic", clock)
    return clock


def insert(number: int, n: int | None = 0, **parts: Any) -> Call:
    return Call({"t": [{"insert": {"id": number, "n": n}}]}, **parts)


def poison(number: int = 66, **parts: Any) -> Call:
    return insert(number, POISON, **parts)


def test_of_several_nobody_is_to_blame(host: Host, loop: Loop) -> None:
    for told in verdicts(loop, insert(1), poison(), insert(2)):
        assert type(told) is SparkLost
        assert told.transient
    assert host.epoch == 0


def test_those_who_come_again_are_tried_one_by_one_and_only_the_guilty_hears_that_it_is(
    host: Host, loop: Loop, spark: Spark
) -> None:
    verdicts(loop, insert(1), poison(), insert(2))
    spark.batches.clear()
    first, guilty, other, new = verdicts(loop, insert(1), poison(), insert(2), insert(3))
    assert isinstance(guilty, MemoryExceeded)
    assert not guilty.transient
    assert "HEADRACE_SPARK_MEMORY" in guilty.hint
    assert [first.epoch, other.epoch, new.epoch] == [1, 2, 3]
    assert spark.batches == [1, 1, 1, 1]
    assert host.holds("v") == {(1, 0), (2, 0), (3, 0)}


def test_one_that_was_alone_at_once_is_told_at_once(loop: Loop) -> None:
    (told,) = verdicts(loop, poison())
    assert isinstance(told, MemoryExceeded)


def test_who_repeats_what_ended_spark_is_refused_without_ending_it_again(host: Host, loop: Loop, spark: Spark) -> None:
    verdicts(loop, poison(key="first", digest="of the body"))
    again = verdicts(loop, poison(key="second", digest="of the body"), insert(1))
    assert isinstance(again[0], MemoryExceeded)
    assert again[1].epoch == 1
    assert spark.ended == 1
    # Without a digest of its own, a call is known by its changes.
    (told,) = verdicts(loop, poison())
    assert (isinstance(told, MemoryExceeded), spark.ended) == (True, 2)
    (told,) = verdicts(loop, poison())
    assert (isinstance(told, MemoryExceeded), spark.ended) == (True, 2)
    # Other changes of the same number are others.
    assert verdicts(loop, insert(66, POISON - 1))[0].epoch == 2


def test_what_was_worked_out_of_a_statement_is_known_again(host: Host, loop: Loop, spark: Spark) -> None:
    def bulk(n: int) -> Call:
        schema = arrow_schema([field.dataType for field in COLUMNS.fields])
        rows = pa.table([pa.array([1], schema.types[0]), pa.array([n], schema.types[1])], schema=schema)
        return Call({"t": Bulk(rows.slice(0, 0), rows)}, basis=Basis(0, 0, frozenset()))

    for _ in range(2):
        with pytest.raises(MemoryExceeded):
            loop.submit_worked_out(lambda: bulk(POISON))
    assert spark.ended == 1
    assert loop.submit_worked_out(lambda: bulk(1)).epoch == 1


def test_nobody_is_remembered_for_ever(host: Host, loop: Loop, spark: Spark, clock: Clock) -> None:
    verdicts(loop, poison())
    clock.now += 119
    assert [one.epoch for one in verdicts(loop, insert(1), insert(2))] == [1, 2]
    clock.now += 2
    assert [one.epoch for one in verdicts(loop, insert(3), insert(4))] == [3, 3]
    (told,) = verdicts(loop, poison())
    assert (isinstance(told, MemoryExceeded), spark.ended) == (True, 1)
    clock.now += 600
    (told,) = verdicts(loop, poison())
    assert (isinstance(told, MemoryExceeded), spark.ended) == (True, 2)


def test_a_definition_may_have_mended_it(host: Host, loop: Loop, spark: Spark) -> None:
    host.definitions = 0
    verdicts(loop, poison())
    loop.define(lambda: None)
    (told,) = verdicts(loop, poison())
    assert (isinstance(told, MemoryExceeded), spark.ended) == (True, 2)


def test_how_many_are_remembered_is_bounded(loop: Loop, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "_MOST", 2)
    for number in range(5):
        verdicts(loop, poison(number))
    assert spark.ended == 5
    verdicts(loop, poison(4), poison(3))
    assert spark.ended == 5
    verdicts(loop, poison(0))
    assert spark.ended == 6


def test_where_something_else_was_at_work_no_call_is_to_blame(loop: Loop, spark: Spark) -> None:
    """A query in the same Spark may have taken the memory."""
    spark.alone = False
    for _ in range(2):
        (told,) = verdicts(loop, poison())
        assert type(told) is SparkLost
    assert spark.ended == 2


def test_a_spark_that_ended_otherwise_makes_nobody_a_suspect(
    host: Host, loop: Loop, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: object) -> None:
        raise SparkLost("Spark ended while it worked")

    with monkeypatch.context() as patched:
        patched.setattr(host, "follow", killed)
        (told,) = verdicts(loop, insert(1))
    assert type(told) is SparkLost
    assert [one.epoch for one in verdicts(loop, insert(1), insert(2))] == [1, 1]


def test_a_task_without_memory_is_tried_alone_but_not_called_guilty(
    host: Host, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark lives, so whoever is guilty hurts nobody else once each is tried alone."""
    follow = host.follow

    def refused(work: Any) -> None:
        if POISON in work.delta_of("t").rows.column(1).to_pylist():
            failed = WorkFailed("view v could not be worked out")
            failed.of_memory = failed.alone = True
            raise failed
        follow(work)

    monkeypatch.setattr(host, "follow", refused)
    assert {type(told) for told in verdicts(loop, insert(1), poison())} == {WorkFailed}
    first, guilty = verdicts(loop, insert(1), poison())
    assert first.epoch == 1
    assert type(guilty) is WorkFailed


def test_who_was_rejected_beside_the_guilty_may_come_again(loop: Loop) -> None:
    """It was checked on top of changes that do not come to be."""
    bad = Call({"t": [{"insert": {"id": None, "n": 1}}]})
    guilty, rejected = verdicts(loop, poison(), bad)
    assert isinstance(guilty, MemoryExceeded)
    assert type(rejected) is SparkLost
    assert isinstance(verdicts(loop, Call(bad.changes))[0], ChangesRejected)


def test_twins_hear_the_same(loop: Loop) -> None:
    twins = verdicts(loop, poison(key="k", digest="d"), poison(key="k", digest="d"))
    assert [type(one) for one in twins] == [MemoryExceeded, MemoryExceeded]


def test_a_call_that_nobody_entered_is_not_waited_for(loop: Loop) -> None:
    verdicts(loop, poison())
    with pytest.raises(LedgerNotWritten, match="interrupted"):
        loop.wait_for(insert(1))


def test_a_statement_that_is_worked_out_in_its_turn_comes_after_those_in_line(
    host: Host, loop: Loop, spark: Spark
) -> None:
    verdicts(loop, poison())
    waiting = [loop.enter(insert(number)) for number in range(3)]
    outdated = iter([True, True, True])

    def work_out() -> Call:
        if next(outdated, False):
            host._changed_at["t"] = 10
            return Call({}, basis=Basis(0, 0, frozenset({"t"})))
        return insert(100, len(host.holds("t")))

    assert loop.submit_worked_out(work_out).epoch == 4
    assert all(call.receipt is not None for call in waiting)
    assert (100, 3) in host.holds("v")


def test_a_definition_that_alone_leaves_spark_without_memory_is_told_so(host: Host, loop: Loop) -> None:
    host.definitions = 0

    def fill() -> None:
        lost = SparkLost("Spark ended while it worked")
        lost.of_memory = lost.alone = True
        raise lost

    with pytest.raises(MemoryExceeded, match="definition") as told:
        loop.define(fill)
    assert not told.value.transient
    # No call had a part in that.
    assert [one.epoch for one in verdicts(loop, insert(1), insert(2))] == [1, 1]
