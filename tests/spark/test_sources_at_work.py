"""Sources at work: every change is applied, stale or dead, once, whatever happens in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.errors import HeadraceError, SourceError
from tests.growing_log import LOG, empty_log, tail  # noqa: F401 - the fixture is of this module too
from tests.waiting import await_end_of_thread, until

WHERE = f"PYTHON '{tail.__module__}:tail'"


def shown(hr: Any, name: str = "s") -> dict[str, Any]:
    (row,) = [one for one in hr.execute("SHOW SOURCES").to_pylist() if one["name"] == name]
    return row


def taken(hr: Any) -> int:
    """How many changes have met their end."""
    told = shown(hr)
    assert told["received"] == told["applied"] + told["stale"] + told["dead"] + told["pending"]
    return told["received"] - told["pending"]


def rows(hr: Any, sql: str) -> list[Any]:
    return sorted(tuple(row.values()) for row in hr.query(sql).to_pylist())


def put(number: int, value: Any = 0) -> dict[str, Any]:
    return {"insert": {"id": number, "n": value}}


def shop(hr: Any, options: str = "") -> Any:
    hr.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); CREATE VIEW v AS SELECT id, 10 DIV (n + 1) AS x FROM t")
    hr.execute(f"CREATE SOURCE s INTO t FROM {WHERE} {options}")
    return hr


def test_changes_of_a_source_are_in_every_view(home: Any) -> None:
    shop(home)
    LOG.extend(put(number, number) for number in range(5))
    LOG.append({"delete": {"id": 0}})
    until(lambda: shown(home)["applied"] == 6)
    assert rows(home, "SELECT * FROM v") == [(1, 5), (2, 3), (3, 2), (4, 2)]
    told = shown(home)
    assert (told["state"], told["received"], told["stale"], told["dead"], told["pending"]) == ("Running", 6, 0, 0, 0)
    raw = home.query("SELECT operation, before, after FROM s_raw ORDER BY event_id").to_pylist()
    assert [one["operation"] for one in raw] == ["create"] * 5 + ["delete"]
    assert json.loads(raw[-1]["before"]) == {"id": 0}
    assert home.verify().ok


def test_what_cannot_be_applied_is_a_dead_letter_and_the_rest_goes_on(home: Any) -> None:
    shop(home)
    LOG.extend([put(1), put("no"), b"{", {"insert": {"id": 2, "q": 1}}, put(3)])
    until(lambda: taken(home) == 5)
    told = shown(home)
    assert (told["applied"], told["dead"], told["state"]) == (2, 3, "Running")
    letters = home.query("SELECT stage, reason, payload FROM dead_letters ORDER BY id").to_pylist()
    assert sorted(one["stage"] for one in letters) == ["contract", "contract", "text"]
    assert any("expected an integer" in one["reason"] for one in letters)
    assert rows(home, "SELECT id FROM v") == [(1,), (3,)]


def test_a_change_on_which_a_view_fails_is_a_dead_letter(home: Any) -> None:
    shop(home)
    LOG.extend([put(1), put(2, -1), put(3), put(4, -1), put(5)])
    until(lambda: taken(home) == 5)
    assert rows(home, "SELECT id FROM v") == [(1,), (3,), (5,)]
    letters = home.query("SELECT stage, reason FROM dead_letters").to_pylist()
    assert [one["stage"] for one in letters] == ["view", "view"]
    assert all("view v" in one["reason"] for one in letters)
    assert home.verify().ok


def test_letters_are_replayed_after_a_fix_or_let_go(home: Any) -> None:
    shop(home)
    LOG.extend([put(1), put(2, -1), put("no"), put(3, -1)])
    until(lambda: taken(home) == 4)
    assert home.query("SELECT count(*) AS n FROM dead_letters").to_pylist() == [{"n": 3}]
    home.execute("CREATE OR REPLACE VIEW v AS SELECT id, n AS x FROM t")
    receipt = home.execute("REPLAY DEAD LETTERS WHERE stage = 'view'")
    assert (receipt.applied, receipt.dead) == ({"t": 2}, {"t": 0})
    assert rows(home, "SELECT * FROM v") == [(1, 0), (2, -1), (3, -1)]
    again = home.execute("REPLAY DEAD LETTERS")
    assert sum(again.dead.values()) == 1
    assert home.query("SELECT count(*) AS n FROM dead_letters").to_pylist() == [{"n": 1}]
    home.execute("DISCARD DEAD LETTERS WHERE reason LIKE '%integer%'")
    assert home.query("SELECT count(*) AS n FROM dead_letters").to_pylist() == [{"n": 0}]


def test_a_source_goes_on_where_the_last_epoch_ended(tmp_path: Path, spark: SparkSession) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        shop(hr)
        hr.execute("CREATE TABLE bag (id INT, n INT)")
        hr.execute(f"CREATE SOURCE b INTO bag FROM {WHERE}")
        LOG.extend(put(number) for number in range(10))
        until(lambda: shown(hr)["applied"] == 10 and shown(hr, "b")["applied"] == 10)
    LOG.extend(put(number) for number in range(10, 15))
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        until(lambda: shown(hr)["applied"] == 15 and shown(hr, "b")["applied"] == 15)
        assert hr.query("SELECT count(*) AS n FROM bag").to_pylist() == [{"n": 15}]
        assert hr.query("SELECT count(DISTINCT event_id) AS n, count(*) AS m FROM b_raw").to_pylist() == [
            {"n": 15, "m": 15}
        ]


def test_pause_resume_and_drop(home: Any) -> None:
    shop(home)
    LOG.append(put(1))
    until(lambda: shown(home)["applied"] == 1)
    home.execute("PAUSE SOURCE s")
    assert shown(home)["state"] == "Paused"
    LOG.append(put(2))
    await_end_of_thread("headrace-source-s")
    assert rows(home, "SELECT id FROM t") == [(1,)]
    home.execute("RESUME SOURCE s")
    until(lambda: shown(home)["applied"] == 2)
    home.execute("ALTER SOURCE s SET (max_records = 1)")
    LOG.extend([put(3), put(4)])
    until(lambda: shown(home)["applied"] == 4)
    home.execute("DROP SOURCE s")
    assert home.execute("SHOW SOURCES").num_rows == 0
    assert rows(home, "SELECT id FROM t") == [(1,), (2,), (3,), (4,)]
    # One of the same name begins anew.
    home.execute(f"CREATE SOURCE s INTO t FROM {WHERE}")
    until(lambda: shown(home)["applied"] == 4)


def test_what_comes_is_kept_from_when_that_is_asked_for(home: Any) -> None:
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)")
    home.execute(f"CREATE SOURCE s INTO t FROM {WHERE} WITH (raw = FALSE)")
    LOG.append({"insert": {"id": 1, "n": 1}})
    until(lambda: taken(home) == 1)
    home.execute("ALTER SOURCE s SET (raw = TRUE)")
    LOG.append({"insert": {"id": 2, "n": 2}})
    until(lambda: taken(home) == 2)
    assert home.query("SELECT count(*) AS n FROM s_raw").to_pylist() == [{"n": 1}]
    assert home.verify().ok


def test_what_is_not_transient_stops_the_source_and_says_why(home: Any) -> None:
    shop(home)
    LOG.extend([put(1), ValueError("the log is broken")])
    until(lambda: shown(home)["state"] == "Error")
    assert "the log is broken" in shown(home)["error"]
    LOG[1] = put(2)
    home.execute("RESUME SOURCE s")
    until(lambda: shown(home)["applied"] == 2)


def test_a_limit_of_dead_letters_stops_the_source(home: Any) -> None:
    shop(home, "WITH (dead_letter_limit = 1, max_records = 1)")
    LOG.extend([put("a"), put("b"), put("c"), put(1)])
    until(lambda: shown(home)["state"] == "Error")
    assert "2 dead letters, and its limit is 1" in shown(home)["error"]
    assert "Hint: " in shown(home)["error"]
    home.execute("DISCARD DEAD LETTERS")
    home.execute("RESUME SOURCE s")
    until(lambda: taken(home) == 4)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"CREATE SOURCE s FROM {WHERE}", "does not say which table"),
        (f"CREATE SOURCE s INTO nowhere FROM {WHERE}", "no table nowhere"),
        (f"CREATE SOURCE s INTO t FROM {WHERE} WITH (max_records = 'x')", "max_records cannot be"),
        (f"CREATE SOURCE s INTO t FROM {WHERE} WITH (password = 'hunter2')", "would keep a secret"),
        (f"CREATE SOURCE s INTO t FROM {WHERE} WITH (password = 'env:NOT_SET_HERE')", "the secret of option password"),
        ("CREATE SOURCE s INTO t FROM PYTHON 'nowhere:tail'", "there is no function"),
        ("CREATE SOURCE s INTO t FROM PYTHON 'json:loads'", "is no source"),
        (f"CREATE SOURCE s INTO t FROM {WHERE} WITH (format = 'xml')", "there is no format xml"),
        (f"CREATE SOURCE s INTO t FROM {WHERE} WITH (format = 'avro')", "needs the registry"),
        ("PAUSE SOURCE s", "there is no source s"),
        ("REPLAY DEAD LETTERS WHERE", "no condition"),
    ],
)
def test_what_cannot_be_is_refused(home: Any, statement: str, message: str) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    with pytest.raises(HeadraceError, match=message):
        home.execute(statement)
    assert home.execute("SHOW SOURCES").num_rows == 0


def test_a_transient_fault_is_tried_again(home: Any) -> None:
    shop(home)
    LOG.extend([put(1), SourceError("not now"), put(2)])
    LOG[1].transient = True
    until(lambda: shown(home)["error"] is not None)
    assert shown(home)["state"] == "Running"
    LOG[1] = put(3)
    until(lambda: shown(home)["applied"] == 3)


def test_a_truncate_empties_its_table_among_the_other_changes_of_its_batch(home: Any) -> None:
    def record(op: str, number: int) -> bytes:
        after = None if op == "t" else {"id": number, "n": 0}
        return json.dumps({"op": op, "before": None, "after": after, "source": {"lsn": number}}).encode()

    shop(home, "WITH (format = 'debezium')")
    LOG.extend([record("c", 1), record("c", 2), record("t", 3), record("c", 4)])
    until(lambda: taken(home) == 4)
    assert rows(home, "SELECT id FROM v") == [(4,)]
    told = shown(home)
    assert (told["applied"], told["stale"], told["dead"]) == (4, 0, 0)
    assert home.verify().ok
