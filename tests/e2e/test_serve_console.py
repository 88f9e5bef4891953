"""What the console reads, asked by a plain client: the graph, relations, differences, epochs as they come, scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.conftest import Served
from tests.waiting import PATIENCE

ROW = '{"insert": {"id": 1, "name": "a", "price": "1.50"}}'


def test_the_graph_tells_rows_rates_and_who_reads_whom(server: Served) -> None:
    receipt = server.push("items", ROW).json()
    graph = server.client.get("/v1/graph").json()
    by_name = {one["name"]: one for one in graph["relations"]}
    assert graph["epoch"] == receipt["epoch"]
    assert by_name["totals"]["reads"] == ["items"]
    assert by_name["totals"]["kind"] == "view"
    assert (by_name["items"]["rows"], by_name["totals"]["rows"]) == (1, 1)
    assert by_name["items"]["changed_epoch"] == receipt["epoch"]
    assert by_name["items"]["changed_at"] == graph["committed_at"]
    assert by_name["items"]["rate"] > 0
    assert by_name["items"]["columns"] == ["id", "name", "price"]


def test_a_relation_tells_its_definition_rules_state_and_epochs(server: Served) -> None:
    epoch = server.push("items", ROW).json()["epoch"]
    view = server.client.get("/v1/relations/totals").json()
    assert "GROUP BY name" in view["sql"]
    assert any("group by" in line for line in view["explain"])
    assert view["state"][0]["rows"] == 1
    assert view["epochs"][-1]["epoch"] == epoch
    assert view["epochs"][-1]["seconds"] > 0
    table = server.client.get("/v1/relations/ITEMS").json()
    assert (table["kind"], table["key"], table["read_by"]) == ("table", ["id"], ["totals", "shares"])
    assert server.client.get("/v1/relations/nothing").status_code == 404


def test_a_view_is_judged_and_a_table_is_not(server: Served) -> None:
    server.push("items", ROW)
    verdict = server.client.post("/v1/relations/totals/verify").json()
    assert verdict["ok"] is True
    assert server.client.post("/v1/relations/items/verify").status_code == 404


def test_a_difference_is_net_and_can_be_turned_around(server: Served) -> None:
    first = server.push("parts", ROW).json()["epoch"]
    server.push("parts", '{"insert": {"id": 2, "name": "b", "price": "2.00"}}')
    server.push("parts", '{"delete": {"id": 2}}')
    last = server.push("parts", '{"insert": {"id": 1, "name": "c", "price": "1.50"}}').json()["epoch"]

    def moved(begin: int, to: int) -> set[tuple[str, int]]:
        answer = server.client.get("/v1/relations/parts/difference", params={"from": begin, "to": to})
        assert answer.status_code == 200, answer.text
        return {(one["row"]["name"], one["weight"]) for one in answer.json()["rows"]}

    assert moved(first, last) == {("a", -1), ("c", 1)}
    assert moved(last, first) == {("a", 1), ("c", -1)}
    assert moved(last, last) == set()
    cut = server.client.get("/v1/relations/parts/difference", params={"from": first, "to": last, "limit": 1}).json()
    assert (len(cut["rows"]), cut["truncated"]) == (1, True)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/relations/parts/difference?from=0", 422),
        ("/v1/relations/parts/difference?from=-1&to=1", 422),
        ("/v1/relations/parts/difference?from=0&to=999999999", 410),
        ("/v1/relations/nothing/difference?from=0&to=0", 404),
        ("/v1/runtime?since=x", 422),
        ("/v1/epochs?limit=0", 422),
    ],
)
def test_what_cannot_be_told_is_refused(server: Served, path: str, status: int) -> None:
    answer = server.client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_epochs_that_can_be_read_end_with_the_newest(server: Served) -> None:
    epoch = server.push("parts", ROW).json()["epoch"]
    told = server.client.get("/v1/epochs?limit=2").json()
    assert [one["epoch"] for one in told["epochs"]] == [epoch - 1, epoch]
    assert told["newest"] == epoch


def test_epochs_are_told_as_they_are_committed_with_their_rows(server: Served) -> None:
    heard: list[dict[str, Any]] = []
    begun = threading.Event()

    def listen() -> None:
        with server.client.stream("GET", "/v1/live") as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    heard.append(json.loads(line[6:]))
                    begun.set()
                    if heard[-1]["epochs"]:
                        return

    listening = threading.Thread(target=listen)
    listening.start()
    assert begun.wait(PATIENCE)
    epoch = server.push("items", ROW).json()["epoch"]
    listening.join(PATIENCE)
    assert not listening.is_alive()
    (told,) = heard[-1]["epochs"]
    assert told["epoch"] == epoch
    assert (told["changes"]["items"], told["changes"]["totals"]) == (1, 1)
    runtime = server.client.get(f"/v1/runtime?since={epoch - 1}").json()
    assert set(runtime["epochs"][0]["stages"]) == {"intake", "views", "ledger"}
    assert runtime["samples"][-1]["process_bytes"] > 0


def test_scripts_are_for_servers_that_take_definitions(server: Served, server_with: Callable[..., Any]) -> None:
    made = {"sql": "CREATE TABLE made (a INT); INSERT INTO made VALUES (1); DROP TABLE made"}
    assert server.client.post("/v1/scripts", json=made).status_code == 403
    assert server.client.post("/v1/examples/medallion/start", json={}).status_code == 403
    with server_with(serve_definitions=True, serve_source_locations=[]) as open_server:
        client = open_server.client
        assert client.post("/v1/scripts", json=made).json()["epoch"] > 0
        query = client.post("/v1/scripts", json={"sql": "SELECT 1"})
        assert (query.status_code, query.json()["code"]) == (400, "definitions_only")
        files = {"sql": "CREATE SOURCE s INTO parts FROM FILES '/etc'"}
        assert client.post("/v1/scripts", json=files).json()["code"] == "location_refused"
        python = {"sql": "CREATE SOURCE s INTO parts FROM PYTHON 'os:system'"}
        assert client.post("/v1/scripts", json=python).status_code == 403
        broken = client.post("/v1/scripts", json={"sql": "CREATE TABLE"})
        assert (broken.status_code, broken.json()["line"]) == (400, 1)
        assert client.post("/v1/examples/medallion/push", json={}).status_code == 404
