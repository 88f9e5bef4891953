"""Customers by their events: commands with rules, projections, an audit log, what was true then, replay and erasure.

A server carries out the commands of commands.py over HTTP; everything is gone at the end. `make demo-events` runs it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

import headrace
from headrace.serving.app import build_app
from headrace.serving.server import serving
from headrace.settings import Settings

HERE = Path(__file__).parent
DEFINITIONS = """
CREATE EVENT STORE events WITH (snapshot_events = 50);
CREATE EVENT TYPE 'CustomerCreated' FOR EVENT STORE events
    SCHEMA '{"type": "object", "required": ["name", "email"], "properties": {"name": {"type": "string"}}}'
    ENCRYPTED ('name');
CREATE PROJECTION customers FOR EVENT STORE events AGGREGATE TYPE 'Customer'
    (email STRING, city STRING FROM '$.address.city') DELETED BY 'CustomerDeleted';
CREATE VIEW customers_by_city AS SELECT city, count(*) AS customers FROM customers GROUP BY city;
CREATE VIEW moves AS
    SELECT aggregate_id AS customer_id, created_at AS moved_at, get_json_object(event_data, '$.address.city') AS city
    FROM events WHERE event_type IN ('CustomerCreated', 'CustomerAddressChanged');
"""


def main() -> None:
    """Run it all, and say what happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--customers", type=int, default=20)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-customers-") as folder,
        headrace.open(Path(folder) / "home") as hr,
    ):
        hr.execute(DEFINITIONS)
        hr.events("events").audit_log("audit_log")
        served(hr, chosen.customers)
        then(hr)
        replayed(hr)
        erased(hr)
        assert hr.verify().ok
        print("Every view is what Spark computes of all events from nothing.")


def served(hr: headrace.Headrace, count: int) -> None:
    """Commands over HTTP, and what the query side shows at the epoch that an answer carries."""
    settings = Settings(commands=(str(HERE / "commands.py"),))
    with asking(hr, settings) as client:
        for number in range(count):
            given = {"customer_id": f"c{number}", "name": f"Name {number}", "email": f"c{number}@example.com"}
            done = client.post("/v1/commands/create_customer", json={**given, "city": "Oslo"})
            assert done.status_code == 200, done.text
        moved = client.post("/v1/commands/change_address", json={"customer_id": "c1", "city": "Rome", "user": "ada"})
        print(f"c1 moved to Rome: {moved.json()}")
        epoch = moved.json()["epoch"]
        shown = client.post("/v1/query", json={"sql": "SELECT * FROM customers_by_city ORDER BY city", "epoch": epoch})
        print(f"at epoch {epoch}: {shown.json()['rows']}")
        for body, name in (
            ({"customer_id": "c1", "email": "no address"}, "change_email"),
            ({"customer_id": "nobody", "city": "Rome"}, "change_address"),
            ({"customer_id": "c1"}, "change_email"),
        ):
            refused = client.post(f"/v1/commands/{name}", json=body)
            print(f"{name} {body}: {refused.status_code} {refused.json()['message']}")
        conflict = client.post("/v1/events/Customer/c1?expected=1", json={"event_type": "CustomerEmailUpdated"})
        print(f"an append for version 1: {conflict.status_code}, it is at {conflict.json()['version']}")
        client.post("/v1/commands/change_email", json={"customer_id": "c1", "email": "new@example.com", "user": "bob"})
        client.post("/v1/commands/delete_customer", json={"customer_id": "c2", "user": "bob"})
        log = hr.query("SELECT changed_by, action, which FROM audit_log WHERE changed_by IS NOT NULL ORDER BY position")
        print(f"the audit log: {log.to_pylist()}")


def then(hr: headrace.Headrace) -> None:
    """What was true then."""
    store = hr.events("events")
    events = store.read("Customer", "c1").to_pylist()
    for one in events:
        print(f"c1 as of position {one['position']}: {store.state('Customer', 'c1', as_of=one['position'])}")
    before = events[1]["created_at"]
    print(f"c1 as of {before.isoformat()}: {store.state('Customer', 'c1', as_of=before)}")
    print(f"c2 was deleted: {store.state('Customer', 'c2')}")


def replayed(hr: headrace.Headrace) -> None:
    """A fresh projection of all events, a long aggregate with and without snapshots."""
    store = hr.events("events")
    for turn in range(20):
        events = [{"event_type": "CustomerVisited", "event_data": {"visits": turn * 50 + n}} for n in range(50)]
        store.append("Customer", "c3", events)
    began = time.perf_counter()
    whole = store.state("Customer", "c3", snapshots=False)
    without = time.perf_counter() - began
    store.snapshot("Customer", "c3")
    began = time.perf_counter()
    assert store.state("Customer", "c3") == whole
    by_snapshot = time.perf_counter() - began
    print(f"the state of 1,000 events took {without * 1000:.1f} ms, by a snapshot {by_snapshot * 1000:.1f} ms")
    hr.execute(
        "CREATE OR REPLACE PROJECTION customers FOR EVENT STORE events AGGREGATE TYPE 'Customer' "
        "(email STRING, city STRING FROM '$.address.city', visits BIGINT) DELETED BY 'CustomerDeleted'"
    )
    found = hr.query("SELECT max(visits) AS visits FROM customers").to_pylist()
    print(f"the projection was replayed with another field: {found}")


def erased(hr: headrace.Headrace) -> None:
    """A person is forgotten by forgetting a key."""
    store = hr.events("events")
    before = store.state("Customer", "c4")
    store.forget("Customer", "c4")
    print(f"c4 before: {before}; after its key is forgotten: {store.state('Customer', 'c4')}")


@contextmanager
def asking(hr: headrace.Headrace, settings: Settings) -> Iterator[httpx.Client]:
    """A client of a server of an open home, in a thread of this process."""
    with (
        serving(build_app(hr, settings)) as server,
        httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client,
    ):
        yield client


if __name__ == "__main__":
    main()
