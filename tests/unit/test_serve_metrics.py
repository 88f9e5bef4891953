"""What is counted of requests: streams apart, answers that break off, and the process itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.types import LongType, StructField, StructType
from starlette.types import Receive, Scope, Send

from headrace.definitions.restored import PAUSED_BY_RESTORE
from headrace.errors import ChangesRejected, Rejection
from headrace.serving.finding_metrics import FindingMetrics
from headrace.serving.findings import Finding, findings
from headrace.serving.metrics import Measured, Metrics
from tests.bare_home import BareHome


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    scope["route"] = SimpleNamespace(path=scope["path"])
    cached = [(b"cache-control", b"no-store")] if scope["path"] == "/stream" else []
    await send({"type": "http.response.start", "status": 200, "headers": cached})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    if scope["path"] == "/broken":
        raise RuntimeError("broken off")
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    families: Any = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {(s.name, s.labels.get("route", "")): s.value for family in families for s in family.samples}


def test_streams_and_broken_answers_are_counted_apart() -> None:
    metrics = Metrics(SimpleNamespace(epoch=3))  # pyright: ignore[reportArgumentType]

    async def ask(path: str) -> None:
        transport = httpx.ASGITransport(Measured(_app, metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            await client.get(path)

    asyncio.run(ask("/whole"))
    asyncio.run(ask("/stream"))
    with pytest.raises(RuntimeError):
        asyncio.run(ask("/broken"))
    found = _samples(metrics)
    assert found["headrace_http_request_seconds_count", "/whole"] == 1
    assert found["headrace_http_stream_seconds_count", "/stream"] == 1
    assert ("headrace_http_request_seconds_count", "/stream") not in found
    assert found["headrace_http_answers_broken_off_total", "/broken"] == 1
    assert ("headrace_http_answers_broken_off_total", "/whole") not in found


def test_the_process_and_the_build_are_told() -> None:
    found = _samples(Metrics(SimpleNamespace(epoch=3)))  # pyright: ignore[reportArgumentType]
    assert found["process_resident_memory_bytes", ""] > 1_000_000
    assert found["headrace_build_info", ""] == 1
    assert found["headrace_epoch", ""] == 3


def _relations(metrics: Metrics) -> set[tuple[str, str]]:
    """The relations that are told of, and the figures."""
    families: Any = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    found = {(s.name, s.labels.get("relation", s.labels.get("table", ""))) for one in families for s in one.samples}
    return {(name.removesuffix("_created"), relation) for name, relation in found if relation}


def test_a_relation_that_is_dropped_leaves_no_series(tmp_path: Path) -> None:
    home = BareHome(tmp_path / "home")
    metrics = Metrics(home.core)
    metrics.listen(home.core, home.loop)
    columns = StructType([StructField("id", LongType(), False)])
    for name in ("stays", "goes"):
        home.create_table(name, columns, ("id",))
        metrics.count(home.apply({name: [{"insert": {"id": 1}}]}))
        metrics.refuse(ChangesRejected([Rejection(name, 0, "it is none")]))
    told = _relations(metrics)
    assert {relation for _, relation in told} == {"stays", "goes"}
    home.execute("DROP TABLE goes")
    assert _relations(metrics) == {(name, relation) for name, relation in told if relation == "stays"}
    # Another of its name begins anew.
    home.create_table("goes", columns, ("id",))
    metrics.count(home.apply({"goes": [{"insert": {"id": 1}}]}))
    assert ("headrace_relation_changes_total", "goes") in _relations(metrics)
    home.close()


def feeds_found(home: Any, status: Any) -> list[tuple[str, str]]:
    """What is found of a home with one feed that is as given."""
    home.feeds.status_of = lambda _: status
    return [(one.kind, one.text) for one in findings(home, 60)]


def test_what_is_found_wrong_is_a_series_for_as_long_as_it_is() -> None:
    # As a feed with on_error = 'pause' is after an error: of its state alone one would think that somebody paused it.
    status = SimpleNamespace(state="Paused", error="the sink refused it", lag=3)
    catalog = SimpleNamespace(feeds={"f": SimpleNamespace(name="f")}, sources={}, views=list[Any])
    core = SimpleNamespace(catalog=catalog, is_lost=False, broken=None, relations=dict[str, Any])
    feeds = SimpleNamespace(status_of=lambda _: status)
    home: Any = SimpleNamespace(core=core, feeds=feeds, status=lambda: {"clock_failure": "no room"})
    keys = [Finding("keys", "access", "warning", "New and revoked keys are not noticed.")]
    registry = CollectorRegistry()
    registry.register(FindingMetrics(lambda: [*findings(home, 60), *keys]))
    told = generate_latest(registry).decode()
    for kind, about in (("feed_failing", "f"), ("upkeep", "clock"), ("keys", "access")):
        assert f'headrace_findings{{about="{about}",kind="{kind}",level="warning"}} 1.0' in told
    status.error, home.status = None, dict[str, Any]
    keys.clear()
    assert "headrace_findings{" not in generate_latest(registry).decode()
    told = feeds_found(home, SimpleNamespace(state="Running", error="no route", lag=3, retries=2))
    assert told == [("feed_retrying", "It is retrying, 2 times since its last delivery: no route")]
    told = feeds_found(home, SimpleNamespace(state="Running", error="no route", lag=3000, retries=2))
    assert [kind for kind, _ in told] == ["feed_retrying", "feed_late"]
    told = feeds_found(home, SimpleNamespace(state="Paused", error=PAUSED_BY_RESTORE, lag=0, retries=0))
    assert [kind for kind, _ in told] == ["feed_paused"]
    core.is_lost = True
    assert 'headrace_findings{about="home",kind="home",level="broken"} 1.0' in generate_latest(registry).decode()
