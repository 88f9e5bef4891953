"""ALTER TABLE where views read the column: a wider type and NULL make them anew, and what they need is not dropped."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

import headrace
from headrace.errors import RelationNameError, StatementError
from tests.altered_tables import Reopen, agree, everywhere, refused
from tests.changes import delete, insert, rows


@pytest.mark.slow
def test_a_wider_type_rebuilds_what_reads_it(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (id INT PRIMARY KEY, at SMALLINT, v INT, f FLOAT, d DECIMAL(5, 2), day DATE) SEQUENCE BY at;
        CREATE VIEW every AS SELECT * FROM t;
        CREATE VIEW hashed AS SELECT id, hash(v) AS h FROM t;
        CREATE VIEW top AS SELECT max(h) AS h FROM hashed;
        CREATE VIEW total AS SELECT d, SUM(v) AS s, AVG(f) AS m FROM t GROUP BY d;
        CREATE VIEW days AS SELECT id, day FROM t WHERE f > 0;
    """)
    hr.apply(
        {
            "t": [
                insert(id=1, at=1, v=1, f=0.1, d="1.00", day="2026-01-01"),
                insert(id=2, at=1, v=2, f=0.5, d="1.00", day=None),
                insert(id=3, at=1, v=3, f=None, d=None, day="2026-01-03"),
            ]
        }
    )
    hr.apply({"t": [delete(id=3, at=4)]})
    before = hr.epoch
    hashes = rows(hr, "SELECT * FROM hashed")
    hr.execute("""
        ALTER TABLE t ALTER COLUMN v TYPE BIGINT;
        ALTER TABLE t ALTER COLUMN f TYPE DOUBLE;
        ALTER TABLE t ALTER COLUMN d TYPE DECIMAL(12, 4);
        ALTER TABLE t ALTER COLUMN day TYPE TIMESTAMP_NTZ;
        ALTER TABLE t ALTER COLUMN id TYPE BIGINT;
        ALTER TABLE t ALTER COLUMN at TYPE INT
    """)
    assert hr.epoch == before + 6
    assert hr.apply({"t": [insert(id=3, at=2)]}).stale == {"t": 1}
    hr.apply(
        {
            "t": [
                insert(id=2**40, at=100_000, v=2**40, f=1e300, d="12345678.1234", day="2026-01-01T10:00:00"),
                insert(id=2, at=2, v=5, f=0.5, d="1.00", day=None),
            ]
        }
    )

    def check(hr: Any) -> None:
        single = 0.10000000149011612
        assert rows(hr, "SELECT * FROM every") == [
            (1, 1, 1, single, Decimal("1.0000"), datetime(2026, 1, 1)),
            (1099511627776, 100_000, 2**40, 1e300, Decimal("12345678.1234"), datetime(2026, 1, 1, 10)),
            (2, 2, 5, 0.5, Decimal("1.0000"), None),
        ]
        assert rows(hr, "SELECT DISTINCT typeof(v), typeof(d), typeof(day) FROM every") == [
            ("bigint", "decimal(12,4)", "timestamp_ntz")
        ]
        old = hr.query(f"SELECT * FROM t VERSION AS OF {before}")
        assert [str(kind) for kind in old.schema.types] == [
            "int32",
            "int16",
            "int32",
            "float",
            "decimal128(5, 2)",
            "date32[day]",
        ]
        assert rows(hr, f"SELECT id, at, v FROM t VERSION AS OF {before}") == [(1, 1, 1), (2, 1, 2)]
        assert rows(hr, f"SELECT id, at, v FROM every VERSION AS OF {before}") == [(1, 1, 1), (2, 1, 2)]
        assert rows(hr, f"SELECT * FROM hashed VERSION AS OF {before}") == hashes
        assert hr.query(f"SELECT * FROM every VERSION AS OF {before}").schema == old.schema
        agree(hr)

    check(hr)
    everywhere(reopen, check)
    hr = reopen()
    hr.apply({"t": [delete(id=2**40, at=100_001), insert(id=1, at=9, v=2**50, d="0.5")]})
    agree(hr)
    refused(hr, "ALTER TABLE t ALTER COLUMN v TYPE INT", StatementError, "does not hold", "DECIMAL(20, 0)")
    refused(hr, "ALTER TABLE t ALTER COLUMN d TYPE DECIMAL(12, 6)", StatementError, "as many digits")
    refused(hr, "ALTER TABLE t ALTER COLUMN f TYPE STRING", StatementError, "UPDATE")
    epoch = hr.epoch
    hr.execute("ALTER TABLE t ALTER COLUMN v TYPE BIGINT")
    assert hr.epoch == epoch


def test_a_view_that_fails_on_the_wider_type_refuses_it(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (id BIGINT PRIMARY KEY, v INT);
        CREATE TABLE u (w ARRAY<INT>);
        CREATE VIEW v AS SELECT array_position(array(1), v) AS p, date_add(DATE '2026-01-01', v) AS d FROM t;
        INSERT INTO t VALUES (1, 1);
    """)
    refused(hr, "ALTER TABLE t ALTER COLUMN v TYPE BIGINT", RelationNameError, "view v no longer works")
    hr.execute("INSERT INTO t VALUES (2, 2)")
    assert rows(hr, "SELECT v FROM t") == [(1,), (2,)]
    agree(hr)
    agree(reopen())


@pytest.mark.slow
def test_a_column_may_come_to_take_null_and_views_that_counted_on_none_are_made_again(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL); CREATE TABLE u (n INT NOT NULL)")
    hr.execute("CREATE VIEW v AS SELECT id FROM t WHERE n NOT IN (SELECT n FROM u)")
    hr.apply({"t": [insert(id=1, n=1), insert(id=2, n=2)], "u": [insert(n=2)]})
    hr.execute("ALTER TABLE t ALTER COLUMN n DROP NOT NULL; ALTER TABLE u ALTER COLUMN n DROP NOT NULL")
    before = hr.epoch
    hr.execute("ALTER TABLE t ALTER COLUMN n DROP NOT NULL")
    assert hr.epoch == before
    hr.apply({"t": [insert(id=3, n=None)]})
    assert rows(hr, "SELECT * FROM v") == [(1,)]
    hr.apply({"u": [insert(n=None)]})
    assert rows(hr, "SELECT * FROM v") == []
    agree(hr)
    agree(reopen())
    with pytest.raises(StatementError, match="belongs to its key"):
        reopen().execute("ALTER TABLE t ALTER COLUMN id DROP NOT NULL")


def test_columns_that_something_needs_are_not_dropped(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (id BIGINT PRIMARY KEY, at INT, a INT, b INT, c INT) SEQUENCE BY at;
        CREATE TABLE one (a INT);
        CREATE VIEW named AS SELECT id FROM t WHERE a > 1;
        CREATE VIEW spared AS SELECT * EXCEPT (b) FROM t;
        CREATE VIEW whole AS TABLE one;
    """)
    refused(hr, "ALTER TABLE t DROP COLUMN id", RelationNameError, "key")
    refused(hr, "ALTER TABLE t DROP COLUMN at", RelationNameError, "SEQUENCE BY")
    refused(hr, "ALTER TABLE t DROP COLUMN a", RelationNameError, "named, spared")
    refused(hr, "ALTER TABLE t DROP COLUMN c", RelationNameError, "spared")
    refused(hr, "ALTER TABLE t DROP COLUMN b", RelationNameError, "spared")
    refused(hr, "ALTER TABLE t DROP COLUMN z", StatementError, "has no column z")
    refused(hr, "ALTER TABLE one DROP COLUMN a", RelationNameError, "only column")
    refused(hr, "ALTER TABLE one RENAME COLUMN a TO b", RelationNameError, "whole")
    refused(hr, "ALTER TABLE named DROP COLUMN id", RelationNameError, "is a view")
    hr.execute("ALTER TABLE t DROP COLUMN IF EXISTS z")
    hr.execute("INSERT INTO t VALUES (1, 1, 2, 3, 4); INSERT INTO one VALUES (1)")
    refused(hr, "ALTER TABLE t ADD COLUMN d INT NOT NULL", StatementError, "NOT NULL")
    refused(hr, "ALTER TABLE t ADD COLUMN B INT", StatementError, "has a column B already")
    hr.execute("DELETE FROM t; ALTER TABLE t ADD COLUMN d INT NOT NULL; DROP VIEW spared")
    hr.execute("ALTER TABLE t DROP COLUMN b")
    hr.apply({"t": [insert(id=2, at=1, a=5, d=1)]})
    assert rows(hr, "SELECT * FROM named") == [(2,)]
    agree(hr)
    agree(reopen())


def test_columns_that_a_list_of_a_subquery_reads_are_known(home: Any) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, g STRING, v INT); CREATE TABLE u (g STRING, w INT, x INT)")
    home.execute("CREATE VIEW some AS SELECT id FROM t WHERE g IN (SELECT g FROM u WHERE w > 1)")
    with pytest.raises(headrace.RelationNameError, match="some"):
        home.execute("ALTER TABLE u DROP COLUMN w")
    home.execute("ALTER TABLE u DROP COLUMN x; ALTER TABLE t DROP COLUMN v")
    home.apply({"t": [{"insert": {"id": 1, "g": "a"}}], "u": [{"insert": {"g": "a", "w": 2}}]})
    assert home.query("SELECT * FROM some").to_pylist() == [{"id": 1}]
    assert home.verify().ok
