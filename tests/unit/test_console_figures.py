"""Figures that the console tells: of a relation that a view stands in for, those of the view."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI
from pyspark.sql.types import LongType, StructField, StructType
from starlette.types import Receive, Scope, Send

from headrace.access.grants import Access, read_grant
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.serving import problems
from headrace.serving.access import ACCESS
from headrace.serving.console import graph, live
from headrace.serving.console.history import History
from headrace.serving.streams import Streams
from headrace.settings import Settings
from headrace.state.delta import Delta, consolidate, empty
from tests.bare_home import BareHome
from tests.servers import listening
from tests.small_engine import Following, Host, table, view

COLUMNS = StructType([StructField("id", LongType(), False)])
READER = Access("oslo", (read_grant("read:customers=customers_of_oslo"), read_grant("read:orders")))
WATCHER = Access("watcher", (read_grant("observe"),), {"customers": "customers_of_oslo"})
ADMIN = Access("admin", (read_grant("admin:*"),), {"customers": "customers_of_oslo"})


class Console:
    """The console's routes over a home of tables, of which one stands in for another."""

    def __init__(self, path: Path) -> None:
        self.home = BareHome(path)
        for name in ("customers", "customers_of_oslo", "orders"):
            self.home.create_table(name, COLUMNS, ("id",))
        self.access = READER
        self.app = FastAPI()
        problems.install(self.app)
        self.app.include_router(graph.router)
        self.app.include_router(live.router)
        streams = Streams(self.home.core, 8)
        self.app.state.history = History(cast("Any", self.home))
        self.app.state.service = SimpleNamespace(
            engine=self.home.engine, readings=self.home.core, streams=streams, settings=Settings(), end=streams.end
        )
        self.app.add_middleware(_Asked, console=self)

    def add(self, table: str, *ids: int) -> None:
        self.home.apply({table: [{"insert": {"id": one}} for one in ids]})


class _Asked:
    """Has every request come from whom the console is asked by."""

    def __init__(self, app: Any, console: Console) -> None:
        self._app, self._console = app, console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, ACCESS: self._console.access}, receive, send)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = Console(tmp_path / "home")
    yield made
    made.app.state.service.streams.close()
    made.home.close()


@pytest.mark.parametrize("access", [READER, WATCHER], ids=lambda one: one.who)
def test_how_many_hidden_rows_change_is_not_told(console: Console, access: Access) -> None:
    console.access = access
    with listening(console.app) as (server, _), httpx.Client(base_url=server.url, timeout=90) as client:
        before = {one["name"]: one for one in client.get("/v1/graph").json()["relations"]}["customers"]
        with client.stream("GET", "/v1/live") as stream:
            lines = (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:"))
            assert next(lines)["epochs"] == []
            console.add("customers", *range(40))
            told = [one["changes"] for one in next(lines)["epochs"]]
            assert "customers" not in {name for changes in told for name in changes}
            console.add("customers_of_oslo", 1, 2)
            (told,) = [one["changes"] for one in next(lines)["epochs"]]
            assert told["customers"] == 2
        after = {one["name"]: one for one in client.get("/v1/graph").json()["relations"]}["customers"]
        console.add("customers", *range(100, 160))
        hidden = {one["name"]: one for one in client.get("/v1/graph").json()["relations"]}["customers"]
    assert before["rate"] == 0
    assert (after["rows"], after["rate"]) == (2, round(2 / 60, 3))
    assert hidden == after, "also not that, nor when, they changed"


def test_who_reads_the_relation_itself_is_told_its_figures(console: Console) -> None:
    console.access = ADMIN
    with listening(console.app) as (server, _), httpx.Client(base_url=server.url, timeout=90) as client:
        console.add("customers", *range(40))
        found = {one["name"]: one for one in client.get("/v1/graph").json()["relations"]}["customers"]
    assert (found["rows"], found["rate"], found["changed_epoch"]) == (40, round(40 / 60, 3), console.home.epoch)


def _few(epoch: Any) -> Delta:
    """A view of no row so far, which remembers one for each of its table."""
    changed = epoch.delta_of("customers")
    schema = epoch.before("few#0").schema
    names = [str(one) for one in changed.rows.column(0).to_pylist()]
    epoch.record("few#0", consolidate(pa.table([names], schema=schema), changed.weights))
    return empty(changed.rows.schema)


@pytest.mark.parametrize(
    ("grants", "told"),
    [
        (["read:customers=few"], {"few": 0}),
        (["read:few"], {"few": 0}),
        (["read:few", "read:customers"], {"few": 0, "few#0": 42}),
        (["read:few", "observe"], {"few": 0, "few#0": 42}),
        (["admin"], {"few": 0, "few#0": 42}),
    ],
)
def test_what_a_view_remembers_does_not_count_hidden_rows(grants: list[str], told: dict[str, int]) -> None:
    host: Any = Host(table("customers"), view("few", "customers", rule=Following(_few), hidden=("few#0",)))
    host.changed_at = {}
    Loop(host).submit(Call({"customers": [{"insert": {"id": one, "n": one}} for one in range(42)]}))
    app = FastAPI()
    problems.install(app)
    app.include_router(graph.router)
    app.state.history = SimpleNamespace(epochs=lambda: [])
    engine = SimpleNamespace(core=host)
    app.state.service = SimpleNamespace(engine=engine, settings=Settings(), end=lambda: None)
    access = Access("dashboard", tuple(read_grant(one) for one in grants))
    app.add_middleware(_Asked, console=cast("Any", SimpleNamespace(access=access)))
    name = "customers" if "read:customers=few" in grants else "few"
    with listening(app) as (server, _), httpx.Client(base_url=server.url, timeout=90) as client:
        found = client.get(f"/v1/relations/{name}").json()
    assert {one["name"]: one["rows"] for one in found["state"]} == told
