"""What a request to the data API may ask, and how it is refused."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import RelationNameError, SetupError
from headrace.reading.access import Access, Condition, IndexColumn
from headrace.reading.page import Position
from headrace.serving.data.answers import Freshness, entity_tag, fitting, is_known
from headrace.serving.data.cursors import question_of, read_cursor, written_cursor
from headrace.serving.data.openapi import value_schema
from headrace.serving.data.parameters import access_of, key_conditions, read_parameters
from headrace.serving.data.rates import Rates
from headrace.serving.data.shown import Shown, ShownRelations
from headrace.serving.problems import Refusal
from headrace.settings import Settings
from tests.small_engine import table

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("User_Id", LongType()),
        StructField("at", TimestampType()),
        StructField("amount", DecimalType(10, 2)),
        StructField("paid", BooleanType()),
        StructField("note", StringType()),
        StructField("tags", ArrayType(StringType())),
    ]
)
BY_USER = (IndexColumn("User_Id"), IndexColumn("at", True))


def shown(key: tuple[str, ...] = ("id",), indexes: Any = (BY_USER,), schema: StructType = SCHEMA) -> Shown:
    return Shown("desk", schema, key, bool(key), tuple(indexes), {name.lower(): name for name in schema.names})


def read(*given: tuple[str, str], **settings: Any) -> Any:
    return read_parameters(shown(), given, Settings(**settings))


def test_conditions_order_fields_and_limits_are_read() -> None:
    asked = read(
        ("user_id", "eq.7"), ("AT", "gte.2026-01-02T00:00:00Z"), ("amount", "lt.1.50"), ("paid", "true"),
        ("select", "amount,ID"), ("order", "at.desc,id"), ("limit", "5"), ("offset", "3"),
    )  # fmt: skip
    assert asked.conditions == (
        Condition("User_Id", "eq", 7),
        Condition("at", "gte", datetime(2026, 1, 2, tzinfo=UTC)),
        Condition("amount", "lt", Decimal("1.50")),
        Condition("paid", "eq", True),
    )
    assert asked.fields == ("amount", "id")
    assert asked.order == (IndexColumn("at", True), IndexColumn("id"))
    assert (asked.limit, asked.offset) == (5, 3)


def test_a_value_without_an_operator_is_equality_also_with_points_in_it() -> None:
    assert read(("note", "a.b")).conditions == (Condition("note", "eq", "a.b"),)
    assert read(("note", "eq.gt.x")).conditions == (Condition("note", "eq", "gt.x"),)
    assert read(("amount", "1.5")).conditions == (Condition("amount", "eq", Decimal("1.50")),)


@pytest.mark.parametrize(
    "given",
    [
        [("nothing", "eq.1")],
        [("id", "eq.x")],
        [("id", "")],
        [("id", "like.*1*")],
        [("id", "not.eq.1")],
        [("amount", "eq.1.005")],
        [("tags", "eq.x")],
        [("order", "tags")],
        [("order", "id.down")],
        [("select", "id,,at")],
        [("select", "nothing")],
        [("limit", "0")],
        [("limit", "-1")],
        [("limit", "x")],
        [("limit", "1001")],
        [("limit", "9" * 5000)],
        [("offset", "100001")],
        [("limit", "1"), ("limit", "2")],
        [("cursor", "x"), ("offset", "1")],
        [("note", "x" * 10_001)],
        [("id", f"gt.{i}") for i in range(33)],
    ],
)
def test_what_cannot_be_is_a_400_that_names_it(given: list[tuple[str, str]]) -> None:
    with pytest.raises(Refusal) as refused:
        read(*given)
    assert refused.value.status == 400
    assert refused.value.code == "bad_parameter"
    assert refused.value.detail
    assert refused.value.hint
    assert len(refused.value.message + refused.value.detail) < 1500


def test_what_no_index_serves_is_refused_unless_the_relation_is_small() -> None:
    asked = read(("note", "eq.x"))
    with pytest.raises(Refusal) as refused:
        access_of(shown(), asked, is_small=False)
    assert refused.value.code == "not_indexed"
    assert "User_Id, at DESC" in refused.value.detail
    assert access_of(shown(), asked, is_small=True) == Access("scan", (), (IndexColumn("id"),))


def test_keys_in_a_path() -> None:
    assert key_conditions(shown(), "7") == (Condition("id", "eq", 7),)
    assert key_conditions(shown(("note",)), "a,b/c") == (Condition("note", "eq", "a,b/c"),)
    assert key_conditions(shown(("User_Id", "note")), "7,x") == (
        Condition("User_Id", "eq", 7),
        Condition("note", "eq", "x"),
    )
    for key, text, status in [(("id", "note"), "7", 400), (("id",), "x", 400), ((), "7", 404)]:
        with pytest.raises(Refusal) as refused:
            key_conditions(shown(key), text)
        assert refused.value.status == status


def test_a_cursor_leads_back_to_its_place_and_to_no_other_question() -> None:
    one, asked = shown(), read(("user_id", "eq.7"))
    access = access_of(one, asked, is_small=False)
    question = question_of(one, asked, access, "state")
    position = Position((1_767_225_600_000_000, 12), (2**64 - 1, 5), 3)
    text = written_cursor(position, question)
    assert read_cursor(text, one, access, question) == position
    assert question_of(one, read(("user_id", "eq.7"), ("limit", "3")), access, "state") == question
    other = question_of(one, read(("user_id", "eq.8")), access, "state")
    wrong = [
        text[:-4],
        text + "A",
        "",
        "%%%",
        "x" * 30_000,
        "ééé",
        _cursor([]),
        _cursor({}),
        _cursor([question, 1, 2, 3]),
    ]
    wrong += [_cursor([question, [1], "0" * 32, 1]), _cursor([question, ["x", 1], "0" * 32, 1])]
    wrong += [_cursor([question, [1, 1], "z" * 32, 1]), _cursor([question, [1, 1], "0" * 32, -1])]
    wrong += [_cursor([question, [1, 2**63], "0" * 32, 1]), _cursor([question, [1, 1], 5, 1])]
    for given, asking in [(text, other), *((one, question) for one in wrong)]:
        with pytest.raises(Refusal) as refused:
            read_cursor(given, one, access, asking)
        assert refused.value.code == "bad_cursor"


def _cursor(content: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(content) if not isinstance(content, bytes) else content).decode()


def test_a_tag_changes_with_the_relation_and_the_question() -> None:
    one, asked = shown(), read()
    tags = [
        entity_tag(one, asked, Freshness(5, (4,)), "state", "page"),
        entity_tag(one, asked, Freshness(6, (6,)), "state", "page"),
        entity_tag(one, read(("limit", "7")), Freshness(5, (4,)), "state", "page"),
        entity_tag(shown(schema=StructType(SCHEMA.fields[:6])), asked, Freshness(5, (4,)), "state", "page"),
        entity_tag(one, asked, Freshness(5, (4,)), "postgres", "page"),
    ]
    assert len(set(tags)) == len(tags)
    assert tags[0] == entity_tag(one, asked, Freshness(9, (4,)), "state", "page")
    for given, known in [(tags[0], True), (f'"x", W/{tags[0]}', True), ("*", True), (tags[1], False), (None, False)]:
        assert is_known(given, tags[0]) is known


def test_a_page_has_no_more_bytes_than_it_may() -> None:
    rows = [{"id": i, "note": "x" * 50} for i in range(10)]
    text, count = fitting(rows, 200)
    assert orjson.loads(text) == rows[:count]
    assert count == 2
    assert len(text) <= 200
    assert fitting(rows, 10_000)[1] == 10
    assert fitting([], 2) == (b"[]", 0)
    with pytest.raises(Refusal, match="larger"):
        fitting(rows, 40)


def test_each_sender_has_tokens_of_its_own_and_they_come_back() -> None:
    now = [100.0]
    rates = Rates(2.0, 3, lambda: now[0])
    assert [rates.take("a")["RateLimit"] for _ in range(3)] == ['"data";r=2;t=1', '"data";r=1;t=1', '"data";r=0;t=2']
    with pytest.raises(Refusal) as refused:
        rates.take("a")
    assert refused.value.status == 429
    assert refused.value.headers["Retry-After"] == "1"
    rates.take("b")
    now[0] += 0.5
    rates.take("a")
    with pytest.raises(Refusal):
        rates.take("a")
    now[0] += 1_000_000
    for _ in range(3):
        rates.take("a")
    assert Rates(None, 1).take("a") == {}


def test_senders_that_are_not_heard_of_are_forgotten() -> None:
    rates = Rates(1.0, 1)
    for i in range(20_000):
        rates.take(str(i))
    assert len(rates._buckets) <= 10_000  # pyright: ignore[reportPrivateUsage]


def catalog_of(**tables: Any) -> Any:
    from headrace.catalog.catalog import Catalog

    return Catalog().having(*tables.values())


def test_what_is_shown_follows_the_catalog_and_the_settings() -> None:
    plain, kept = table("plain", key=()), table("kept")
    kept.system = True
    catalog = catalog_of(plain=plain, kept=kept, keyed=table("keyed"))
    relations = ShownRelations(Settings(data_keys={"PLAIN": "ID"}, data_indexes={"plain": "n DESC, id; n"}))
    assert relations.names(catalog) == ["keyed", "plain"]
    found = relations.get(catalog, "Plain")
    assert (found.key, found.keyed) == (("id",), False)
    assert found.indexes == ((IndexColumn("n", True), IndexColumn("id")), (IndexColumn("n"),))
    assert relations.get(catalog, "keyed").keyed
    with pytest.raises(RelationNameError, match="not shown"):
        relations.get(catalog, "kept")
    with pytest.raises(RelationNameError, match="no table or view"):
        relations.get(catalog, "missing")
    unkeyed = ShownRelations(Settings()).get(catalog, "plain")
    assert (unkeyed.key, unkeyed.indexes) == ((), ((IndexColumn("id"), IndexColumn("n")),))
    assert ShownRelations(Settings(data_system_tables=True)).get(catalog, "kept").name == "kept"


@pytest.mark.parametrize("text", ["nothing", "id, id", "id DOWN", "id; , n"])
def test_an_index_that_cannot_be_is_named(text: str) -> None:
    with pytest.raises(SetupError, match="data_indexes of t"):
        ShownRelations(Settings(data_indexes={"t": text})).get(catalog_of(t=table("t")), "t")


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (LongType(), {"type": "integer", "format": "int64", "x-sql-type": "bigint"}),
        (StringType(), {"type": "string", "x-sql-type": "string"}),
    ],
)
def test_schemas_of_values(kind: DataType, schema: dict[str, Any]) -> None:
    assert value_schema(kind, nullable=False) == schema
    assert value_schema(kind) == {"anyOf": [schema, {"type": "null"}]}
