"""Lines of the log say in fields of their own which source, feed or view they are about, and after which epoch."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import headrace
from headrace.cli.log import JsonLines, TextLines
from tests.bare_home import BareHome
from tests.small_sources import runner_over, source_home
from tests.waiting import until

SOURCE = Path(headrace.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception"}


def test_a_line_about_a_source_carries_it_and_the_epoch(caplog: pytest.LogCaptureFixture) -> None:
    host = source_home()
    runner = runner_over(host, [{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    with caplog.at_level("DEBUG", "headrace"):
        runner.start()
        try:
            until(lambda: any("records came" in one.message for one in caplog.records))
        finally:
            runner.stop()
    came = next(one for one in caplog.records if "records came" in one.message)
    told = json.loads(JsonLines().format(came))
    assert (told["source"], told["epoch"], told["level"]) == ("s", host.epoch, "debug")
    epoch = next(one for one in caplog.records if one.name == "headrace.epochs")
    assert json.loads(JsonLines().format(epoch))["epoch"] == host.epoch
    assert " source=s" in TextLines().format(came)


def test_a_line_about_a_feed_carries_it_its_relation_and_the_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = BareHome(tmp_path / "home")
    try:
        home.create_table("t", StructType([StructField("id", LongType(), False)]), ("id",))
        (tmp_path / "file").write_text("no folder")
        with caplog.at_level("WARNING", "headrace.feeds"):
            home.execute(
                f"CREATE CHANGEFEED f FOR TABLE t INTO FILES '{tmp_path / 'file/out'}' WITH (flush_interval_ms = 5)"
            )
            home.apply({"t": [{"insert": {"id": 1}}]})
            until(lambda: bool(caplog.records))
    finally:
        home.close()
    told = json.loads(JsonLines().format(caplog.records[0]))
    assert (told["feed"], told["relation"]) == ("f", "t")
    assert 1 <= told["epoch"] <= home.epoch


@pytest.mark.parametrize("folder", ["sources", "feeds", "capture/debezium"])
def test_whatever_a_source_or_a_feed_logs_says_whose_it_is(folder: str) -> None:
    without = [
        f"{path.name}:{node.lineno}"
        for path in sorted((SOURCE / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "_log"
        and not any(keyword.arg == "extra" for keyword in node.keywords)
    ]
    assert without == []


def test_a_field_never_stands_in_for_one_of_logging_itself() -> None:
    record = logging.LogRecord("headrace.x", logging.INFO, __file__, 1, "told\n\x1b[31m", (), None)
    record.source, record.feed, record.view = "s", "f", "v"
    told = json.loads(JsonLines().format(record))
    assert {"source": "s", "feed": "f", "view": "v"}.items() <= told.items()
    assert "\n" not in TextLines().format(record)
