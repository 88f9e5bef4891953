"""The support desk's API: Headrace's own server with one more route, which asks the data API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from headrace import Headrace, Settings
from headrace.serving.app import build_app
from headrace.serving.data.routes import page_of

RELATION = "support_desk"
TABLES = (Path(__file__).parent / "tables.sql").read_text(encoding="utf-8")


def desk_app(hr: Headrace, settings: Settings) -> FastAPI:
    """The server of an open home, with /transactions/user/{user_id}."""
    app = build_app(hr, settings)

    @app.get("/transactions/user/{user_id}")
    async def transactions_of_user(
        request: Request,
        user_id: int,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """The transactions of a user, newest first."""
        asked = {"user_id": f"eq.{user_id}", "order": "timestamp.desc", "limit": str(limit), "offset": str(offset)}
        return await page_of(request, RELATION, asked.items())

    return app
