"""What a statement says of a database, and what becomes of what its connector says; without any JVM."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.capture.connector import Description, laid_over
from headrace.capture.debezium.failures import failed
from headrace.capture.debezium.frames import FrameReader
from headrace.capture.debezium.jars import CONNECTORS, lock_of
from headrace.capture.debezium.postgres import plan
from headrace.capture.debezium.process import Cause, EngineFailed
from headrace.capture.debezium.reading import again, committed_at, is_unfinished, packed, unpacked
from headrace.capture.debezium.settings import named_tables
from headrace.errors import LogTruncated, SourceError, SourceUnavailable
from headrace.spark.jars import parse_lock

URL = "postgresql://reader@db:5433/shop"


def described(location: str = URL, table: str = "", **options: Any) -> Description:
    return Description("shop", location, {"tables": "orders, sales.*", "password": "p", **options}, table)


def test_a_statement_in_debeziums_words() -> None:
    given: dict[str, Any] = {"debezium.max.batch.size": 7, "debezium.skip.messages.without.change": True}
    config = plan(described(**given)).config
    wanted = {
        "database.hostname": "db",
        "database.port": "5433",
        "database.dbname": "shop",
        "database.user": "reader",
        "database.password": "p",
        "slot.name": "headrace_shop",
        "table.include.list": r"public\.orders,sales\..*",
        "snapshot.mode": "initial",
        "max.batch.size": "7",
        "skip.messages.without.change": "true",
        "topic.prefix": "shop",
        "skipped.operations": "none",
    }
    assert {name: config[name] for name in wanted} == wanted


def test_a_slot_that_is_named_is_not_dropped() -> None:
    assert plan(described()).before_first
    assert not plan(described(slot="theirs")).before_first
    assert plan(described(slot="theirs")).config["slot.name"] == "theirs"


@pytest.mark.parametrize(
    ("description", "says"),
    [
        (described("postgresql://reader:secret@db/shop"), "secret"),
        (described("postgresql://db/shop"), "user"),
        (described("mysql://reader@db/shop"), "host"),
        (described("postgresql://reader@db:abc/shop"), "port"),
        (described(tables=""), "which tables"),
        (described(snapshot="sometimes"), "snapshot"),
        (described(slot="a b"), "slot"),
        (described(heartbeat_seconds="often"), "heartbeat_seconds"),
        (described(**{"debezium.topic.prefix": "x"}), "topic.prefix"),
        (described(**{"debezium.offset.storage": "x"}), "offset.storage"),
        *(
            (described(**{f"debezium.{name}": "x"}), "load code")
            for name in (
                "converters",
                "database.sslfactory",
                "driver.socketFactory",
                "driver.autoDeserialize",
                "database.initial.statements",
                "signal.kafka.bootstrap.servers",
                "signal.data.collection",
                "snapshot.mode.custom.name",
                "sourceinfo.struct.maker",
                "topic.naming.strategy",
                "transaction.metadata.factory",
                "openlineage.integration.config.file.path",
                "lsn.flush.mode",
                "slot.drop.on.stop",
                "read.only",
                "a.setting.of.a.later.release",
            )
        ),
        (described(**{"debezium.max.batch.sizes": 1}), "did you mean debezium.max.batch.size?"),
    ],
)
def test_what_cannot_be_is_refused(description: Description, says: str) -> None:
    with pytest.raises(SourceError) as refused:
        plan(description)
    assert says in f"{refused.value.message} {refused.value.detail} {refused.value.hint}"


def test_the_table_of_the_statement_is_captured() -> None:
    config = plan(described(tables="", table="orders")).config
    assert config["table.include.list"] == r"public\.orders"


def test_tables_are_named_with_their_schema_or_without() -> None:
    assert named_tables(described(), "public", []) == [r"public\.orders", r"sales\..*"]
    assert named_tables(described(), "public", ["orders", "sales.carts"]) == [r"public\.orders", r"sales\.carts"]
    with pytest.raises(SourceError, match="does not capture"):
        named_tables(described(), "public", ["other"])


def test_a_name_of_many_stars_takes_no_longer_than_another() -> None:
    stars = described(tables=f"{'*a' * 30}*b")
    # To try each way of matching would never end.
    with pytest.raises(SourceError, match="does not capture"):
        named_tables(stars, "public", [f"public.{'a' * 100}"])


ASKED = "The server requested SCRAM-based authentication"


def cause(message: str, state: str | None = None, *classes: str) -> EngineFailed:
    return EngineFailed([Cause(("java.lang.Exception",), "outer"), Cause(classes, message, state)])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (cause("gone", "HR001"), LogTruncated),
        (cause("Could not find first log file name in binary log index file"), LogTruncated),
        (cause("terminated", "57P01"), SourceUnavailable),
        (cause("slot is active", "55006"), SourceUnavailable),
        (
            cause("refused", None, "java.net.ConnectException", "java.net.SocketException", "java.io.IOException"),
            SourceUnavailable,
        ),
        (cause("password authentication failed", "28P01"), SourceError),
        (cause(f"{ASKED}, but the password is an empty string.", "08004"), SourceError),
        (cause(f"{ASKED}, but no password was provided.", "08004"), SourceError),
        (cause("permission denied", "42501"), SourceError),
    ],
)
def test_what_may_pass_and_what_may_not(error: EngineFailed, kind: type[SourceError]) -> None:
    told = failed("shop", error)
    assert type(told) is kind
    assert told.transient is (kind is SourceUnavailable)
    assert "outer" in told.detail


@pytest.mark.parametrize(
    ("message", "state", "says"),
    [
        ("No table filters found for filtered publication headrace_shop", None, "the option tables"),
        ("FATAL: permission denied\n  Detail: Only roles with the REPLICATION attribute may", "42501", "ALTER ROLE"),
        ("FATAL: password authentication failed for user", "28P01", "the option password"),
        (f"{ASKED}, but the password is an empty string.", "08004", "give the password"),
        ("Access denied for user 'reader'@'db' (using password: NO)", "28000", "give the password"),
        ("Access denied for user 'reader'@'db' (using password: YES)", "28000", "the option password refers to"),
        ("something else", None, "mend what is said"),
    ],
)
def test_what_people_meet_most_has_its_remedy(message: str, state: str | None, says: str) -> None:
    told = failed("shop", cause(message, state))
    assert says in told.hint
    assert told.hint.endswith("then RESUME SOURCE shop")


def test_a_lost_log_is_told_without_the_statement_that_found_it() -> None:
    raised = "ERROR: slot s was read up to 0/2\n  Where: PL/pgSQL function inline_code_block line 8 at RAISE"
    told = failed("shop", cause(raised, "HR001"))
    assert told.detail == "outer. slot s was read up to 0/2."
    assert "WITH SNAPSHOT" in told.hint
    assert "another home" in told.hint
    assert "another home" not in failed("shop", cause("requested WAL segment 1 is gone")).hint


def field(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def test_a_schema_is_told_once_and_stands_before_each_value() -> None:
    frames = FrameReader()
    offset = json.dumps({"lsn": 1}).encode()
    record = b"R" + field(b"t") + struct.pack(">i", -1) + field(None) + struct.pack(">i", 0)
    first = b"S" + struct.pack(">i", 0) + field(b'{"a":1}') + record + field(b'{"x":2}') + field(offset)
    (one,) = frames.records(first)
    (two,) = frames.records(b"H" + field(b"history") + record + field(None) + field(offset))
    assert (one.topic, one.key, one.offset) == ("t", None, {"lsn": 1})
    assert json.loads(one.value or b"") == {"schema": {"a": 1}, "payload": {"x": 2}}
    assert two.value is None
    assert frames.history == "history"


def test_a_first_reading_is_unfinished_until_its_last_row() -> None:
    assert is_unfinished({"snapshot": "INITIAL", "snapshot_completed": False})
    assert not is_unfinished({"snapshot": "INITIAL", "snapshot_completed": True})
    assert not is_unfinished({"lsn": 1})
    assert not is_unfinished({"snapshot": "INCREMENTAL", "snapshot_completed": False, "last_snapshot_record": False})
    assert committed_at({"ts_usec": 1_500_000}) == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert committed_at({"ts_sec": 0}) is None
    assert unpacked(packed("größer")) == "größer"
    assert laid_over({"offset": {}, "number": 7, "topics": ["a"], "asked": None}, again(described())) == {
        "again": True,
        "number": 7,
        "topics": ["a"],
    }


@pytest.mark.parametrize("connector", CONNECTORS)
def test_every_jar_that_is_named_is_in_a_lock(connector: str) -> None:
    locked = [jar.artifact for jar in parse_lock(lock_of(connector))]
    assert len(locked) == len(set(locked))
    assert set(CONNECTORS[connector]) <= set(locked)
    assert {"connect-api", "kafka-clients", "debezium-connector-common"} <= set(locked)
