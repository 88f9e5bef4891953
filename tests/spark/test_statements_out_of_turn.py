"""A statement is worked out before its turn: it holds nobody up, and ends as if it had been alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.statements import changes
from headrace.statements.changes import read_rows

WAIT_SECONDS = 120


@pytest.fixture
def shop(home: Any) -> Any:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE TABLE other (id INT PRIMARY KEY)")
    home.execute("INSERT INTO t VALUES (1, 0)")
    return home


def held(hr: Any) -> list[Any]:
    return sorted(tuple(row.values()) for row in hr.query("SELECT * FROM t").to_pylist())


@pytest.fixture(autouse=True)
def _read_again() -> Iterator[None]:
    yield
    changes.read_rows = read_rows


def before_each_answer(hr: Any, act: Callable[[int], None]) -> list[int]:
    """Have something done between the working out of a statement and its turn; how often it was worked out."""
    times = list[int]()

    def slow(*asked: Any) -> Any:
        rows = read_rows(*asked)
        times.append(len(times))
        act(len(times))
        return rows

    changes.read_rows = slow
    return times


def test_a_statement_that_takes_long_holds_no_epoch_up(shop: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)

    times = before_each_answer(shop, wait)
    statement = threading.Thread(target=lambda: shop.execute("UPDATE t SET x = x + 1"))
    statement.start()
    assert begun.wait(WAIT_SECONDS)
    # Were the statement in its turn, this would wait for ever.
    before = shop.epoch
    assert shop.apply({"other": [{"insert": {"id": 1}}]}).epoch == before + 1
    go_on.set()
    statement.join()
    assert times == [0]
    assert held(shop) == [(1, 1)]


def test_a_statement_that_was_overtaken_sees_what_overtook_it(shop: Any) -> None:
    def overtake(time: int) -> None:
        if time == 1:
            shop.apply({"t": [{"insert": {"id": 2, "x": 10}}]})

    times = before_each_answer(shop, overtake)
    assert shop.execute("UPDATE t SET x = x + 1").applied == {"t": 2}
    assert len(times) == 2
    assert held(shop) == [(1, 1), (2, 11)]


def test_a_statement_that_is_overtaken_each_time_is_carried_through(shop: Any) -> None:
    def overtake(time: int) -> None:
        other = threading.Thread(target=lambda: shop.apply({"t": [{"insert": {"id": 1, "x": 100 * time}}]}))
        other.start()
        if time <= 3:
            other.join()

    times = before_each_answer(shop, overtake)
    assert shop.execute("UPDATE t SET x = x + 1 WHERE id = 1").applied == {"t": 1}
    assert len(times) == 4
    changes = shop.changes("t").to_pylist()
    assert 301 in [row["x"] for row in changes if row["_change_type"] in ("insert", "update_postimage")]


def test_a_definition_that_was_made_meanwhile_counts(shop: Any) -> None:
    def define(time: int) -> None:
        if time == 1:
            shop.execute("ALTER TABLE t ADD COLUMN y STRING")

    times = before_each_answer(shop, define)
    shop.execute("UPDATE t SET x = x + 1")
    assert len(times) == 2
    assert held(shop) == [(1, 1, None)]


@pytest.mark.slow
def test_no_update_is_lost_among_many_writers(shop: Any) -> None:
    def write() -> None:
        for _ in range(2):
            shop.execute("UPDATE t SET x = x + 1 WHERE id = 1")

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held(shop) == [(1, 16)]
