"""Faults around a source: each is told by its source, is tried again if that may help, and stops no other."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.types import BooleanType, DecimalType, DoubleType, IntegerType, StringType

from headrace.capture.connector import Arrival, Connector, Description, Lag, Position
from headrace.capture.formats.text_rows import spelled
from headrace.capture.messages import RowChange
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.errors import SourceError, SourceUnavailable
from headrace.sources import runner as runner_module
from headrace.sources.connectors import CONNECTORS
from headrace.sources.dead_letters import Filter, find_letters
from headrace.sources.dead_letters import replay as replay_letters
from headrace.sources.intake import Progress
from headrace.sources.replay import replay_source
from headrace.sources.running import Sources
from headrace.sources.secrets import refuse_plain_secrets
from headrace.sources.system_tables import dead_letters_table, progress_table, raw_table
from headrace.sql.statements import parse
from tests.small_engine import Host, rows, table
from tests.small_sources import Listed, inserts, runner_of
from tests.unit.test_raw_kept import change, home, running
from tests.waiting import until


@pytest.mark.thorough
def test_a_source_without_its_secret_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    (tmp_path / "1.ndjson").write_text('{"insert": {"id": 1, "n": 1}}\n')
    host: Any = Host(table("t"), progress_table(), dead_letters_table(), raw_table("files"), raw_table("shop"))
    options = {"kafka.sasl.password": "env:SHOP_PASSWORD"}
    shop = Source("shop", "t", "kafka", "127.0.0.1:1/shop", "", options, state="Running")
    folder = Source("files", "t", "files", str(tmp_path), "", {}, state="Running")
    host.catalog = replace(host.catalog, sources={"shop": shop, "files": folder})
    sources = Sources(Loop(host))
    try:
        sources.reconcile()
        until(lambda: host.holds("t") == {(1, 1)})
        status = sources.status_of(shop)
        assert status.state == "Error"
        assert "The environment has no SHOP_PASSWORD" in str(status.error)
        monkeypatch.setenv("SHOP_PASSWORD", "x")
        sources.restart("shop")
        assert sources.status_of(shop).state == "Running"
    finally:
        sources.close()


class Failing:
    """A source that works for a while, and fails then."""

    def __init__(self, *_: object) -> None:
        self._fails_at = time.monotonic() + 0.1

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        time.sleep(0.01)
        if time.monotonic() > self._fails_at:
            raise SourceUnavailable("it does not answer")
        return ()

    def confirm(self, position: Position) -> None:
        pass

    def lag(self) -> Lag:
        return Lag()

    def close(self) -> None:
        pass


def test_one_that_worked_for_a_while_is_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner_module, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(runner_module, "_FIRST_PAUSE", 0.02)
    host: Any = home()
    connector = Connector("FAILING", {}, Failing)
    source = Source("s", "t", "failing", "", "", {}, state="Running")
    runner = runner_module.Runner(
        Loop(host), source, connector, Description("s", ""), lambda _: "t", cast("Any", None), Progress
    )
    with caplog.at_level(logging.WARNING, "headrace.sources"):
        runner.start()
        until(lambda: len(caplog.records) >= 4)
        runner.stop()
    assert {cast("Any", one.args)[1] for one in caplog.records} == {0.02}


@pytest.mark.parametrize("verb", ["open", "poll", "confirm", "lag", "close"])
@pytest.mark.parametrize("error", [SystemExit, GeneratorExit])
def test_a_source_that_would_end_its_thread_says_so_instead(verb: str, error: type[BaseException]) -> None:
    def end(*_: Any) -> Any:
        raise error("3")

    class Ending(Listed):
        def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
            if verb == "close" and not self._left:
                raise SourceUnavailable("it does not answer")
            return super().poll(most, seconds)

    if verb != "open":
        setattr(Ending, verb, end)
    connector = Connector("ENDING", {}, end if verb == "open" else partial(Ending, inserts([{"id": 1, "n": 1}])))
    host: Any = home()
    runner = runner_of(Loop(host), Source("s", "t", "ending", "", "", {}, state="Running"), connector)
    runner.start()
    until(lambda: runner.has_ended)
    assert (runner.status.state, runner.status.error) == ("Error", f"{error.__name__}: 3")


def test_one_that_was_told_to_stop_is_not_said_to_be_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Stopped(Listed):
        def lag(self) -> Lag:
            # Its batch has been read, and is on its way.
            runner.stop(wait=False)
            return super().lag()

    host: Any = home()
    connector = Connector("STOPPED", {}, partial(Stopped, inserts([{"id": 1, "n": 1}])))
    runner = runner_of(Loop(host), Source("s", "t", "stopped", "", "", {}, state="Running"), connector)
    with caplog.at_level(logging.WARNING, "headrace.sources"):
        runner.start()
        until(lambda: runner.has_ended)
    assert (host.holds("t"), caplog.messages) == (set(), [])


def test_one_whose_last_reader_does_not_end_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner_module, "_LATE_SECONDS", 0.02)
    polled, over = threading.Event(), threading.Event()

    class Hanging(Listed):
        def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
            polled.set()
            over.wait(600)
            return super().poll(most, seconds)

    monkeypatch.setitem(
        cast("Any", CONNECTORS), "hanging", Connector("HANGING", {}, partial(Hanging, inserts([{"id": 1, "n": 1}])))
    )
    host: Any = home()
    source = Source("s", "t", "hanging", "", "", {}, state="Running")
    host.catalog = replace(host.catalog, sources={"s": source})
    sources = Sources(Loop(host))
    try:
        sources.reconcile()
        assert polled.wait(90)
        sources.restart("s")
        until(lambda: sources.status_of(source).error is not None)
        status = sources.status_of(source)
        assert "waits for its last reader" in str(status.error)
        assert status.failing_since is not None
        assert status.lag_seconds is not None
        over.set()
        until(lambda: host.holds("t") == {(1, 1)})
        until(lambda: sources.status_of(source).failing_since is None)
        assert sources.status_of(source).error is None
        # Once, however long it takes.
        assert len([one for one in caplog.messages if "cannot begin" in one]) == 1
    finally:
        over.set()
        sources.close()


def test_letters_of_a_source_without_a_format_are_replayed() -> None:
    host: Any = home()
    given = [{"id": 1, "n": "one"}, {"id": 2, "n": 2}]

    class Rows(Failing):
        def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
            time.sleep(0.01)
            arrivals = [
                Arrival(Record(b"", topic="d", offset=at), {"at": at + 1}, RowChange("create", ({"insert": row},)))
                for at, row in enumerate(given)
            ]
            given.clear()
            return arrivals

    connectors = cast("dict[str, Connector]", CONNECTORS)
    connectors["rows"] = Connector("ROWS", {}, Rows)
    source = Source("s", "t", "rows", "", "", {}, state="Running")
    host.catalog = replace(host.catalog, sources={"s": source})
    loop = Loop(host)
    sources = Sources(loop)
    try:
        sources.reconcile()
        until(lambda: host.holds("t") == {(2, 2)})
        (letter,) = find_letters(host, Filter(source="s"))
        receipt = replay_letters(loop, [{**letter, "payload": '{"insert": {"id": 1, "n": 1}}'}])
        assert receipt.applied == {"t": 1}
        assert host.holds("t") == {(1, 1), (2, 2)}
        assert not find_letters(host, Filter())
    finally:
        sources.close()
        del connectors["rows"]


def test_a_replay_of_several_tables_doubles_no_rows_of_one_without_a_key() -> None:
    host: Any = Host(table("t", key=()), progress_table(), dead_letters_table(), raw_table("s"))
    with running(host, [change("c", 10 + number, id=number, n=number) for number in range(5)]) as runner:
        until(lambda: runner.status.progress.received == 5)
        # One that brings each topic into the table of its name.
        host.catalog = replace(host.catalog, sources={"s": replace(host.catalog.sources["s"], table="")})
        (statement,) = parse("REPLAY SOURCE s")
        with pytest.raises(SourceError, match="t has no key"):
            replay_source(Loop(host), cast("Any", statement))
        assert set(rows(host.stores["t"].snapshot()).values()) == {1}


@pytest.mark.parametrize("name", ["kafka.ssl.key.pem", "api_key", "kafka.sasl.password", "credentials"])
def test_secrets_in_plain_text_are_refused(name: str) -> None:
    with pytest.raises(SourceError, match="would keep a secret"):
        refuse_plain_secrets({name: "x"})
    refuse_plain_secrets({name: "env:X", "kafka.ssl.key.location": "/x", "signal_key": "shop"})


def test_texts_of_csv_are_what_their_columns_are_and_so_are_those_of_its_letters(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes("\ufeffid,n\n1,10\n2,x\n3,\n".encode())
    host: Any = home()
    source = Source("s", "t", "files", str(tmp_path), "", {}, state="Running")
    host.catalog = replace(host.catalog, sources={"s": source})
    loop = Loop(host)
    sources = Sources(loop)
    try:
        sources.reconcile()
        until(lambda: sources.status_of(source).progress.received == 3)
        assert host.holds("t") == {(1, 10), (3, None)}
        (letter,) = find_letters(host, Filter())
        assert json.loads(letter["payload"]) == {"insert": {"id": "2", "n": "x"}}
        replay_letters(loop, [{**letter, "payload": '{"insert": {"id": "2", "n": "20"}}'}])
        assert host.holds("t") == {(1, 10), (2, 20), (3, None)}
    finally:
        sources.close()


@pytest.mark.parametrize(
    ("text", "data_type", "value"),
    [
        ("007", StringType(), "007"),
        ("-7", IntegerType(), -7),
        ("7.5", IntegerType(), "7.5"),
        ("1e3", DoubleType(), Decimal(1000)),
        ("TRUE", BooleanType(), True),
        ("yes", BooleanType(), "yes"),
        ("1.50", DecimalType(9, 2), "1.50"),
        (None, IntegerType(), None),
        ("1", None, "1"),
    ],
)
def test_a_text_spells_what_its_column_has(text: Any, data_type: Any, value: Any) -> None:
    found = spelled(text, data_type)
    assert (type(found), found) == (type(value), value)
