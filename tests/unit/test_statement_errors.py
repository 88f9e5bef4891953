"""What is refused, where, and what the error advises."""

from __future__ import annotations

import pytest

from headrace.errors import StatementError, UnsupportedStatement
from headrace.sql.statements import parse


def refused(sql: str) -> StatementError:
    with pytest.raises(StatementError) as error:
        parse(sql)
    assert error.value.hint
    assert error.value.message[0] in "'" or error.value.message[0].islower() or error.value.message.split()[0].isupper()
    return error.value


@pytest.mark.parametrize(
    ("sql", "message", "position", "hint"),
    [
        ("CRAETE TABLE t (a INT)", "'CRAETE' begins no statement", (1, 1), "did you mean CREATE?"),
        ("SELECT 1;\n  SLECT 2", "'SLECT' begins no statement", (2, 3), "did you mean SELECT?"),
        ("42", "'42' begins no statement", (1, 1), "a statement begins with"),
        (
            "CREATE TABEL t (a INT)",
            "expected TABLE, VIEW, MATERIALIZED VIEW, SOURCE, FLOW, CHANGEFEED, EVENT STORE or PROJECTION, "
            "found 'TABEL'",
            (1, 8),
            "did you mean TABLE?",
        ),
        ("CREATE", "found the end of the statement", (1, 7), "write CREATE TABLE"),
        (
            "CREATE CHANGEFEED FOR TABLE t INTO FILES 'out'",
            "a changefeed has a name",
            (1, 19),
            "write CREATE CHANGEFEED",
        ),
        (
            "CREATE TABLE",
            "expected the name of a table",
            (1, 13),
            "write CREATE TABLE t (id BIGINT PRIMARY KEY",
        ),
        ("CREATE TABLE (a INT)", "expected the name of a table", (1, 14), "write CREATE TABLE"),
        ('CREATE TABLE "t" (a INT)', "expected the name of a table", (1, 14), "`backticks`"),
        ("CREATE TABLE t", "expected '('", (1, 15), "write CREATE TABLE"),
        ("CREATE TABLE t ()", "expected the name of a column", (1, 17), "write CREATE TABLE"),
        ("CREATE TABLE t (PRIMARY KEY (a))", "a table needs at least one column", (1, 33), "write CREATE"),
        ("CREATE TABLE t (a)", "column 'a' has no type", (1, 18), "write CREATE TABLE"),
        ("CREATE TABLE t (a NOT NULL)", "column 'a' has no type", (1, 19), "write CREATE TABLE"),
        ("CREATE TABLE t (a INT,)", "expected the name of a column", (1, 23), "write CREATE TABLE"),
        (
            "CREATE TABLE t (a INT b INT)",
            "expected ',', ')', NOT NULL, PRIMARY KEY or COMMENT, found 'b'",
            (1, 23),
            "write",
        ),
        ("CREATE TABLE t (a INT PRIMRAY KEY)", "found 'PRIMRAY'", (1, 23), "did you mean PRIMARY?"),
        ("CREATE TABLE t (a INT PRIMARY)", "expected KEY", (1, 30), "write CREATE TABLE"),
        ("CREATE TABLE t (a INT NOT NULL NOT NULL)", "found 'NOT'", (1, 32), "write CREATE TABLE"),
        ("CREATE TABLE t (a INT NULL)", "NULL is not a column option", (1, 23), "leave it out"),
        ("CREATE TABLE t (a BIGNIT)", "unknown type 'BIGNIT'", (1, 19), "did you mean BIGINT?"),
        ("CREATE TABLE t (a text)", "unknown type 'text'", (1, 19), "did you mean STRING?"),
        ("CREATE TABLE t (a ARRAY<STRUCT<x: NOPE>>)", "unknown type 'NOPE'", (1, 35), "a type of Spark SQL"),
        ("CREATE TABLE t (a ARRAY)", "expected '<'", (1, 24), "write CREATE TABLE"),
        ("CREATE TABLE t (a ARRAY<INT)", "expected '>'", (1, 28), "write CREATE TABLE"),
        ("CREATE TABLE t (a STRUCT<x: INT)", "expected ',' or '>'", (1, 32), "write CREATE TABLE"),
        ("CREATE TABLE t (a DECIMAL(12)", "unclosed '('", (1, 16), "close it with ')'"),
        ("CREATE TABLE t (a INT, A STRING)", "column 'A' is defined twice", (1, 24), "case"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)",
            "key is given twice",
            (1, 36),
            "PRIMARY KEY (a, b)",
        ),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))",
            "key is given twice",
            (1, 49),
            "give it once",
        ),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, A))", "column 'A' is listed twice", (1, 40), "once"),
        (
            "CREATE TABLE t (a INT, PRIMARY KEY (b))",
            "unknown column 'b' in the primary key",
            (1, 37),
            "the columns are a",
        ),
        ("CREATE TABLE t (a INT, PRIMARY KEY a)", "expected '('", (1, 36), "write CREATE TABLE"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) SEQUENCE BY s",
            "unknown column 's' in the sequence",
            (1, 48),
            "are a",
        ),
        ("CREATE TABLE t (a INT) SEQUENCE BY a", "SEQUENCE BY needs a primary key", (1, 24), "PRIMARY KEY"),
        ("CREATE TABLE t (a INT) SEQUENC BY a", "expected SEQUENCE BY", (1, 24), "did you mean SEQUENCE?"),
        ("CREATE TABLE _headrace_x (a INT)", "cannot be the name of a table", (1, 14), "reserved"),
        ("CREATE TABLE `a b` (a INT)", "'a b' cannot be the name of a table", (1, 14), "letters"),
        (f"CREATE TABLE {'t' * 129} (a INT)", "cannot be the name of a table", (1, 14), "at most 128"),
        (f"CREATE VIEW {'v' * 300} AS SELECT 1", "cannot be the name of a view", (1, 13), "at most 128"),
        (f"CREATE TABLE t ({'c' * 256} INT)", "cannot be the name of a column", (1, 17), "at most 255"),
        ("CREATE TABLE t (_Change_Type INT)", "cannot be the name of a column", (1, 17), "reserved"),
        ("CREATE TABLE t (_commit_version INT)", "cannot be the name of a column", (1, 17), "reserved"),
        ("CREATE TABLE t (`` INT)", "a name is empty", (1, 17), "write CREATE TABLE"),
        (
            "CREATE VIEW v SELECT 1",
            "expected AS or COMMENT, found 'SELECT'",
            (1, 15),
            "write CREATE [OR REPLACE] VIEW",
        ),
        ("CREATE VIEW AS SELECT 1", "expected the name of a view, found 'AS'", (1, 13), "write CREATE"),
        ("CREATE VIEW v AS", "found the end of the statement", (1, 17), "write CREATE"),
        ("CREATE VIEW v AS SELCT 1", "found 'SELCT'", (1, 18), "did you mean SELECT?"),
        ("CREATE VIEW v (a, A) AS SELECT 1, 2", "column 'A' is listed twice", (1, 19), "once"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", "exclude each other", (1, 24), "keep one"),
        (
            "CREATE VIEW v REFRESH POLICY FULL AS SELECT 1",
            "belongs to a materialized view",
            (1, 15),
            "MATERIALIZED",
        ),
        (
            "CREATE MATERIALIZED VIEW v REFRESH POLICY INCREMENTEL AS SELECT 1",
            "found 'INCREMENTEL'",
            (1, 43),
            "INCREMENTAL?",
        ),
        ("CREATE MATERIALIZED TABLE v", "expected VIEW, found 'TABLE'", (1, 21), "write CREATE"),
        (
            "DROP t",
            "expected TABLE, VIEW, MATERIALIZED VIEW, SOURCE, FLOW, CHANGEFEED, EVENT STORE or PROJECTION",
            (1, 6),
            "write DROP TABLE",
        ),
        ("DROP TABLE t x", "expected the end of the statement, found 'x'", (1, 14), "write DROP"),
        ("ALTER TABLE t", "expected ADD, RENAME, DROP or ALTER", (1, 14), "write ALTER TABLE t ADD COLUMN"),
        ("ALTER TABLE t ADD c INT", "expected COLUMN", (1, 19), "write ALTER TABLE"),
        (
            "ALTER TABLE t ADD COLUMN c INT PRIMARY KEY",
            "key of a table cannot be changed",
            (1, 26),
            "new table",
        ),
        ("ALTER TABLE t RENAME COLUMN a b", "expected TO", (1, 31), "write ALTER TABLE"),
        (
            "ALTER TABLE t RENAME COLUMN a TO _commit_version",
            "cannot be the name of a column",
            (1, 34),
            "reserved",
        ),
        ("ALTER TABLE t ALTER COLUMN c TYP INT", "expected TYPE", (1, 30), "did you mean TYPE?"),
        ("INSERT t VALUES (1)", "expected INTO", (1, 8), "write INSERT INTO"),
        (
            "INSERT INTO VALUES (1)",
            "expected the name of a table, found 'VALUES'",
            (1, 13),
            "write INSERT INTO",
        ),
        ("INSERT INTO t", "found the end of the statement", (1, 14), "write INSERT INTO"),
        ("INSERT INTO t VALUES", "expected rows of values", (1, 21), "write INSERT INTO"),
        ("INSERT INTO t (a, a) VALUES (1, 2)", "column 'a' is listed twice", (1, 19), "once"),
        ("INSERT INTO t VALUE (1)", "found 'VALUE'", (1, 15), "did you mean VALUES?"),
        ("UPDATE t STE a = 1", "expected SET, found 'STE'", (1, 10), "did you mean SET?"),
        ("UPDATE SET a = 1", "expected the name of a table, found 'SET'", (1, 8), "write UPDATE"),
        ("UPDATE t SET a", "expected '='", (1, 15), "write UPDATE"),
        ("UPDATE t SET a = , b = 1", "expected an expression", (1, 18), "write UPDATE"),
        ("UPDATE t SET a = 1, WHERE b", "expected '='", (1, 27), "write UPDATE"),
        ("UPDATE t SET a = 1, A = 2", "column 'A' is set twice", (1, 21), "once"),
        ("UPDATE t SET s.f = 1", "'s' is neither the table nor its alias", (1, 14), "struct"),
        ("UPDATE t SET a = 1 WHERE", "expected a condition", (1, 25), "write UPDATE"),
        ("DELETE t WHERE a", "expected FROM", (1, 8), "write DELETE FROM"),
        ("DELETE FROM t WEHRE a = 1", "expected WHERE, found 'WEHRE'", (1, 15), "did you mean WHERE?"),
        ("DELETE FROM t WEHRE", "expected WHERE, found 'WEHRE'", (1, 15), "did you mean WHERE?"),
        ("DELETE FROM t WHERE", "expected a condition", (1, 20), "write DELETE FROM"),
        ("SHOW TABELS", "found 'TABELS'", (1, 6), "did you mean TABLES?"),
        ("SHOW", "expected TABLES, VIEWS, SOURCES, FLOWS or CHANGEFEEDS", (1, 5), "write SHOW"),
        ("DESCRIBE", "expected the name of a table or view", (1, 9), "write DESCRIBE x"),
        ("EXPLAIN", "expected the name of a view", (1, 8), "write EXPLAIN"),
        ("EXPLAIN CREATE TABLE t (a INT)", "only views and queries", (1, 1), "write EXPLAIN"),
        ("SELECT (1;\nSELECT 2", "unclosed '('", (1, 8), "close it"),
        ("SELECT 1);", "unexpected ')'", (1, 9), "remove it"),
        ("SELECT 'x", "unclosed string", (1, 8), "close it with '"),
        ("CREATE SOURCE s DELTA '/x'", "expected FROM, found 'DELTA'", (1, 17), "write CREATE SOURCE"),
        ("CREATE SOURCE s INTO t FROM DETLA '/x'", "found 'DETLA'", (1, 29), "did you mean DELTA?"),
        ("CREATE SOURCE s INTO t FROM DELTA x", "expected where it is, as a string", (1, 35), "write CREATE SOURCE"),
        (
            "CREATE SOURCE s INTO t\n FROM DELTA ' '",
            "it does not say where the source is",
            (2, 13),
            "write CREATE SOURCE",
        ),
        (
            "CREATE SOURCE s INTO t FROM DELTA '/x' WITH (mode = 'snapshto')",
            "no mode 'snapshto'",
            (1, 53),
            "'snapshot'?",
        ),
        (
            "CREATE SOURCE s INTO t FROM DELTA '/x' WITH (version = x)",
            "expected a string, a whole number, TRUE or FALSE",
            (1, 56),
            "write CREATE SOURCE",
        ),
        ("ALTER SOURCE s (a = 1)", "expected SET", (1, 16), "write ALTER SOURCE s SET"),
        ("REPLAY LETTERS", "expected DEAD", (1, 8), "write REPLAY DEAD LETTERS"),
        ("DISCARD DEAD LETTERS all", "expected the end", (1, 22), "write DISCARD DEAD LETTERS"),
        (
            "CREATE SOURCE s INTO t FROM DELTA '/x' WITH (mode = 'snapshot', MODE = 'snapshot')",
            "option mode is given twice",
            (1, 65),
            "keep one",
        ),
        ("DROP SOURCE IF EXISTS", "expected the name of a source", (1, 22), "write DROP SOURCE"),
        ("PAUSE SOURCE s t", "expected the end", (1, 16), "write PAUSE SOURCE s"),
        ("EXPLAIN CREATE SOURCE s INTO t FROM DELTA '/x' WITH (mode = 'snapshot')", "only views", (1, 1), "EXPLAIN"),
        (
            "CREATE CHANGEFEED f FOR x INTO 'x'",
            "expected the kind of a sink",
            (1, 32),
            "CREATE CHANGEFEED",
        ),
        ("CREATE CHANGEFEED f FOR x INTO FILES ''", "does not say where the events go", (1, 38), "CREATE CHANGEFEED"),
        ("RESYNC SOURCE s", "expected CHANGEFEED", (1, 8), "write RESYNC CHANGEFEED f"),
        ("ALTER CHANGEFEED f UNSET filter", "expected '('", (1, 26), "UNSET (option, ...)"),
        ("REPLAY PARKED EVENTS WHERE", "WHERE has no condition", (1, 27), "PARKED EVENTS"),
        ("PAUSE x", "expected SOURCE or CHANGEFEED", (1, 7), "write PAUSE SOURCE s"),
    ],
)
def test_errors(sql: str, message: str, position: tuple[int, int], hint: str) -> None:
    error = refused(sql)
    assert not isinstance(error, UnsupportedStatement)
    assert message in error.message
    assert (error.line, error.column) == position
    assert hint in error.hint


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE TABLE a.b (x INT)", "qualified names"),
        ("DROP TABLE cat.db.t", "qualified names"),
        ("INSERT INTO a.t VALUES (1)", "qualified names"),
        ("CREATE TABLE t (a INT DEFAULT 1)", "DEFAULT is not offered"),
        ("CREATE TABLE t (a INT GENERATED ALWAYS AS (1))", "GENERATED is not offered"),
        ("CREATE TABLE t (a INT UNIQUE)", "UNIQUE is not offered"),
        ("CREATE TABLE t (a INT, CHECK (a > 0))", "CHECK is not offered"),
        ("CREATE TABLE t (a INT, CONSTRAINT f FOREIGN KEY (a) REFERENCES s (a))", "FOREIGN is not offered"),
        ("CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED)", "always enforced"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (t.a))", "without a qualifier"),
        ("CREATE TABLE t (a INT) USING delta", "USING is not offered"),
        ("CREATE TABLE t (a INT PRIMARY KEY) SEQUENCE BY a PARTITIONED BY (a)", "PARTITIONED is not offered"),
        ("CREATE TABLE t AS SELECT 1", "AS is not offered"),
        ("CREATE OR REPLACE TABLE t (a INT)", "CREATE OR REPLACE is for views"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "CREATE TEMPORARY is not offered"),
        ("CREATE STREAMING TABLE t", "CREATE STREAMING TABLE is not offered"),
        ("CREATE VIEW v TBLPROPERTIES ('a' = 'b') AS SELECT 1", "TBLPROPERTIES is not offered"),
        ("CREATE VIEW v (a COMMENT 'x') AS SELECT 1", "comments on a view's columns"),
        ("CREATE VIEW v AS SELECT * FROM t VERSION AS OF 3", "AS OF is not offered in views"),
        ("CREATE VIEW v AS SELECT * FROM t WHERE a TIMESTAMP AS OF now()", "AS OF is not offered in views"),
        ("DROP TABLE t PURGE", "PURGE is not offered"),
        ("DROP TABLE a, b", "one at a time"),
        ("DROP FUNCTION f", "DROP FUNCTION is not offered"),
        ("ALTER TABLE t ADD COLUMNS (a INT, b INT)", "one at a time"),
        ("ALTER TABLE t ADD COLUMN c INT FIRST", "FIRST is not offered"),
        ("ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY (a)", "cannot be changed"),
        ("ALTER TABLE t RENAME TO s", "cannot be renamed"),
        ("ALTER TABLE t DROP COLUMNS (a)", "one at a time"),
        ("ALTER TABLE t ALTER COLUMN c SET NOT NULL", "only the type"),
        ("ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')", "ALTER TABLE SET is not offered"),
        ("ALTER VIEW v AS SELECT 1", "views are replaced"),
        ("INSERT OVERWRITE t SELECT 1", "INSERT OVERWRITE is not offered"),
        ("INSERT INTO t BY NAME SELECT 1 AS a", "BY NAME is not offered"),
        ("INSERT INTO t PARTITION (a = 1) SELECT 1", "PARTITION is not offered"),
        ("UPDATE t SET a = DEFAULT", "no DEFAULT"),
        ("DELETE FROM t USING s WHERE a", "USING is not offered"),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "INSERT after WITH is not offered"),
        ("WITH x (a) AS (SELECT 1) DELETE FROM t", "DELETE after WITH is not offered"),
        ("EXPLAIN EXTENDED SELECT 1", "EXPLAIN EXTENDED is not offered"),
        ("EXPLAIN INSERT INTO t VALUES (1)", "only views and queries"),
        ("SHOW TABLES LIKE 'x'", "takes nothing after it"),
        ("SHOW MATERIALIZED VIEWS", "SHOW MATERIALIZED VIEWS is not offered"),
        ("SHOW CREATE TABLE t", "SHOW CREATE is not offered"),
        ("MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE", "MERGE is not offered"),
        ("TRUNCATE TABLE t", "TRUNCATE is not offered"),
        ("VACUUM t", "VACUUM is not offered"),
        ("BEGIN", "BEGIN is not offered"),
        ("CREATE OR REPLACE SOURCE s INTO t FROM DELTA '/x'", "CREATE OR REPLACE is for views"),
        ("CREATE OR REPLACE CHANGEFEED f FOR TABLE x INTO FILES 'x'", "CREATE OR REPLACE is for views"),
        ("CREATE OR REFRESH STREAMING TABLE t", "CREATE STREAMING TABLE is not offered"),
        (
            "CREATE OR REPLACE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (id) SEQUENCE BY c",
            "CREATE OR REPLACE is for views",
        ),
    ],
)
def test_unsupported(sql: str, message: str) -> None:
    error = refused(sql)
    assert isinstance(error, UnsupportedStatement)
    assert message in error.message
    assert error.line == 1


def test_places_count_over_the_whole_script() -> None:
    error = refused("CREATE TABLE t (a INT);\n\nINSERT INTO t VALUES (1);\n  UPDATE t\n    SETT a = 1")
    assert (error.line, error.column) == (5, 5)


def test_an_error_is_message_place_and_hint() -> None:
    assert str(refused("DROP TABEL t")) == (
        "expected TABLE, VIEW, MATERIALIZED VIEW, SOURCE, FLOW, CHANGEFEED, EVENT STORE or PROJECTION, "
        "found 'TABEL' at line 1, column 6\n"
        "hint: did you mean TABLE? "
        "write DROP TABLE | VIEW | MATERIALIZED VIEW | FLOW | EVENT STORE | PROJECTION [IF EXISTS] x "
        "[RESTRICT | CASCADE] | DROP SOURCE | CHANGEFEED [IF EXISTS] x"
    )


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        (
            "SHOW CREATE CHANGEFEED f",
            "SHOW CREATE is not offered",
            "SHOW CHANGEFEEDS has its sink, location and options",
        ),
        ("SHOW CREATE SOURCE s", "SHOW CREATE is not offered", "SHOW SOURCES has its connector, location and options"),
        ("SHOW CREATE TABLE t", "SHOW CREATE is not offered", "write DESCRIBE x"),
        ("SHOW EVENT STORES", "SHOW EVENT STORES is not offered", "write SHOW TABLES; they are among them"),
        ("SHOW PROJECTIONS", "SHOW PROJECTIONS is not offered", "write SHOW VIEWS; they are among them"),
        (
            "DESCRIBE CHANGEFEED f",
            "DESCRIBE CHANGEFEED is not offered",
            "write SHOW CHANGEFEEDS, which has all of each",
        ),
        ("DESC SOURCE s", "DESCRIBE SOURCE is not offered", "write SHOW SOURCES, which has all of each"),
    ],
)
def test_who_asks_for_one_feed_store_or_source_hears_where_it_is_told(sql: str, message: str, hint: str) -> None:
    error = refused(sql)
    assert isinstance(error, UnsupportedStatement)
    assert error.message.startswith(message)
    assert error.hint == hint


def test_a_table_may_have_the_name_of_what_is_described() -> None:
    assert [one.sql for one in parse("DESCRIBE changefeed; DESCRIBE source")] == [
        "DESCRIBE changefeed",
        "DESCRIBE source",
    ]
