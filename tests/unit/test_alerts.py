"""Alerts: told until they are heard, once they are, never with a secret; and `headrace status --check` for scripts."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.log import JsonLines, TextLines
from headrace.feeds.webhook_transport import PinnedTransport
from headrace.serving import alerts as alerts_module
from headrace.serving.alerts import Alerts
from headrace.serving.findings import Finding
from tests.command_line import code_of
from tests.waiting import until


class Receiver:
    """A webhook on loopback that may refuse."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if outer.status == 200:
                    outer.heard.append(json.loads(body))
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/s3cr3t"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def _late(seconds: int = 400) -> Finding:
    return Finding("source_late", "orders", "warning", f"It is {seconds} s behind.")


def test_a_receiver_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts_module, "_TIMEOUT", 0.6)

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            with suppress(OSError):
                while True:
                    connection.sendall(b"X")
                    time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        alerts = Alerts(f"http://127.0.0.1:{listener.getsockname()[1]}/", "shop", lambda: [_late()])
        # It drips until it is hung up on.
        assert not alerts.tell()
        thread.join(90)
        assert not thread.is_alive()


def test_what_came_and_what_went_is_told_once(receiver: Receiver) -> None:
    now: list[Finding] = []
    alerts = Alerts(receiver.url, "shop", lambda: now, is_first=True)
    assert alerts.tell()
    assert receiver.heard == []
    now.append(_late())
    assert alerts.tell()
    now[:] = [_late(500)]
    assert alerts.tell()
    now.clear()
    assert alerts.tell()
    told = [[[one["about"] for one in body[kind]] for kind in ("firing", "resolved")] for body in receiver.heard]
    assert told == [[["orders"], []], [[], ["orders"]]]
    assert receiver.heard[0]["home"] == "shop"
    assert [[one["about"] for one in body["all"]] for body in receiver.heard] == [["orders"], []]


def test_what_an_earlier_process_fired_and_is_right_again_is_known_after_the_first_post(receiver: Receiver) -> None:
    alerts = Alerts(receiver.url, "shop", list)
    receiver.status = 503
    assert not alerts.tell()
    receiver.status = 200
    assert alerts.tell()
    assert receiver.heard == [{"home": "shop", "firing": [], "resolved": [], "all": []}]
    assert alerts.tell()
    assert len(receiver.heard) == 1


def test_who_lost_the_home_says_nothing_of_it_any_more(receiver: Receiver) -> None:
    lost = False
    alerts = Alerts(receiver.url, "shop", lambda: [_late()], is_lost=lambda: lost)
    lost = True
    assert alerts.tell()
    assert receiver.heard == []


def test_what_becomes_graver_is_told_again(receiver: Receiver) -> None:
    now = [Finding("upkeep", "fold", "warning", "Folds fail.")]
    alerts = Alerts(receiver.url, "shop", lambda: now)
    assert alerts.tell()
    now[:] = [Finding("upkeep", "fold", "broken", "Nothing is folded.")]
    assert alerts.tell()
    assert [one["level"] for body in receiver.heard for one in body["firing"]] == ["warning", "broken"]
    assert receiver.heard[-1]["resolved"] == []


def test_no_text_ends_who_tells(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [Finding("source_failing", "ördërs", "warning", "It has stopped: bad value '\udcff'")]
    alerts = Alerts(receiver.url, "shop", lambda: now, seconds=0.01)
    fails = [RuntimeError("odd"), UnicodeEncodeError("utf-8", "x", 0, 1, "odd")]

    def odd(*_: Any, **__: Any) -> Any:
        if fails:
            raise fails.pop()
        return PinnedTransport(*_, **__)

    monkeypatch.setattr(alerts_module, "PinnedTransport", odd)
    alerts.start()
    until(lambda: bool(receiver.heard))
    assert alerts._thread.is_alive()
    alerts.close()
    ((told),) = receiver.heard[0]["firing"]
    assert told["about"] == "ördërs"
    assert told["text"] == "It has stopped: bad value '\\udcff'"


def test_a_receiver_that_is_away_hears_the_difference_when_it_is_back(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    now = [_late(), Finding("feed_failing", "out", "warning", "It has stopped: away")]
    alerts = Alerts(receiver.url, "shop", lambda: now)
    receiver.status = 503
    with caplog.at_level(logging.WARNING):
        assert not any(alerts.tell() for _ in range(5))
    now.pop()
    receiver.status = 200
    assert alerts.tell()
    assert [one["about"] for one in receiver.heard[0]["firing"]] == ["orders"]
    assert len(receiver.heard) == 1
    assert "s3cr3t" not in caplog.text


def test_a_home_that_cannot_be_looked_at_tells_nothing(receiver: Receiver) -> None:
    def fail() -> list[Finding]:
        raise RuntimeError("closing")

    assert not Alerts(receiver.url, "shop", fail).tell()
    assert receiver.heard == []


def test_a_thread_tells_by_itself_and_ends(receiver: Receiver) -> None:
    alerts = Alerts(receiver.url, "shop", lambda: [_late()], seconds=0.01)
    alerts.start()
    until(lambda: bool(receiver.heard))
    alerts.close()
    assert len(receiver.heard) == 1


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ({}, 2, "broken"),
        ({"status": {"epoch": 7}, "findings": {"findings": []}}, 0, "all is well, epoch 7"),
        ({"status": {"epoch": 7}, "findings": {"findings": [_late().to_json()]}}, 1, "warning source_late orders"),
    ],
)
def test_status_has_a_code_for_scripts(
    answers: dict[str, Any],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("headrace.cli.status.through_owner", lambda _, verb: answers.get(verb))
    assert code_of("status", "--check", "--home", str(tmp_path)) == code
    assert said in capsys.readouterr().out
    assert code_of("status", "--check", "--json", "--home", str(tmp_path)) == code
    assert json.loads(capsys.readouterr().out)["code"] == code


def test_lines_of_the_log() -> None:
    record = logging.LogRecord("headrace.sources", logging.WARNING, "", 1, "lost %s", ("a\nb\x1b[31m",), None)
    record.epoch, record.source = 12, "orders"
    told = json.loads(JsonLines().format(record))
    assert {name: told[name] for name in ("level", "logger", "message", "epoch", "source")} == {
        "level": "warning", "logger": "headrace.sources", "message": "lost a\nb\x1b[31m", "epoch": 12,
        "source": "orders",
    }  # fmt: skip
    line = TextLines().format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert line.endswith("epoch=12 source=orders")
