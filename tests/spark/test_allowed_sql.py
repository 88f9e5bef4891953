"""SQL from outside is judged by Spark's plan of it: nothing but what is listed passes, wherever SQL may stand."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.errors import (
    FeedError,
    HeadraceError,
    QueryError,
    RelationNameError,
    StatementError,
    UnsupportedStatement,
    ViewError,
)
from headrace.face import home_of
from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import survey
from headrace.sql import allowed
from headrace.sql.allowed import analyze
from headrace.sql.allowed_functions import FUNCTIONS, OPTIONED, REFUSED, REFUSED_TABLE_FUNCTIONS, TABLE_FUNCTIONS

TRANSFORM = "SELECT TRANSFORM(a) USING 'touch {file}' AS (b STRING) FROM (VALUES (1)) AS v(a)"
PROGRAMS = (
    TRANSFORM,
    f"SELECT * FROM ( /* /*+ */ {TRANSFORM} -- */\n )",
    f"SELECT /*+ h('*/ ') */ * FROM ({TRANSFORM}) -- '\n",
    "SELECT * FROM (MAP a USING 'touch {file}' AS (b STRING) FROM (VALUES (1)) AS v(a))",
    "FROM t SELECT TRANSFORM(id) USING 'touch {file}'",
    f"WITH w AS ({TRANSFORM}) SELECT * FROM w",
    f"SELECT (SELECT max(b) FROM ({TRANSFORM})) AS m",
    f"SELECT 1 WHERE EXISTS ({TRANSFORM})",
    f"SELECT 1 WHERE 1 IN ({TRANSFORM})",
    f"SELECT * FROM t, LATERAL ({TRANSFORM})",
    f"SELECT 1 UNION ALL {TRANSFORM}",
)
FILES = (
    "SELECT * FROM table_changes_by_path('{delta}', 0)",
    "SELECT * FROM system.builtin.table_changes_by_path('{delta}', 0)",
    "SELECT * FROM table_changes('t', 0)",
    "SELECT * FROM delta.`{delta}`",
    "SELECT * FROM delta.`{delta}@v0`",
    "SELECT * FROM spark_catalog.delta.`{delta}`",
    "SELECT * FROM parquet.`{delta}`",
    "SELECT * FROM text.`{file}`",
    "SELECT * FROM csv.`file://{file}`",
    "SELECT * FROM json.`{file}`",
    "SELECT * FROM xml.`{file}`",
    "SELECT * FROM binaryFile.`{file}`",
    "TABLE text.`{file}`",
    "FROM text.`{file}` SELECT *",
    "WITH w AS (SELECT * FROM text.`{file}`) SELECT * FROM w",
    "SELECT * FROM IDENTIFIER('text.`{file}`')",
    "SELECT * FROM IDENTIFIER(concat('text.`', '{file}`'))",
    "SELECT * FROM read_files('{file}')",
    "SELECT * FROM t WITH (path = '{file}')",
    "SELECT from_xml('<p/>', 'a STRING', map('rowValidationXSDPath', '{file}'))",
    "SELECT from_xml('<p/>', 'a STRING', map('rowvalidationxsdpath', '{file}'))",
    "SELECT from_xml('<p/>', 'a STRING', map(concat('rowValidation', 'XSDPath'), '{file}'))",
    "SELECT from_xml('<p/>', 'a STRING', map_from_arrays(array('rowValidationXSDPath'), array('{file}')))",
    "SELECT from_xml('<p/>', 'a STRING', options => map('rowValidationXSDPath', '{file}'))",
    "SELECT schema_of_xml('<p/>', map('rowValidationXSDPath', '{file}'))",
    "SELECT from_xml('<p/>', schema_of_xml('<p/>', map('rowValidationXSDPath', '{file}')))",
    "SELECT from_json('1', 'a INT', map('compression', 'java.lang.Runtime'))",
    "SELECT from_json('1', 'a INT', MAP('compression', 'java.lang.Runtime'))",
    "SELECT from_protobuf(X'00', 'Person', '{file}', map())",
    "SELECT to_protobuf(struct(1 AS a), 'Person', '{file}')",
    "SELECT from_avro(X'00', '\"int\"', map('avroSchemaUrl', '{file}'))",
)
SURROUNDINGS = (
    "SELECT current_user()",
    "SELECT current_user",
    "SELECT user()",
    "SELECT session_user()",
    "SELECT session_user",
    "SELECT version()",
    "SELECT builtin.version()",
    "SELECT system.builtin.current_database()",
    "SELECT current_schema(), current_catalog()",
    "SELECT input_file_name() FROM t",
    "SELECT input_file_block_start() FROM t",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM sql_keywords()",
    "SELECT _metadata.file_path FROM t",
    "SELECT monotonically_increasing_id() FROM t",
    "SELECT reflect('java.lang.System', 'exit', 1)",
    "SELECT java_method('java.lang.Runtime', 'getRuntime')",
    "SELECT try_reflect('java.util.UUID', 'randomUUID')",
    "SELECT system.builtin.reflect('java.util.UUID', 'randomUUID')",
    "SELECT IDENTIFIER('reflect')('java.util.UUID', 'randomUUID')",
    "SELECT IDENTIFIER('upper')('a')",
    "SELECT :p",
    "SELECT ?",
    "SELECT * FROM STREAM t",
    "SELECT * FROM spark_catalog.default.t",
    "SELECT * FROM information_schema.tables",
)
HARMLESS = (
    "SELECT a.id, upper(a.s), count(*) FROM t a JOIN t b ON a.id = b.id WHERE a.s LIKE 'x%' GROUP BY 1, 2 ORDER BY 3",
    "SELECT * FROM range(3) LEFT JOIN t USING (id) NATURAL JOIN range(2)",
    "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r WHERE a < 3) SELECT * FROM r",
    "SELECT * FROM t LATERAL VIEW OUTER explode(array(2)) x AS y",
    "SELECT * FROM (SELECT 1 AS y, 2 AS x) PIVOT (sum(x) FOR y IN (1, 2))",
    "SELECT * FROM (SELECT 1 AS a, 2 AS b) UNPIVOT (v FOR n IN (a, b))",
    "SELECT sum(id) OVER w, lag(id, 1) OVER (ORDER BY id), count(*) FILTER (WHERE id > 1) OVER w FROM t WINDOW w AS "
    "(PARTITION BY s ORDER BY id ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING)",
    "SELECT s, grouping(s), sum(id) FROM t GROUP BY CUBE (s) HAVING count(*) >= 0 ORDER BY ALL LIMIT 3 OFFSET 1",
    "SELECT DISTINCT s FROM t UNION SELECT 'a' EXCEPT ALL SELECT 'b' INTERSECT SELECT 'c'",
    "SELECT id BETWEEN 1 AND 2, id IN (1, 2), id IN (SELECT id FROM t), NOT EXISTS (SELECT 1), s RLIKE 'x' FROM t",
    "SELECT t.id, u.n FROM t, LATERAL (SELECT t.id + 1 AS n) u",
    "SELECT s LIKE ANY ('a', 'b'), s NOT LIKE ALL ('a', 'b'), -id, +id, ~id, id | 1, id <=> NULL, "
    "struct(id, s), s IS DISTINCT FROM 'a' FROM t",
    "SELECT DATE '2020-01-01' + INTERVAL 1 DAY, TIMESTAMP '2020-01-01 00:00:00' - INTERVAL '1' YEAR, "
    "extract(YEAR FROM DATE '2020-01-01'), timestampadd(DAY, 1, now()), current_date, CAST('1' AS INT), '1'::BIGINT, "
    "TIMESTAMP '2020-01-01 00:00:00' - TIMESTAMP '2019-01-01 00:00:00', INTERVAL 1 DAY * 2, "
    "CAST(INTERVAL 1 MONTH / 2 AS STRING), "
    "DATE '2020-01-02' - DATE '2020-01-01', try_cast('x' AS INT), EXTRACT(HOUR FROM INTERVAL '5' HOUR)",
    "SELECT substring(s FROM 1 FOR 2), trim(BOTH 'x' FROM s), position('a' IN s), overlay(s PLACING 'x' FROM 1), "
    "CASE s WHEN 'a' THEN 1 ELSE 2 END, CASE WHEN id > 1 THEN 1 END FROM t",
    "SELECT transform(array(1, 2), x -> x + 1), aggregate(array(1), 0, (a, b) -> a + b), array(1)[0], "
    "map('a', 1)['a'], named_struct('a', 1).a, (1, 2), array(named_struct('a', 1)).a, count(DISTINCT id, s) FROM t",
    "SELECT listagg(s, ',') WITHIN GROUP (ORDER BY id), percentile_cont(0.5) WITHIN GROUP (ORDER BY id), mode(s), "
    "first(s) IGNORE NULLS, max_by(s, id) FROM t",
    "SELECT from_json('{\"a\":1}', 'a INT', map('mode', 'FAILFAST')), from_csv('1', 'a INT', map('sep', ';')), "
    "from_json('{}', 'a INT', MAP('mode', 'FAILFAST')), from_json('{}', 'a INT', builtin.Map('mode', 'FAILFAST')), "
    "to_json(map('a', 1)), from_xml('<p><a>1</a></p>', 'a INT'), parse_json('[1]'):[0]",
    "SELECT * FROM t |> WHERE id > 3 |> AGGREGATE sum(id) AS n GROUP BY s |> SET n = 1 |> DROP s",
    "SELECT /*+ BROADCAST(t), REPARTITION(2) */ * FROM t TABLESAMPLE (3 ROWS) DISTRIBUTE BY id SORT BY id",
    "FROM t SELECT id QUALIFY row_number() OVER (ORDER BY id) = 1",
    "SELECT s COLLATE UTF8_LCASE, window(now(), '1 hour').start, builtin.upper(s), system.builtin.lower(s) FROM t",
    "VALUES (1, now()), (2, NULL)",
    "SELECT * FROM IDENTIFIER('t')",
    "SELECT * FROM explode(array(1, 2)) AS e(x), stack(2, 1, 2), json_tuple('{}', 'a')",
    "SELECT * FROM variant_explode(parse_json('[1]')), posexplode(array(1)), inline(array(struct(1)))",
    "TABLE t",
)


@pytest.fixture(scope="module")
def hr(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with headrace.open(str(tmp_path_factory.mktemp("allowed") / "home"), spark=spark) as opened:
        opened.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
        opened.apply({"t": [{"insert": {"id": 1, "s": "a"}}]})
        yield opened


@pytest.fixture(scope="module")
def delta(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Delta table that is none of the home's."""
    path = str(tmp_path_factory.mktemp("elsewhere") / "table")
    frame = spark.range(3)
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    return path


def everywhere(query: str) -> Iterator[str]:
    """Statements that have the query in each place where SQL may stand."""
    yield query
    yield f"EXPLAIN {query}"
    yield f"CREATE VIEW refused AS {query}"
    yield f"EXPLAIN CREATE VIEW refused AS {query}"
    yield f"INSERT INTO t {query}"
    if query.startswith("SELECT "):
        yield f"INSERT INTO t VALUES (({query}), 'x')"
        yield f"UPDATE t SET s = ({query})"
        yield f"DELETE FROM t WHERE 1 = ({query})"
        yield f"SELECT * FROM t TIMESTAMP AS OF ({query})"


def refused(hr: Any, sql: str) -> HeadraceError:
    with pytest.raises((StatementError, QueryError, RelationNameError)) as caught:
        hr.execute(sql)
    error = caught.value
    assert isinstance(error, HeadraceError)
    assert error.hint, error
    return error


@pytest.mark.parametrize("query", PROGRAMS)
def test_no_statement_runs_a_program(hr: Any, tmp_path: Path, query: str) -> None:
    file = tmp_path / "made"
    for sql in everywhere(query.format(file=file)):
        assert "runs no programs" in refused(hr, sql).message, sql
    assert not file.exists()
    assert hr.query("SELECT * FROM t").num_rows == 1


@pytest.mark.parametrize("query", FILES)
def test_no_statement_reads_files(hr: Any, tmp_path: Path, delta: str, query: str) -> None:
    file = tmp_path / "text"
    file.write_text("secret")
    for sql in everywhere(query.format(file=file, delta=delta)):
        error = refused(hr, sql)
        assert "secret" not in str(error), sql
        assert "Content is not allowed" not in str(error), sql
    assert hr.query("SELECT * FROM t").num_rows == 1


@pytest.mark.parametrize("query", SURROUNDINGS)
def test_no_statement_tells_about_the_process(hr: Any, query: str) -> None:
    for sql in everywhere(query):
        refused(hr, sql)


@pytest.mark.parametrize("query", HARMLESS)
def test_what_is_listed_passes(hr: Any, query: str) -> None:
    hr.query(query)


def test_refusals_name_their_cause_and_its_place(hr: Any) -> None:
    error = refused(hr, "SELECT 1,\n  version() AS v")
    assert isinstance(error, UnsupportedStatement)
    assert error.message == "version() is not offered"
    assert (error.line, error.column) == (2, 3)
    changes = refused(hr, "SELECT * FROM table_changes('t', 5)")
    assert "hr.changes" in changes.hint
    assert "GET /v1/changes" in changes.hint
    unknown = refused(hr, "SELECT uper('a')")
    assert unknown.message == "unknown function uper()"
    assert unknown.hint == "did you mean upper()?"
    option = refused(hr, "SELECT from_xml('<p/>', 'a INT', map('rowValidationXSDPath', 'x'))")
    assert option.message == "the option rowValidationXSDPath is not offered"
    strange = refused(hr, "SELECT * FROM `a\x1fb` x JOIN t ON true")
    assert isinstance(strange, RelationNameError)


@pytest.fixture
def theirs(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Names of what the given Spark keeps in its catalog: a view, a table, and a view of what is gone."""
    spark.sql("CREATE VIEW their_view AS SELECT id, 'secret' AS s FROM range(3)")
    spark.sql(f"CREATE TABLE their_table (id BIGINT, s STRING) USING parquet LOCATION '{tmp_path / 'table'}'")
    spark.sql("CREATE VIEW their_broken_view AS SELECT * FROM their_table")
    spark.sql("ALTER TABLE their_table RENAME TO their_renamed")
    try:
        yield "their_view", "their_renamed", "their_broken_view"
    finally:
        spark.sql("DROP VIEW their_view")
        spark.sql("DROP VIEW their_broken_view")
        spark.sql("DROP TABLE their_renamed")


OUTSIDE = (
    "SELECT * FROM {}",
    "SELECT max(id) FROM {}",
    "SELECT * FROM t WHERE id IN (SELECT id FROM {})",
    "WITH w AS (SELECT * FROM {}) SELECT 1",
    "SELECT * FROM (WITH {} AS (SELECT 1 AS a) SELECT * FROM {}) CROSS JOIN {}",
)


@pytest.mark.parametrize("query", OUTSIDE)
def test_what_the_given_spark_keeps_is_unknown(hr: Any, theirs: tuple[str, ...], query: str) -> None:
    """A view of it would mean another thing, or nothing, with the next Spark; and nobody is told what there is."""
    for name in theirs:
        written, unknown = (query.replace("{}", one) for one in (name, "x" * len(name)))
        for sql, same in zip(everywhere(written), everywhere(unknown), strict=True):
            error = refused(hr, sql)
            assert isinstance(error, RelationNameError), sql
            assert str(error) == str(refused(hr, same)).replace("x" * len(name), name), sql


def test_a_filter_knows_nothing_of_what_the_given_spark_keeps(hr: Any, tmp_path: Path, theirs: tuple[str, ...]) -> None:
    for name in theirs:
        condition = f"id IN (SELECT id FROM {name})"
        with pytest.raises(FeedError, match="is no condition over t") as caught:
            hr.execute(f"CREATE CHANGEFEED f FOR TABLE t INTO FILES '{tmp_path}' WITH (filter = '{condition}')")
        assert "unknown table or view" in caught.value.detail


def test_names_of_a_query_are_its_own_whatever_the_given_spark_keeps(hr: Any, theirs: tuple[str, ...]) -> None:
    one = [{"a": 1}]
    for name in theirs:
        assert hr.query(f"WITH {name} AS (SELECT 1 AS a) SELECT * FROM {name.upper()}").to_pylist() == one
        assert hr.query(f"SELECT {name}.a FROM (VALUES (1)) AS {name}(a)").to_pylist() == one
        with_two = f"WITH w AS (WITH {name} AS (SELECT 1 AS a) SELECT a FROM {name}), {name} AS (SELECT a FROM w)"
        assert hr.query(f"{with_two} SELECT (SELECT max(a) FROM {name}) AS a").to_pylist() == one
        counting = f"WITH RECURSIVE {name} AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM {name} WHERE a < 3)"
        assert hr.query(f"{counting} SELECT min(a) AS a FROM {name}").to_pylist() == one
        try:
            hr.execute(f"CREATE TABLE {name} (a INT PRIMARY KEY)")
            hr.apply({name: [{"insert": {"a": 1}}]})
            hr.execute(f"CREATE VIEW over_it AS SELECT * FROM {name}")
            assert hr.query("SELECT * FROM over_it").to_pylist() == one
        finally:
            hr.execute(f"DROP VIEW over_it; DROP TABLE {name}")


def test_functions_of_users_are_none_of_ours(hr: Any) -> None:
    session = home_of(hr).core.sessions.catalyst.session
    session.udf.register("mine", lambda: "ran")
    session.udf.register("upper", lambda text: "ran")
    try:
        unknown = refused(hr, "SELECT mine()")
        assert "no functions of users" in unknown.detail
        assert hr.query("SELECT upper('a') AS a").to_pylist() == [{"a": "A"}]
    finally:
        session.sql("DROP TEMPORARY FUNCTION mine")
        session.sql("DROP TEMPORARY FUNCTION upper")


def test_documents_inside_of_a_query_open_no_files(hr: Any, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("secret")
    document = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{file}">]><a>&x;</a>'
    for call in (
        f"xpath_string('{document}', '/a')",
        f"from_xml('{document}', 'a STRING')",
        f"schema_of_xml('{document}')",
    ):
        try:
            told = str(hr.query(f"SELECT {call} AS x").to_pylist())
        except HeadraceError as error:
            told = str(error)
        assert "secret" not in told


def test_every_function_of_spark_is_listed_or_refused(hr: Any) -> None:
    """A new release brings functions: each must be thought through before it passes."""
    catalog = (
        home_of(hr)
        .core.sessions.catalyst.module("org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry")
        .builtin()
    )
    names = catalog.listFunction()
    tables = {names.apply(i).funcName() for i in range(names.size())}
    functions = {name for names in home_of(hr).core.sessions.catalyst.functions_by_class.values() for name in names}
    assert functions - FUNCTIONS - set(REFUSED) == set()
    assert (FUNCTIONS | set(REFUSED)) - functions == set()
    assert not FUNCTIONS & set(REFUSED)
    assert tables - TABLE_FUNCTIONS - set(REFUSED_TABLE_FUNCTIONS) == set()


@pytest.mark.slow
def test_the_examples_of_every_listed_function_pass(hr: Any) -> None:
    """Spark's own examples of its functions resolve to nothing but what is listed."""
    registry = (
        home_of(hr).core.sessions.catalyst.module("org.apache.spark.sql.catalyst.analysis.FunctionRegistry").builtin()
    )
    names = registry.listFunction()
    passed, faults = 0, list[str]()
    for i in range(names.size()):
        name = names.apply(i).funcName()
        text = registry.lookupFunction(names.apply(i)).get().getExamples()
        for query in re.findall(r"^\s*> (SELECT .*?);\s*$", text, re.DOTALL | re.MULTILINE):
            try:
                analyze(home_of(hr).core.sessions.catalyst, query)
                passed += 1
                if name in REFUSED:
                    faults.append(f"{name} passed: {query}")
            except HeadraceError as error:
                known = "TIME is not supported" in str(error) or any(
                    f"{one}() is not offered" in str(error) for one in REFUSED
                )
                if not known:
                    faults.append(f"{name}: {query}: {error}")
    assert faults == []
    assert passed > 800


def test_the_judgement_takes_one_message_to_the_jvm_for_each_look(hr: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    catalyst, query = home_of(hr).core.sessions.catalyst, HARMLESS[6]
    parsed, resolved = catalyst.parse_query(query), analyze(catalyst, query)
    client, mine = parsed._gateway_client, threading.current_thread()
    send, calls = client.send_command, list[str]()

    def noted(command: str, *given: Any, **options: Any) -> Any:
        # Those of the garbage collector, which begin with m, may come at any time.
        if threading.current_thread() is mine and not command.startswith("m"):
            calls.append(command)
        return send(command, *given, **options)

    monkeypatch.setattr(client, "send_command", noted)
    assert len(survey(parsed, OPTIONED)) > 10
    assert len(calls) == 1
    assert len(survey(resolved)) > 10
    assert len(calls) == 2


def test_a_stored_view_of_what_the_given_spark_keeps_is_named_when_the_home_opens(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: tuple[str, ...]
) -> None:
    path = str(tmp_path / "home")
    with monkeypatch.context() as older, headrace.open(path, spark=spark) as opened:
        older.setattr(Catalyst, "has_temporary_view", lambda *_: True)
        older.setattr(allowed, "_resolved_fault", lambda catalyst, part: None)
        opened.execute(f"CREATE VIEW over_it AS SELECT count(*) AS n FROM {theirs[0]}")
    with pytest.raises(ViewError, match="view over_it uses what SQL may no longer do") as caught:
        headrace.open(path, spark=spark)
    assert f"There is no table or view {theirs[0]}" in caught.value.detail


def test_a_stored_view_that_is_refused_now_is_named_when_the_home_opens(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "home")
    with monkeypatch.context() as older, headrace.open(path, spark=spark) as opened:
        older.setattr(allowed, "_parsed_fault", lambda part: None)
        older.setattr(allowed, "_resolved_fault", lambda catalyst, part: None)
        opened.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); CREATE VIEW told AS SELECT id, version() AS v FROM t")
    with pytest.raises(ViewError, match="view told uses what SQL may no longer do") as caught:
        headrace.open(path, spark=spark)
    assert "version() is not offered" in caught.value.detail
    assert "drop told" in caught.value.hint
