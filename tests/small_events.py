"""An event store in memory: the loop, the tables and the code of a store, without a disk and without Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headrace
from headrace.catalog.catalog import Table, View
from headrace.epoch.loop import Loop
from headrace.errors import CommandRefused
from headrace.events.open_store import OpenStore
from headrace.events.parts import parts_for
from headrace.events.store import EventStore
from headrace.events.tables import store_tables
from tests.small_engine import Host

OPTIONS: dict[str, Any] = {"data": "json", "unknown_types": True, "snapshot_events": 0, "snapshot_seconds": 0}


class EventHost(Host):
    """A home in memory that holds an event store."""

    read_only = False

    def __init__(self, *others: Table | View, **options: Any) -> None:
        super().__init__(*store_tables("events", {**OPTIONS, **options}), *others)
        self.settings = SimpleNamespace(event_bytes=10_000)
        self.closed = False
        self.following = SimpleNamespace(wait=lambda after, seconds: time.sleep(min(seconds, 0.01)))

    def newest_of_names(self, names: Sequence[str]) -> dict[str, Any]:
        found = {name: self.catalog.relations.get(name) for name in names}
        return {name: (one.store.snapshot(), one.schema) for name, one in found.items() if one is not None}


class SmallStore(EventStore):
    """A store of its own, with its loop and its home."""

    def __init__(self, folder: Path, *others: Table | View, **options: Any) -> None:
        self.host = EventHost(*others, **options)
        core: Any = self.host
        self.loop = Loop(core)
        self.within = OpenStore(self.loop, "events", parts_for(folder, "events", ThreadPoolExecutor(1)))
        super().__init__(self.within)

    @property
    def code(self) -> Any:
        return self._parts.code


def event(kind: str, /, **data: Any) -> dict[str, Any]:
    return {"event_type": kind, "event_data": data}


def named(name: str, kind: str = "Noted", /, **data: Any) -> dict[str, Any]:
    return {"event_id": name, **event(kind, **data)}


@headrace.command("Customer")
def create(state: Any, customer_id: str, name: str) -> Any:
    if state is not None:
        raise CommandRefused("that customer is there already", hint="choose another id")
    return event("CustomerCreated", name=name)
