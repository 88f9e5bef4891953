"""What a source counts, looked at while it is at work: nothing is counted twice, and what came is never taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from headrace.capture.columns.debezium import ColumnDecoder
from headrace.capture.connector import Arrival, Connector
from headrace.capture.messages import (
    Change,
    Message,
    Origin,
    RowChange,
    Transaction,
    TransactionBoundary,
    Truncation,
)
from headrace.capture.options import FormatOptions
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.epoch.work import Work
from headrace.sources import runner as runner_module
from headrace.sources.bulk import Backlog
from headrace.sources.conservation import imbalances
from headrace.sources.runner import Runner
from headrace.sources.running import progress_of
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS
from headrace.sources.transactions import Unfinished
from tests.small_engine import Host
from tests.small_sources import Listed, inserts, runner_of, source_home
from tests.unit.test_source_backlog import Waiting, change
from tests.unit.test_source_runner import Small
from tests.waiting import until

BAD = [Arrival(Record(b"bad", topic="t", offset=at), {"at": at + 1}) for at in range(3)]


def told_by(runner: Runner) -> tuple[int, int]:
    """How many changes came, and how many of them are on their way."""
    status = runner.status
    return status.progress.received + status.pending, status.pending


def looked(arrivals: Sequence[Arrival], **options: Any) -> list[tuple[int, int]]:
    """What a source tells between its records, which come one at a time; each of it once, until nothing is left."""
    seen: list[tuple[int, int]] = []
    done: list[int] = []

    class Reading(Listed):
        def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
            told = told_by(runner)
            if told not in seen[-1:]:
                seen.append(told)
            if not self._left:
                done.append(1)
            return super().poll(1, seconds)

    source = Source("s", "t", "listed", "", "", options, state="Running")
    runner = runner_of(Loop(source_home()), source, Connector("LISTED", {}, partial(Reading, arrivals)))
    runner.start()
    until(lambda: len(done) > 1)
    runner.stop()
    return seen


def row(number: int, transaction: str = "") -> RowChange:
    told = Origin(transaction=Transaction(transaction, 1)) if transaction else Origin()
    changes: tuple[Change, ...] = ({"delete": {"id": -number}}, {"insert": {"id": number, "n": 1}})
    return RowChange("update", changes, origin=told)


def arrivals_of(*messages: tuple[str, Message]) -> list[Arrival]:
    return [
        Arrival(Record(b"", topic=topic, offset=at), {"at": at + 1}, message)
        for at, (topic, message) in enumerate(messages)
    ]


def test_transactions_that_wait_count_by_what_they_change() -> None:
    listed: list[tuple[str, Message]] = []
    for name in "xyz":
        end = TransactionBoundary("END", name, None, 1, {"public.t": 1})
        listed += [("p.transaction", TransactionBoundary("BEGIN", name)), ("p.public.t", row(len(listed) + 1, name))]
        listed.append(("p.transaction", end))
    assert looked(arrivals_of(*listed), transactions=True) == [(0, 0), (2, 2), (2, 0), (4, 2), (4, 0), (6, 2), (6, 0)]


def test_those_that_wait_count_while_others_are_taken() -> None:
    listed: list[tuple[str, Message]] = [
        ("p.public.t", row(1, "x")),
        ("p.public.u", row(2, "y")),
        ("p.transaction", TransactionBoundary("END", "x", None, 1, {"public.t": 1})),
        ("p.transaction", TransactionBoundary("END", "y", None, 1, {"public.u": 1})),
    ]
    seen: list[int] = []
    host = source_home()
    host.before_commit = lambda: seen.append(told_by(runner)[0])
    source = Source("s", "t", "listed", "", "", {"transactions": True, "max_records": 3}, state="Running")
    runner = runner_of(Loop(host), source, Connector("LISTED", {}, partial(Listed, arrivals_of(*listed))))
    runner.start()
    try:
        until(lambda: runner.status.progress.applied == 4)
    finally:
        runner.stop()
    assert seen == [4, 4]


def test_what_a_source_holds_back_itself_is_pending() -> None:
    listed = arrivals_of(*[("t", row(number)) for number in range(1, 4)])
    listed = [replace(one, whole=one is listed[-1]) for one in listed]
    assert looked(listed) == [(0, 0), (2, 2), (4, 4), (6, 0)]


def test_records_that_wait_are_counted_once_each() -> None:
    asked: list[Arrival] = []
    inside, last = (Arrival(Record(b""), {}, row(1), whole=whole) for whole in (False, True))

    def count(arrival: Arrival) -> int:
        asked.append(arrival)
        return 2

    held = Unfinished(count)
    assert [held.take([inside]) for _ in range(3)] == [[], [], []]
    assert (held.held, len(asked)) == (6, 3)
    assert held.take([last, inside]) == [inside, inside, inside, last]
    assert (held.held, held.arrivals) == (2, [inside])


@pytest.mark.parametrize(("arrival", "count"), [(BAD[0], 1), (Arrival(Record(None), {}, Truncation()), 0)])
def test_a_letter_is_a_change_and_a_truncation_that_is_left_out_is_none(arrival: Arrival, count: int) -> None:
    source = Source("s", "t", "listed", "", "", {"exclude_schema_changes": "truncate"}, state="Running")
    connector = Connector("LISTED", {}, partial(Listed, []), has_format=True)
    runner = runner_of(Loop(source_home()), source, connector)
    assert runner._changes_of(arrival) == count  # pyright: ignore[reportPrivateUsage]


def test_a_backlog_that_goes_one_by_one_is_not_taken_back() -> None:
    seen: list[int] = []

    class Seen(Small):
        def follow(self, work: Work) -> None:
            seen.append(told_by(runner)[0])
            super().follow(work)

    host = source_home(Seen)
    runner = backlog_runner(host, [change(number) for number in (*range(1, 40), 666)])
    runner.start()
    try:
        until(lambda: runner.status.progress.received == 40)
    finally:
        runner.stop()
    assert set(seen) == {40}


def backlog_runner(host: Host, values: Sequence[bytes]) -> Runner:
    contract = host.catalog.table("t").contract
    columns = ColumnDecoder(contract, FormatOptions())
    source = Source("s", "t", "waiting", "", "", {"max_records": 10, "format": "debezium"}, state="Running")
    connector = Connector("WAITING", {}, partial(Waiting, values), has_format=True, ordered=True)
    return runner_of(
        Loop(host), source, connector, Backlog(20, 100, lambda _: "t", lambda _: contract, lambda _: columns)
    )


def test_a_batch_that_is_read_again_after_a_failure_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_FIRST_PAUSE", 0.01)
    host, seen, commits = source_home(), list[int](), list[int]()

    class Reading(Listed):
        def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
            seen.append(told_by(runner)[0])
            return super().poll(most, seconds)

    def commit() -> None:
        seen.append(told_by(runner)[0])
        commits.append(1)
        if len(commits) == 2:
            raise OSError("the disk is away")

    host.before_commit = commit
    source = Source("s", "t", "listed", "", "", {"max_records": 10}, state="Running")
    arrivals = inserts([{"id": number, "n": 1} for number in range(20)])
    runner = runner_of(Loop(host), source, Connector("LISTED", {}, partial(Reading, arrivals)))
    runner.start()
    try:
        until(lambda: runner.status.progress.received == 20 and len(seen) > 6)
        assert runner.status.pending == 0
    finally:
        runner.stop()
    # The second batch was read twice.
    assert seen[:6] == [0, 10, 10, 20, 20, 20]
    assert set(seen[6:]) == {20}


def test_what_a_source_that_has_stopped_had_read_is_pending_no_more() -> None:
    host = source_home()

    def fail() -> None:
        raise ValueError("no")

    host.before_commit = fail
    source = Source("s", "t", "listed", "", "", {}, state="Running")
    runner = runner_of(Loop(host), source, Connector("LISTED", {}, partial(Listed, inserts([{"id": 1, "n": 1}]))))
    runner.start()
    until(lambda: runner.has_ended)
    assert (runner.status.state, runner.status.pending) == ("Error", 0)


def balance(host: Host) -> tuple[int, int, int]:
    """What came, what is dead of it, and how many letters there are; all of it adds up."""
    catalog: Any = replace(host.catalog, sources={"s": Source("s", "t", "listed", "", "", {}, state="Running")})
    assert [str(one) for one in imbalances(catalog, host.relations())] == []
    progress = progress_of(host, "s")  # pyright: ignore[reportArgumentType]
    return progress.received, progress.dead, len(host.holds(DEAD_LETTERS))


def run_until(runner: Runner, position: dict[str, int]) -> None:
    runner.start()
    try:
        until(lambda: runner._taking.position == position)  # pyright: ignore[reportPrivateUsage]
    finally:
        runner.stop()


@pytest.mark.parametrize("again", [3, 2])
def test_a_letter_that_comes_again_is_counted_once(again: int) -> None:
    host, connector = source_home(), Connector("LISTED", {}, partial(Listed, BAD), has_format=True)
    source = Source("s", "t", "listed", "", "", {"max_records": again}, state="Running")
    run_until(runner_of(Loop(host), source, connector), {"at": 3})
    assert balance(host) == (3, 3, 3)
    # As DROP SOURCE and CREATE SOURCE of its name do; some of its letters may have been let go meanwhile.
    gone = sorted(one[0] for one in host.holds(DEAD_LETTERS))[again:]
    changes: Any = {
        PROGRESS: [{"delete": {"source": "s"}}],
        DEAD_LETTERS: [{"delete": {"id": one}} for one in gone],
    }
    Loop(host).submit(Call(changes))
    run_until(runner_of(Loop(host), source, connector), {"at": 3})
    assert balance(host) == (3, 3, 3)


def test_letters_of_a_backlog_that_is_read_anew_are_counted_once() -> None:
    host = source_home()
    values = [change(number) if number % 10 else b"bad" for number in range(1, 51)]
    run_until(backlog_runner(host, values), {"t:0": 50})
    assert balance(host) == (50, 5, 5)
    before = progress_of(host, "s")  # pyright: ignore[reportArgumentType]
    # As RESUME SOURCE ... WITH SNAPSHOT does.
    begun = replace(before, position={}).row("s", host.tick())
    Loop(host).submit(Call({PROGRESS: [{"insert": begun}]}))  # pyright: ignore[reportArgumentType]
    run_until(backlog_runner(host, values), {"t:0": 50})
    assert balance(host) == (95, 5, 5)


def test_letters_of_one_record_in_one_batch_are_one() -> None:
    host = source_home()
    twice = [BAD[0], replace(BAD[0], advance={"at": 2})]
    source = Source("s", "t", "listed", "", "", {}, state="Running")
    connector = Connector("LISTED", {}, partial(Listed, twice), has_format=True)
    run_until(runner_of(Loop(host), source, connector), {"at": 2})
    assert balance(host) == (1, 1, 1)
