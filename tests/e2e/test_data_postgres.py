"""The data API from a table of a real PostgreSQL: the same answers as from the state that the table mirrors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.catalog.catalog import Feed, Table
from headrace.feeds.batch import Mark
from headrace.feeds.sink import EventsRefused
from headrace.intake.table import TableContract
from headrace.serving.data import postgres
from headrace.state.arrow_types import arrow_schema
from headrace.state.store import Store
from tests.data_api import Api, Readings
from tests.feed_batches import batch_of
from tests.feed_database import Database
from tests.waiting import PATIENCE

COLUMNS = StructType(
    [
        StructField("id", LongType(), False),
        StructField("user_id", IntegerType()),
        StructField("at", TimestampType()),
        StructField("note", StringType()),
        StructField("price", DecimalType(10, 2)),
        StructField("day", DateType()),
        StructField("weight", DoubleType()),
        StructField("small", FloatType()),
        StructField("raw", BinaryType()),
        StructField("tags", ArrayType(StringType())),
    ]
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
INDEXES = "user_id; user_id, at DESC; at"


def row(number: int, dice: random.Random) -> dict[str, Any]:
    made = {
        "user_id": dice.randrange(5),
        "at": BEGIN + timedelta(seconds=dice.randrange(20), microseconds=dice.randrange(3)),
        "note": dice.choice(["", "a,b", "é"]),
        "price": Decimal(dice.randrange(1000)).scaleb(-2),
        "day": date(2026, 1, 1 + dice.randrange(20)),
        "weight": dice.choice([0.1, float("inf"), float("nan"), -2.0]),
        "small": 0.10000000149011612,
        "raw": bytes([number % 256]),
        "tags": ["x", None],
    }
    return {"id": number, **{name: None if dice.random() < 0.1 else value for name, value in made.items()}}


class Desk:
    """A relation in memory, a table of PostgreSQL that mirrors it, and an API of each."""

    def __init__(self, database: Database, **options: Any) -> None:
        contract = TableContract("items", COLUMNS, ("id",), None)
        store = Store("items", arrow_schema([field.dataType for field in COLUMNS.fields]))
        self.readings = Readings(Table("items", contract, store))
        self.database = database
        given = {"indexes": INDEXES, **options}
        self.delivery = database.open(columns=COLUMNS, options={"indexes": INDEXES})
        self.sequence = 0
        location = database.location()
        self.readings.feed(Feed("id-of-f", "f", "items", "postgres", location, given, "2026", 0))
        self.straight = Api(self.readings, data_scan_rows=0)
        self.served = Api(self.readings, data_scan_rows=0, data_postgres="env:DESK_DSN")

    def add(self, rows: list[dict[str, Any]], *, told: bool = True) -> None:
        self.readings.change("items", [list(one.values()) for one in rows])
        if told:
            self.tell([("INSERT", one) for one in rows])

    def tell(self, events: list[Any], *, whole: bool = True) -> None:
        first, self.sequence = self.sequence + 1, self.sequence + len(events)
        epochs = [self.readings.epoch] * len(events)
        after = Mark(self.readings.epoch, 0 if whole else len(events), self.sequence)
        self.delivery.deliver(batch_of(events, first, COLUMNS, epochs=epochs, after=after))

    def close(self) -> None:
        self.straight.close()
        self.served.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PostgreSQL that takes long to answer on a busy machine is not given up."""
    monkeypatch.setattr(postgres, "_CONNECT_SECONDS", PATIENCE)
    monkeypatch.setattr(postgres, "_STATEMENT_MS", "0")


@pytest.fixture
def desk(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("DESK_DSN", database.dsn)
    made = Desk(database)
    yield made
    made.close()


QUESTIONS = [
    "",
    "limit=7",
    "order=id.desc&limit=9",
    "user_id=eq.3&limit=4",
    "user_id=eq.3&order=at.desc&limit=5&select=id,at",
    "user_id=eq.3&order=at&limit=5",
    "user_id=eq.2&at=gte.2026-01-01T00:00:05Z&at=lt.2026-01-01T00:00:15Z&limit=3",
    "order=at&limit=11",
    "order=at.desc&limit=11",
    "id=gt.10&id=lte.40&limit=6",
    "user_id=eq.1&offset=3&limit=4",
]


def test_a_table_answers_as_the_state_does(desk: Desk) -> None:
    dice = random.Random(5)
    desk.add([row(number, dice) for number in range(120)])
    for question in QUESTIONS:
        cursor = ""
        while True:
            path = f"/v1/data/items?{question}{cursor}"
            straight, served = desk.straight.get(path), desk.served.get(path)
            assert straight.status_code == served.status_code == 200, (question, straight.text, served.text)
            assert served.json() == straight.json(), question
            assert served.headers["etag"] != straight.headers["etag"]
            if not straight.json()["has_more"] or "offset" in question:
                break
            cursor = f"&cursor={straight.json()['next_cursor']}"
    assert desk.served.get("/v1/data/items/7").json() == desk.straight.get("/v1/data/items/7").json()
    assert desk.served.get("/v1/data/items/7777").status_code == 404


def test_an_answer_from_a_table_says_how_far_behind_it_is(desk: Desk) -> None:
    dice = random.Random(6)
    desk.add([row(1, dice)])
    first = desk.served.get("/v1/data/items")
    assert (first.headers["headrace-epoch"], first.headers["headrace-lag"]) == ("1", "0.000")
    known = {"If-None-Match": first.headers["etag"]}
    assert desk.served.get("/v1/data/items", known).status_code == 304
    late = row(2, dice)
    desk.add([late], told=False)
    behind = desk.served.get("/v1/data/items", known)
    assert behind.status_code == 304
    assert behind.headers["headrace-epoch"] == "1"
    assert float(behind.headers["headrace-lag"]) > 0
    desk.tell([("INSERT", late)])
    now = desk.served.get("/v1/data/items", known)
    assert (now.status_code, now.headers["headrace-epoch"], len(now.json()["data"])) == (200, "2", 2)
    assert desk.served.get("/v1/data/items?user_id=eq.99").json()["data"] == []


def test_a_part_of_an_epoch_is_not_said_to_be_the_epoch(desk: Desk) -> None:
    dice = random.Random(6)
    desk.add([row(1, dice)])
    two = [row(number, dice) for number in (2, 3)]
    desk.add(two, told=False)
    desk.tell([("INSERT", two[0])], whole=False)
    half = desk.served.get("/v1/data/items")
    assert (len(half.json()["data"]), half.json()["epoch"], half.headers["headrace-epoch"]) == (2, 1, "1")
    assert float(half.headers["headrace-lag"]) > 0
    desk.tell([("INSERT", two[1])])
    whole = desk.served.get("/v1/data/items")
    assert (len(whole.json()["data"]), whole.headers["headrace-epoch"], whole.headers["headrace-lag"]) == (
        3,
        "2",
        "0.000",
    )


def test_parked_events_are_in_the_headers(desk: Desk) -> None:
    dice = random.Random(6)
    desk.add([row(1, dice)])
    before = desk.served.get("/v1/data/items")
    assert "headrace-parked" not in before.headers
    desk.readings.park("id-of-f", 7)
    desk.readings.park("id-of-another", 8)
    known = {"If-None-Match": before.headers["etag"]}
    parked = desk.served.get("/v1/data/items", known)
    # It may be delivered after all, which gives it no new number.
    assert (parked.status_code, parked.headers["headrace-parked"]) == (200, "1")
    assert "headrace-parked" not in desk.straight.get("/v1/data/items").headers


def test_the_tag_changes_with_events_that_overtake_a_refused_one(desk: Desk) -> None:
    """The position of the feed stays before the refused event, while later ones arrive."""
    dice = random.Random(6)
    desk.add([row(1, dice)])
    before = Mark(1, None, 1)
    bad = {**row(2, dice), "note": "a\0b"}
    with pytest.raises(EventsRefused):
        desk.delivery.deliver(batch_of([("INSERT", bad)], 2, COLUMNS, after=Mark(2, None, 2)))
    first = desk.served.get("/v1/data/items")
    desk.delivery.deliver(batch_of([("INSERT", row(3, dice))], 3, COLUMNS, after=before))
    again = desk.served.get("/v1/data/items", {"If-None-Match": first.headers["etag"]})
    assert (again.status_code, len(again.json()["data"])) == (200, 2)


def test_what_postgresql_cannot_answer_comes_from_the_home(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(7)
    desk.add([row(number, dice) for number in range(5)])
    desk.add([row(5, dice)], told=False)
    assert len(desk.served.get("/v1/data/items").json()["data"]) == 5
    # While all is told anew into the table itself, it is not whole.
    desk.database.run("UPDATE {}.headrace_feeds SET scan = 'direct'")
    assert len(desk.served.get("/v1/data/items").json()["data"]) == 6
    desk.database.run("UPDATE {}.headrace_feeds SET scan = NULL")
    assert len(desk.served.get("/v1/data/items").json()["data"]) == 5
    monkeypatch.setenv("DESK_DSN", "postgresql://nobody@127.0.0.1:1/postgres")
    monkeypatch.setattr(postgres, "_CONNECT_SECONDS", 1.0)
    nowhere = Api(desk.readings, data_postgres="env:DESK_DSN")
    assert len(nowhere.get("/v1/data/items").json()["data"]) == 6
    nowhere.close()


def test_a_value_that_postgresql_does_not_take_is_nobody_elses_trouble(desk: Desk) -> None:
    dice = random.Random(7)
    desk.add([row(1, dice)])
    desk.add([row(2, dice)], told=False)
    assert desk.served.get("/v1/data/items?id=eq.2&note=eq.a%00b").json()["data"] == []
    # The next is answered by the table still.
    assert len(desk.served.get("/v1/data/items").json()["data"]) == 1


@pytest.mark.parametrize(
    "options", [{"filter": "id > 1"}, {"mode": "upsert"}, {"initial_scan": "no"}, {"cursor": "5"}], ids=str
)
def test_a_feed_that_tells_a_part_serves_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.setenv("DESK_DSN", database.dsn)
    made = Desk(database, **options)
    dice = random.Random(8)
    made.add([row(1, dice)])
    made.add([row(2, dice)], told=False)
    assert len(made.served.get("/v1/data/items").json()["data"]) == 2
    made.close()


def test_values_never_become_sql(desk: Desk) -> None:
    desk.add([row(1, random.Random(9))])
    for text in ["1;DROP TABLE items", "1)--", "' OR 1=1", "%s", "1%00"]:
        assert desk.served.get(f"/v1/data/items?id=eq.{text}").status_code == 400
    assert desk.served.get("/v1/data/items?order=id;DROP").status_code == 400
    assert desk.served.get("/v1/data/items?select=id,count(*)").status_code == 400
