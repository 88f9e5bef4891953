"""Traces: who asked for an epoch and what its stages took, as a receiver of the protocol hears it."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from starlette.types import Receive, Scope, Send

from headrace import tracing
from headrace.errors import HeadraceError
from headrace.serving.traced import Traced
from tests.bare_home import BareHome
from tests.costs import cost_of
from tests.small_engine import Host, table
from tests.small_sources import runner_over, source_home
from tests.trace_receiver import Receiver, receiving
from tests.waiting import until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
COLUMNS = StructType([StructField("id", LongType(), False), StructField("n", IntegerType())])
STAGES = ["epoch intake", "epoch views", "epoch ledger"]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving(monkeypatch) as found:
        yield found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[BareHome]:
    home = BareHome(tmp_path / "home")
    home.create_table("t", COLUMNS, ("id",))
    yield home
    home.close()


def test_an_epoch_is_a_span_with_one_for_each_stage(receiver: Receiver, home: BareHome) -> None:
    epoch = home.apply({"t": [{"insert": {"id": 1, "n": 1}}]}).epoch
    (found,) = receiver.named("epoch")
    assert found.attributes == {"headrace.epoch": epoch, "headrace.calls": 1}
    assert (found.parent, found.links, found.error, found.service) == (b"", (), None, "headrace")
    stages = receiver.below(found)
    assert [one.name for one in stages] == STAGES
    assert found.began == stages[0].began
    assert found.ended == stages[-1].ended
    assert all(a.ended == b.began for a, b in itertools.pairwise(stages))
    assert receiver.headers[0]["path"] == "/v1/traces"
    assert receiver.headers[0]["content-type"] == "application/x-protobuf"


def test_who_asked_for_an_epoch_alone_has_it_below_and_of_several_it_names_each(
    receiver: Receiver, home: BareHome
) -> None:
    with tracing.span("one", who="a"):
        home.apply({"t": [{"insert": {"id": 1, "n": 1}}]})
    calls = []
    for number in (2, 3):
        with tracing.span("several"):
            calls.append(home.loop.enter(home.loop.call({"t": [{"insert": {"id": number, "n": 1}}]})))
    for call in calls:
        home.loop.wait_for(call)
    (one,) = receiver.named("one")
    assert one.attributes == {"headrace.who": "a"}
    first, second = receiver.named("epoch")
    assert first.parent == one.id
    assert second.parent == b""
    assert sorted(second.links) == sorted(span.id for span in receiver.named("several"))
    assert second.attributes["headrace.calls"] == 2


def test_an_epoch_that_fails_says_so_and_nothing_of_its_rows(receiver: Receiver) -> None:
    class Failing(Host):
        def follow(self, work: object) -> None:
            raise HeadraceError("the row with 4711 is not right")

    from headrace.epoch.loop import Loop

    loop = Loop(Failing(table("t")))  # pyright: ignore[reportArgumentType]
    with pytest.raises(HeadraceError), tracing.span("asked"):
        loop.apply({"t": [{"insert": {"id": 4711, "n": 1}}]})
    (epoch,) = receiver.named("epoch")
    (asked,) = receiver.named("asked")
    assert epoch.error == asked.error == "HeadraceError"
    assert epoch.ended >= epoch.began
    assert "4711" not in str(receiver.spans)


def test_a_batch_of_a_source_and_one_of_a_feed_are_spans(receiver: Receiver, home: BareHome, tmp_path: Path) -> None:
    host = source_home()
    runner = runner_over(host, [{"id": number, "n": 1} for number in range(5)])
    runner.start()
    try:
        until(lambda: runner.status.progress.received == 5)
    finally:
        runner.stop()
    (batch,) = receiver.named("source batch")
    assert batch.attributes == {"headrace.source": "s", "headrace.records": 5}
    assert [one.name for one in receiver.below(batch)] == ["epoch"]
    home.execute(f"CREATE CHANGEFEED f FOR TABLE t INTO FILES '{tmp_path / 'out'}' WITH (flush_interval_ms = 5)")
    receipt = home.apply({"t": [{"insert": {"id": 1, "n": 1}}, {"insert": {"id": 2, "n": 1}}]})
    until(lambda: bool(receiver.named("feed batch")))
    (sent,) = receiver.named("feed batch")
    assert sent.attributes == {"headrace.feed": "f", "headrace.events": 2, "headrace.epoch": receipt.epoch}


def test_a_request_is_a_span_of_the_trace_that_its_sender_names(receiver: Receiver) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path="/v1/data/{name}")
        status = 503 if scope["query_string"] else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def ask(query: str) -> None:
        sent = tracing.traces()
        assert sent is not None
        transport = httpx.ASGITransport(Traced(app, sent))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            await client.get(f"/v1/data/secret{query}", headers={"traceparent": trace, "Authorization": "Bearer k"})

    asyncio.run(ask(""))
    asyncio.run(ask("?password=geheim"))
    well, failed = receiver.named("GET /v1/data/{name}")
    assert well.trace == bytes.fromhex("0af7651916cd43dd8448eb211c80319c")
    assert well.parent == bytes.fromhex("b7ad6b7169203331")
    assert well.kind == 2
    assert well.attributes == {
        "http.request.method": "GET",
        "http.route": "/v1/data/{name}",
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    assert (well.error, failed.error) == (None, "")
    assert not any(word in str(receiver.spans) for word in ("geheim", "secret", "Bearer"))


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_are_sent_where_an_endpoint_is_set(environment: dict[str, str], wanted: bool) -> None:
    assert tracing.is_wanted(environment) is wanted


def test_without_an_endpoint_nothing_of_it_is_loaded_and_a_span_costs_next_to_nothing() -> None:
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, headrace, headrace.tracing as t; t.begin_tracing()\n"
            "assert t.traces() is None and t.here() is None and t.span('x', a=1) is t.span('y')\n"
            "print([name for name in sys.modules if name.startswith('opentelemetry')])",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
    )
    assert told.stdout.strip() == "[]"
    assert tracing.traces() is None

    def begin_spans() -> None:
        for _ in range(10_000):
            with tracing.span("epoch", source="s"):
                pass

    def begin_nothing() -> None:
        for _ in range(10_000):
            with nullcontext():
                pass

    assert cost_of(begin_spans) < 5 * cost_of(begin_nothing)


def test_a_protocol_that_is_not_spoken_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setattr(tracing, "_decided", False)
    monkeypatch.setattr(tracing, "_traces", None)
    with caplog.at_level("WARNING", "headrace.tracing"):
        tracing.begin_tracing()
    assert tracing.traces() is None
    assert "only http/protobuf is spoken" in caplog.text


def test_an_endpoint_that_nobody_answers_holds_up_no_epoch(monkeypatch: pytest.MonkeyPatch, home: BareHome) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    over = threading.Event()
    # An epoch that waited for it would not end.
    monkeypatch.setattr(OTLPSpanExporter, "export", lambda *_: over.wait(600))
    monkeypatch.setattr(tracing, "_decided", False)
    monkeypatch.setattr(tracing, "_traces", None)
    tracing.begin_tracing()
    for number in range(20):
        home.apply({"t": [{"insert": {"id": number, "n": 1}}]})
    sent = tracing.traces()
    assert sent is not None
    over.set()
    sent.close()
