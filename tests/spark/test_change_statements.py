"""INSERT, UPDATE and DELETE: any name, one expression is one expression, and errors know their position."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headrace import ChangesRejected, HeadraceError
from tests.changes import rows_of


def test_names_of_any_letters(home: Any) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, `a``b` INT, `c d` STRING, `e.f` INT)")
    home.execute("INSERT INTO t (`e.f`, `a``b`, id) VALUES (7, 2, 1), (8, 3, 2), (9, 4, 3)")
    home.execute("UPDATE t AS `x y` SET `a``b` = `x y`.`a``b` + 1, `c d` = 'z' WHERE `x y`.id = 1")
    home.execute("DELETE FROM t WHERE `a``b` = 3 AND `c d` IS NULL AND id = 2")
    home.execute("DELETE FROM `t` AS `x y` WHERE `x y`.`e.f` = 9")
    assert rows_of(home, "t") == [(1, 3, "z", 7)]
    home.execute("DELETE FROM t")
    assert rows_of(home, "t") == []


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("DELETE FROM t WHERE a = 1 UNION ALL SELECT * FROM t", (1, 27)),
        ("DELETE FROM t WHERE true ORDER BY a LIMIT 1", (1, 26)),
        ("DELETE FROM t WHERE (a = 1) UNION ALL (SELECT * FROM t)", (1, 29)),
        ("UPDATE t\n  SET a = a 2", (2, 13)),
        ("UPDATE t SET a = 1,\n  b = c", (2, 7)),
        ("UPDATE t SET a = 1\nWHERE a > 0\n  AND nowhere", (3, 7)),
        ("UPDATE t SET a = explode(array(1, 2))", (1, 1)),
        ("INSERT INTO t\n  SELECT nowhere, 1", (2, 10)),
        ("INSERT INTO t VALUES (1)", (1, 15)),
        ("INSERT INTO t VALUES (1, x)", (1, 26)),
    ],
)
def test_errors_name_the_position_in_the_script(home: Any, sql: str, position: tuple[int, int]) -> None:
    home.execute("CREATE TABLE t (a INT PRIMARY KEY, b INT); INSERT INTO t VALUES (1, 1), (2, 2)")
    with pytest.raises(HeadraceError) as raised:
        home.execute(sql)
    assert (raised.value.line, raised.value.column) == position
    assert rows_of(home, "t") == [(1, 1), (2, 2)]


def test_a_statement_rounds_a_decimal_as_spark_does_and_changes_refuse_it(home: Any) -> None:
    home.execute("CREATE TABLE prices (id INT PRIMARY KEY, price DECIMAL(10,2))")
    home.execute("INSERT INTO prices VALUES (1, 1.005); INSERT INTO prices SELECT 2, CAST(1.004 AS DECIMAL(10,3))")
    home.execute("INSERT INTO prices VALUES (3, 0); UPDATE prices SET price = 2.675 WHERE id = 3")
    assert home.query("SELECT CAST(price AS STRING) AS p FROM prices ORDER BY id").column(0).to_pylist() == [
        "1.01",
        "1.00",
        "2.68",
    ]
    for value in ("1.005", Decimal("1.005")):
        with pytest.raises(ChangesRejected):
            home.apply({"prices": [{"insert": {"id": 4, "price": value}}]})
    with pytest.raises(HeadraceError):
        home.execute("INSERT INTO prices VALUES (5, 123456789.00)")
    with pytest.raises(HeadraceError):
        home.execute("INSERT INTO prices VALUES (5, 'much')")


def test_a_condition_that_is_one_word_is_a_condition(home: Any) -> None:
    """Spark reads FROM t WHERE (flag) as a table called WHERE that has one column: every row would go."""
    home.execute("CREATE TABLE flags (flag BOOLEAN); INSERT INTO flags VALUES (TRUE), (FALSE), (NULL)")
    home.execute("CREATE TABLE wide (id INT PRIMARY KEY, flag BOOLEAN); INSERT INTO wide VALUES (1, TRUE), (2, FALSE)")
    assert home.execute("DELETE FROM flags WHERE flag").applied == {"flags": 1}
    assert home.query("SELECT * FROM flags ORDER BY flag").to_pylist() == [{"flag": None}, {"flag": False}]
    assert home.execute("UPDATE wide SET flag = FALSE WHERE flag").applied == {"wide": 1}
    assert home.execute("DELETE FROM wide WHERE TRUE").applied == {"wide": 2}
    assert home.execute("DELETE FROM wide w WHERE w.flag").applied == {"wide": 0}
