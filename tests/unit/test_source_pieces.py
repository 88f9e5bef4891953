"""Changes that a view fails on, among others: how many epochs it takes to find them all, and what is kept meanwhile."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace.capture.connector import Arrival
from headrace.capture.messages import RowChange
from headrace.capture.record import Record
from headrace.epoch.work import Work
from headrace.errors import ViewEvaluationError
from headrace.sources.intake import Decoded, Letter, Progress, decode
from headrace.sources.pieces import SMALL, Pieces
from tests.small_engine import Host
from tests.small_sources import runner_over, source_home
from tests.waiting import until

Fails = Callable[[int, Any], bool]


def arrivals_of(rows: Sequence[tuple[int, Any]]) -> list[Arrival]:
    return [
        Arrival(
            Record(b"", topic="t", offset=at), {"at": at + 1}, RowChange("create", ({"insert": {"id": row, "n": n}},))
        )
        for at, (row, n) in enumerate(rows)
    ]


def no_decoder(_: str) -> Any:
    raise AssertionError("they are decoded already")


class Epochs:
    """What is committed, by a view that fails on some rows."""

    def __init__(self, fails: Fails, *, tells: bool = True, most: int = 10_000, expression: str = "") -> None:
        self.fails, self.tells, self.expression = fails, tells, expression
        self.tries = 0
        self.pieces = Pieces(lambda listed: decode(listed, lambda _: "t", no_decoder), self.commit, most)
        self.applied: list[int] = []
        self.letters: list[Letter] = []
        self.positions: list[int] = []
        self.sizes: list[int] = []

    def commit(self, decoded: Decoded, ask: bool) -> None:
        changes: list[Any] = list(decoded.changes.get("t", ()))
        rows = [next(iter(one.values())) for one in changes]
        self.tries += 1
        guilty = next((row for row in rows if self.fails(row["id"], row["n"])), None)
        if guilty is not None:
            # What the loop does to find the row.
            self.tries += math.ceil(math.log2(len(rows))) + 1 if ask else 0
            row = guilty if ask and self.tells else None
            raise ViewEvaluationError("it cannot be computed", view="v", expression=self.expression, row=row)
        self.applied.extend(row["id"] for row in rows)
        self.letters.extend(decoded.letters)
        offsets = [one.record.offset or 0 for one in decoded.arrivals]
        self.sizes.append(len(offsets))
        self.positions.extend(offsets)

    def take(self, rows: Sequence[tuple[int, Any]]) -> None:
        self.pieces.take(decode(arrivals_of(rows), lambda _: "t", no_decoder))


@pytest.mark.parametrize("count", [1, 65, 2000])
@pytest.mark.parametrize("share", [0, 0.0001, 0.01, 0.1, 1])
@pytest.mark.parametrize("tells", [True, False])
def test_all_guilty_ones_are_found_in_few_tries_and_in_order(count: int, share: float, tells: bool) -> None:
    guilty = set(random.Random(count).sample(range(count), math.ceil(count * share)))
    epochs = Epochs(lambda row, _: row in guilty, tells=tells)
    epochs.take([(number, 1) for number in range(count)])
    assert epochs.applied == [number for number in range(count) if number not in guilty]
    assert epochs.positions == list(range(count))
    assert sorted(one.arrival.record.offset or 0 for one in epochs.letters) == sorted(guilty)
    assert {(one.stage, one.changes) for one in epochs.letters} <= {("view", 1)}
    # Each costs the halves that lead to it and the pieces that grow behind it, however many there are.
    assert epochs.tries <= 1 + len(guilty) * 3 * (math.log2(count / max(1, len(guilty))) + 2)


def test_one_percent_takes_a_try_for_each_halving_of_a_hundred() -> None:
    guilty = set(random.Random(16).sample(range(10_000), 100))
    epochs = Epochs(lambda row, _: row in guilty)
    epochs.take([(number, 1) for number in range(10_000)])
    assert epochs.tries < 100 * (math.log2(100) + 8)


def test_changes_with_the_values_of_a_guilty_one_are_tried_alone() -> None:
    rows = [(number, -1 if number % 100 == 17 else number) for number in range(10_000)]
    epochs = Epochs(lambda _, n: n == -1, expression="10 DIV (n + 1)")
    epochs.take(rows)
    assert len(epochs.letters) == 100
    assert epochs.applied == [number for number, n in rows if n != -1]
    assert epochs.tries < 100 * 2 + 30


@pytest.mark.thorough
def test_a_wrong_suspicion_costs_one_epoch() -> None:
    """The values of all are those of the guilty one."""
    epochs = Epochs(lambda row, _: row == 17, expression="f(n)")
    epochs.take([(number, 1) for number in range(10_000)])
    assert (len(epochs.applied), len(epochs.letters)) == (9_999, 1)
    assert epochs.sizes.count(1) <= 1
    assert epochs.tries < 40


@pytest.mark.thorough
def test_pieces_grow_until_batches_are_taken_whole_again() -> None:
    epochs = Epochs(lambda row, _: row == 17)
    epochs.take([(number, 1) for number in range(10_000)])
    assert not epochs.pieces.whole
    epochs.take([(number, 1) for number in range(10_000, 20_000)])
    assert epochs.pieces.whole
    before = epochs.tries
    epochs.take([(number, 1) for number in range(20_000, 30_000)])
    assert epochs.tries == before + 1


def test_the_size_is_known_to_the_next_batch() -> None:
    guilty = set(range(50, 20_000, 100))
    epochs = Epochs(lambda row, _: row in guilty)
    epochs.take([(number, 1) for number in range(10_000)])
    assert not epochs.pieces.whole
    del epochs.sizes[:]
    epochs.take([(number, 1) for number in range(10_000, 20_000)])
    assert max(epochs.sizes) <= 4 * SMALL


def test_a_transaction_is_not_cut_for_a_guilty_record() -> None:
    guilty = {130, 140, 450}
    epochs = Epochs(lambda row, _: row in guilty)
    listed = arrivals_of([(number, 1) for number in range(1000)])
    # Transactions of a hundred records each.
    marked = [replace(one, whole=at % 100 == 99) for at, one in enumerate(listed)]
    epochs.pieces.take(decode(marked, lambda _: "t", no_decoder))
    assert len(epochs.letters) == 3
    assert len(epochs.applied) == 997
    assert all(size % 100 == 0 for size in epochs.sizes)


def test_a_view_that_fails_on_nothing_that_came_stops_the_source_and_buries_nothing() -> None:
    epochs = Epochs(lambda *_: False)

    def refuse(decoded: Decoded, ask: bool) -> None:
        epochs.tries += 1
        raise ViewEvaluationError("it fails on the hour", view="v")

    pieces = Pieces(lambda listed: decode(listed, lambda _: "t", no_decoder), refuse, 10_000)
    with pytest.raises(ViewEvaluationError, match="on the hour"):
        pieces.take(decode(arrivals_of([(number, 1) for number in range(10_000)]), lambda _: "t", no_decoder))
    assert epochs.tries < 1000


class Failing(Host):
    """A home with a view that fails on rows with 0."""

    tries = 0
    asked = 0

    def follow(self, work: Work) -> None:
        self.tries += 1
        if 0 in work.delta_of("t").rows.column(1).to_pylist():
            raise ViewEvaluationError("it cannot be computed", view="v", expression="1 / n")

    def blame(self, error: ViewEvaluationError) -> ViewEvaluationError:
        self.asked += 1
        return error


def brought(host: Host, rows: Sequence[dict[str, Any]]) -> Progress:
    """Where a source is that has brought all its rows, and still runs."""
    runner = runner_over(host, rows)
    runner.start()
    try:
        until(lambda: runner.status.progress.received == len(rows) or runner.status.state == "Error")
        status = runner.status
        assert (status.state, status.error, status.pending) == ("Running", None, 0)
        return status.progress
    finally:
        runner.stop()


def test_a_source_goes_on_beside_what_a_view_fails_on() -> None:
    host = source_home(Failing)
    rows = [{"id": number, "n": 0 if number % 100 == 50 else 1} for number in range(1000)]
    progress = brought(host, rows)
    assert (progress.applied, progress.dead, progress.recorded) == (990, 10, 1000)
    assert progress.position == {"at": 1000}
    assert {row[0] for row in host.holds("t")} == {row["id"] for row in rows if row["n"]}
    assert {letter[4] for letter in host.holds("dead_letters")} == {"view"}
    # Nobody asks for the row in turn: to find it, every other call would wait.
    assert host.asked == 0
    # Rows that are alike in what the expression reads are each tried once, and what is left is committed at once.
    assert host.epoch <= 3
    assert host.tries < 10 * 2 + 30


class Casting(Host):
    """A home with a view that fails on some texts, and says of which; it fails on two rows together, too."""

    tries = 0

    def follow(self, work: Work) -> None:
        self.tries += 1
        held = work.delta_of("t").rows.column(1).to_pylist()
        bad = next((one for one in held if one is not None and one < 0), None)
        if bad is not None:
            raise ViewEvaluationError(
                "it cannot be computed", view="v", expression="f(other)", detail=f"In 'f(other)': {bad} is none."
            )
        if held.count(666) > 1:
            raise ViewEvaluationError("it cannot be computed for both", view="v", expression="sum(n)")


def test_values_of_their_own_are_found_by_halves_and_rows_that_fail_together_by_records() -> None:
    host = source_home(Casting)
    # One in a hundred fails by itself, and of two others either may be taken, but not both in one epoch.
    rows = [{"id": number, "n": -number if number % 100 == 50 else 1} for number in range(1000)]
    rows[7]["n"] = rows[8]["n"] = 666
    progress = brought(host, rows)
    assert (progress.applied, progress.dead) == (990, 10)
    assert {row[0] for row in host.holds("t")} == {row["id"] for row in rows if row["n"] > 0}
    assert host.tries < 10 * 20 + 60
