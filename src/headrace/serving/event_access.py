"""Which event store a request means, and whether its sender may read it or append to it.

A store is covered for reading by its name alone, as all that Headrace keeps itself is: these routes tell what is
encrypted in its tables. What is refused is refused alike whether or not there is such a store.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.access.grants import Access
from headrace.events.open_store import OpenStore
from headrace.events.store import open_store_of
from headrace.serving.access import forbidden
from headrace.serving.service import Service


def store_to_read(service: Service, access: Access, named: str | None) -> OpenStore:
    """The store that is read; one for which a view stands in is not read as it is."""

    def allowed(store: str) -> bool:
        return access.may_read(store, system=True) and access.reads_in_place_of(store) == store

    return _store(service, access, named, allowed, "read")


def store_to_append(service: Service, access: Access, named: str | None) -> OpenStore:
    """The store to which events are appended."""
    return _store(service, access, named, access.may_write, "append to")


def may_append(service: Service, access: Access, named: str | None) -> bool:
    """Whether the sender of a request may append to a store."""
    return access.is_unlimited or _named(service, named, access.may_write) is not None


def _store(service: Service, access: Access, named: str | None, allowed: Callable[[str], bool], deed: str) -> OpenStore:
    if access.is_unlimited:
        return open_store_of(service.home.events(named))
    name = _named(service, named, allowed)
    if name is None:
        raise forbidden(f"{deed} {'an event store' if named is None else named[:60]}")
    return open_store_of(service.home.events(name))


def _named(service: Service, named: str | None, allowed: Callable[[str], bool]) -> str | None:
    """The store of a name, or the one that is meant where none is named, among those that are allowed."""
    stores = [one.name for one in service.home.core.catalog.tables() if one.events is not None and allowed(one.name)]
    if named is not None:
        return named.lower() if named.lower() in stores else None
    if "events" in stores:
        return "events"
    return stores[0] if len(stores) == 1 else None
