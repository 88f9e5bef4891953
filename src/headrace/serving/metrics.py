"""/metrics: what Prometheus may scrape."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import ChangesRejected, HeadraceError
from headrace.reading.readings import Readings
from headrace.serving.openapi import refusals

router = APIRouter(tags=["operation"])

_OUTCOMES = ("applied", "stale", "dead")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STREAM_SECONDS = (1, 10, 60, 600, 3_600, 86_400)
_STAGE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The figures of one server."""

    def __init__(self, readings: Readings) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._counted = 0
        newest = Gauge("headrace_epoch", "The newest committed epoch.", registry=self.registry)
        newest.set_function(lambda: readings.epoch)
        self.epochs = Counter("headrace_epochs", "Epochs made since the server began.", registry=self.registry)
        self.epoch_seconds = Histogram(
            "headrace_epoch_seconds", "Seconds that an epoch took.", buckets=_SECONDS, registry=self.registry
        )
        self.stage_seconds = Histogram(
            "headrace_epoch_stage_seconds", "Seconds of an epoch, by stage.", ["stage"], buckets=_STAGE_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.relation_changes = Counter(
            "headrace_relation_changes", "Rows that came into a table or view, or left it.", ["relation"],
            registry=self.registry,
        )  # fmt: skip
        self.changed_at = Gauge(
            "headrace_relation_last_change_timestamp_seconds", "When a table or view last changed.", ["relation"],
            registry=self.registry,
        )  # fmt: skip
        self.changes = Counter(
            "headrace_changes", "Changes, by table and by what became of them.", ["table", "outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.requests = Counter(
            "headrace_http_requests", "Requests, by route and status.", ["method", "route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.request_seconds = Histogram(
            "headrace_http_request_seconds", "Seconds until a request was answered; streams are apart.", ["route"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.broken_off = Counter(
            "headrace_http_answers_broken_off", "Answers that ended before they were whole, streams not counted.",
            ["method", "route"], registry=self.registry,
        )  # fmt: skip
        self.stream_seconds = Histogram(
            "headrace_http_stream_seconds", "Seconds that a stream was listened to.", ["route"],
            buckets=_STREAM_SECONDS, registry=self.registry,
        )  # fmt: skip
        Info("headrace_build", "What runs here.", registry=self.registry).info(
            {"version": _version_of("headrace"), "spark": _version_of("pyspark"), "python": platform.python_version()}
        )
        ProcessCollector(registry=self.registry)

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """A figure that is read when it is asked for."""
        Gauge(name, description, registry=self.registry).set_function(read)

    def count(self, receipt: Receipt) -> None:
        """Count the changes of a receipt that was given out for the first time."""
        for outcome in _OUTCOMES:
            for table, count in getattr(receipt, outcome).items():
                self.changes.labels(table, outcome).inc(count)

    def listen(self, core: Core, loop: Loop) -> None:
        """Count the epochs of a home from now on, whoever makes them, beside whoever else listens."""
        committed, ran = core.committed, loop.ran
        known = core.catalog.relations

        def count_rows(epoch: int, committed_at: datetime, changes: Mapping[str, int]) -> None:
            nonlocal known
            committed(epoch, committed_at, changes)
            before, known = known, core.catalog.relations
            for name in before.keys() - known.keys() if before is not known else ():
                self._forget(name)
            for name, rows in changes.items():
                if name in known:
                    self.relation_changes.labels(name).inc(rows)
                    self.changed_at.labels(name).set(committed_at.timestamp())

        def count_epoch(epoch: int, stages: Mapping[str, float]) -> None:
            ran(epoch, stages)
            with self._lock:
                if epoch <= self._counted:
                    return
                self._counted = epoch
            self.epochs.inc()
            self.epoch_seconds.observe(sum(stages.values()))
            for stage, seconds in stages.items():
                self.stage_seconds.labels(stage).observe(seconds)

        self._counted = core.epoch
        core.committed, loop.ran = count_rows, count_epoch

    def _forget(self, relation: str) -> None:
        """Tell nothing more of a relation that was dropped: names come and go without number."""
        told = [(self.relation_changes, ()), (self.changed_at, ())]
        for figure, more in [*told, *((self.changes, (outcome,)) for outcome in (*_OUTCOMES, "rejected"))]:
            # Older releases of the library raise where there was nothing to tell.
            with suppress(KeyError):
                figure.remove(relation, *more)

    def refuse(self, error: HeadraceError) -> None:
        """Count the changes that a call was refused for."""
        if isinstance(error, ChangesRejected):
            for one in error.rejections:
                self.changes.labels(one.table, "rejected").inc()


class Measured:
    """Counts every request by the route that answered it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        # What is looked up under a lock each time: few, since routes and methods are those that are declared.
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._seconds: dict[tuple[str, bool], Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and note what became of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = time.perf_counter()
        status, whole, streams = 499, False, False

        async def noted(message: Message) -> None:
            nonlocal status, whole, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                # What event streams alone say of themselves; they last for as long as one listens.
                streams = status == 200 and any(
                    name == b"cache-control" and b"no-store" in value for name, value in message["headers"]
                )
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._app(scope, receive, noted)
        finally:
            # Only what is declared becomes a label: a stranger's paths and methods would be without number.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = getattr(scope.get("route"), "path", "unknown")
            counter = self._counters.get((method, route, status))
            if counter is None:
                counter = self._counters[method, route, status] = self._metrics.requests.labels(method, route, status)
            counter.inc()
            seconds = self._seconds.get((route, streams))
            if seconds is None:
                histogram = self._metrics.stream_seconds if streams else self._metrics.request_seconds
                seconds = self._seconds[route, streams] = histogram.labels(route)
            seconds.observe(time.perf_counter() - started_at)
            if not whole and not streams:
                self._metrics.broken_off.labels(method, route).inc()


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        # Run from its sources, without having been installed.
        return "0"


def _metrics_of(request: Request) -> Metrics:
    return request.app.state.service.metrics


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Figures.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    | refusals(),
)
def metrics(measured: Annotated[Metrics, Depends(_metrics_of)]) -> Response:
    """Figures in the text form of Prometheus."""
    return Response(generate_latest(measured.registry), media_type=CONTENT_TYPE_LATEST)
