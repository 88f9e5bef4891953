"""What a source brought, replayed: into its own table and into another, and let go when it is old."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import HeadraceError
from tests.debezium_events import envelope
from tests.growing_log import LOG, empty_log, tail  # noqa: F401 - the fixture is of this module too
from tests.spark.test_sources_at_work import rows, shown, taken
from tests.waiting import until


def come(op: str, before: Any, after: Any) -> None:
    LOG.append(json.dumps(envelope(op, before, after)).encode())


def shop(hr: Any, options: str = "") -> None:
    hr.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, n DECIMAL(6, 2), w STRING); CREATE VIEW v AS SELECT sum(n) AS s FROM t"
    )
    hr.execute(
        f"CREATE SOURCE s INTO t FROM PYTHON '{tail.__module__}:tail' "
        f"WITH (format = 'debezium', decimal_mode = 'string', schema_change = 'ignore' {options})"
    )


def some(hr: Any) -> list[Any]:
    """Rows that were changed, deleted, moved and kept in part, and a column that nobody took."""
    for number in range(12):
        come("c", None, {"id": number, "n": "1.50", "w": f"w{number}", "q": number})
    come("u", None, {"id": 1, "n": "2.25", "w": "__debezium_unavailable_value", "q": 100})
    come("d", {"id": 2}, None)
    come("u", {"id": 3}, {"id": 33, "n": "3.00", "w": "moved", "q": 5})
    until(lambda: taken(hr) == 16)
    return rows(hr, "SELECT * FROM t")


def test_into_another_table_the_same_rows_come(home: Any) -> None:
    shop(home)
    expected = some(home)
    assert shown(home)["dead"] == 0
    receipt = home.execute("REPLAY SOURCE s INTO again")
    assert rows(home, "SELECT * FROM again") == expected
    assert (receipt.applied, sum(receipt.dead.values())) == ({"again": 16}, 0)
    # Once more, and it is the same.
    home.execute("REPLAY SOURCE s INTO again")
    assert rows(home, "SELECT * FROM again") == expected
    # A part of it, by event and by time.
    ids = home.query("SELECT event_id FROM s_raw").column(0).to_pylist()
    tenth = next(one for one in ids if '"at": 10}' in one)
    home.execute(f"REPLAY SOURCE s FROM '{tenth}' UNTIL '{tenth}' INTO one")
    assert rows(home, "SELECT id FROM one") == [(9,)]
    home.execute("REPLAY SOURCE s FROM '2999-01-01' INTO none")
    assert rows(home, "SELECT id FROM none") == []


def test_into_its_own_table_what_was_left_out_comes(home: Any) -> None:
    shop(home)
    expected = some(home)
    home.execute("ALTER TABLE t ADD COLUMN q INT; UPDATE t SET n = 0 WHERE id > 5; DELETE FROM t WHERE id = 7")
    home.execute("REPLAY SOURCE s")
    assert rows(home, "SELECT id, n, w FROM t") == expected
    assert rows(home, "SELECT id, q FROM t WHERE id IN (1, 4, 33)") == [(1, 100), (4, 4), (33, 5)]
    assert home.verify().ok


@pytest.mark.slow
def test_what_is_old_is_let_go_a_part_at_a_time(home: Any) -> None:
    shop(home, ", raw_retention = '5 rows', max_records = 4")
    some(home)
    until(lambda: rows(home, "SELECT count(*) FROM s_raw") == [(5,)])
    kept = home.query("SELECT recorded FROM source_progress").to_pylist()
    assert kept == [{"recorded": 5}]
    home.execute("ALTER SOURCE s SET (raw_retention = '1 milliseconds')")
    until(lambda: rows(home, "SELECT count(*) FROM s_raw") == [(0,)])
    home.execute("REPLAY SOURCE s")
    assert taken(home) == 16


REFUSED = {
    "REPLAY SOURCE nobody": "there is no source nobody",
    "REPLAY SOURCE s FROM 'nowhere'": "has no event nowhere",
    "REPLAY SOURCE s UNTIL '2999-01-01'": "would leave older rows",
    "REPLAY SOURCE bag": "has no key",
    "REPLAY SOURCE s INTO v": "is a view",
    "ALTER SOURCE s SET (raw_retention = 'long')": "raw_retention cannot be",
}


def test_what_cannot_be_is_refused(home: Any) -> None:
    shop(home)
    home.execute("CREATE TABLE bag (id INT)")
    home.execute(f"CREATE SOURCE bag INTO bag FROM PYTHON '{tail.__module__}:tail' WITH (format = 'debezium')")
    come("c", None, {"id": 1})
    until(lambda: taken(home) == 1 and shown(home, "bag")["applied"] == 1)
    for statement, message in REFUSED.items():
        with pytest.raises(HeadraceError, match=message):
            home.execute(statement)
