"""Settings that are read anew: limits are taken by a server that runs, the rest is named and waits."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.cli.log import reloading
from headrace.errors import SetupError
from headrace.serving.completions import Completions
from headrace.serving.data.rates import Rates
from headrace.serving.limits import Pushes
from headrace.serving.problems import Refusal
from headrace.serving.reload import reload
from headrace.serving.service import Held, Service
from headrace.serving.statement_runner import StatementRunner
from headrace.settings import RELOADED, Settings, settings_of_file


class _Streams:
    def limit(self, slots: int) -> None:
        self.slots = slots


def _app(settings: Settings) -> Any:
    nothing: Any = None
    service = Service(
        nothing,
        nothing,
        nothing,
        Held(settings),
        nothing,
        nothing,
        Completions(settings.serve_completions),
        Pushes(settings.serve_pushes, settings.serve_body_bytes, settings.serve_room_bytes),
        nothing,
        StatementRunner(settings.serve_queries),
        nothing,
        _Streams(),  # pyright: ignore[reportArgumentType]
        nothing,
    )
    data = SimpleNamespace(rates=Rates(settings.data_rate, settings.data_burst))
    return SimpleNamespace(state=SimpleNamespace(service=service, data=data))


def test_limits_are_taken_and_the_rest_waits_for_the_next_start() -> None:
    app = _app(Settings())
    held = app.state.service.pushes.enter()
    told = reload(
        app,
        Settings(
            serve_pushes=1,
            serve_streams=3,
            serve_query_rows=5,
            data_rate=0.001,
            data_burst=1,
            spark_memory="3g",
            log_level="info",
        ),
    )
    assert set(told.taken) == {
        "serve_pushes",
        "serve_streams",
        "serve_query_rows",
        "data_rate",
        "data_burst",
        "log_level",
    }
    assert told.waiting == ("spark_memory",)
    service = app.state.service
    assert (service.settings.serve_query_rows, service.settings.spark_memory) == (5, "2g")
    assert service.streams.slots == 3
    with pytest.raises(Refusal, match="too"):
        service.pushes.enter()
    held.release()
    service.pushes.enter().release()
    app.state.data.rates.take("a")
    with pytest.raises(Refusal, match="too many"):
        app.state.data.rates.take("a")
    # The same once more: it still waits, and nothing else has changed.
    again = reload(app, Settings(**service.settings.model_dump() | {"spark_memory": "3g"}))
    assert (again.taken, again.waiting) == ((), ("spark_memory",))
    assert str(again) == "nothing has changed that can be taken; for the next start: spark_memory"


def test_a_signal_is_heard_though_it_comes_where_a_lock_is_held() -> None:
    lock, over, got = threading.Lock(), threading.Event(), list[bool]()

    def again() -> str:
        got.append(lock.acquire(timeout=90))
        over.set()
        return ""

    with reloading(again):
        with lock:
            os.kill(os.getpid(), signal.SIGHUP)
        assert over.wait(90)
    assert got == [True]


def test_signals_that_come_while_one_is_followed_are_followed_once_more(caplog: pytest.LogCaptureFixture) -> None:
    begun, go_on, many = threading.Semaphore(0), threading.Event(), list[int]()

    def again() -> str:
        begun.release()
        assert go_on.wait(90)
        many.append(threading.active_count())
        if len(many) == 1:
            raise SetupError("not now")
        return ""

    with reloading(again):
        os.kill(os.getpid(), signal.SIGHUP)
        assert begun.acquire(timeout=90)
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGHUP)
        go_on.set()
        assert begun.acquire(timeout=90)
        assert not begun.acquire(timeout=0.2)
    assert len(many) == 2
    # Whoever read on in a test before this one may still have said so.
    assert [one.getMessage().split(":")[0] for one in caplog.records][-2:] == ["not read anew", "read anew"]


def test_every_setting_that_is_reloaded_is_a_limit_a_server_asks_for_as_it_runs() -> None:
    assert Settings.model_fields.keys() >= RELOADED
    assert not {"api_keys", "spark_memory", "jars", "serve_query_memory", "serve_connections"} & RELOADED


def test_a_file_of_settings_is_read_and_what_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.yml"
    file.write_text("log_level: info\nserve_pushes: 7\n")
    assert settings_of_file(file) == {"log_level": "info", "serve_pushes": 7}
    file.write_text("")
    assert settings_of_file(file) == {}
    for text in ("- a\n", "1: 2\n", "a: [\n", "\x00", "a: 2001-13-45", "a: " + "9" * 5000, "a: &a [*a]"):
        file.write_text(text)
        with pytest.raises(SetupError, match=r"settings"):
            settings_of_file(file)
    with pytest.raises(SetupError, match="cannot be read"):
        settings_of_file(tmp_path / "none.yml")
