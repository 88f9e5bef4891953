"""Feeds and sinks that fail: nothing is lost, keys keep their order, and nobody else waits; without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from headrace.catalog.make import make_table
from headrace.definitions.adopt import adopt
from headrace.epoch.calls import Call
from headrace.errors import FeedError, RelationNameError
from headrace.feeds.files import folder_of
from headrace.feeds.parked import find_parked, page_parked, parked_table
from headrace.feeds.sinks import SINKS
from headrace.intake.table import TableContract
from headrace.statements.create import drop_relation
from tests.bare_home import BareHome
from tests.feed_receiver import Door, Receiver, create, numbers
from tests.spark.test_changefeeds import events, feed, rebuilt
from tests.waiting import until

COLUMNS = StructType([StructField("id", IntegerType(), False), StructField("n", IntegerType())])


@pytest.fixture
def table(tmp_path: Path, receiver: Receiver) -> Iterator[Any]:
    home = BareHome(tmp_path / "home")
    home.create_table("t", COLUMNS, ("id",))
    yield home
    home.close()


@pytest.mark.thorough
def test_a_sink_that_fails_gets_every_event_in_the_order_of_its_key(table: Any, receiver: Receiver) -> None:
    receiver.failing = 0.4
    create(table, ", batch_size = 3")
    for step in range(12):
        table.apply({"t": [{"insert": {"id": one, "n": step}} for one in range(step % 5 + 1)]})
    until(lambda: feed(table)["lag"] == 0 and feed(table)["last_sequence"] == max(numbers(receiver)))
    told = receiver.events()
    assert sorted(set(numbers(receiver))) == list(range(1, feed(table)["last_sequence"] + 1))
    seen: dict[int, int] = {}
    for one in told:
        # What comes again comes from there on in order.
        last = seen.get(one["key"]["id"], -1)
        assert one["new_row"]["n"] >= last or one["sequence"] <= max(numbers(receiver))
        seen[one["key"]["id"]] = one["new_row"]["n"]
    held = {row["id"]: row["n"] for row in table.query("SELECT * FROM t").to_pylist()}
    assert {one["id"]: one["n"] for one in rebuilt(told).values()} == held


def test_a_refused_event_blocks_its_key_alone_and_is_parked(
    table: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = {"id": 2, "n": 13}
    receiver.refuses = lambda event: "it is poison" if event["new_row"] == poison else None
    given_up: list[int] = []
    monkeypatch.setattr(Door, "give_up", lambda _, sequences: given_up.extend(sequences), raising=False)
    create(table, ", max_retries = 2")
    table.apply({"t": [{"insert": {"id": one, "n": 1}} for one in range(4)]})
    table.apply({"t": [{"insert": poison}]})
    table.apply({"t": [{"insert": {"id": 2, "n": 14}}, {"insert": {"id": 3, "n": 14}}]})
    until(lambda: len(receiver.events()) == 6)
    parked = table.query("SELECT * FROM parked_events").to_pylist()
    assert [(one["feed"], one["sequence"], one["key"], one["reason"], one["attempts"]) for one in parked] == [
        ("f", 5, '{"id":2}', "it is poison", 3)
    ]
    # The sink need not expect it any more.
    assert given_up == [5]
    assert json.loads(parked[0]["payload"])["new_row"] == poison
    of_two = [one["new_row"]["n"] for one in receiver.events() if one["key"]["id"] == 2]
    assert of_two == [1, 14]
    assert (feed(table)["parked"], feed(table)["last_sequence"]) == (1, 7)
    # Refused again, it stays; mended, it goes out under its own number.
    receipt = table.execute("REPLAY PARKED EVENTS")
    assert (receipt.applied, receipt.dead) == ({"parked_events": 0}, {"parked_events": 1})
    receiver.refuses = lambda _: None
    receipt = table.execute("REPLAY PARKED EVENTS")
    assert (receipt.applied, receipt.dead) == ({"parked_events": 1}, {})
    again = receiver.events()[-1]
    assert (again["sequence"], again["new_row"]) == (5, poison)
    assert table.query("SELECT * FROM parked_events").num_rows == 0


def test_a_dead_sink_holds_up_nobody_and_its_feed_goes_on_when_it_is_back(
    table: Any, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.down, receiver.retry_after = True, 0.05
    create(table)
    table.execute(f"CREATE CHANGEFEED g FOR TABLE t INTO FILES '{tmp_path}' WITH (flush_interval_ms = 5)")
    for step in range(5):
        table.apply({"t": [{"insert": {"id": step, "n": step}}]})
    until(lambda: len(events(tmp_path)) == 5)
    assert "is down" in feed(table)["error"]
    assert feed(table)["state"] == "Running"
    until(lambda: feed(table)["retries"] > 1)
    assert (feed(table, "g")["retries"], feed(table, "g")["error"]) == (0, None)
    receiver.down = False
    until(lambda: numbers(receiver) == [1, 2, 3, 4, 5])
    until(lambda: (feed(table)["error"], feed(table)["retries"]) == (None, 0))


def test_a_failure_is_over_when_nothing_is_left_to_deliver(table: Any, receiver: Receiver) -> None:
    create(table)
    until(lambda: feed(table)["lag"] == 0)
    table.execute("PAUSE CHANGEFEED f")
    receiver.down, receiver.retry_after = True, 0.01
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["retries"] > 0)
    receiver.down = False
    until(lambda: (feed(table)["error"], feed(table)["retries"]) == (None, 0))


def test_a_sink_that_ends_stops_its_feed_until_it_is_resumed(table: Any, receiver: Receiver) -> None:
    receiver.ended = "410 Gone"
    create(table)
    create(table, ", on_error = 'pause'", "g")
    table.apply({"t": [{"insert": {"id": 1, "n": 1}}]})
    until(lambda: feed(table)["state"] == "Error" and feed(table, "g")["state"] == "Paused")
    assert feed(table)["error"] == feed(table, "g")["error"] == "410 Gone"
    # That is known to the next owner too.
    until(lambda: {one.state for one in table.core.catalog.feeds.values()} == {"Error", "Paused"})
    receiver.ended = ""
    table.execute("RESUME CHANGEFEED f")
    until(lambda: numbers(receiver) == [1])
    assert feed(table)["error"] is None


def test_secrets_stand_in_nothing_that_is_shown(
    table: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FEED_URL", "postgresql://me:hunter22@db/x")
    monkeypatch.setenv("FEED_PASSWORD", "hunter33")
    receiver.down = True
    table.execute(
        "CREATE CHANGEFEED s FOR TABLE t INTO WEBHOOK 'env:FEED_URL' "
        "WITH (password = 'env:FEED_PASSWORD', note = 'env:HOME')"
    )
    until(lambda: feed(table, "s")["error"] is not None)
    assert feed(table, "s")["error"] == "env:FEED_URL is down"
    target = receiver.targets[-1]
    assert (target.location, target.options["password"]) == ("postgresql://me:hunter22@db/x", "hunter33")
    # What is no secret is no way to read the environment.
    assert target.options["note"] == "env:HOME"
    shown = str(feed(table, "s")) + caplog.text
    assert "hunter" not in shown
    assert "env:FEED_PASSWORD" in feed(table, "s")["options"]


def test_a_sink_is_named_by_its_keyword_alone(table: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FeedError, match="into MONGODB is not available") as refused:
        table.execute("CREATE CHANGEFEED m FOR TABLE t INTO MONGODB 'mongodb://h/d'")
    assert "KAFKA" in refused.value.hint
    monkeypatch.setitem(SINKS, "mongodb", receiver)  # pyright: ignore[reportArgumentType]
    table.execute("CREATE CHANGEFEED m FOR TABLE t INTO MONGODB 'mongodb://h/d'")
    table.apply({"t": [{"insert": {"id": 1}}]})
    until(lambda: numbers(receiver) == [1])


@pytest.mark.parametrize("location", ["https://hooks.example/{}?sig=hunter77", "env:HOOK_URL"])
def test_the_path_of_a_webhook_stands_in_nothing_that_is_shown(
    table: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, location: str
) -> None:
    token = "XhunterXXXXXXXXXXXXXXXXX"
    url = f"https://hooks.example/services/T0/B0/{token}?sig=hunter77"
    monkeypatch.setenv("HOOK_URL", url)
    receiver.down = True
    table.execute(
        f"CREATE CHANGEFEED s FOR TABLE t INTO WEBHOOK '{location.format(f'services/T0/B0/{token}')}' "
        "WITH (flush_interval_ms = 5, max_retries = 0)"
    )
    until(lambda: feed(table, "s")["error"] is not None)
    assert receiver.targets[-1].location == url
    receiver.ended = f"nothing at /services/T0/B0/{token}?sig=hunter77, no hook {token}"
    receiver.down = False
    table.apply({"t": [{"insert": {"id": 1}}]})
    until(lambda: feed(table, "s")["state"] == "Error")
    assert feed(table, "s")["error"] == "nothing at /***, no hook ***"
    assert "hunter" not in str(feed(table, "s")) + caplog.text


def test_a_feed_that_is_paused_for_longer_than_its_log_is_kept_says_so(table: Any, receiver: Receiver) -> None:
    create(table, ", retention_epochs = 6")
    table.apply({"t": [{"insert": {"id": 1, "n": 0}}]})
    until(lambda: numbers(receiver) == [1] and feed(table)["lag"] == 0)
    table.execute("PAUSE CHANGEFEED f")
    told = table.epoch
    for step in range(4):
        table.apply({"t": [{"insert": {"id": 1, "n": step}}]})
    # What is not told yet is kept for it, up to its limit.
    assert table.readers.protected(table.epoch) <= told
    for step in range(4):
        table.apply({"t": [{"insert": {"id": 1, "n": 10 + step}}]})
    assert table.readers.protected(table.epoch) is None
    table.core.ledger.compact(table.epoch, table.epoch - 1, lambda _: True, 0)
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["state"] == "Error")
    assert "further behind than the log is kept" in feed(table)["error"]
    table.execute("RESYNC CHANGEFEED f")
    until(lambda: [one["operation"] for one in receiver.events()][-2:] == ["RESET", "INSERT"])
    assert receiver.events()[-1]["new_row"] == {"id": 1, "n": 13}
    table.execute("DROP CHANGEFEED f")
    assert receiver.forgotten == ["f"]


@pytest.mark.thorough
def test_a_home_that_is_opened_again_goes_on_with_the_same_numbers(
    table: Any, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.failing = 0.5
    create(table, ", batch_size = 2")
    for step in range(5):
        table.apply({"t": [{"insert": {"id": one, "n": step}} for one in range(3)]})
    table.close()
    again = BareHome(tmp_path / "home")
    try:
        again.apply({"t": [{"delete": {"id": 0}}]})
        until(lambda: feed(again)["lag"] == 0 and feed(again)["last_sequence"] == 16)
        by_number: dict[int, Any] = {}
        for one in receiver.events():
            assert by_number.setdefault(one["sequence"], one) == one
        assert sorted(by_number) == list(range(1, 17))
        assert sorted(one["id"] for one in rebuilt(receiver.events()).values()) == [1, 2]
    finally:
        again.close()


def test_a_reset_after_a_restart_has_a_number_of_its_own(table: Any, receiver: Receiver, tmp_path: Path) -> None:
    create(table, ", resolved = true")
    table.apply({"t": [{"insert": {"id": 1, "n": 1}}]})
    until(lambda: numbers(receiver) == [1])
    table.execute("PAUSE CHANGEFEED f; ALTER TABLE t RENAME COLUMN n TO m; RESUME CHANGEFEED f")
    until(lambda: numbers(receiver) == [1, 2, 3])
    assert [one["operation"] for one in receiver.events()] == ["INSERT", "RESET", "INSERT"]
    assert receiver.events()[2]["new_row"] == {"id": 1, "m": 1}
    table.execute("RESYNC CHANGEFEED f")
    until(lambda: numbers(receiver) == [1, 2, 3, 4, 5])
    until(lambda: bool(receiver.resolved) and receiver.resolved[-1][0].sequence == 5)


def test_parked_events_are_of_a_feed_and_not_of_its_name(table: Any, receiver: Receiver) -> None:
    receiver.refuses = lambda event: "no" if event["key"]["id"] == 2 else None
    create(table, ", max_retries = 0")
    table.apply({"t": [{"insert": {"id": 2, "n": 1}}]})
    until(lambda: table.query("SELECT * FROM parked_events").num_rows == 1)
    table.execute("DROP CHANGEFEED f")
    create(table, ", max_retries = 0")
    until(lambda: table.query("SELECT * FROM parked_events").num_rows == 2)
    old, new = sorted(table.query("SELECT * FROM parked_events").to_pylist(), key=lambda one: one["parked_at"])
    # Both are the first of their feeds, and neither has taken the place of the other.
    assert (old["feed"], old["sequence"]) == (new["feed"], new["sequence"])
    assert (new["feed_id"], old["feed_id"] != new["feed_id"]) == (feed(table)["id"], True)
    assert [one["feed_id"] for one in find_parked(table.core, new["feed_id"])] == [new["feed_id"]]
    # The sink of the new one never had the events of the old one to take.
    receiver.refuses = lambda _: None
    receipt = table.execute("REPLAY PARKED EVENTS")
    assert (receipt.applied, receipt.dead) == ({"parked_events": 1}, {"parked_events": 1})
    (left,) = table.query("SELECT * FROM parked_events").to_pylist()
    assert (left["feed_id"], "was dropped" in left["reason"]) == (old["feed_id"], True)
    assert table.execute("DISCARD PARKED EVENTS").applied == {"parked_events": 1}


def test_a_page_of_parked_events_reads_no_others(
    table: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(table)
    rows = [
        {"insert": {"feed": name, "sequence": number, "feed_id": f"id-of-{name}", "reason": "no"}}
        for name in ("e", "f", "g")
        for number in range(1, 31)
    ]
    table.loop.submit(Call({"parked_events": rows}))
    whole = [one["sequence"] for one in find_parked(table.core, "id-of-f")]
    monkeypatch.setattr("headrace.feeds.parked.HeldRows", None)
    found: list[int] = []
    while page := page_parked(table.core, "f", "id-of-f", found[-1] if found else 0, 7):
        assert {one["feed"] for one in page} == {"f"}
        assert len(page) <= 7
        found += [one["sequence"] for one in page]
    assert found == whole == list(range(1, 31))
    assert page_parked(table.core, "h", "id-of-h", 0, 7) == []


def test_a_home_of_an_earlier_release_parks_by_name(table: Any, receiver: Receiver) -> None:
    columns = [StructField("feed", StringType(), False), StructField("sequence", LongType(), False)]
    later = [one for one in parked_table().schema.fields if one.name not in ("feed", "sequence", "feed_id")]
    contract = TableContract("parked_events", StructType([*columns, *later]), ("feed", "sequence"))
    table.loop.define(lambda: adopt(table.core, [make_table(contract, system=True)]))
    receiver.refuses = lambda event: "no" if event["key"]["id"] == 2 else None
    create(table, ", max_retries = 0")
    table.apply({"t": [{"insert": {"id": one, "n": 1}} for one in range(3)]})
    until(lambda: table.query("SELECT * FROM parked_events").num_rows == 1)
    assert len(find_parked(table.core, feed(table)["id"])) == 1
    assert len(page_parked(table.core, "f", feed(table)["id"], 0, 10)) == 1
    receiver.refuses = lambda _: None
    assert table.execute("REPLAY PARKED EVENTS").applied == {"parked_events": 1}
    assert table.query("SELECT * FROM parked_events").num_rows == 0


@pytest.mark.parametrize("behavior", ["", " RESTRICT"])
def test_a_table_that_changefeeds_deliver_is_not_dropped(table: Any, receiver: Receiver, behavior: str) -> None:
    create(table)
    create(table, name="g")
    with pytest.raises(RelationNameError, match="t is in use") as refused:
        table.execute(f"DROP TABLE t{behavior}")
    assert refused.value.detail.endswith("It is delivered by changefeeds f, g.")
    assert "write DROP TABLE t CASCADE" in refused.value.hint
    table.apply({"t": [{"insert": {"id": 1, "n": 1}}]})
    until(lambda: len(numbers(receiver)) == 2)


def test_a_table_goes_with_its_changefeeds_in_one_epoch(table: Any, receiver: Receiver) -> None:
    table.create_table("other", COLUMNS, ("id",))
    create(table)
    table.execute("CREATE CHANGEFEED g FOR TABLE other INTO WEBHOOK 'https://x/'")
    before = table.epoch
    table.execute("DROP TABLE t CASCADE")
    assert table.epoch == before + 1
    assert [one["name"] for one in table.execute("SHOW CHANGEFEEDS").to_pylist()] == ["g"]
    assert receiver.forgotten == ["f"]
    table.execute("DROP TABLE IF EXISTS t CASCADE")
    assert table.epoch == before + 1


def test_a_sink_forgets_a_feed_whose_table_is_gone(table: Any, receiver: Receiver) -> None:
    create(table)
    table.loop.define(lambda: drop_relation(table.core, table.core.catalog.table("t")))
    until(lambda: feed(table)["state"] == "Error")
    table.execute("DROP CHANGEFEED f")
    assert receiver.forgotten == ["f"]


def test_a_feed_identifies_rows_by_the_keys_that_it_names(table: Any, receiver: Receiver) -> None:
    table.create_table("bag", COLUMNS)
    table.apply({"bag": [{"insert": {"id": 1, "n": 10}}, {"insert": {"id": 2, "n": 20}}]})
    table.execute(
        "CREATE CHANGEFEED f FOR TABLE bag INTO WEBHOOK 'https://x/' WITH "
        "(flush_interval_ms = 5, max_retries = 0, include_old_values = true, keys = 'ID')"
    )
    until(lambda: len(receiver.events()) == 2)
    poison = {"id": 1, "n": 11}
    receiver.refuses = lambda event: "it is poison" if event["new_row"] == poison else None
    table.apply({"bag": [{"delete": {"id": 1, "n": 10}}, {"insert": poison}, {"delete": {"id": 2, "n": 20}}]})
    until(lambda: table.query("SELECT * FROM parked_events").num_rows == 1)
    (parked,) = table.query("SELECT * FROM parked_events").to_pylist()
    assert (parked["key"], parked["operation"]) == ('{"id":1}', "UPDATE")
    assert [(one["operation"], one["key"]) for one in receiver.events()][-1] == ("DELETE", {"id": 2})
    assert feed(table)["warning"] is None
    with pytest.raises(FeedError, match="option keys is of the beginning"):
        table.execute("ALTER CHANGEFEED f SET (keys = 'n')")
    with pytest.raises(FeedError, match="keys names nothing, which is no column"):
        table.execute("CREATE CHANGEFEED g FOR TABLE bag INTO WEBHOOK 'https://x/' WITH (keys = 'nothing')")


def test_a_feed_of_a_relation_without_a_key_says_so(
    table: Any, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    table.create_table("bag", COLUMNS)
    create(table)
    assert not caplog.records
    table.execute("CREATE CHANGEFEED g FOR TABLE bag INTO WEBHOOK 'https://x/'")
    assert "changefeed g: bag has no key" in caplog.text
    assert "keys = 'a, b'" in feed(table, "g")["warning"]
    assert feed(table)["warning"] is None


@pytest.mark.parametrize("scanned", [True, False])
def test_the_lag_is_zero_only_when_all_is_told(table: Any, receiver: Receiver, scanned: bool) -> None:
    receiver.slow = 0.1
    rows = {"t": [{"insert": {"id": one, "n": 1}} for one in range(5)]}
    if scanned:
        table.apply(rows)
        create(table, ", batch_size = 1")
    else:
        create(table, ", batch_size = 1")
        until(lambda: feed(table)["lag"] == 0)
        table.apply(rows)
    until(lambda: feed(table)["lag"] == 0)
    assert numbers(receiver) == [1, 2, 3, 4, 5]
    table.execute("PAUSE CHANGEFEED f")
    assert feed(table)["lag"] in (0, 1)
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["lag"] == 0)
    assert numbers(receiver) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("location", ["file://data/out", "~no-such-user/out", "s3://bucket/out"])
def test_a_location_that_names_no_folder_of_this_machine_is_refused(location: str) -> None:
    with pytest.raises(FeedError) as refused:
        folder_of(location)
    assert "file:///path" in str(refused.value.hint)


def test_a_file_url_may_name_this_machine() -> None:
    assert folder_of("file://localhost/data/out") == folder_of("file:///data/out") == Path("/data/out")


def test_a_feed_whose_sink_was_never_reached_tells_how_far_it_is_behind(table: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    table.execute(f"CREATE CHANGEFEED f FOR TABLE t INTO FILES '{tmp_path / 'file/out'}' WITH (flush_interval_ms = 5)")
    for step in range(3):
        table.apply({"t": [{"insert": {"id": step, "n": step}}]})
    until(lambda: feed(table)["error"] is not None)
    assert feed(table)["lag"] >= 3
    (tmp_path / "file").unlink()
    until(lambda: feed(table)["lag"] == 0)
    assert len(events(tmp_path / "file" / "out")) == 3
