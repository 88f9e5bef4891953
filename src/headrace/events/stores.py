"""The event stores of an open home, each with what all who use it in this process share."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from headrace.epoch.loop import Loop
from headrace.events.open_store import OpenStore
from headrace.events.outbox import PREFIX
from headrace.events.parts import StoreParts, parts_for
from headrace.events.store import EventStore
from headrace.events.tables import beside, default_store, store_table

_log = logging.getLogger("headrace.events")


class EventStores:
    """Opens event stores; what a program registers of one holds for all of its openings."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._turn = threading.Lock()
        self._parts: dict[str, StoreParts] = {}
        self._snapshots = ThreadPoolExecutor(1, thread_name_prefix="headrace-event-snapshots")

    def get(self, name: str | None = None) -> EventStore:
        """The store of this name, with its verbs; where none is named, the only one or the one called events."""
        return EventStore(self._open(name))

    def _open(self, name: str | None) -> OpenStore:
        catalog = self._loop.core.catalog
        store = store_table(catalog, default_store(catalog) if name is None else name).name
        with self._turn:
            parts = self._parts.get(store)
            if parts is None:
                parts = self._parts[store] = parts_for(self._loop.core.path, store, self._snapshots)
        return OpenStore(self._loop, store, parts)

    def resume(self) -> None:
        """Follow the outboxes that are followed, each once, and nothing of stores that are gone.

        It runs after each definition, which is committed by then, and when a home is opened: neither fails by it.
        """
        core = self._loop.core
        if core.read_only or core.closed:
            return
        with self._turn:
            gone = [self._parts.pop(name) for name in list(self._parts) if name not in core.catalog]
        for parts in gone:
            for one in parts.followers:
                # Nobody waits for them: they may wait for the turn of whoever dropped their store.
                one.end(forgotten=True)
        for table in [one for one in core.catalog.tables() if one.events is not None]:
            try:
                self._resume(table.name)
            except Exception:
                _log.exception("the outboxes of event store %s are not followed", table.name)

    def _resume(self, store: str) -> None:
        core, beside_it = self._loop.core, beside(store, "subscriptions")
        state, _ = core.newest_of_names([beside_it])[beside_it]
        for name in state.all((0,)).rows.column(0).to_pylist():
            relation = name.removeprefix(PREFIX)
            if name.startswith(PREFIX) and relation in core.catalog:
                self._open(store).followed_outbox(relation)

    def close(self) -> None:
        """Follow no more, and take no more snapshots; those that wait are left out."""
        followers = [one for parts in self._parts.values() for one in parts.followers]
        for one in followers:
            one.end()
        for one in followers:
            one.stop()
        self._snapshots.shutdown(cancel_futures=True)
