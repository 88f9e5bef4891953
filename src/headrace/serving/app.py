"""The HTTP application of one open home."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from headrace import tracing
from headrace.access.ring import KeyRing
from headrace.face import Headrace, home_of
from headrace.query_processes.pool import QueryProcesses
from headrace.query_processes.queries import processes_for
from headrace.serving import (
    changefeeds,
    changes,
    commands,
    completion,
    dead_letters,
    epochs,
    events,
    health,
    ingress,
    metrics,
    oidc,
    problems,
    query,
    scripts,
    session,
    sources,
)
from headrace.serving.auth import Credentials, Guarded
from headrace.serving.connections import Lingering
from headrace.serving.console import examples, graph, live, pages
from headrace.serving.console.examples import Medallion
from headrace.serving.console.history import History
from headrace.serving.data import openapi as data_openapi
from headrace.serving.data import routes as data
from headrace.serving.feldera import routes as feldera
from headrace.serving.headers import Headed
from headrace.serving.metrics import Measured
from headrace.serving.oidc import OpenId
from headrace.serving.openapi import with_keys
from headrace.serving.service import service_for
from headrace.serving.traced import Traced
from headrace.settings import Settings
from headrace.version import release


def build_app(hr: Headrace, settings: Settings, processes: QueryProcesses | None = None) -> FastAPI:
    """An application over an open home, which it does not close; nor does it end query processes that it is given."""
    is_own = processes is None
    processes = processes or processes_for(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        app.state.history.begin()
        alerts = service.alerts()
        if alerts is not None:
            alerts.start()
        yield
        if alerts is not None:
            await run_in_threadpool(alerts.close)
        await app.state.data.close()
        await run_in_threadpool(app.state.history.close)
        ring.close()
        await run_in_threadpool(app.state.service.close)
        if is_own:
            await run_in_threadpool(processes.close)

    # Without the pages of documentation, which would have a browser fetch scripts from elsewhere.
    app = FastAPI(
        title="Headrace",
        description="Tables, views that are always current, and their changes, over HTTP.",
        version=release(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # Served by data/openapi.py, with the relations that there are.
        openapi_url=None,
    )
    ring = KeyRing(home_of(hr).path)
    service = app.state.service = service_for(home_of(hr), settings, processes, ring)
    app.state.history = History(home_of(hr))
    service.metrics.listen(home_of(hr).core, home_of(hr).loop)
    app.state.medallion = Medallion(hr)
    app.state.data = data.data_api(settings)
    problems.install(app)
    for group in (
        ingress,
        epochs,
        completion,
        query,
        changes,
        sources,
        dead_letters,
        changefeeds,
        events,
        session,
        oidc,
    ):
        app.include_router(group.router)
    for group in (scripts, health, metrics, graph, live, examples, pages, data_openapi):
        app.include_router(group.router)
    data.install(app)
    commands.install(app, hr, settings.commands)
    feldera.install(app, str(home_of(hr).path))
    ring.start()
    openid = app.state.openid = OpenId(settings)
    credentials = app.state.credentials = Credentials(settings.api_keys, ring, needed=openid.is_offered)
    with_keys(app, lambda: credentials.is_needed)
    app.add_middleware(Guarded, credentials=credentials)
    app.add_middleware(Headed)
    app.add_middleware(Lingering)
    app.add_middleware(Measured, metrics=service.metrics)
    if (sent := tracing.traces()) is not None:
        app.add_middleware(Traced, traces=sent)
    return app
