"""Columns that change at the source: each mode, with views that read them, and over a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headrace
from headrace.face import home_of
from tests.debezium_events import envelope, envelope_schema, field
from tests.growing_log import LOG, empty_log, tail  # noqa: F401 - the fixture is of this module too
from tests.spark.test_sources_at_work import rows, shown, taken
from tests.waiting import until

ID, N, BIG, WORDS = field("id", "int32"), field("n", "int32"), field("n", "int64"), field("n", "string")
Q = field("q", "int64")


def put(fields: list[Any], at: int | None = None, op: str = "c", **row: Any) -> bytes:
    """A record with its schema; the later in the log, the later in the source, unless it is said otherwise."""
    lsn = 1000 + (len(LOG) if at is None else at)
    payload = envelope(op, None, row or None, source={"lsn": lsn, "sequence": json.dumps(["1", str(lsn)])})
    record = json.dumps({"schema": envelope_schema(fields), "payload": payload}).encode()
    LOG.append(record)
    return record


def plain(**row: Any) -> None:
    LOG.append(json.dumps(envelope("c", None, row)).encode())


def shop(hr: Any, options: str = "", columns: str = "id INT PRIMARY KEY, n INT NOT NULL") -> None:
    hr.execute(
        f"CREATE TABLE t ({columns}); CREATE VIEW v AS SELECT sum(n) AS s FROM t; CREATE VIEW ids AS SELECT id FROM t"
    )
    source(hr, options)


def source(hr: Any, options: str = "") -> None:
    hr.execute(f"CREATE SOURCE s INTO t FROM PYTHON '{tail.__module__}:tail' WITH (format = 'debezium' {options})")


def names(hr: Any) -> list[str]:
    return hr.query("SELECT * FROM t LIMIT 0").column_names


def test_lenient_adds_and_widens_and_takes_nothing_away(home: Any) -> None:
    shop(home)
    put([ID, N], id=1, n=1)
    put([ID, N, Q], id=2, n=2, q=3)
    put([ID, BIG, Q], id=3, n=2**40, q=4)
    until(lambda: taken(home) == 3)
    assert rows(home, "SELECT * FROM t") == [(1, 1, None), (2, 2, 3), (3, 2**40, 4)]
    assert rows(home, "SELECT * FROM v") == [(2**40 + 3,)]
    # Dropped: it stays, and is NULL. Its values become text: they have a column beside it.
    put([ID, Q], id=4, q=5)
    put([ID, WORDS, Q], id=5, n="five", q=6)
    until(lambda: taken(home) == 5)
    put([ID, BIG, Q], id=6, n=7, q=7)
    until(lambda: taken(home) == 6)
    assert shown(home)["dead"] == 0
    assert names(home) == ["id", "n", "q", "n_string"]
    assert rows(home, "SELECT id, n, n_string FROM t WHERE id > 3") == [
        (4, None, None),
        (5, None, "five"),
        (6, 7, None),
    ]
    assert home.verify().ok
    (kept,) = home.query("SELECT * FROM source_schemas").to_pylist()
    assert [one["name"] for one in json.loads(kept["columns"])] == ["id", "n", "q"]


def test_records_without_a_schema_bring_columns_too(home: Any) -> None:
    shop(home)
    plain(id=1, n=1, q=None)
    plain(id=2, n=2, q=3, w="x", d=1.5, b=True, o={"a": 1})
    plain(id=3, n=3)
    until(lambda: taken(home) == 3)
    assert shown(home)["dead"] == 0
    assert rows(home, "SELECT id, q, w, d, b, o FROM t") == [
        (1, None, None, None, None, None),
        (2, 3, "x", 1.5, True, '{"a":1}'),
        (3, None, None, None, None, None),
    ]


def test_ignore_leaves_out_what_the_table_has_no_column_for(home: Any) -> None:
    shop(home, ", schema_change = 'ignore'")
    put([ID, N, Q], id=1, n=1, q=1)
    plain(id=2, n=2, q=3)
    put([ID, BIG], id=3, n=3)
    until(lambda: taken(home) == 3)
    assert rows(home, "SELECT * FROM t") == [(1, 1), (2, 2), (3, 3)]
    assert shown(home)["dead"] == 0
    notes = home.query("SELECT note FROM source_schemas").to_pylist()
    assert "not taken" in notes[0]["note"]


def test_lists_of_changes_narrow_the_mode(home: Any) -> None:
    shop(home, ", exclude_schema_changes = 'add'")
    put([ID, N], id=1, n=1)
    put([ID, BIG, Q], id=2, n=2**40, q=1)
    until(lambda: taken(home) == 2)
    assert rows(home, "SELECT * FROM t") == [(1, 1), (2, 2**40)]


def test_exception_stops_before_the_change_and_goes_on_when_the_table_follows(home: Any) -> None:
    shop(home, ", schema_change = 'exception'")
    put([ID, N], id=1, n=1)
    put([ID, N, Q], id=2, n=2, q=3)
    put([ID, N, Q], id=3, n=2, q=3)
    until(lambda: shown(home)["state"] == "Error")
    assert "column q BIGINT was added" in shown(home)["error"]
    assert taken(home) == 1
    assert rows(home, "SELECT * FROM t") == [(1, 1)]
    home.execute("ALTER TABLE t ADD COLUMN q BIGINT; RESUME SOURCE s")
    until(lambda: taken(home) == 3)
    assert rows(home, "SELECT * FROM t") == [(1, 1, None), (2, 2, 3), (3, 2, 3)]


def test_evolve_follows_or_stops_and_names_the_views(home: Any) -> None:
    shop(home, ", schema_change = 'evolve'", "id INT PRIMARY KEY, n INT, m INT")
    put([ID, N, field("m", "int32")], id=1, n=1, m=1)
    put([ID, N, Q], id=2, n=2, q=3)
    until(lambda: taken(home) == 2)
    assert names(home) == ["id", "n", "q"]
    put([ID, field("z", "int32")], id=3, z=1)
    until(lambda: shown(home)["state"] == "Error")
    told = shown(home)["error"]
    assert "column n was dropped" in told
    assert "It is read by v" in told
    assert names(home) == ["id", "n", "q"]
    home.execute("DROP VIEW v; RESUME SOURCE s")
    until(lambda: taken(home) == 3)
    assert rows(home, "SELECT * FROM t") == [(1, None), (2, None), (3, 1)]
    assert names(home) == ["id", "z"]
    put([ID, field("z", "string")], id=4, z="x")
    until(lambda: shown(home)["state"] == "Error")
    assert "does not hold all of its values" in shown(home)["error"]
    home.execute("ALTER SOURCE s SET (schema_change = 'lenient')")
    until(lambda: taken(home) == 4)
    assert rows(home, "SELECT z, z_string FROM t WHERE id = 4") == [(None, "x")]
    assert shown(home)["dead"] == 0


def test_try_evolve_keeps_what_it_cannot_change(home: Any) -> None:
    shop(home, ", schema_change = 'try_evolve'", "id INT PRIMARY KEY, n INT NOT NULL, m INT")
    put([ID, N, field("m", "int32")], id=1, n=1, m=1)
    put([ID, Q], id=2, q=3)
    until(lambda: taken(home) == 2)
    # Nobody reads m: it is gone. A view reads n: it stays.
    assert rows(home, "SELECT * FROM t") == [(1, 1, None), (2, None, 3)]
    assert names(home) == ["id", "n", "q"]
    (kept,) = home.query("SELECT note FROM source_schemas").to_pylist()
    assert "It is read by v" in kept["note"]
    assert home.verify().ok


def test_a_truncate_is_taken_unless_it_is_excluded(home: Any) -> None:
    shop(home, ", exclude_schema_changes = 'truncate'")
    put([ID, N], id=1, n=1)
    put([ID, N], op="t")
    put([ID, N], id=2, n=2)
    until(lambda: taken(home) == 2 and shown(home)["pending"] == 0)
    assert rows(home, "SELECT id FROM t") == [(1,), (2,)]
    home.execute("ALTER SOURCE s SET (exclude_schema_changes = '')")
    put([ID, N], id=3, n=3)
    put([ID, N], op="t")
    put([ID, N], id=4, n=4)
    until(lambda: rows(home, "SELECT id FROM t") == [(4,)])
    told = shown(home)
    assert told["dead"] == 0
    assert told["received"] == told["applied"] + told["stale"]


def test_late_records_with_older_columns_change_nothing(home: Any) -> None:
    shop(home, ", schema_change = 'evolve'", "id INT PRIMARY KEY, n INT, m INT")
    put([ID, N, field("m", "int32")], at=1, id=1, n=1, m=1)
    put([ID, N], at=10, id=2, n=2)
    put([ID, N, field("m", "int32")], at=5, id=3, n=3, m=3)
    put([ID, N], at=11, id=4, n=4)
    until(lambda: taken(home) == 4)
    assert names(home) == ["id", "n"]
    assert rows(home, "SELECT * FROM t") == [(1, 1), (2, 2), (3, 3), (4, 4)]
    # It comes again later: then it is a change.
    put([ID, N, field("m", "int32")], at=20, id=5, n=5, m=5)
    until(lambda: taken(home) == 5)
    assert rows(home, "SELECT id, m FROM t WHERE id > 3") == [(4, None), (5, 5)]


def test_a_change_is_made_once_over_a_crash(tmp_path: Path, spark: SparkSession, monkeypatch: Any) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        shop(hr, ", schema_change = 'evolve'")
        put([ID, N], id=1, n=1)
        until(lambda: taken(hr) == 1)
        # The columns are changed, and what comes after is never committed.
        core = home_of(hr).core
        commit = core.commit

        def crash(work: Any, now: Any, head: Any, catalog: Any = None) -> None:
            if catalog is None and "q" in names(hr):
                raise ConnectionError("the machine is gone")
            commit(work, now, head, catalog)

        monkeypatch.setattr(core, "commit", crash)
        put([ID, N, Q], id=2, n=2, q=3)
        until(lambda: "the machine is gone" in (shown(hr)["error"] or ""))
        assert names(hr) == ["id", "n", "q"]
        altered = hr.epoch
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        until(lambda: taken(hr) == 2)
        assert rows(hr, "SELECT * FROM t") == [(1, 1, None), (2, 2, 3)]
        assert hr.epoch == altered + 1
        put([ID, N], id=3, n=3)
        until(lambda: taken(hr) == 3)
        assert names(hr) == ["id", "n"]
