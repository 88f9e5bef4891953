"""Running the server: keys, health, figures, the OpenAPI document, and how it begins and ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.face import home_of
from tests.e2e.conftest import LIMITS, Served
from tests.ending_with_us import ending_with_us
from tests.waiting import PATIENCE, until

KEY = "a key of the server"


def test_a_key_is_needed_where_there_is_one(server_with: Callable[..., Any]) -> None:
    with (
        server_with(api_keys=("first-key", "second-ö")) as served,
        httpx.Client(base_url=served.url, timeout=PATIENCE) as stranger,
    ):
        for path in ("/v1/completion?token=x", "/metrics", "/openapi.json", "/nowhere"):
            for headers in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": "Basic first-key"},
                {"X-API-Key": ""},
            ):
                answer = stranger.get(path, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert stranger.post("/v1/ingress/parts", content='{"insert": {"id": 1}}').status_code == 401
        assert stranger.get("/healthz").status_code == 200
        assert stranger.get("/readyz").json() == {"status": "ready"}
        assert stranger.get("/readyz", headers={"X-API-Key": "wrong-key"}).json() == {"status": "ready"}
        assert set(stranger.get("/readyz", headers={"X-API-Key": "first-key"}).json()) == {"status", "epoch"}
        for headers in (
            {"Authorization": "Bearer first-key"},
            {"authorization": "bearer first-key"},
            {"X-API-Key": "first-key"},
            {"X-API-Key": "second-ö".encode()},
            {"X-API-Key": "first-key", "Host": "elsewhere.example", "Origin": "https://elsewhere.example"},
        ):
            assert stranger.get("/metrics", headers=headers).status_code == 200, headers
        document = stranger.get("/openapi.json", headers={"X-API-Key": "first-key"}).json()
        assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}
    assert home_of(served.hr).core.relations()["parts"][0].size == 0


def test_without_a_key_pages_of_other_sites_are_refused(server: Served) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": ""}):
        answer = server.client.post("/v1/query", json={"sql": "SELECT 1"}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_site"), headers
    own = server.client.get("/metrics", headers={"Origin": server.url, "Host": f"localhost:{server.port}"})
    assert own.status_code == 403
    assert server.client.get("/metrics", headers={"Origin": server.url}).status_code == 200
    assert server.client.get("/metrics", headers={"Host": f"localhost:{server.port}"}).status_code == 200


def test_figures(server: Served) -> None:
    def figure(name: str) -> float:
        lines = server.client.get("/metrics").text.splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)

    applied = 'headrace_changes_total{outcome="applied",table="parts"}'
    rejected = 'headrace_changes_total{outcome="rejected",table="parts"}'
    before = figure(applied), figure("headrace_epochs_total"), figure(rejected)
    server.push("parts", '{"insert": {"id": 1}}\n{"insert": {"id": 2}}')
    server.push("parts", '{"insert": {"id": "x"}}')
    for _ in range(2):
        server.client.post(
            "/v1/ingress/parts?wait=true", content='{"insert": {"id": 3}}', headers={"Idempotency-Key": "f"}
        )
    assert (figure(applied) - before[0], figure("headrace_epochs_total") - before[1]) == (3, 2)
    assert figure(rejected) - before[2] == 1
    assert figure("headrace_epoch ") == server.hr.epoch
    assert figure("headrace_epoch_seconds_count") > 0
    assert figure('headrace_epoch_stage_seconds_sum{stage="ledger"}') > 0
    assert figure('headrace_relation_changes_total{relation="parts"}') > 0
    assert figure('headrace_relation_rows{relation="parts"}') == 3
    server.client.get("/made/up/path")
    text = server.client.get("/metrics").text
    assert 'route="/v1/ingress/{table}",status="422"' in text
    assert "/made/up" not in text


def test_the_document_names_every_answer(server: Served) -> None:
    document = server.client.get("/openapi.json").json()
    assert set(document["paths"]) >= {
        "/v1/ingress/{table}",
        "/v1/epochs",
        "/v1/completion",
        "/v1/query",
        "/v1/changes/{relation}",
        "/v1/sources",
        "/v1/sources/{name}",
        "/v1/sources/{name}/{verb}",
        "/v1/dead-letters",
        "/v1/dead-letters/{id}",
        "/v1/dead-letters/{verb}",
        "/v1/dead-letters/{id}/replay",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["responses"].keys() >= {"401", "403"}, path
            assert operation["responses"].keys() & {"200", "201", "202", "204"}, path
            for status, answer in operation["responses"].items():
                assert ("content" in answer) == (status not in ("204", "304")), (path, status)
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (path, status)
    assert server.client.get("/docs").status_code == 404
    wrong = server.client.put("/v1/query")
    assert (wrong.status_code, wrong.headers["allow"], wrong.json()["code"]) == (405, "POST", "method_not_allowed")


def test_an_unforeseen_error_gives_nothing_away(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(server.service.completions, "ask", broken)
    answer = server.client.get("/v1/completion?token=x")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text


def _schemathesis(
    server: Served, folder: Path, examples: int, document: str = "/openapi.json"
) -> subprocess.CompletedProcess[str]:
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    # A stream never ends, so it cannot be answered in full; the refusals of streams have tests of their own.
    return subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}{document}", "--seed", "20261116",
            "--url", server.url,
            "--max-examples", str(examples), "--checks", checks, "--exclude-path", "/v1/changes/{relation}",
            "--exclude-path", "/v1/live", "--exclude-path", "/v0/pipelines/{name}/egress/{relation}",
            "--phases", "examples,coverage,fuzzing", "--no-color", "--request-timeout", str(PATIENCE),
        ],
        capture_output=True,
        text=True,
        timeout=1_700,
        check=False,
        cwd=folder,
    )  # fmt: skip


@pytest.mark.timeout(1_800)
def test_schemathesis_finds_no_fault(server: Served, tmp_path: Path) -> None:
    ran = _schemathesis(server, tmp_path, 10)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_schemathesis_finds_no_fault_in_what_the_client_is_answered(
    server_with: Callable[..., Any], tmp_path: Path
) -> None:
    with server_with() as server:
        ran = _schemathesis(server, tmp_path, 10, "/v0/openapi.json")
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("document", ["/openapi.json", "/v0/openapi.json"])
def test_schemathesis_finds_no_fault_in_many_tries(
    server_with: Callable[..., Any], tmp_path: Path, document: str
) -> None:
    with server_with() as server:
        ran = _schemathesis(server, tmp_path, 150, document)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]


def test_calls_in_flight_finish_when_the_server_ends(server_with: Callable[..., Any]) -> None:
    answers: list[httpx.Response] = []
    with server_with() as served:
        lines = "\n".join(json.dumps({"insert": {"id": i, "name": "x"}}) for i in range(200))

        def push() -> None:
            with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
                answers.append(client.post("/v1/ingress/items?wait=true", content=lines))

        def listen() -> None:
            with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
                answers.append(client.get("/v1/changes/parts"))

        def hold() -> None:
            with home_of(served.hr).loop.turn:
                held.set()
                until(lambda: served.service.streams.ending)

        # The push cannot come to its end before the server has begun to end.
        held = threading.Event()
        threads = [threading.Thread(target=one) for one in (hold, push, listen)]
        for thread in threads:
            thread.start()
            assert held.wait(PATIENCE)
        until(lambda: served.service.pushes.under_way and served.service.streams.open)
    for thread in threads:
        thread.join(PATIENCE)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(served.rows("items")) == 200


def _command(*arguments: str) -> subprocess.Popen[str]:
    limits = {f"HEADRACE_{name.upper()}": f"PT{limit.total_seconds():.0f}S" for name, limit in LIMITS.items()}
    return subprocess.Popen(
        ending_with_us([sys.executable, "-c", "from headrace.cli.main import run; run()", "serve", *arguments]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HEADRACE_SPARK_MEMORY": "1g", **limits},
    )


def _await_ready(url: str) -> None:
    """Once a server with relations has rehearsed a push and a query, it says so."""

    def is_ready() -> bool:
        answer = httpx.get(f"{url}/readyz", timeout=PATIENCE)
        if answer.status_code != 200:
            assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        return answer.status_code == 200

    until(is_ready)


def test_other_machines_are_not_served_without_a_key(tmp_path: Path) -> None:
    command = _command("--host", "0.0.0.0", "--home", str(tmp_path / "home"))
    out, err = command.communicate(timeout=PATIENCE)
    assert command.returncode == 1
    assert "refusing to listen on 0.0.0.0 without an API key" in err
    assert out == ""
    assert not (tmp_path / "home").exists()


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A client with the key."""
    with httpx.Client(headers={"X-API-Key": KEY}, timeout=PATIENCE) as found:
        yield found


class Senders:
    """Who send rows to two tables at once, each under a key of its own, and what was acknowledged to them."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.sent: set[int] = set()
        self.acknowledged: dict[int, int] = {}

    def send(self, url: str, row_id: int) -> bool:
        """Whether it was acknowledged; False if nobody answered."""
        self.sent.add(row_id)
        changes = [{"insert": {"id": row_id}}]
        headers = {"Idempotency-Key": f"row {row_id}"}
        try:
            answer = self._client.post(f"{url}/v1/epochs", json={"a": changes, "b": changes}, headers=headers)
        except httpx.HTTPError:
            return False
        assert answer.status_code == 200, answer.text
        # The receipt of a key is the same whenever it is asked for.
        assert self.acknowledged.setdefault(row_id, answer.json()["epoch"]) == answer.json()["epoch"]
        return True

    def send_on(self, url: str, first_id: int) -> None:
        for row_id in range(first_id, first_id + 10_000):
            if not self.send(url, row_id):
                return


@pytest.mark.slow
def test_the_command_begins_is_killed_begins_again_and_ends(client: httpx.Client, tmp_path: Path) -> None:
    """A process of its own, for a project: what it acknowledged is there once, and a signal closes the home."""
    home = tmp_path / "home"
    settings = f"{{api_keys: [{KEY}], serve_definitions: true}}"
    (tmp_path / "headrace.yml").write_text(f"name: shop\nstorage: home\nsettings: {settings}\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    senders, arguments = Senders(client), ("--project", str(tmp_path), "--port", str(port), "--json")
    with _command(*arguments) as command, ThreadPoolExecutor(8) as threads:
        try:
            url = _url(command)
            assert url == f"http://127.0.0.1:{port}"
            assert httpx.get(f"{url}/readyz", timeout=PATIENCE).json() == {"status": "ready"}
            assert httpx.get(f"{url}/metrics", timeout=PATIENCE).status_code == 401
            for sql in ("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT)"):
                made = client.post(f"{url}/v1/query", json={"sql": sql})
                assert made.status_code == 200, made.text
            sending = [threads.submit(senders.send_on, url, sender * 10_000) for sender in range(8)]
            until(lambda: len(senders.acknowledged) >= 100 or any(one.done() for one in sending))
        finally:
            command.kill()
        for one in sending:
            one.result()
    assert len(senders.acknowledged) >= 100
    with _command(*arguments) as command:
        try:
            url = _url(command)
            _await_ready(url)
            there = _ids(url, "a")
            assert set(there.values()) == {1}
            assert senders.acknowledged.keys() <= there.keys() <= senders.sent
            # No epoch is torn.
            assert _ids(url, "b") == there
            for row_id in sorted(senders.sent):
                assert senders.send(url, row_id)
            assert _ids(url, "a") == _ids(url, "b") == Counter(senders.sent)
            _reloads(command, url, tmp_path)
            command.send_signal(signal.SIGTERM)
            _, err = command.communicate(timeout=PATIENCE)
            assert command.returncode == 0, err
        finally:
            command.kill()
    assert not list(home.glob("**/owner*.sock"))


def _reloads(command: subprocess.Popen[str], url: str, project: Path) -> None:
    """Limits that are changed in the project's file hold after SIGHUP, or headrace reload; what cannot is named."""

    def write(more: str) -> None:
        settings = f"{{api_keys: [{KEY}], serve_definitions: true, {more}}}"
        (project / "headrace.yml").write_text(f"name: shop\nstorage: home\nsettings: {settings}\n")

    def status() -> int:
        body = {"sql": "SELECT count(*) AS the_count_of_all_rows FROM a"}
        return httpx.post(f"{url}/v1/query", json=body, headers={"X-API-Key": KEY}, timeout=PATIENCE).status_code

    assert status() == 200
    write("serve_sql_characters: 20")
    command.send_signal(signal.SIGHUP)
    until(lambda: status() == 413)
    reload = [
        sys.executable,
        "-c",
        "from headrace.cli.main import run; run()",
        "reload",
        "--home",
        str(project / "home"),
    ]
    write("serve_sql_characters: none of them")
    refused = subprocess.run(reload, capture_output=True, text=True, timeout=PATIENCE)
    assert refused.returncode == 1
    assert "serve_sql_characters" in refused.stderr
    assert status() == 413
    write("spark_memory: 3g")
    told = subprocess.run(reload, capture_output=True, text=True, timeout=PATIENCE)
    assert told.returncode == 0, told.stderr
    assert "taken: serve_sql_characters; for the next start: spark_memory" in told.stdout
    assert status() == 200


def _url(command: subprocess.Popen[str]) -> str:
    """Where a server says that it listens."""
    assert command.stdout is not None
    return json.loads(command.stdout.readline())["url"]


def _ids(url: str, table: str) -> Counter[int]:
    asked = {"sql": f"SELECT * FROM {table}"}
    answer = httpx.post(f"{url}/v1/query", json=asked, headers={"X-API-Key": KEY}, timeout=PATIENCE)
    return Counter(row["id"] for row in answer.json()["rows"])
