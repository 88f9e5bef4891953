from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
