"""Calls that wait while an epoch runs share the next one: each checked on top of those accepted before it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import HeadraceError, Receipt

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


def insert(**row: Any) -> dict[str, Any]:
    return {"insert": row}


def delete(**row: Any) -> dict[str, Any]:
    return {"delete": row}


def rows(hr: Any, name: str) -> list[Any]:
    return sorted((tuple(row.values()) for row in hr.query(f"SELECT * FROM {name}").to_pylist()), key=repr)


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
    outcomes: list[Any] = [None] * len(calls)

    def send_one(place: int) -> None:
        outcomes[place] = send(hr, calls[place])

    threads = [threading.Thread(target=send_one, args=(place,)) for place in range(len(calls))]
    loop = hr._loop
    with loop.turn:
        for number, thread in enumerate(threads, start=1):
            thread.start()
            until(lambda number=number: len(loop._waiting) == number)
    for thread in threads:
        thread.join()
    return outcomes


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


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
        assert summed(hr, name) == rows(hr, name), name


def test_all_kinds_of_calls_land_in_one_epoch(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=1)], "bag": [insert(a=9, s="old")]})
    before = shop.epoch
    outcomes = together(
        shop,
        [
            ({"t": [insert(id=2, g="b", v=2), insert(id=3, g="b", v=3)]}, None),
            "UPDATE t SET v = v * 10 WHERE id <= 2",
            "DELETE FROM t WHERE v = 3",
            "INSERT INTO bag SELECT v, g FROM t",
            ({"t": [insert(id=2, g="c", v=7), delete(id=1)], "bag": [delete(a=20, s="b")]}, None),
            "INSERT INTO t VALUES (4, 'd', 4)",
        ],
    )
    assert [outcome.epoch for outcome in outcomes] == [before + 1] * 6
    assert [outcome.applied for outcome in outcomes] == [
        {"t": 2},
        {"t": 2},
        {"t": 1},
        {"bag": 2},
        {"t": 2, "bag": 1},
        {"t": 1},
    ]
    assert rows(shop, "t") == [(2, "c", 7), (4, "d", 4)]
    assert rows(shop, "bag") == [(10, "a"), (9, "old")]
    assert shop.epoch == before + 1
    check(shop)


def test_statements_of_one_table_build_on_each_other(shop: Any) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'a', 0)")
    before = shop.epoch
    together(
        shop, ["UPDATE t SET v = v + 1"] * 4 + ["UPDATE t SET id = id + v", "INSERT INTO t SELECT id + 1, g, v FROM t"]
    )
    assert rows(shop, "t") == [(5, "a", 4), (6, "a", 4)]
    assert shop.epoch == before + 1
    check(shop)


def test_sequences_and_tombstones_hold_within_a_group(shop: Any) -> None:
    shop.apply({"seq": [insert(id=1, v=1, at=5), insert(id=2, v=2, at=5)]})
    before = shop.epoch
    outcomes = together(
        shop,
        [
            ({"seq": [insert(id=3, v=3, at=7), delete(id=4, at=9)]}, None),
            "UPDATE seq SET v = v * 10",
            "DELETE FROM seq WHERE id IN (1, 3)",
            ({"seq": [insert(id=3, v=0, at=6), insert(id=4, v=0, at=8), insert(id=1, v=11, at=5)]}, None),
            "UPDATE seq SET at = at + 1 WHERE id = 2",
            ({"seq": [insert(id=2, v=0, at=5)]}, None),
        ],
    )
    assert [outcome.epoch for outcome in outcomes] == [before + 1] * 6
    assert [outcome.stale for outcome in outcomes] == [{"seq": n} for n in (0, 0, 0, 2, 0, 1)]
    assert rows(shop, "seq") == [(1, 11, 5), (2, 20, 6)]
    assert shop.apply({"seq": [insert(id=3, v=0, at=6), insert(id=4, v=0, at=8)]}).stale == {"seq": 2}
    assert shop.apply({"seq": [insert(id=1, v=0, at=4)]}).stale == {"seq": 1}
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
            "UPDATE bag SET a = a + (SELECT COUNT(*) FROM t)",
            ({"bag": [delete(a=3, s="x")]}, "again"),
        ],
    )
    rejected = [isinstance(outcome, HeadraceError) for outcome in outcomes]
    assert rejected == [False, True, True, True, True, True, False, False]
    assert shop.epoch == before + 1
    assert rows(shop, "t") == [(1, "a", 1), (2, "b", 2)]
    assert rows(shop, "bag") == []
    check(shop)


def test_a_statement_that_reads_a_changed_view_waits_for_the_next_epoch(shop: Any) -> None:
    shop.apply({"t": [insert(id=1, g="a", v=20)], "bag": [insert(a=1, s="x")]})
    before = shop.epoch
    outcomes = together(
        shop,
        [
            "INSERT INTO bag SELECT s, g FROM big",
            ({"t": [insert(id=2, g="b", v=30)]}, None),
            "INSERT INTO t SELECT id + 10, g, v FROM t",
            "INSERT INTO bag SELECT s, g FROM big",
            ({"t": [insert(id=3, g="c", v=40)]}, None),
            "DELETE FROM bag WHERE a IN (SELECT a FROM in_bag WHERE a = 1)",
        ],
    )
    assert [outcome.epoch - before for outcome in outcomes] == [1, 1, 1, 2, 2, 3]
    assert rows(shop, "bag") == [(20, "a"), (40, "a"), (60, "b")]
    check(shop)


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
    assert rows(shop, "bag") == [(20, "a")]
    check(shop)


def test_a_key_twice_in_one_group_is_applied_once(shop: Any) -> None:
    shop.execute("INSERT INTO bag VALUES (1, 'x')")
    before = shop.epoch
    outcomes = together(
        shop,
        [
            ({"bag": [insert(a="bad", s="y")]}, "once"),
            ({"bag": [insert(a=2, s="y")]}, "once"),
            "UPDATE bag SET a = a + 1",
            ({"bag": [insert(a=2, s="y")]}, "once"),
            ({"t": [delete(id=99)]}, "nothing"),
            "INSERT INTO t SELECT a, s, a FROM in_bag, (SELECT s FROM bag WHERE a = 3)",
            ({"bag": [insert(a=2, s="y")]}, "once"),
            ({"t": [delete(id=99)]}, "nothing"),
            ({"t": [insert(id=99, g="a", v=1)]}, "nothing"),
        ],
    )
    assert verdict(outcomes[0]) == "changes_rejected"
    assert outcomes[1].epoch == outcomes[3].epoch == outcomes[4].epoch == before + 1
    assert outcomes[5].epoch == before + 2
    assert outcomes[6] == outcomes[3] == outcomes[1]
    assert outcomes[7] == outcomes[4]
    assert verdict(outcomes[8]) == "key_reused"
    assert rows(shop, "bag") == [(2, "x"), (3, "y")]
    assert rows(shop, "t") == [(2, "y", 2), (3, "y", 3)]
    check(shop)


def test_calls_on_which_a_view_fails_are_found_by_trying_each_apart(shop: Any) -> None:
    shop.execute("CREATE VIEW shares AS SELECT id, 100 / v AS share FROM t")
    shop.apply({"t": [insert(id=1, g="a", v=1)], "bag": [insert(a=1, s="x")]})
    outcomes = together(
        shop,
        [
            "UPDATE t SET v = v + 1",
            ({"t": [insert(id=2, g="b", v=0)], "bag": [delete(a=1, s="x")]}, "guilty"),
            ({"bag": [delete(a=1, s="x")]}, "after the guilty"),
            "UPDATE t SET v = v - 2 WHERE id = 1",
            "INSERT INTO bag SELECT CAST(share AS INT), 'share' FROM shares",
            "UPDATE t SET v = v + 1",
        ],
    )
    codes = [outcome.code if isinstance(outcome, HeadraceError) else "" for outcome in outcomes]
    assert codes == ["", "view_evaluation_error", "", "view_evaluation_error", "", ""]
    assert rows(shop, "t") == [(1, "a", 3)]
    assert rows(shop, "bag") == [(50, "share")]
    assert isinstance(shop.apply({"t": [insert(id=2, g="b", v=4)]}, key="guilty"), Receipt)
    check(shop)


def test_large_changes_are_read_by_the_statements_after_them(shop: Any) -> None:
    shop.execute("INSERT INTO t SELECT id, 'a', 1 FROM range(60000)")
    before = shop.epoch
    outcomes = together(
        shop,
        [
            "UPDATE t SET v = v + 1, g = IF(id < 30000, 'a', 'b')",
            ({"t": [delete(id=0), insert(id=60000, g="c", v=5), insert(id=1, g="c", v=5)]}, None),
            "DELETE FROM t WHERE id % 2 = 0 AND g <> 'c'",
            "UPDATE t SET v = v * 10 WHERE id >= 59998 OR id = 1",
        ],
    )
    assert [outcome.epoch for outcome in outcomes] == [before + 1] * 4
    assert [outcome.applied["t"] for outcome in outcomes] == [60000, 3, 29999, 3]
    assert rows(shop, "total") == [("a", 29998, 14999), ("b", 30018, 15000), ("c", 100, 2)]
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


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_any_group_ends_as_the_same_calls_one_by_one(shop: Any, spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with headrace.open(str(tmp_path / "apart"), spark=spark) as apart:
        apart.execute(SETUP)
        shared = 0
        for _ in range(4):
            calls = [some_call(rng) for _ in range(rng.randrange(4, 9))]
            before = shop.epoch
            outcomes = together(shop, calls)
            assert [verdict(one) for one in outcomes] == [verdict(send(apart, call)) for call in calls], calls
            for name in RELATIONS:
                assert rows(shop, name) == rows(apart, name), (name, calls)
            shared += len(calls) - (shop.epoch - before)
            check(shop)
        assert shared > 0
