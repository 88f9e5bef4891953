"""The data API over states in memory: an application that is asked without a home, a server or Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
from fastapi import FastAPI

from headrace.catalog.catalog import PARKED, Catalog, Feed, Table
from headrace.feeds.parked import parked_table
from headrace.reading.following import Newest
from headrace.serving import problems
from headrace.serving.auth import Credentials, Guarded
from headrace.serving.data import openapi, routes
from headrace.settings import Settings
from headrace.state.delta import consolidate, weights_of


class Readings:
    """One epoch after the other, in memory."""

    def __init__(self, *tables: Table) -> None:
        self.catalog = Catalog().having(*tables)
        self.epoch = 0
        self.changed_at: dict[str, int] = {}
        # Of each change the relation, the epoch and the moment.
        self.changes: list[tuple[str, int, datetime]] = []
        self.lookups = 0
        self.following = SimpleNamespace(first_change=self._first_change)

    def _first_change(self, relation: str, after: int, *, reads: bool = True) -> datetime | None:
        self.lookups += reads
        found = [at for name, epoch, at in self.changes if name == relation and epoch > after]
        return found[0] if found and reads else None

    def change(self, name: str, rows: Sequence[Sequence[Any]], weight: int = 1) -> None:
        store = self.catalog.table(name).store
        columns = [pa.array([row[i] for row in rows], store.schema.field(i).type) for i in range(len(store.schema))]
        store.apply(consolidate(pa.table(columns, schema=store.schema), weights_of([weight] * len(rows))))
        self.epoch += 1
        self.changed_at[name] = self.epoch
        self.changes.append((name, self.epoch, datetime.now(UTC)))

    def park(self, feed_id: str, sequence: int) -> None:
        if PARKED not in self.catalog.relations:
            self.catalog = self.catalog.having(parked_table())
        names = self.catalog.table(PARKED).schema.names
        row = {"feed": "f", "sequence": sequence, "feed_id": feed_id}
        self.change(PARKED, [[row.get(name) for name in names]])

    def feed(self, feed: Feed) -> None:
        self.catalog = replace(self.catalog, feeds={**self.catalog.feeds, feed.name: feed})

    def newest_of(self, name: str) -> Newest:
        one = self.catalog.relations.get(name)
        content = None if one is None else one.store.snapshot()
        changed = self.changed_at.get(name, self.epoch)
        return Newest(self.epoch, self.catalog.history, one, content, changed)


class Api:
    """An application over readings, asked in this thread."""

    def __init__(self, readings: Readings, credentials: Credentials | None = None, **settings: Any) -> None:
        chosen = Settings(**settings)
        self.app = FastAPI(openapi_url=None)
        self.app.state.service = SimpleNamespace(readings=readings, settings=chosen)
        self.app.state.data = routes.data_api(chosen)
        problems.install(self.app)
        routes.install(self.app)
        self.app.include_router(openapi.router)
        self.app.add_middleware(Guarded, credentials=credentials)

        # Connections of a pool belong to one loop.
        self.runner = asyncio.Runner() if chosen.data_postgres else None

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.get(path, headers=dict(headers or {}))

        return asyncio.run(ask()) if self.runner is None else self.runner.run(ask())

    def close(self) -> None:
        if self.runner is not None:
            self.runner.run(self.app.state.data.close())
            self.runner.close()
