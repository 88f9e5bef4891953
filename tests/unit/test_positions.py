"""Captured changes converge by their positions: whatever comes late, twice or out of order, the end is the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.capture.connector import Arrival
from headrace.capture.formats.debezium import decoder
from headrace.capture.options import FormatOptions
from headrace.capture.record import Record
from headrace.epoch.batch import Batch, Verdicts
from headrace.epoch.work import Work
from headrace.intake.positions import (
    Captured,
    SourcePosition,
    is_stale,
    kept_position,
    numbered,
    sortable,
)
from headrace.sources.intake import Progress, call_for, decode
from headrace.sources.positions import Positions
from tests.recorded_streams import RESTORE, STEPS, TABLES, TRUNCATE, Database, batches, recorded
from tests.small_engine import Host, table

NOW = datetime(2026, 6, 1, tzinfo=UTC)
FIXED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
DAY = timedelta(days=1)


class Home:
    """Tables without a disk, which take records as a source would bring them."""

    def __init__(self, sequence: str | None = None, retention: timedelta = DAY) -> None:
        self.host = Host(*(table(name, sequence=sequence) for name in TABLES))
        self._retention = retention
        self._positions = Positions()
        contracts = {one.name: one.contract for one in self.host.catalog.tables()}
        self._decoders = {name: decoder(contract, FormatOptions()) for name, contract in contracts.items()}

    def bring(self, records: list[Record], ordered: bool = True) -> Verdicts:
        """One epoch of records."""
        arrivals = [Arrival(one, {}) for one in records]
        decoded = decode(
            arrivals,
            lambda one: one.record.topic.rpartition(".")[2],
            lambda name: self._decoders[name].decode,
            positions=self._positions if ordered else None,
        )
        assert not decoded.letters
        call, _ = call_for("s", decoded, Progress(), raw=False)
        return self.take(call.changes)

    def take(self, changes: Any) -> Verdicts:
        work = Work(self.host.stores, 1000)
        batch = Batch(self.host.catalog, work, NOW, self._retention)
        verdicts = batch.take(changes, each=True)
        for name, delta in batch.deltas().items():
            self.host.stores[name].apply(delta)
        return verdicts

    @property
    def tables(self) -> dict[str, dict[int, int]]:
        return {name: dict(self.host.holds(name)) for name in TABLES}

    def remembered(self, name: str = "orders") -> set[int]:
        return {row[0] for row in self.host.holds(f"{name}#positions")}


@pytest.mark.thorough
@FIXED
@given(st.lists(STEPS | TRUNCATE, max_size=25), st.integers(0, 1 << 30))
def test_a_table_that_is_emptied_converges_too(steps: Any, seed: int) -> None:
    database = recorded([("commit",), *steps])
    home = Home()
    for batch in batches(database.records, seed):
        home.bring(batch)
    assert home.tables == database.rows


@FIXED
@given(st.lists(STEPS | RESTORE, max_size=25), st.integers(0, 1 << 30))
def test_any_permutation_duplication_and_batching_gives_what_the_database_holds(steps: Any, seed: int) -> None:
    database = recorded(steps)
    home = Home()
    for batch in batches(database.records, seed):
        home.bring(batch)
    assert home.tables == database.rows


@pytest.mark.thorough
@FIXED
@given(st.lists(STEPS | RESTORE | TRUNCATE, max_size=25))
def test_as_it_comes_the_tables_are_never_behind_what_they_were(steps: Any) -> None:
    """In the order of the log they are what the database held then, also while records are sent again one by one."""
    database = Database()
    database.rows["orders"].update({1: -1, 2: -2})
    database.snapshot()
    home = Home()
    home.bring(database.records)
    for step in steps:
        before = len(database.records)
        database.run(step)
        new = database.records[before:]
        for batch in [[one] for one in new] if step[0] == "restart" else [new]:
            home.bring(batch)
            assert home.tables == database.rows


def test_without_positions_a_late_change_would_bring_a_row_back() -> None:
    """What the tests above would not see if the order of arrival were enough."""
    database = recorded([("put", "orders", 3), ("delete", "orders", 3)])
    late = [*database.records, *database.records[2:3]]
    by_arrival, by_position = Home(), Home()
    for record in late:
        by_arrival.bring([record], ordered=False)
        by_position.bring([record])
    assert by_arrival.tables["orders"] == {1: -1, 2: -2, 3: 1}
    assert by_position.tables["orders"] == {1: -1, 2: -2}


@FIXED
@given(st.lists(STEPS, max_size=25), st.integers(0, 1 << 30))
def test_a_topic_that_was_divided_anew_converges_by_the_positions_of_its_source(steps: Any, seed: int) -> None:
    database = recorded([("commit",), *steps])
    moved = [
        Record(one.value, one.key, (), one.topic, 7 + (one.offset + seed) % 3, 100 + number)
        for number, one in enumerate(database.records)
        if one.value is not None
    ]
    home = Home()
    for batch in batches(moved, seed):
        home.bring(batch)
    assert home.tables == database.rows


def test_a_truncate_empties_its_own_table_and_counts_as_a_change() -> None:
    database = recorded([("put", "lines", 1), ("truncate", "orders"), ("put", "orders", 2), ("put", "lines", 2)])
    for ordered in (True, False):
        home = Home()
        verdicts = home.bring(database.records, ordered)
        assert home.tables == database.rows == {"orders": {2: 2}, "lines": {1: 1, 2: 3}}
        assert (verdicts.applied, verdicts.stale) == ({"orders": 4, "lines": 2}, {"orders": 0, "lines": 0})


def at(offset: int, order: int | None = None, second: int | None = None, **more: Any) -> SourcePosition:
    moment = None if second is None else datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    parts = {"log": 1, "order": "" if order is None else sortable((order,)), "partition": 1, "number": 0}
    return SourcePosition(**{**parts, "offset": offset, "source_at": moment, **more})


STALE: list[tuple[str, SourcePosition, SourcePosition]] = [
    ("an older one", at(1, 10, 1), at(2, 20, 2)),
    ("the same record again", at(2, 20, 2), at(2, 20, 2)),
    ("an older one that is sent again", at(3, 10, 1), at(2, 20, 2)),
    ("one of a log that has begun anew since", at(1, 100, 1), at(2, 5, 2)),
    ("a row that was read before the change was logged", at(1, 100, 5, read=True), at(2, 50, 4)),
    ("without positions, an earlier offset", at(1), at(2)),
    ("of another partition, an older position", at(9, 10, 1, partition=2), at(2, 20, 2)),
    ("another change of the same record, the first", at(2, 20, 2), at(2, 20, 2, number=1)),
    ("of another partition, a row that was read before", at(9, 10, 1, partition=2, read=True), at(2, 20, 2)),
]


@pytest.mark.parametrize(("new", "known"), [case[1:] for case in STALE], ids=[case[0] for case in STALE])
def test_which_of_two_changes_is_stale(new: SourcePosition, known: SourcePosition) -> None:
    assert is_stale(new, known)
    if new != known:
        assert not is_stale(known, new)


def test_what_cannot_be_compared_is_taken_as_it_comes() -> None:
    for one, other in [
        (at(1, 10, 1, log=2, partition=2), at(2, 20, 2)),
        (at(1, partition=2), at(2)),
    ]:
        assert not is_stale(one, other)
        assert not is_stale(other, one)


def test_a_log_that_begins_anew_is_never_taken_for_an_old_one() -> None:
    """Of another partition nobody can tell for sure what is old; nothing that may be new is left out."""
    for one, other in [
        (at(1, 10, 9, partition=2), at(2, 20, 2)),
        (at(1, 10, 9, partition=2, read=True), at(2, 20, 2)),
        (at(1, 10, partition=2, read=True), at(2, 20)),
        (at(2, 20, 2, partition=2), at(1, 10, 9, read=True)),
    ]:
        assert not is_stale(one, other)


def test_a_tombstone_stands_for_the_delete_before_it_whichever_comes_first() -> None:
    delete, tombstone = at(2, 20, 2), at(3, log=0)
    assert is_stale(delete, tombstone)
    first = kept_position(delete, tombstone, stale=True)
    assert not is_stale(tombstone, delete)
    second = kept_position(tombstone, delete, stale=False)
    assert first == second == at(3, 20, 2)
    assert is_stale(at(9, 10, 1), first)


@given(st.lists(st.integers(0, 1 << 70), max_size=4), st.lists(st.integers(0, 1 << 70), max_size=4))
def test_texts_of_positions_sort_as_their_numbers_do(one: list[int], other: list[int]) -> None:
    assert (sortable(one) < sortable(other)) == (one < other)


def test_a_name_has_one_number() -> None:
    assert numbered("shop.public.orders:0") == -3125641400879504821
    assert numbered("a") != numbered("b")


def put(number: int, n: int) -> Any:
    return {"insert": {"id": number, "n": n}}


def test_of_two_with_the_same_sequence_the_one_that_is_further_in_its_source_stays() -> None:
    for changes in ([(put(1, 5), at(1)), (put(1, 5), at(2))], [(put(1, 5), at(2)), (put(1, 5), at(1))]):
        home = Home(sequence="n")
        stale = [home.take({"orders": Captured([change], [where])}).stale["orders"] for change, where in changes]
        assert stale == [0, int(changes[0][1].offset == 2)]
        assert home.take({"orders": Captured([put(1, 4)], [at(9)])}).stale["orders"] == 1
        assert home.take({"orders": Captured([put(1, 6)], [at(0)])}).stale["orders"] == 0


def test_what_a_user_changes_beside_a_source_is_taken_and_what_the_source_had_before_stays_stale() -> None:
    home = Home()
    home.take({"orders": Captured([put(1, 1)], [at(5, 50, 5)])})
    home.take({"orders": [put(1, 99)]})
    assert home.take({"orders": Captured([put(1, 0)], [at(4, 40, 4)])}).stale["orders"] == 1
    assert home.tables["orders"] == {1: 99}
    home.take({"orders": Captured([put(1, 2)], [at(6, 60, 6)])})
    assert home.tables["orders"] == {1: 2}


def test_a_table_without_captured_changes_remembers_nothing() -> None:
    home = Home()
    home.take({"orders": [put(1, 1), {"delete": {"id": 2}}]})
    assert home.remembered() == set()


def test_positions_older_than_the_retention_are_let_go_by_the_time_of_the_source() -> None:
    home = Home(retention=timedelta(seconds=10))
    for key, second in [(1, 1), (2, 5), (3, 14), (4, 16)]:
        home.take({"orders": Captured([put(key, 0)], [at(key, key, second)])})
    assert home.remembered() == {3, 4}
    # One that is changed again is remembered anew, and one with a time that is yet to come lets go of nothing more.
    home.take({"orders": Captured([put(3, 0)], [at(9, 9, 59)])})
    assert home.remembered() == {3}
    ahead = at(10, 10)._replace(source_at=NOW + timedelta(days=400))
    home.take({"orders": Captured([put(5, 0)], [ahead])})
    assert home.remembered() == {5}


def test_a_call_that_is_rejected_leaves_the_positions_as_they_were() -> None:
    home = Home()
    batch = Batch(home.host.catalog, Work(home.host.stores, 1000), NOW, DAY)
    batch.take({"orders": Captured([put(1, 1)], [at(1, 1, 1)])})
    mark = batch.mark()
    batch.take({"orders": Captured([put(1, 2), put(2, 2)], [at(2, 2, 2), at(3, 3, 3)])})
    batch.rollback(mark)
    assert batch.take({"orders": Captured([put(1, 3)], [at(2, 2, 2)])}).stale["orders"] == 0
    positions = batch.deltas()["orders#positions"]
    assert positions.rows.column(0).to_pylist() == [1]
