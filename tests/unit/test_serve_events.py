"""The routes that read events, over a store in memory: newest first, times as addresses carry them, hints."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from headrace.access.grants import unlimited
from headrace.serving import events as routes
from headrace.serving import problems
from headrace.serving.access import ACCESS
from tests.small_events import SmallStore, event


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    found = SmallStore(tmp_path)
    for index in range(12):
        kind, name = ("Account", f"a{index % 3}") if index % 4 else ("Customer", "c1")
        found.append(kind, name, [event("Paid" if index % 2 else "Noted", n=index)], correlation_id="x")
    return found


def asked(store: SmallStore, path: str) -> httpx.Response:
    app = FastAPI()
    problems.install(app)
    app.include_router(routes.router)
    home = SimpleNamespace(events=lambda name: store)
    app.state.service = SimpleNamespace(home=home)

    async def with_access(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, ACCESS: unlimited("ann")}, receive, send)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(with_access)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_the_route_pages_backwards_and_times_end_in_z(store: SmallStore) -> None:
    first = asked(store, "/v1/events?order=newest&limit=2&event_type=Paid").json()
    assert [one["position"] for one in first["events"]] == [12, 10]
    assert first["events"][0]["metadata"]["correlation_id"] == "x"
    assert first["events"][0]["created_at"].endswith("Z")
    after = asked(store, f"/v1/events?order=newest&limit=2&event_type=Paid&before={first['next']}").json()
    assert [one["position"] for one in after["events"]] == [8, 6]
    aggregate = asked(store, "/v1/events/Customer/c1?order=newest&limit=1").json()
    assert (aggregate["events"][0]["position"], aggregate["next"]) == (9, 9)
    assert asked(store, "/v1/events?order=sideways").status_code == 422


@pytest.mark.parametrize("form", ["{}Z", "{}+00:00", "{} 00:00", "{}%2B00:00", "{} 0000"])
def test_a_time_is_taken_as_an_address_carries_it(store: SmallStore, form: str) -> None:
    at = asked(store, "/v1/events/Customer/c1").json()["events"][-1]["created_at"].removesuffix("Z")
    found = asked(store, f"/v1/events/Customer/c1/state?as_of={form.format(at)}")
    assert found.status_code == 200, found.text
    assert found.json()["state"] == {"n": 8}
    assert found.json()["updated_at"].endswith("Z")


def test_a_time_without_a_zone_is_still_refused(store: SmallStore) -> None:
    assert asked(store, "/v1/events/Customer/c1/state?as_of=2026-11-17 23:34").status_code in (400, 422)


def test_an_unknown_type_is_told_which_there_are(store: SmallStore) -> None:
    told = "no aggregate is of the type account; there are Account, Customer"
    assert asked(store, "/v1/events/account/a1").json() == {"events": [], "next": None, "hint": told}
    state = asked(store, "/v1/events/account/a1/state")
    assert (state.status_code, state.json()["hint"]) == (404, told)
    assert "hint" not in asked(store, "/v1/events/Account/zz").json()
