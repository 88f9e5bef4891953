"""The HTTP application of one open home."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

from headrace.home import Headrace
from headrace.serving import completion, health, ingress, problems
from headrace.serving.auth import checked_by
from headrace.serving.feldera import installing as feldera
from headrace.serving.service import service_for
from headrace.settings import Settings


def build_app(hr: Headrace, settings: Settings) -> FastAPI:
    """An application over an open home; it does not close the home."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        yield
        app.state.service.close()

    app = FastAPI(
        title="Headrace",
        description="Tables, views that are always current, and their changes, over HTTP.",
        lifespan=lifespan,
        dependencies=[Depends(checked_by(settings.api_keys))],
    )
    app.state.service = service_for(hr, settings)
    problems.install(app)
    for group in (ingress, completion, health):
        app.include_router(group.router)
    feldera.install(app, hr)
    return app
