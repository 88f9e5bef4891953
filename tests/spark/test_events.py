"""Event stores on disk and in Spark: statements, projections, a home that is opened again, what is published."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import headrace
from headrace.face import home_of
from tests.small_events import event, named
from tests.thinned import thinned
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(hr: Any, sql: str) -> list[dict[str, Any]]:
    return hr.query(sql).to_pylist()


def test_a_store_is_a_table_that_is_only_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        hr.execute("CREATE EVENT STORE events; CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
        hr.execute("CREATE EVENT STORE IF NOT EXISTS events")
        store = hr.events("EVENTS")
        receipt = store.append("Customer", "c1", [named("x", "CustomerCreated", name="Ada")], "none")
        assert (receipt.version, receipt.applied) == (1, {"events": 1, "events_aggregates": 1})
        store.append("Customer", "c1", [event("Bought", n=1)], 1, changes={"stock": [{"insert": {"id": 1, "n": 9}}]})
        for refused in (
            "INSERT INTO events SELECT * FROM events",
            "UPDATE events SET event_type = 'x'",
            "DELETE FROM events",
            "ALTER TABLE events ADD COLUMN c INT",
            "DELETE FROM events_aggregates",
            "CREATE SOURCE s INTO events FROM FILES '/tmp/x' WITH (format = 'raw')",
        ):
            with pytest.raises(headrace.SystemTable):
                hr.execute(refused)
        with pytest.raises(headrace.SystemTable):
            hr.apply({"events": [{"insert": {"event_id": "y"}}]})
        with pytest.raises(headrace.RelationNameError, match="event store"):
            hr.execute("DROP TABLE events")
        assert rows(hr, "SELECT count(*) AS n FROM events") == [{"n": 2}]
        changed = hr.changes("events", since=receipt.epoch).to_pylist()
        assert [(one["_change_type"], one["position"]) for one in changed] == [("insert", 2)]
        hr.fold()
    published = DeltaTable(str(tmp_path / "home" / "tables" / "events"))
    assert published.to_pyarrow_table().num_rows == 2
    assert published.metadata().partition_columns == ["aggregate_type"]
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        store = hr.events("events")
        again = store.append("Customer", "c1", [named("x", "CustomerCreated", name="Ada")], "none")
        assert (again.version, again.position) == (1, 1)
        with pytest.raises(headrace.VersionConflict) as conflict:
            store.append("Customer", "c1", [event("Bought")], 1)
        assert conflict.value.version == 2
        assert store.append("Customer", "c1", [event("Bought")], 2).position == 3
        assert store.state("Customer", "c1", as_of=1) == {"name": "Ada"}
        assert store.state("Customer", "c1") == {"name": "Ada", "n": 1}
        hr.execute("DROP EVENT STORE events")
        assert [one["name"] for one in hr.execute("SHOW TABLES").to_pylist()] == ["stock"]


PROJECTION = """
CREATE PROJECTION customers FOR EVENT STORE events AGGREGATE TYPE 'Customer' (
  name STRING,
  email STRING FROM '$.email' OF 'CustomerCreated', 'CustomerEmailUpdated',
  credit DECIMAL(10,2),
  city STRING FROM '$.address.city'
) DELETED BY 'CustomerDeleted'
"""


@pytest.mark.parametrize("data", thinned(["json", "map"], 2))
def test_a_projection_holds_the_newest_value_of_each_field(home: Any, data: str) -> None:
    home.execute(f"CREATE EVENT STORE events WITH (data = '{data}')")
    store = home.events("events")
    store.append("Customer", "a", [event("CustomerCreated", name="Ada", email="a@x", credit=1.5)])
    home.execute(PROJECTION)
    assert home.explain("customers").incremental
    store.append("Order", "a", [event("Ordered", name="no customer")])
    store.append("Customer", "b", [event("CustomerCreated", name='it\'s "Bob"', address={"city": "Rome"})])
    store.append("Customer", "a", [event("Noted", email="not of this type", credit="no number")])
    store.append("Customer", "a", [event("CustomerEmailUpdated", email=None), event("Moved", address={"city": "Oslo"})])

    def shown() -> list[tuple[Any, ...]]:
        found = rows(home, "SELECT * FROM customers")
        return sorted(tuple(one.values())[:-1] for one in found)

    assert shown() == [
        ("a", "Ada", None, None, "Oslo", 4, 6),
        ("b", 'it\'s "Bob"', None, None, "Rome", 1, 3),
    ]
    store.append("Customer", "a", [event("CustomerDeleted")])
    assert [one[0] for one in shown()] == ["b"]
    store.append("Customer", "a", [event("CustomerCreated", email="new@x")])
    assert shown()[0] == ("a", None, "new@x", None, None, 6, 8)
    assert home.verify().ok
    if data == "json":
        # The same as the state, which is folded in Python.
        for name, *fields in (one[:3] for one in shown()):
            state = store.state("Customer", name) or {}
            assert fields == [state.get("name"), state.get("email")]
    home.execute(PROJECTION.replace("CREATE", "CREATE OR REPLACE", 1))
    with pytest.raises(headrace.RelationNameError, match="in use"):
        home.execute("DROP EVENT STORE events")
    home.execute("DROP PROJECTION customers; DROP EVENT STORE events")


INSIDE = """
CREATE PROJECTION {} FOR EVENT STORE events AGGREGATE TYPE 'Customer' (
  city STRING FROM '$.address.city', code DECIMAL(38,2) FROM '$.address.zip.code', zip STRING FROM '$.address.zip',
  note STRING FROM '$.note'
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("data", thinned(["json", "map"], 2))
def test_fields_inside_documents_are_found_whatever_stands_in_their_place(home: Any, data: str) -> None:
    home.execute(f"CREATE EVENT STORE events WITH (data = '{data}')")
    store = home.events("events")
    home.execute(INSIDE.format("live"))
    digits = Decimal("123456789012345678901234567890.12")
    full = {"city": "Rome", "zip": {"code": digits}}
    documents: list[tuple[Any, Any]] = [
        (full, ("Rome", digits)),
        ("a text", ("Rome", digits)),
        ('{"city": 1', ("Rome", digits)),
        (["city"], ("Rome", digits)),
        (7, ("Rome", digits)),
        (None, ("Rome", digits)),
        ({"zip": {"code": None}}, ("Rome", None)),
        ({"zip": "no document"}, ("Rome", None)),
        ({"city": {"of": "two"}}, ('{"of":"two"}', None)),
        ({"city": None, "zip": {"code": "no number"}}, (None, None)),
        ({"city": "", "zip": {"code": 1}}, ("", Decimal("1.00"))),
    ]
    for address, (city, code) in documents:
        store.append("Customer", "a", [event("Moved", address=address)])
        (found,) = rows(home, "SELECT city, code FROM live")
        assert (found["city"], found["code"]) == (city, code), address
    # The same from nothing, and the rows of both, whose partial results are read once for state and rows.
    home.execute(INSIDE.format("filled"))
    assert home_of(home).core.catalog.view("filled").context.stores[0].stands_for is not None
    store.append("Customer", "b", [event("Moved", address={"city": "Oslo"}), event("Noted", note="x")])
    store.append("Customer", "a", [event("Noted", address={"zip": {"code": 2}}, note=None)])
    assert rows(home, "SELECT * FROM live ORDER BY aggregate_id") == rows(home, "SELECT * FROM filled ORDER BY 1")
    assert rows(home, "SELECT city, code, zip, note, version FROM filled WHERE aggregate_id = 'a'") == [
        {"city": "", "code": Decimal("2.00"), "zip": '{"code":2}', "note": None, "version": 12}
    ]
    assert home.verify().ok


def test_a_view_that_fails_on_an_event_rejects_that_append_alone(home: Any) -> None:
    home.execute("CREATE EVENT STORE events")
    home.execute("CREATE VIEW halves AS SELECT 10 / CAST(get_json_object(event_data, '$.n') AS INT) AS n FROM events")
    store = home.events("events")
    store.append("A", "a", [event("x", n=5)])
    with pytest.raises(headrace.ViewEvaluationError):
        store.append("A", "a", [event("x", n=0)])
    assert store.append("A", "a", [event("x", n=2)], 1).position == 2


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE EVENT STORE s WITH (data = 'variant')", "VARIANT"),
        ("CREATE EVENT STORE s WITH (data = 'xml')", "no form xml"),
        ("CREATE EVENT STORE s WITH (nonsense = 1)", "no option nonsense"),
        ("CREATE EVENT STORE s WITH (snapshot_events = 'many')", "whole number"),
        ("CREATE EVENT STORE events", "exists already"),
        ("CREATE EVENT SHOP s", "STORE"),
        ("CREATE PROJECTION p FOR EVENT STORE nowhere AGGREGATE TYPE 'A' (a STRING)", "no event store nowhere"),
        ("CREATE PROJECTION p FOR EVENT STORE t AGGREGATE TYPE 'A' (a STRING)", "t is no event store"),
        ("CREATE PROJECTION p FOR EVENT STORE events AGGREGATE TYPE 'A' (version INT)", "a column version already"),
        ("CREATE PROJECTION p FOR EVENT STORE events AGGREGATE TYPE 'A' (a STRING FROM 'b')", "no path"),
        ("CREATE EVENT TYPE 'X' FOR EVENT STORE events SCHEMA '{'", "schema"),
    ],
)
def test_statements_that_cannot_be_are_told(events_home: Any, statement: str, message: str) -> None:
    with pytest.raises(headrace.HeadraceError, match=message):
        events_home.execute(statement)


@pytest.fixture(scope="module")
def events_home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with headrace.open(str(tmp_path_factory.mktemp("events") / "home"), spark=spark) as hr:
        hr.execute("CREATE EVENT STORE events; CREATE TABLE t (a INT)")
        yield hr


def test_types_are_registered_by_statement(home: Any) -> None:
    home.execute("CREATE EVENT STORE events WITH (unknown_types = FALSE)")
    schema = '{"required": ["name"]}'
    home.execute(f"CREATE EVENT TYPE 'Made' VERSION 1 FOR EVENT STORE events SCHEMA '{schema}' ENCRYPTED ('name')")
    store = home.events("events")
    store.append("A", "a", [event("Made", name="Ada")])
    with pytest.raises(headrace.EventsRejected, match="required property"):
        store.append("A", "a", [event("Made")])
    with pytest.raises(headrace.EventsRejected, match="not registered"):
        store.append("A", "a", [event("Unheard")])
    assert "Ada" not in str(rows(home, "SELECT event_data FROM events"))
    assert store.state("A", "a") == {"name": "Ada"}


def middle(state: Any, event: Any) -> Any:
    """The median of amounts, which no view over one store says; what was closed has no row."""
    if event["event_type"] == "Closed":
        return None
    amounts = sorted([*(state or {"amounts": []})["amounts"], event["event_data"]["amount"]])
    return {"amounts": amounts, "median": amounts[len(amounts) // 2], "n": len(amounts)}


def largest(state: Any, event: Any) -> Any:
    """The largest amount in the place of the median."""
    found = middle(state, event)
    return found and {**found, "median": max(found["amounts"])}


def test_a_python_fold_is_the_same_live_and_rebuilt(home: Any) -> None:
    home.execute("CREATE EVENT STORE events")
    store = home.events("events")
    projection = store.project("medians", "Account", "median INT, n INT", middle)
    for n in range(30):
        store.append("Account", f"a{n % 3}", [event("Paid", amount=n * 7 % 11), event("Paid", amount=n)])
    store.append("Order", "o", [event("Paid", amount=1)])
    store.append("Account", "a1", [event("Closed")])
    last = store.append("Account", "a2", [event("Paid", amount=5)]).position
    assert projection.follower.wait_for(last, PATIENCE), projection.follower.error
    live = rows(home, "SELECT aggregate_id, median, n, version, position, state FROM medians ORDER BY aggregate_id")
    assert [(one["aggregate_id"], one["n"]) for one in live] == [("a0", 20), ("a2", 21)]
    assert projection.rebuild() == 2
    query = "SELECT aggregate_id, median, n, version, position, state FROM medians ORDER BY aggregate_id"
    assert rows(home, query) == live
    last = store.append("Account", "a1", [event("Paid", amount=3)]).position
    assert projection.follower.wait_for(last, PATIENCE), projection.follower.error
    assert len(rows(home, query)) == 3
    with pytest.raises(headrace.SystemTable):
        home.apply({"medians": [{"delete": {"aggregate_id": "a0"}}]})
    # Other code begins from nothing, and takes the place of the rows of the first in one epoch.
    projection = store.project("medians", "Account", "median INT, n INT", largest)
    assert projection.follower.wait_for(last, PATIENCE), projection.follower.error
    assert [(one["n"], one["median"]) for one in rows(home, query)] == [(20, 27), (1, 3), (21, 29)]
    projection.drop()
    assert "medians" not in [one["name"] for one in home.execute("SHOW TABLES").to_pylist()]


def test_rows_of_an_outbox_become_events_once(spark: SparkSession, tmp_path: Path) -> None:
    def row(number: int, **other: Any) -> dict[str, Any]:
        given = {"id": f"r{number:02}", "aggregatetype": "Order", "aggregateid": f"o{number % 2}", "type": "Ordered"}
        return {**given, "payload": f'{{"n": {number}}}', **other}

    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        hr.execute("CREATE EVENT STORE events; CREATE TABLE t (id INT)")
        columns = ", ".join(f"{name} STRING" for name in ("aggregatetype", "aggregateid", "type", "payload", "trace"))
        hr.execute(f"CREATE TABLE outbox (id STRING PRIMARY KEY, {columns})")
        store = hr.events("events")
        hr.apply({"outbox": [{"insert": row(n)} for n in range(5)]})
        with pytest.raises(headrace.RelationNameError, match="no outbox"):
            store.follow_outbox("t")
        follower = store.follow_outbox("outbox")
        with pytest.raises(headrace.RelationNameError, match="column payload of outbox makes events of its rows"):
            hr.execute("ALTER TABLE outbox RENAME COLUMN payload TO body")
        bad = [row(5, payload="{"), row(6, type=None), row(7, id="r01", payload='{"n": "another"}')]
        done = hr.apply({"outbox": [{"insert": row(8, trace="x")}, *({"insert": one} for one in bad[:2])]})
        assert follower.wait_for(done.epoch, PATIENCE), follower.error
        # Rows that are gone or changed, and one that comes again with other content under an id of an event.
        hr.apply({"outbox": [{"delete": {"id": "r00"}}, {"delete": {"id": "r01"}}, {"insert": row(2, trace="sent")}]})
        done = hr.apply({"outbox": [{"insert": bad[2]}]})
        assert follower.wait_for(done.epoch, PATIENCE), follower.error
        found = store.read().to_pylist()
        assert [one["event_id"] for one in found] == ["r00", "r01", "r02", "r03", "r04", "r08"]
        assert found[-1]["metadata"] == '{"outbox":{"trace":"x"}}'
        reasons = {one["event_id"]: one["reason"] for one in store.parked()}
        assert sorted(reasons) == ["r01", "r05", "r06"]
        assert "no JSON" in reasons["r05"]
        assert "stands for another event" in reasons["r01"]
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        store = hr.events("events")
        follower = store.follow_outbox("outbox")
        done = hr.apply({"outbox": [{"insert": row(9)}]})
        assert follower.wait_for(done.epoch, PATIENCE), follower.error
        assert [one["position"] for one in store.read().to_pylist()] == list(range(1, 8))
        assert store.state("Order", "o1") == {"n": 9}


HOW_TO = Path(__file__).parents[2] / "docs/how-to/keep-an-event-store.md"


def test_the_how_to_works_as_it_stands(home: Any) -> None:
    pieces = re.findall(r"^```python\n(.*?)^```", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(pieces) == 8
    names: dict[str, Any] = {"hr": home, "__name__": "how_to"}
    for piece in pieces:
        exec(piece, names)
    assert home.verify().ok
