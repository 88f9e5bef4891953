"""A schema registry asked over HTTP, here a stand-in that can be made to fail; the real one is tried elsewhere."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace.capture.formats import registry as module
from headrace.capture.formats.registry import RegisteredSchema, Registry, RegistrySettings
from headrace.capture.messages import Undecodable
from headrace.errors import SourceError, SourceUnavailable


class StandIn:
    """Answers by path; remembers what it was asked, and by whom."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        stand_in = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in.asked.append(self.path)
                stand_in.authorizations.append(self.headers.get("Authorization"))
                stand_in.goes_on.wait(90)
                status, content = stand_in.answers.get(self.path, (404, b'{"error_code": 40403, "message": "no"}'))
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def knows(self, path: str, answer: Any, status: int = 200) -> None:
        self.answers[path] = (status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    found = StandIn()
    yield found
    found.stop()


@pytest.fixture
def registry(stand_in: StandIn) -> Iterator[Registry]:
    found = Registry(RegistrySettings(stand_in.url + "/"))
    yield found
    found.close()


def test_a_schema_is_asked_for_once(stand_in: StandIn, registry: Registry) -> None:
    stand_in.knows("/schemas/ids/7", {"schema": '"int"'})
    assert [registry.schema(7) for _ in range(3)] == [RegisteredSchema('"int"')] * 3
    assert stand_in.asked == ["/schemas/ids/7"]


def test_only_so_many_are_remembered(stand_in: StandIn, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_SCHEMAS", 2)
    for number in (1, 2, 3):
        stand_in.knows(f"/schemas/ids/{number}", {"schema": '"int"'})
    for number in (1, 2, 1, 3, 1, 2):
        registry.schema(number)
    assert stand_in.asked == [f"/schemas/ids/{number}" for number in (1, 2, 3, 2)]


def test_an_unknown_id_is_asked_for_again_after_a_while(stand_in: StandIn) -> None:
    now = 0.0
    registry = Registry(RegistrySettings(stand_in.url), clock=lambda: now)
    for _ in range(3):
        with pytest.raises(Undecodable, match="does not know schema 9") as unknown:
            registry.schema(9)
        assert unknown.value.stage == "schema"
    assert len(stand_in.asked) == 1
    now = 31.0
    stand_in.knows("/schemas/ids/9", {"schema": '"int"'})
    assert registry.schema(9).text == '"int"'
    registry.close()


@pytest.mark.parametrize(
    ("status", "kind", "transient"),
    [
        (500, SourceUnavailable, True),
        (503, SourceUnavailable, True),
        (429, SourceUnavailable, True),
        (401, SourceError, False),
        (403, SourceError, False),
        (400, SourceError, False),
        (302, SourceError, False),
    ],
)
def test_what_is_not_the_fault_of_a_record(
    stand_in: StandIn, registry: Registry, status: int, kind: type[SourceError], transient: bool
) -> None:
    stand_in.knows("/schemas/ids/1", b"{}", status)
    with pytest.raises(kind) as failed:
        registry.schema(1)
    assert failed.value.transient is transient
    assert failed.value.hint
    # It is asked again: nothing is remembered of a failure.
    stand_in.knows("/schemas/ids/1", {"schema": '"int"'})
    assert registry.schema(1).text == '"int"'


def test_a_registry_that_is_gone_or_slow_is_transient(stand_in: StandIn) -> None:
    slow = Registry(RegistrySettings(stand_in.url, timeout_seconds=0.2))
    stand_in.goes_on.clear()
    with pytest.raises(SourceUnavailable, match="does not answer"):
        slow.schema(1)
    stand_in.goes_on.set()
    slow.close()
    gone = Registry(RegistrySettings("http://127.0.0.1:9", timeout_seconds=2))
    with pytest.raises(SourceUnavailable) as failed:
        gone.schema(1)
    assert failed.value.transient
    gone.close()


def test_who_asks_says_who_it_is(stand_in: StandIn) -> None:
    stand_in.knows("/schemas/ids/1", {"schema": '"int"'})
    for settings, expected in (
        (RegistrySettings(stand_in.url, user="u", password="p w"), "Basic " + base64.b64encode(b"u:p w").decode()),
        (RegistrySettings(stand_in.url, token="secret"), "Bearer secret"),
        (RegistrySettings(stand_in.url), None),
    ):
        registry = Registry(settings)
        registry.schema(1)
        registry.close()
        assert stand_in.authorizations[-1] == expected
        assert "p w" not in repr(settings)
        assert "secret" not in repr(settings)


def test_references_come_before_what_refers_to_them(stand_in: StandIn, registry: Registry) -> None:
    def reference(subject: str, version: int = 1) -> dict[str, Any]:
        return {"name": subject, "subject": subject, "version": version}

    stand_in.knows(
        "/schemas/ids/1", {"schema": "top", "references": [reference("b"), reference("c/ä"), reference("a")]}
    )
    stand_in.knows("/subjects/b/versions/1", {"schema": "b", "references": [reference("a")]})
    stand_in.knows("/subjects/a/versions/1", {"schema": "a"})
    stand_in.knows("/subjects/c%2F%C3%A4/versions/1", {"schema": "c"})
    assert registry.schema(1) == RegisteredSchema("top", ("a", "b", "c"))
    stand_in.knows("/schemas/ids/2", {"schema": "top", "references": [reference("x")]})
    stand_in.knows("/subjects/x/versions/1", {"schema": "x", "references": [reference("y")]})
    stand_in.knows("/subjects/y/versions/1", {"schema": "y", "references": [reference("x")]})
    with pytest.raises(Undecodable, match="circle"):
        registry.schema(2)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"not json", "not JSON"),
        (b"[]", "no object"),
        ({"schema": 7}, "no text"),
        ({"schema": "{}", "schemaType": "PROTOBUF"}, "PROTOBUF"),
        ({"schema": "{}", "references": 7}, "references"),
        ({"schema": "{}", "references": [{"subject": 7}]}, "reference"),
        (b" " * (5 * 1024 * 1024), "more than"),
    ],
)
def test_an_answer_that_is_none_is_told(stand_in: StandIn, registry: Registry, answer: Any, reason: str) -> None:
    stand_in.knows("/schemas/ids/1", answer)
    with pytest.raises(Undecodable, match=reason):
        registry.schema(1)
