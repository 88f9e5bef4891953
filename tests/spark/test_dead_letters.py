"""Dead letters: whatever is refused is kept, nothing else waits for it, and mended it ends as clean input does."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import SourceError
from tests.spark.test_sources_at_work import LOG, put, rows, shop, shown, taken
from tests.waiting import until


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    LOG.clear()
    yield
    LOG.clear()


def letters(hr: Any, where: str = "TRUE") -> list[dict[str, Any]]:
    return hr.query(f"SELECT * FROM dead_letters WHERE {where} ORDER BY id").to_pylist()


def conserved(hr: Any) -> dict[str, Any]:
    """What SHOW SOURCES tells, once it is known to agree with the tables."""
    told = shown(hr)
    assert told["received"] == told["applied"] + told["stale"] + told["dead"] + told["pending"]
    (kept,) = hr.query("SELECT * FROM source_progress WHERE source = 's'").to_pylist()
    held = sum(one["changes"] for one in letters(hr, "source = 's'"))
    assert kept["dead"] - kept["discarded"] == held
    assert hr.query("SELECT count(*) AS n FROM s_raw").to_pylist() == [{"n": kept["recorded"]}]
    return told


def debezium(op: str, before: Any, after: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after}).encode()


def test_a_replay_is_not_received_again(home: Any) -> None:
    shop(home)
    LOG.extend([put(1), put(2, -1), put("no"), put(3, -1), b"{"])
    until(lambda: taken(home) == 5)
    assert conserved(home)["dead"] == 4
    home.execute("CREATE OR REPLACE VIEW v AS SELECT id, n AS x FROM t")
    receipt = home.execute("REPLAY DEAD LETTERS")
    assert receipt.applied == {"t": 2}
    assert sum(receipt.dead.values()) == 2
    told = conserved(home)
    assert (told["received"], told["applied"], told["dead"]) == (5, 3, 2)
    home.execute("DISCARD DEAD LETTERS WHERE stage = 'text'")
    assert conserved(home)["dead"] == 2
    # The source goes on from these counts, and from its own position.
    LOG.append(put(4))
    until(lambda: taken(home) == 6)
    told = conserved(home)
    assert (told["received"], told["applied"], told["dead"]) == (6, 4, 2)
    assert rows(home, "SELECT id FROM v") == [(1,), (2,), (3,), (4,)]


def test_a_record_of_two_changes_is_applied_whole_or_not_at_all(home: Any) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL); CREATE VIEW v AS SELECT 10 DIV n AS x FROM t")
    home.execute(f"CREATE SOURCE s INTO t FROM PYTHON '{put.__module__}:tail' WITH (format = 'debezium')")
    LOG.extend(debezium("c", None, {"id": number, "n": 1}) for number in (1, 2))
    # Both give their row another key, the first one without a value, the second one with one that a view fails on.
    LOG.append(debezium("u", {"id": 1, "n": 1}, {"id": 11, "n": None}))
    LOG.append(debezium("u", {"id": 2, "n": 1}, {"id": 12, "n": 0}))
    LOG.append(debezium("c", None, {"id": 3, "n": 1}))
    until(lambda: taken(home) == 7)
    assert rows(home, "SELECT * FROM t") == [(1, 1), (2, 1), (3, 1)]
    assert sorted((one["stage"], one["changes"]) for one in letters(home)) == [("contract", 2), ("view", 2)]
    assert conserved(home)["dead"] == 4
    home.execute("CREATE OR REPLACE VIEW v AS SELECT n AS x FROM t")
    assert home.execute("REPLAY DEAD LETTERS").applied == {"t": 2}
    assert rows(home, "SELECT * FROM t") == [(1, 1), (3, 1), (12, 0)]
    told = conserved(home)
    assert (told["received"], told["applied"], told["dead"]) == (7, 5, 2)
    assert home.verify().ok


def test_a_record_that_is_too_large_is_kept_up_to_the_bound(home: Any) -> None:
    shop(home, "WITH (max_record_bytes = 1000)")
    LOG.extend([put(1), b'{"insert": {"id": 2, "n": "' + b"9" * 5000 + b'"}}', put(3)])
    until(lambda: taken(home) == 3)
    (letter,) = letters(home)
    assert (letter["stage"], len(letter["payload"])) == ("size", 1000)
    assert "5,030 bytes" in letter["reason"]
    # A part of it is no record: it stays.
    assert sum(home.execute("REPLAY DEAD LETTERS").dead.values()) == 1
    assert letters(home) == [letter]
    assert conserved(home)["dead"] == 1
    for bad in ("0", "'much'", "TRUE"):
        with pytest.raises(SourceError, match="max_record_bytes cannot be"):
            home.execute(f"ALTER SOURCE s SET (max_record_bytes = {bad})")


@pytest.mark.slow
def test_letters_are_replayed_while_their_source_goes_on(home: Any) -> None:
    """Whoever commits first: no record is read twice, and no count is lost."""
    shop(home, "WITH (max_records = 2)")
    LOG.extend(put("no") if number % 3 == 0 else put(number, 1) for number in range(120))
    while taken(home) < 120:
        home.execute("REPLAY DEAD LETTERS")
    told = conserved(home)
    assert (told["received"], told["applied"], told["dead"]) == (120, 80, 40)
    assert rows(home, "SELECT count(*), count(DISTINCT event_id) FROM s_raw") == [(120, 120)]
    assert len(letters(home)) == 40
    assert home.verify().ok


def poisoned(clean: list[Any], every: int) -> list[Any]:
    """The same changes, of which one in so many cannot be applied: it comes in place of the right one."""
    kinds = [
        lambda change: b"{" + json.dumps(change).encode(),
        lambda change: {"insert": {**change["insert"], "n": "no number"}},
        lambda change: {"insert": {**change["insert"], "n": -1}},
        lambda change: {"insert": {**change["insert"], "more": 1}},
    ]
    chance = random.Random(16)
    places = set(chance.sample(range(len(clean)), len(clean) // every))
    return [kinds[place % len(kinds)](one) if place in places else one for place, one in enumerate(clean)]


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_one_percent_of_poison_delays_nobody_and_mended_it_ends_as_clean_input(home: Any, count: int) -> None:
    clean = [put(number, number % 50) for number in range(count)]
    bad = poisoned(clean, 100)
    mended = [{"insert": {"id": place, "n": place % 50}} for place, one in enumerate(bad) if one != clean[place]]
    shop(home)
    LOG.extend(bad)
    until(lambda: taken(home) == count)
    told = conserved(home)
    assert (told["received"], told["dead"], told["state"]) == (count, count // 100, "Running")
    assert home.query("SELECT count(*) AS n FROM v").to_pylist() == [{"n": count - count // 100}]
    assert home.verify().ok
    # Each letter is edited to what it should have been.
    from headrace.face import home_of
    from headrace.sources.dead_letters import Filter, find_letters, replay

    found = find_letters(home_of(home).core, Filter(source="s"))
    by_place = {json.loads(one["position"].removeprefix("s").removesuffix("-0-0"))["at"]: one for one in found}
    right = {one["insert"]["id"]: one for one in mended}
    edited = [{**one, "payload": json.dumps(right[place - 1])} for place, one in by_place.items()]
    receipt = replay(home_of(home).loop, edited)
    assert receipt.applied == {"t": count // 100}
    told = conserved(home)
    assert (told["received"], told["applied"], told["dead"]) == (count, count, 0)
    assert rows(home, "SELECT * FROM t") == [(number, number % 50) for number in range(count)]
    assert rows(home, "SELECT * FROM v") == [(number, 10 // (number % 50 + 1)) for number in range(count)]
    assert home.verify().ok
