"""Calls that wait while an epoch runs share the next one: each checked on top of those accepted before it."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import headrace
from headrace import HeadraceError, Receipt
from headrace.epoch.calls import Call
from headrace.epoch.run import Intake
from headrace.face import home_of
from tests.changes import delete, insert, rows_of
from tests.waiting import until

SETUP = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, v INT);
CREATE TABLE bag (a INT, s STRING);
CREATE TABLE seq (id INT PRIMARY KEY, v INT, at INT NOT NULL) SEQUENCE BY at;
CREATE VIEW total AS SELECT g, SUM(v) AS s, COUNT(*) AS n FROM t GROUP BY g;
CREATE VIEW big AS SELECT g, s FROM total WHERE s > 10;
CREATE VIEW in_bag AS SELECT DISTINCT a FROM bag;
CREATE VIEW matched AS SELECT t.id, bag.s, seq.v FROM t JOIN bag ON t.v = bag.a LEFT JOIN seq ON t.id = seq.id;
"""
RELATIONS = ("t", "bag", "seq", "total", "big", "in_bag", "matched")

# A statement, or the changes of an apply and its idempotency key.
Sent = str | tuple[dict[str, list[Any]], str | None]


@pytest.fixture
def shop(home: Any) -> Any:
    home.execute(SETUP)
    return home


@pytest.fixture
def apart(spark: Any, tmp_path: Path) -> Iterator[Any]:
    with headrace.open(str(tmp_path / "apart"), spark=spark) as home:
        home.execute(SETUP)
        yield home


def summed(hr: Any, name: str) -> list[Any]:
    """All changes of a relation from the start, added up."""
    total: Counter[Any] = Counter()
    for row in hr.changes(name).to_pylist():
        sign = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        total[tuple(value for column, value in row.items() if column[0] != "_")] += sign
    assert all(count >= 0 for count in total.values())
    return sorted(total.elements(), key=repr)


def send(hr: Any, sent: Sent) -> Any:
    """What becomes of one call: its receipt, or its error."""
    try:
        return hr.execute(sent) if isinstance(sent, str) else hr.apply(sent[0], key=sent[1])
    except HeadraceError as error:
        return error


def together(hr: Any, calls: Sequence[Sent]) -> list[Any]:
    """The outcomes of calls that arrive one after the other while an epoch runs."""
    return decided(hr, calls)[0]


def decided(hr: Any, calls: Sequence[Sent]) -> tuple[list[Any], list[int]]:
    """The same, and the order in which the calls were decided: a statement that was overtaken is worked out again."""
    loop = home_of(hr).loop
    outcomes: list[Any] = [None] * len(calls)
    brought: dict[Call, int] = {}
    last_looked_at: dict[int, int] = {}
    enter, take = loop.enter, Intake.take

    def send_one(index: int) -> None:
        outcomes[index] = send(hr, calls[index])

    def note_enter(call: Call) -> Call:
        brought[call] = int(threading.current_thread().name)
        return enter(call)

    def note_take(intake: Intake, call: Call) -> None:
        index = brought[call] if call in brought else int(threading.current_thread().name)
        last_looked_at.pop(index, None)
        last_looked_at[index] = len(last_looked_at)
        take(intake, call)

    threads = [threading.Thread(target=send_one, args=(index,), name=str(index)) for index in range(len(calls))]
    with patch.object(loop, "enter", note_enter), patch.object(Intake, "take", note_take):
        with loop.turn:
            for index, thread in enumerate(threads):
                thread.start()
                until(lambda index=index: len(loop._waiting) + sum(o is not None for o in outcomes) == index + 1)
        for thread in threads:
            thread.join()
    # What was refused without a look at any relation is refused in every order.
    order = [*(index for index in range(len(calls)) if index not in last_looked_at), *last_looked_at]
    return outcomes, order


def ends_as_one_by_one(hr: Any, apart: Any, calls: Sequence[Sent]) -> list[Any]:
    """The outcomes of calls that arrive together, which are those of the same calls one by one in another home."""
    outcomes, order = decided(hr, calls)
    expected = [verdict(send(apart, calls[index])) for index in order]
    assert [verdict(outcomes[index]) for index in order] == expected, [calls[index] for index in order]
    for name in RELATIONS:
        assert rows_of(hr, name) == rows_of(apart, name), (name, [calls[index] for index in order])
    return outcomes


def verdict(outcome: Any) -> Any:
    """An outcome without its epoch and its seconds."""
    if isinstance(outcome, HeadraceError):
        return outcome.code
    assert isinstance(outcome, Receipt)
    return outcome.applied, outcome.stale, outcome.dead


def check(hr: Any) -> None:
    report = hr.verify()
    assert report.ok, report.differences
    for name in RELATIONS:
        assert summed(hr, name) == rows_of(hr, name), name


def test_all_kinds_of_calls_land_in_one_epoch(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=1)], "bag": [insert(a=9, s="old")]})
    before = shop.epoch
    outcomes = together(
        shop,
        [
            "INSERT INTO seq SELECT id, v, v FROM t",
            "UPDATE t SET v = v * 10 WHERE id <= 2",
            "DELETE FROM bag WHERE a = 9",
            ({"t": [insert(id=2, g="c", v=7)], "bag": [insert(a=20, s="b")]}, None),
            "INSERT INTO t VALUES (4, 'd', 4)",
        ],
    )
    assert [outcome.epoch for outcome in outcomes] == [before + 1] * 5
    assert [outcome.applied for outcome in outcomes] == [{"seq": 1}, {"t": 1}, {"bag": 1}, {"t": 1, "bag": 1}, {"t": 1}]
    assert rows_of(shop, "t") == [(1, "a", 10), (2, "c", 7), (4, "d", 4)]
    assert rows_of(shop, "bag") == [(20, "b")]
    assert rows_of(shop, "seq") == [(1, 1, 1)]
    check(shop)


def test_statements_of_one_table_build_on_each_other(shop: Any) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'a', 0)")
    outcomes = together(shop, ["UPDATE t SET v = v + 1"] * 5)
    assert [outcome.applied for outcome in outcomes] == [{"t": 1}] * 5
    assert len({outcome.epoch for outcome in outcomes}) == 5
    assert rows_of(shop, "t") == [(1, "a", 5)]
    check(shop)


@pytest.mark.slow
def test_sequences_and_tombstones_hold_within_a_group(shop: Any, apart: Any) -> None:
    for home in (shop, apart):
        home.apply({"seq": [insert(id=1, v=1, at=5), insert(id=2, v=2, at=5)]})
    ends_as_one_by_one(
        shop,
        apart,
        [
            ({"seq": [insert(id=3, v=3, at=7), delete(id=4, at=9)]}, None),
            "UPDATE seq SET v = v * 10",
            "DELETE FROM seq WHERE id IN (1, 3)",
            ({"seq": [insert(id=3, v=0, at=6), insert(id=4, v=0, at=8), insert(id=1, v=11, at=5)]}, None),
            "UPDATE seq SET at = at + 1 WHERE id = 2",
            ({"seq": [insert(id=2, v=0, at=5)]}, None),
        ],
    )
    check(shop)


def test_a_rejected_call_in_the_middle_leaves_no_trace(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=1)]})
    before = shop.epoch
    outcomes = together(
        shop,
        [
            ({"t": [insert(id=2, g="b", v=2)], "bag": [insert(a=1, s="x")]}, None),
            "INSERT INTO t VALUES (3, 'c', 3), (NULL, 'c', 3)",
            "UPDATE t SET id = NULL",
            "UPDATE t SET v = v / 0",
            "INSERT INTO t SELECT nothing FROM t",
            ({"t": [delete(id=2)], "bag": [insert(a=2, s="y"), delete(a=3, s="absent")]}, "again"),
            ({"bag": [delete(a=1, s="x")]}, "again"),
        ],
    )
    rejected = [isinstance(outcome, HeadraceError) for outcome in outcomes]
    assert rejected == [False, True, True, True, True, True, False]
    assert shop.epoch == before + 1
    assert rows_of(shop, "t") == [(1, "a", 1), (2, "b", 2)]
    assert rows_of(shop, "bag") == []
    check(shop)


@pytest.mark.slow
def test_a_statement_that_reads_a_changed_view_waits_for_the_next_epoch(shop: Any, apart: Any) -> None:
    for home in (shop, apart):
        home.apply({"t": [insert(id=1, g="a", v=20)], "bag": [insert(a=1, s="x")]})
    before = shop.epoch
    outcomes = ends_as_one_by_one(
        shop,
        apart,
        [
            "INSERT INTO bag SELECT s, g FROM big",
            ({"t": [insert(id=2, g="b", v=30)]}, None),
            "INSERT INTO t SELECT id + 10, g, v FROM t",
            "INSERT INTO bag SELECT s, g FROM big",
            ({"t": [insert(id=3, g="c", v=40)]}, None),
            "DELETE FROM bag WHERE a IN (SELECT a FROM in_bag WHERE a = 1)",
        ],
    )
    assert [outcomes[index].epoch - before for index in (0, 1, 4)] == [1, 1, 1]
    assert all(outcomes[index].epoch - before > 1 for index in (2, 3, 5))
    check(shop)


@pytest.mark.slow
def test_a_view_that_no_call_before_it_moves_is_read_in_the_same_epoch(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=20)]})
    before = shop.epoch
    outcomes = together(
        shop,
        [
            ({"bag": [insert(a=1, s="x"), delete(a=1, s="x")], "seq": [insert(id=1, v=1, at=1)]}, None),
            ({"t": [insert(id=2, g="b", v="bad")]}, None),
            "INSERT INTO bag SELECT s, g FROM big",
        ],
    )
    assert [verdict(outcome) for outcome in outcomes][1] == "changes_rejected"
    assert outcomes[2].epoch == before + 1
    assert rows_of(shop, "bag") == [(20, "a")]
    check(shop)


@pytest.mark.slow
def test_a_key_twice_in_one_group_is_applied_once(shop: Any) -> None:
    shop.execute("INSERT INTO bag VALUES (1, 'x')")
    before = shop.epoch
    outcomes = together(
        shop,
        [
            ({"bag": [insert(a="bad", s="y")]}, "once"),
            ({"bag": [insert(a=2, s="y")]}, "once"),
            ({"bag": [insert(a=2, s="y")]}, "once"),
            ({"t": [delete(id=99)]}, "nothing"),
            ({"bag": [insert(a=2, s="y")]}, "once"),
            "UPDATE bag SET a = a + 1",
        ],
    )
    assert verdict(outcomes[0]) == "changes_rejected"
    assert outcomes[1].epoch == outcomes[2].epoch == outcomes[3].epoch == before + 1
    assert outcomes[4] == outcomes[2] == outcomes[1]
    assert outcomes[5].epoch == before + 2
    assert send(shop, ({"bag": [insert(a=2, s="y")]}, "once")) == outcomes[1]
    assert rows_of(shop, "bag") == [(2, "x"), (3, "y")]
    check(shop)


@pytest.mark.slow
def test_calls_on_which_a_view_fails_are_found_by_trying_each_apart(shop: Any, apart: Any) -> None:
    for home in (shop, apart):
        home.execute("CREATE VIEW shares AS SELECT id, 100 / v AS share FROM t")
        home.apply({"t": [insert(id=1, g="a", v=1)], "bag": [insert(a=1, s="x")]})
    outcomes = ends_as_one_by_one(
        shop,
        apart,
        [
            "UPDATE t SET v = v + 1",
            ({"t": [insert(id=2, g="b", v=0)], "bag": [delete(a=1, s="x")]}, "guilty"),
            ({"bag": [delete(a=1, s="x")]}, "after the guilty"),
            "INSERT INTO bag SELECT CAST(share AS INT), 'share' FROM shares",
            "UPDATE t SET v = v + 1",
        ],
    )
    codes = [outcome.code if isinstance(outcome, HeadraceError) else "" for outcome in outcomes]
    assert codes == ["", "view_evaluation_error", "", "", ""]
    assert rows_of(shop, "t") == [(1, "a", 3)]
    check(shop)


@pytest.mark.slow
def test_large_changes_are_read_by_the_statements_after_them(shop: Any, apart: Any) -> None:
    for home in (shop, apart):
        home.execute("INSERT INTO t SELECT id, 'a', 1 FROM range(60000)")
    ends_as_one_by_one(
        shop,
        apart,
        [
            "UPDATE t SET v = v + 1, g = IF(id < 30000, 'a', 'b')",
            ({"t": [delete(id=0), insert(id=60000, g="c", v=5), insert(id=1, g="c", v=5)]}, None),
            "DELETE FROM t WHERE id % 2 = 0 AND g <> 'c'",
        ],
    )
    report = shop.verify()
    assert report.ok, report.differences


def some_call(rng: random.Random) -> Sent:
    """One call of any kind; some are rejected, some change nothing."""
    some_id, v, at = rng.randrange(6), rng.randrange(8), rng.randrange(8)
    letter = rng.choice("abc")
    changes: dict[str, list[Any]] = {}
    if rng.random() < 0.5:
        for _ in range(rng.randrange(4)):
            key = rng.randrange(6)
            one = insert(id=key, g=rng.choice("abc"), v=rng.choice([None, *range(8)]))
            changes.setdefault("t", []).append(one if rng.random() < 0.7 else delete(id=key))
        for _ in range(rng.randrange(3)):
            one = {"a": rng.randrange(3), "s": rng.choice("ab")}
            changes.setdefault("bag", []).append({"insert" if rng.random() < 0.7 else "delete": one})
        for _ in range(rng.randrange(4)):
            key, when = rng.randrange(5), rng.randrange(8)
            one = insert(id=key, v=rng.randrange(8), at=when)
            changes.setdefault("seq", []).append(one if rng.random() < 0.6 else delete(id=key, at=when))
        if rng.random() < 0.1:
            changes.setdefault("t", []).append(insert(id=None))
        return changes, rng.choice([None, None, f"key-{rng.randrange(40)}"])
    return rng.choice(
        [
            f"INSERT INTO t VALUES ({some_id}, '{letter}', {v}), ({some_id + 1}, '{letter}', NULL)",
            f"INSERT INTO t SELECT id + 1, g, v FROM t WHERE v >= {v}",
            f"INSERT INTO t SELECT id, 's', v FROM seq WHERE at < {at}",
            f"UPDATE t SET v = coalesce(v, 0) + 1 WHERE id <> {some_id}",
            f"UPDATE t SET id = (id + 1) % 6, g = '{letter}' WHERE id = {some_id}",
            f"UPDATE t SET id = NULL WHERE v = {v}",
            f"DELETE FROM t WHERE g = '{letter}'",
            f"INSERT INTO bag SELECT v, g FROM t WHERE id = {some_id}",
            f"INSERT INTO bag VALUES ({v}, '{letter}'), ({v}, '{letter}')",
            f"UPDATE bag SET s = '{letter}' WHERE a <= {v}",
            f"DELETE FROM bag WHERE a IN (SELECT v FROM t) OR s = '{letter}'",
            f"INSERT INTO seq VALUES ({some_id % 5}, {v}, {at})",
            f"UPDATE seq SET v = v + 1, at = at + {rng.randrange(2)} WHERE id >= {some_id}",
            f"DELETE FROM seq WHERE at <= {at}",
            "INSERT INTO bag SELECT CAST(s AS INT) % 3, g FROM total",
            f"DELETE FROM bag WHERE a NOT IN (SELECT id FROM matched WHERE id > {some_id})",
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_any_group_ends_as_the_same_calls_one_by_one(shop: Any, apart: Any, seed: int) -> None:
    rng = random.Random(seed)
    shared = 0
    for _ in range(4):
        calls = [some_call(rng) for _ in range(rng.randrange(4, 9))]
        before = shop.epoch
        ends_as_one_by_one(shop, apart, calls)
        shared += len(calls) - (shop.epoch - before)
        check(shop)
    assert shared > 0
