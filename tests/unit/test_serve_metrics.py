"""What is counted of requests: streams apart, answers that break off, and the process itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from headrace.serving.metrics import Measured, Metrics


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
