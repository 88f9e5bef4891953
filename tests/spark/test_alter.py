"""ALTER TABLE: the log goes on, views stay what they were, and every kept epoch shows the columns it had."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace.definitions import adopt
from headrace.definitions.alter import alter_table
from headrace.errors import EpochExpired, RelationNameError, StatementError
from headrace.face import home_of
from headrace.sql.statements import AlterTable, parse
from tests.altered_tables import Reopen, agree, everywhere, refused
from tests.changes import delete, insert, rows

VIEW_LATER = ("as_of", "schema")


@pytest.mark.slow
def test_an_added_column_is_null_in_what_was_there(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, v INT);
        CREATE TABLE bag (a INT);
        CREATE VIEW every AS SELECT * FROM t;
        CREATE VIEW total AS SELECT g, SUM(v) AS s FROM t GROUP BY g;
        INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20), (3, 'x', 30);
        INSERT INTO bag VALUES (1), (1), (NULL);
    """)
    before = hr.epoch
    hr.execute("ALTER TABLE t ADD COLUMN note STRING")
    assert hr.epoch == before + 1
    hr.execute("ALTER TABLE bag ADD COLUMN parts ARRAY<STRUCT<x: INT>>")
    assert rows(hr, "SELECT * FROM t") == [(1, "x", 10, None), (2, "y", 20, None), (3, "x", 30, None)]
    hr.apply({"t": [insert(id=1, g="x", v=11, note="first"), insert(id=4, g="z", v=40), delete(id=2)]})
    hr.execute("INSERT INTO t (id, g, v, note) VALUES (5, 'z', 50, 'last'); UPDATE t SET note = 'third' WHERE id = 3")
    hr.apply({"bag": [delete(a=1), insert(a=1, parts=[{"x": 1}])]})

    def check(hr: Any) -> None:
        assert rows(hr, "SELECT * FROM t") == [
            (1, "x", 11, "first"),
            (3, "x", 30, "third"),
            (4, "z", 40, None),
            (5, "z", 50, "last"),
        ]
        assert rows(hr, "SELECT a, parts[0].x FROM bag") == [(1, 1), (1, None), (None, None)]
        assert rows(hr, "SELECT * FROM every") == [(1, "x", 11), (3, "x", 30), (4, "z", 40), (5, "z", 50)]
        old = f"SELECT * FROM t VERSION AS OF {before}"
        assert hr.query(old).column_names == ["id", "g", "v"]
        assert rows(hr, old) == [(1, "x", 10), (2, "y", 20), (3, "x", 30)]
        assert rows(hr, f"SELECT * FROM t VERSION AS OF {before + 1}")[0] == (1, "x", 10, None)
        assert rows(hr, f"SELECT * FROM bag VERSION AS OF {before}") == [(1,), (1,), (None,)]
        agree(hr)

    check(hr)
    everywhere(reopen, check)
    hr = reopen()
    hr.apply({"t": [insert(id=6, g="z", v=60, note="after"), delete(id=1)]})
    agree(hr)


@pytest.mark.slow
def test_views_mean_what_they_meant_whatever_is_added(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE a (id BIGINT PRIMARY KEY, x INT);
        CREATE TABLE b (id BIGINT PRIMARY KEY, y INT);
        CREATE VIEW star AS SELECT * FROM a;
        CREATE VIEW stars AS SELECT * FROM star;
        CREATE VIEW joined AS SELECT * FROM a NATURAL JOIN b;
        CREATE VIEW plain AS SELECT x, y FROM a JOIN b ON a.id = b.id;
        CREATE VIEW outward AS SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE y > x);
        CREATE VIEW inward AS SELECT id, (SELECT COUNT(*) FROM b WHERE b.id <= a.id AND y > 1 OR x > 5) AS n FROM a;
        CREATE VIEW latest AS SELECT first(x) AS f FROM a;
        INSERT INTO a VALUES (1, 1), (2, 2);
        INSERT INTO b VALUES (1, 2), (2, 2);
        ALTER TABLE b ADD COLUMN x INT;
        ALTER TABLE a ADD COLUMN y INT;
    """)
    hr.execute(
        "INSERT INTO a VALUES (3, 9, 7); INSERT INTO b VALUES (3, 2, 9); UPDATE b SET x = 100, y = 3 WHERE id = 1"
    )

    def check(hr: Any) -> None:
        assert hr.query("SELECT * FROM stars").column_names == ["id", "x"]
        assert hr.query("SELECT * FROM joined").column_names == ["id", "x", "y"]
        assert rows(hr, "SELECT * FROM joined") == [(1, 1, 3), (2, 2, 2), (3, 9, 2)]
        assert rows(hr, "SELECT * FROM plain") == [(1, 3), (2, 2), (9, 2)]
        assert rows(hr, "SELECT * FROM outward") == [(1,), (2,)]
        agree(hr)

    check(hr)
    everywhere(reopen, check)
    hr = reopen()
    hr.apply({"a": [insert(id=4, x=0, y=0)], "b": [insert(id=4, y=4, x=4), delete(id=1)]})
    assert rows(hr, "SELECT * FROM joined") == [(2, 2, 2), (3, 9, 2), (4, 0, 4)]
    # Written again, the same text is read with what there is now.
    hr.execute("CREATE OR REPLACE VIEW star AS SELECT * FROM a")
    assert hr.query("SELECT * FROM stars").column_names == ["id", "x", "y"]
    agree(hr)
    agree(reopen())


def test_a_renamed_column_is_the_same_column(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (id BIGINT, k INT, at INT, Unread STRING, PRIMARY KEY (id, k)) SEQUENCE BY at;
        CREATE TABLE u (id BIGINT PRIMARY KEY, name STRING);
        CREATE VIEW v AS SELECT at, name FROM t JOIN u ON t.id = u.id;
    """)
    hr.apply({"t": [insert(id=1, k=1, at=1, unread="x"), insert(id=2, k=1, at=5)], "u": [insert(id=1, name="n")]})
    hr.apply({"t": [delete(id=2, k=1, at=6)]})
    before = hr.epoch
    refused(hr, "ALTER TABLE t RENAME COLUMN id TO key", RelationNameError, "read by v", "drop that view")
    # The view does not read what is now called like a column of the other table.
    hr.execute("ALTER TABLE t RENAME COLUMN unread TO Name; ALTER TABLE t RENAME COLUMN k TO part")
    assert hr.epoch == before + 2
    receipt = hr.apply({"t": [insert(id=1, part=1, at=2, name="y"), insert(id=2, part=1, at=5)]})
    assert receipt.stale == {"t": 1}

    def check(hr: Any) -> None:
        assert hr.query("SELECT * FROM t").column_names == ["id", "part", "at", "Name"]
        assert rows(hr, "SELECT * FROM t") == [(1, 1, 2, "y")]
        assert hr.query(f"SELECT * FROM t VERSION AS OF {before}").column_names == ["id", "k", "at", "Unread"]
        assert rows(hr, f"SELECT k, unread FROM t VERSION AS OF {before}") == [(1, "x")]
        assert rows(hr, "SELECT * FROM v") == [(2, "n")]
        agree(hr)

    check(hr)
    everywhere(reopen, check)
    hr = reopen()
    refused(hr, "ALTER TABLE t RENAME COLUMN part TO ID", StatementError, "has a column ID already")
    refused(hr, "ALTER TABLE t RENAME COLUMN gone TO x", StatementError, "has no column gone", "id, part, at, Name")
    assert hr.apply({"t": [insert(id=2, part=1, at=5)]}).stale == {"t": 1}


@pytest.mark.slow
def test_a_dropped_column_is_still_there_at_older_epochs(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (junk STRING, id BIGINT PRIMARY KEY, g STRING, more INT, v DOUBLE);
        CREATE TABLE bag (a INT, b STRING);
        CREATE VIEW every AS SELECT id, g, v FROM t WHERE v > 1;
        CREATE VIEW total AS SELECT g, SUM(v) AS s, AVG(v) AS m, MIN(id) AS low FROM t GROUP BY g;
        CREATE VIEW best AS SELECT id, v FROM t ORDER BY v DESC LIMIT 2;
        CREATE VIEW pairs AS SELECT l.id AS l, r.id AS r FROM t l JOIN t r ON l.g = r.g AND l.id < r.id;
        CREATE VIEW ranked AS SELECT id, row_number() OVER (PARTITION BY g ORDER BY v) AS place FROM t;
        CREATE VIEW missing AS SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM bag WHERE bag.a = t.id);
        CREATE VIEW above AS SELECT low FROM total WHERE s > 1;
        INSERT INTO t VALUES ('p', 1, 'x', 7, 1.5), ('q', 2, 'x', 8, 2.5), ('r', 3, 'y', 9, 3.5);
        INSERT INTO bag VALUES (1, 'one'), (1, 'uno'), (2, 'two');
    """)
    hr.fold()
    hr.execute("UPDATE t SET junk = 'P' WHERE id = 1")
    first = hr.epoch
    hr.execute("ALTER TABLE t DROP COLUMN junk")
    hr.execute("ALTER TABLE bag DROP COLUMN b")
    assert hr.epoch == first + 2
    hr.execute("INSERT INTO t VALUES (4, 'y', 10, 0.5); DELETE FROM bag WHERE a = 2")
    second = hr.epoch
    hr.execute("ALTER TABLE t DROP COLUMN more; ALTER TABLE t ADD COLUMN junk INT")
    hr.apply({"t": [insert(id=1, g="y", v=9.0, junk=5), delete(id=3)], "bag": [insert(a=4)]})

    def check(hr: Any) -> None:
        assert hr.query("SELECT * FROM t").column_names == ["id", "g", "v", "junk"]
        assert rows(hr, "SELECT * FROM t") == [(1, "y", 9.0, 5), (2, "x", 2.5, None), (4, "y", 0.5, None)]
        assert rows(hr, "SELECT * FROM bag") == [(1,), (1,), (4,)]
        old = f"SELECT * FROM t VERSION AS OF {first}"
        assert hr.query(old).column_names == ["junk", "id", "g", "more", "v"]
        assert rows(hr, old) == [("P", 1, "x", 7, 1.5), ("q", 2, "x", 8, 2.5), ("r", 3, "y", 9, 3.5)]
        assert rows(hr, f"SELECT junk FROM t VERSION AS OF {first - 1}") == [("p",), ("q",), ("r",)]
        assert rows(hr, f"SELECT * FROM bag VERSION AS OF {first}") == [(1, "one"), (1, "uno"), (2, "two")]
        assert rows(hr, f"SELECT * FROM t VERSION AS OF {first + 1}")[0] == (1, "x", 7, 1.5)
        assert rows(hr, f"SELECT id, more FROM t VERSION AS OF {second}") == [(1, 7), (2, 8), (3, 9), (4, 10)]
        # An update of nothing but a dropped column is no change any more.
        assert hr.changes("t", since=first - 1, until=first).num_rows == 0
        agree(hr)

    check(hr)
    everywhere(reopen, check)
    hr = reopen()
    hr.execute("INSERT INTO t VALUES (5, 'x', 5.0, 1); UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 2")
    agree(hr)


@pytest.mark.slow
def test_a_base_of_older_columns_is_read_by_their_ids(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (id INT PRIMARY KEY, d INT, c INT);
        CREATE VIEW v AS SELECT id, d FROM t;
        INSERT INTO t VALUES (1, 100, 10), (2, 200, 20);
    """)
    hr.fold()
    before = hr.epoch
    # The new column has the name and the type of the old one: the base looks as if nothing had happened.
    hr.execute("ALTER TABLE t DROP COLUMN c; ALTER TABLE t ADD COLUMN c INT; INSERT INTO t VALUES (3, 300, 30)")

    def check(hr: Any) -> None:
        assert rows(hr, "SELECT * FROM t") == [(1, 100, None), (2, 200, None), (3, 300, 30)]
        assert rows(hr, f"SELECT * FROM t VERSION AS OF {before}") == [(1, 100, 10), (2, 200, 20)]
        agree(hr)

    everywhere(reopen, check)
    hr = reopen()
    hr.execute("ALTER TABLE t ALTER COLUMN d TYPE BIGINT; DELETE FROM t WHERE id = 1")
    hr = reopen()
    assert rows(hr, "SELECT * FROM t") == [(2, 200, None), (3, 300, 30)]
    assert rows(hr, "SELECT * FROM v") == [(2, 200), (3, 300)]
    everywhere(reopen, agree)


@pytest.mark.slow
def test_definitions_without_ids_and_epochs_stay_what_they_were(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    hr = reopen()
    with monkeypatch.context() as older:
        for name, later in (("table_definition", ("ids",)), ("view_definition", VIEW_LATER)):
            define = getattr(adopt, name)
            older.setattr(adopt, name, lambda one, define=define, later=later: without(define(one), later))
        hr.execute("""
            CREATE TABLE t (id BIGINT PRIMARY KEY, v INT);
            CREATE VIEW star AS SELECT * FROM t;
            INSERT INTO t VALUES (1, 10);
        """)
    before = hr.epoch
    hr = reopen()
    hr.execute("ALTER TABLE t ADD COLUMN w INT; INSERT INTO t VALUES (2, 20, 200); ALTER TABLE t DROP COLUMN w")
    hr.execute("ALTER TABLE t ADD COLUMN x STRING")

    def check(hr: Any) -> None:
        assert hr.query("SELECT * FROM star").column_names == ["id", "v"]
        assert rows(hr, "SELECT * FROM t") == [(1, 10, None), (2, 20, None)]
        assert rows(hr, f"SELECT * FROM t VERSION AS OF {before}") == [(1, 10)]
        assert rows(hr, f"SELECT * FROM star VERSION AS OF {before}") == [(1, 10)]
        assert rows(hr, f"SELECT * FROM t VERSION AS OF {before + 2}") == [(1, 10, None), (2, 20, 200)]
        agree(hr)

    check(hr)
    everywhere(reopen, check)


def without(definition: dict[str, Any], later: tuple[str, ...]) -> dict[str, Any]:
    """A definition as it was written before it had some of its keys."""
    return {key: value for key, value in definition.items() if key not in later}


def test_a_replaced_view_shows_its_old_columns_at_old_epochs(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute("""
        CREATE TABLE t (id BIGINT PRIMARY KEY, v INT);
        CREATE VIEW w AS SELECT id FROM t;
        INSERT INTO t VALUES (1, 10);
        INSERT INTO t VALUES (2, 20);
    """)
    before = hr.epoch
    hr.execute("CREATE OR REPLACE VIEW w AS SELECT id AS renamed FROM t")
    hr.execute("CREATE OR REPLACE VIEW w AS SELECT v, id FROM t; INSERT INTO t VALUES (3, 30)")
    hr.fold()
    for _ in range(2):
        assert hr.query(f"SELECT * FROM w VERSION AS OF {before}").to_pylist() == [{"id": 1}, {"id": 2}]
        assert hr.query(f"SELECT * FROM w VERSION AS OF {before - 1}").to_pylist() == [{"id": 1}]
        assert hr.query(f"SELECT * FROM w VERSION AS OF {before + 1}").column_names == ["renamed"]
        assert rows(hr, "SELECT * FROM w") == [(10, 1), (20, 2), (30, 3)]
        hr = reopen()
    with pytest.raises(EpochExpired):
        hr.query("SELECT * FROM w", epoch=99)


def test_several_changes_of_a_table_are_one_epoch_or_none(reopen: Reopen) -> None:
    hr = reopen()
    hr.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT NOT NULL); CREATE VIEW v AS SELECT id, b FROM t"
    )
    hr.apply({"t": [insert(id=1, a=1, b=2, c=3)]})
    home, before = home_of(hr), hr.epoch

    def alter(*sql: str) -> None:
        listed = [one for text in sql for one in parse(f"ALTER TABLE t {text}")]
        home.loop.define(lambda: alter_table(home.core, *cast("list[AlterTable]", listed)))

    alter("ADD COLUMN d INT", "DROP COLUMN a", "ALTER COLUMN b TYPE BIGINT", "RENAME COLUMN c TO e", "ADD COLUMN a INT")
    assert hr.epoch == before + 1
    hr.apply({"t": [insert(id=2, a=7, b=2**40, e=5, d=6)]})
    expected = [{"id": 1, "b": 2, "e": 3, "d": None, "a": None}, {"id": 2, "b": 2**40, "e": 5, "d": 6, "a": 7}]
    assert hr.query("SELECT * FROM t ORDER BY id").to_pylist() == expected
    agree(hr)
    before = hr.epoch
    with pytest.raises(RelationNameError, match=r"column b of t cannot be dropped"):
        alter("ADD COLUMN f INT", "DROP COLUMN b")
    assert hr.epoch == before
    hr = reopen()
    assert hr.query("SELECT * FROM t ORDER BY id").to_pylist() == expected
    agree(hr)
