"""Events over HTTP: append with expected versions, ids that come again, reading, states, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.conftest import Served, running
from tests.small_events import event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import headrace

    with headrace.open(str(tmp_path_factory.mktemp("events") / "home"), spark=spark) as hr:
        hr.execute("CREATE EVENT STORE events; CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
        with running(hr, serve_definitions=True) as one:
            yield one


def append(served: Served, where: str, body: Any, **options: Any) -> Any:
    headers = {"Idempotency-Key": options.pop("key")} if "key" in options else {}
    return served.client.post(f"/v1/events/{where}", json=body, params=options, headers=headers)


def test_events_are_appended_and_read_back(served: Served) -> None:
    first = append(served, "Customer/c1", {"events": [event("Created", name="Ada")], "expected": "none"})
    assert first.status_code == 200, first.text
    assert first.json()["version"] == 1
    assert (
        append(served, "Customer/c1", [event("Moved", city="Rome"), event("Moved", city="Oslo")]).json()["version"] == 3
    )
    assert append(served, "Customer/c1", event("Noted"), expected="3").json()["version"] == 4
    found = served.client.get("/v1/events/Customer/c1", params={"limit": 3}).json()
    assert [one["event_version"] for one in found["events"]] == [1, 2, 3]
    assert found["events"][0]["event_data"] == {"name": "Ada"}
    rest = served.client.get("/v1/events/Customer/c1", params={"since": found["next"]}).json()
    assert (len(rest["events"]), rest["next"]) == (1, None)
    everything = served.client.get("/v1/events", params={"aggregate_type": "Customer", "store": "events"}).json()
    assert len(everything["events"]) == 4
    state = served.client.get("/v1/events/Customer/c1/state").json()
    assert (state["state"], state["version"]) == ({"name": "Ada", "city": "Oslo"}, 4)
    position = found["events"][1]["position"]
    then = served.client.get("/v1/events/Customer/c1/state", params={"as_of": position}).json()
    assert then["state"] == {"name": "Ada", "city": "Rome"}
    at = found["events"][0]["created_at"]
    assert served.client.get("/v1/events/Customer/c1/state", params={"as_of": at}).json()["state"] == {"name": "Ada"}


def test_another_version_is_answered_409_with_the_one_that_is_there(served: Served) -> None:
    append(served, "Customer/c2", event("Created"))
    for expected in ("none", "0", "2"):
        refused = append(served, "Customer/c2", event("Created"), expected=expected)
        assert refused.status_code == 409
        assert refused.json()["code"] == "version_conflict"
        assert refused.json()["version"] == 1


def test_a_request_that_is_sent_again_is_taken_once(served: Served) -> None:
    body = {"events": [event("Created", n=1), event("Noted")], "expected": "none"}
    answers = [append(served, "Customer/c3", body, key="k1").json() for _ in range(3)]
    assert {one["version"] for one in answers} == {2}
    assert append(served, "Customer/c3", [event("Other")], key="k1").status_code == 422
    named = [{"event_id": "e1", **event("Noted")}]
    assert append(served, "Customer/c3", named).json()["version"] == 3
    assert append(served, "Customer/c3", named).json()["version"] == 3


def test_events_and_changes_of_tables_share_an_epoch(served: Served) -> None:
    body = {"events": [event("Bought")], "changes": {"stock": [{"insert": {"id": 1, "n": 5}}]}}
    receipt = append(served, "Customer/c4", body).json()
    assert receipt["applied"] == {"stock": 1, "events": 1}
    body["changes"] = {"stock": [{"insert": {"id": "no number"}}]}
    assert append(served, "Customer/c4", body).status_code == 422
    body["changes"] = {"events_aggregates": [{"insert": {}}]}
    assert append(served, "Customer/c4", body).status_code == 403
    assert served.client.get("/v1/events/Customer/c4/state").json()["version"] == 1


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 400, "cannot be read"),
        (b"7", 400, "cannot be read"),
        (b'{"events": 1}', 400, "cannot be read"),
        (b'{"events": [], "nonsense": 1}', 400, "cannot be read"),
        (b"[]", 422, "this append to events is not as it must be"),
        (b'[{"event_type": ""}]', 422, "1 event rejected"),
        (b'[{"event_type": "x", "event_data": 1}]', 422, "1 event rejected"),
        (b'[{"event_type": "x", "event_data": {"a": "' + b"x" * 2_000_000 + b'"}}]', 422, "1 event rejected"),
        (b'[{"event_type": "x", "event_data": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}]", 422, "1 event rejected"),
    ],
)
def test_malformed_bodies_are_told(served: Served, body: bytes, status: int, told: str) -> None:
    answer = served.client.post("/v1/events/Customer/bad", content=body)
    assert (answer.status_code, answer.json()["message"]) == (
        status,
        told if status == 422 else "the body " + told,
    )
    assert answer.json()["detail"]
    assert served.client.get("/v1/events/Customer/bad/state").status_code == 404


def test_unknown_stores_and_times_are_told(served: Served) -> None:
    assert append(served, "Customer/c1", event("x"), store="nowhere").status_code == 404
    assert append(served, "Customer/c1", event("x"), store="stock").status_code == 404
    assert append(served, "Customer/c1", event("x"), expected="soon").status_code == 422
    assert served.client.get("/v1/events/Customer/c1/state", params={"as_of": "soon"}).status_code == 422


def test_types_are_registered_where_definitions_are_taken(served: Served) -> None:
    schema = {"type": "object", "required": ["total"]}
    made = served.client.post("/v1/event-types", json={"event_type": "Ordered", "json_schema": schema})
    assert made.status_code == 200, made.text
    refused = append(served, "Order/o1", event("Ordered"))
    assert refused.status_code == 422
    assert "'total' is a required property" in refused.json()["detail"]
    assert append(served, "Order/o1", event("Ordered", total=1)).status_code == 200


def test_many_writers_of_one_aggregate_leave_no_hole(served: Served) -> None:
    def write(writer: int) -> list[int]:
        return [append(served, "Counter/c", event("Noted", w=writer, n=n)).json()["version"] for n in range(5)]

    with ThreadPoolExecutor(8) as pool:
        versions = [one for listed in pool.map(write, range(8)) for one in listed]
    assert sorted(versions) == list(range(1, 41))
    read = served.hr.events("events").read("Counter", "c").to_pylist()
    assert [one["event_version"] for one in read] == list(range(1, 41))
    positions = [one["position"] for one in served.hr.events("events").read().to_pylist()]
    assert positions == list(range(1, len(positions) + 1))


COMMANDS = '''
import headrace


@headrace.command("Customer")
def change_email(state, customer_id: str, email: str):
    """Another address for mails."""
    if state is None:
        raise headrace.CommandRefused("there is no such customer", hint="make one")
    return [{"event_type": "CustomerEmailUpdated", "event_data": {"email": email}}]
'''


def test_commands_are_served_with_a_schema_of_what_they_take(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "customer_commands.py"
    file.write_text(COMMANDS)
    served.hr.execute("CREATE VIEW emails AS SELECT get_json_object(event_data, '$.email') AS email FROM events")
    with running(served.hr, commands=(str(file),)) as one:
        refused = one.client.post("/v1/commands/change_email", json={"customer_id": "e1", "email": "a@x"})
        assert (refused.status_code, refused.json()["code"]) == (422, "command_refused")
        assert one.client.get("/v1/events/Customer/e1/state").status_code == 404
        append(one, "Customer/e1", event("CustomerCreated"))
        headers = {"Idempotency-Key": "k"}
        for _ in range(2):
            done = one.client.post(
                "/v1/commands/change_email", json={"customer_id": "e1", "email": "a@x"}, headers=headers
            )
            assert (done.status_code, done.json()["version"], done.json()["events"]) == (200, 2, 1)
        shown = one.query("SELECT count(*) AS n FROM emails WHERE email = 'a@x'", epoch=done.json()["epoch"])
        assert shown.json()["rows"] == [{"n": 1}]
        malformed = one.client.post("/v1/commands/change_email", json={"customer_id": "e1"})
        assert (malformed.status_code, malformed.json()["code"]) == (422, "bad_arguments")
        assert one.client.post("/v1/commands/other", json={}).status_code == 404
        (listed,) = one.client.get("/v1/commands").json()
        assert (listed["name"], sorted(listed["schema"]["required"])) == ("change_email", ["customer_id", "email"])
        document = one.client.get("/openapi.json").json()
        assert "/v1/commands/change_email" in document["paths"]
    served.hr.execute("DROP VIEW emails")
