"""Reads that need no Spark give what Spark gives: the same columns, types and rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.face import home_of
from headrace.query_processes.queries import read_plain_text

EVERYTHING = """
CREATE TABLE everything (
    id BIGINT PRIMARY KEY, tiny TINYINT, small SMALLINT, i INT, d DECIMAL(10,2), big DECIMAL(38,6), f FLOAT, r DOUBLE,
    s STRING, b BINARY, yes BOOLEAN, day DATE, t TIMESTAMP, n TIMESTAMP_NTZ, l ARRAY<STRUCT<a: INT, b: DECIMAL(5,1)>>,
    m MAP<STRING, TIMESTAMP>, st STRUCT<x: ARRAY<INT>, y: STRING>, span INTERVAL DAY TO SECOND
);
CREATE TABLE bag (a INT, b STRING);
CREATE TABLE pairs (k STRING, v INT, w DECIMAL(6,2), PRIMARY KEY (k, v));
CREATE VIEW sums AS SELECT b, count(*) AS n FROM bag GROUP BY b;
INSERT INTO everything VALUES
    (1, 1, 2, 3, 4.5, -1234567890123456789012.5, 1.5, double('NaN'), 'it''s', X'00FF', true, DATE '2026-01-02',
     TIMESTAMP '2026-01-02 03:04:05.000006', TIMESTAMP_NTZ '2026-01-02 03:04:05', array(named_struct('a', 1, 'b', 2.5)),
     map('k', TIMESTAMP '2026-01-02 03:04:05'), named_struct('x', array(1, NULL), 'y', 'z'), INTERVAL '1' DAY),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (-3, -1, -2, -3, -4.5, 0, 0, -0.0, '', X'', false, DATE '1900-01-01', TIMESTAMP '1900-01-01 00:00:00',
     TIMESTAMP_NTZ '1900-01-01 00:00:00', array(), map(), named_struct('x', NULL, 'y', NULL), INTERVAL '-1' SECOND);
INSERT INTO bag VALUES (1, 'a'), (1, 'a'), (2, 'A'), (NULL, NULL);
INSERT INTO pairs VALUES ('a', 1, 1.5), ('a', 2, 2.5), ('b', 1, 1.50);
"""
PLAIN = [
    "SELECT * FROM everything",
    "select  *\nfrom `Everything`",
    "SELECT * FROM everything WHERE id = 1",
    "SELECT * FROM everything WHERE ID = -3",
    "SELECT * FROM everything WHERE id = 4",
    "SELECT * FROM everything WHERE s = 'it''s' AND i = 3",
    "SELECT * FROM everything WHERE s = ''",
    "SELECT * FROM everything WHERE d = 4.5",
    "SELECT * FROM everything WHERE d = -4.50",
    "SELECT * FROM everything WHERE big = 0",
    "SELECT * FROM everything WHERE tiny == 1 AND small = 2 LIMIT 5",
    "SELECT * FROM everything WHERE id = 1 AND i = 4",
    "SELECT * FROM bag",
    "SELECT * FROM bag WHERE a = 1",
    'SELECT * FROM bag WHERE b = "A"',
    "SELECT * FROM bag LIMIT 0",
    "SELECT * FROM pairs WHERE v = 1 AND k = 'a'",
    "SELECT * FROM pairs WHERE k = 'a'",
    "SELECT * FROM pairs WHERE w = 1.5",
    "SELECT * FROM sums",
    "SELECT * FROM sums WHERE b = 'a'",
]
FOR_SPARK = [
    "SELECT /*+ COALESCE(1) */ * FROM bag",
    "SELECT * /* all */ FROM bag",
    "SELECT * FROM bag WHERE a = '1'",
    "SELECT * FROM bag WHERE a = 1.0",
    "SELECT * FROM bag WHERE a = 5000000000",
    "SELECT * FROM bag WHERE b = 1",
    "SELECT * FROM bag WHERE a = 1 OR a = 2",
    "SELECT * FROM bag WHERE a = NULL",
    "SELECT * FROM bag WHERE a <=> 1",
    "SELECT * FROM bag AS x",
    "SELECT * FROM bag ORDER BY a",
    "SELECT * FROM bag LIMIT 1 OFFSET 1",
    "SELECT * FROM bag TABLESAMPLE (1 ROWS)",
    "SELECT * FROM everything WHERE d = 4.505",
    "SELECT * FROM everything WHERE r = 1",
    "SELECT * FROM everything WHERE yes = 1",
    "SELECT * FROM everything WHERE day = '2026-01-02'",
    "SELECT * FROM nothing",
    "SELECT a FROM bag",
    "FROM bag",
]


def test_plain_reads_give_what_spark_gives(home: Any) -> None:
    home.execute(EVERYTHING)
    for sql in PLAIN:
        plain = read_plain_text(home_of(home).core, sql, None)
        assert plain is not None, sql
        assert _rows(home.query(sql)) == _rows(plain), sql
        by_spark = home_of(home).core.sessions.queries.run(sql, home_of(home).core.relations())
        assert plain.schema.equals(by_spark.schema), sql
        assert _rows(plain) == _rows(by_spark), sql
    for sql in FOR_SPARK:
        assert read_plain_text(home_of(home).core, sql, None) is None, sql
    before = home.epoch
    home.execute("DELETE FROM pairs WHERE k = 'a'")
    assert _rows(home.query("SELECT * FROM pairs WHERE k = 'a' AND v = 2")) == []
    then = read_plain_text(
        home_of(home).core, f"SELECT * FROM pairs VERSION AS OF {before} WHERE k = 'a' AND v = 2", None
    )
    assert then is not None
    assert then.num_rows == 1
    assert home.query("SELECT * FROM pairs", epoch=before).num_rows == 3


def test_a_large_relation_is_read_by_its_key(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.reading.plain_read._SMALL", 10)
    home.execute(
        "CREATE TABLE numbers (id BIGINT PRIMARY KEY, name STRING); CREATE VIEW twice AS SELECT * FROM numbers;"
    )
    home.apply({"numbers": [{"insert": {"id": i, "name": f"n{i}"}} for i in range(100)]})
    for relation in ("numbers", "twice"):
        found = read_plain_text(home_of(home).core, f"SELECT * FROM {relation} WHERE id = 42", None)
        assert found is not None
        assert found.to_pylist() == [{"id": 42, "name": "n42"}]
        assert read_plain_text(home_of(home).core, f"SELECT * FROM {relation} WHERE name = 'n42'", None) is None
        assert read_plain_text(home_of(home).core, f"SELECT * FROM {relation}", None) is None


def _rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())
