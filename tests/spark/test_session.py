from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.settings import Settings
from headrace.spark.session import large_session, small_session, start_spark


def test_small_and_large_share_delta_but_not_settings(tmp_path: Path) -> None:
    given = start_spark(Settings())
    before = given.conf.get("spark.sql.shuffle.partitions")
    small, large = small_session(given), large_session(given)
    small.range(10).write.format("delta").save(str(tmp_path / "t"))
    assert large.read.format("delta").load(str(tmp_path / "t")).count() == 10
    assert small.conf.get("spark.sql.adaptive.enabled") == "false"
    assert large.conf.get("spark.sql.adaptive.enabled") == "true"
    assert {session.conf.get("spark.sql.session.timeZone") for session in (small, large)} == {"UTC"}
    assert {session.conf.get("spark.sql.ansi.enabled") for session in (small, large)} == {"true"}
    assert given.conf.get("spark.sql.shuffle.partitions") == before


def test_what_is_loaded_is_left_to_the_collector_of_who_started_spark(spark: Any) -> None:
    assert gc.get_freeze_count() == 0


def test_a_running_spark_is_taken_as_it_is() -> None:
    assert start_spark(Settings()).sparkContext is start_spark(Settings(spark_memory="1g")).sparkContext


def test_a_query_in_a_thread_of_its_own_is_read_by_the_settings_of_its_session(home: Any) -> None:
    with ThreadPoolExecutor(1) as other:
        assert other.submit(home.query, "SELECT '${env:PATH}' AS a").result().to_pylist() == [{"a": "${env:PATH}"}]


def test_the_session_that_is_given_stays_as_it_is(tmp_path: Path) -> None:
    import headrace

    given = start_spark(Settings()).newSession()
    given.conf.set("spark.sql.ansi.enabled", "false")
    given.conf.set("spark.sql.session.timeZone", "America/New_York")
    given.range(1).createOrReplaceTempView("mine")
    sessions: Any = given._jvm.org.apache.spark.sql.classic.SparkSession
    sessions.setActiveSession(given._jsparkSession)
    context = given.sparkContext

    def state() -> tuple[Any, ...]:
        active = sessions.getActiveSession().get()
        made_of_rdd = context.parallelize([(1,)]).toDF(["a"]).sparkSession
        tags, tables = context.getJobTags(), [one.name for one in given.catalog.listTables()]
        return dict(given.conf.getAll), active.equals(given._jsparkSession), made_of_rdd is given, tags, tables

    # PySpark itself lets RDDs become frames of the session that was made last.
    before = (*state()[:2], True, *state()[3:])
    with headrace.open(tmp_path / "home", spark=given) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); CREATE VIEW v AS SELECT a + 1 AS b FROM t WHERE a > 0")
        hr.apply({"t": [{"insert": {"id": 1, "a": 7}}]})
        assert hr.query("SELECT sum(b) AS s FROM v").to_pylist() == [{"s": 8}]
        hr.execute("UPDATE t SET a = a + 1")
        assert hr.verify().ok
        # By the settings of our sessions: ANSI arithmetic fails, where that of the one given would wrap around.
        with pytest.raises(headrace.ViewEvaluationError):
            hr.apply({"t": [{"insert": {"id": 2, "a": 2**31 - 1}}]})
        assert state() == before
    assert state() == before


def test_settings_that_would_change_what_a_view_means_do_not_hold_in_our_sessions() -> None:
    given = start_spark(Settings())
    # What a Spark was started with holds in each new session of it.
    started_with: Any = given.sparkContext._jsc.sc().conf()  # pyright: ignore
    changed = {
        "spark.sql.caseSensitive": ("true", "false"),
        "spark.sql.files.ignoreMissingFiles": ("true", "false"),
        "spark.sql.files.ignoreCorruptFiles": ("true", "false"),
        "spark.sql.files.maxPartitionBytes": ("7654321", "7654321"),
    }
    for name, (value, _) in changed.items():
        started_with.set(name, value)
    try:
        for session in (small_session(given), large_session(given)):
            assert [session.conf.get(name) for name in changed] == [value for _, value in changed.values()]
            catalog = "spark.sql.catalog.spark_catalog"
            assert session.conf.get(catalog) == given.conf.get(catalog)
    finally:
        for name in changed:
            started_with.remove(name)


def test_a_session_is_tuned_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any = start_spark(Settings())
    client = given._jvm._gateway_client
    send, calls = client.send_command, list[str]()

    def counted(command: str, *arguments: Any, **named: Any) -> Any:
        # What is let go of is told by the garbage collector, whenever that comes.
        if not command.startswith("m\nd\n"):
            calls.append(command)
        return send(command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", counted)
    small_session(given)
    # Some twenty settings are set, and about as many unset; PySpark asks three times for each of all that there are.
    assert len(calls) < 90, len(calls)
