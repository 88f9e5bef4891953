"""Which relations lie in PostgreSQL as well, whole and followed: those that a running changefeed mirrors there."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headrace.catalog.catalog import Catalog, Feed
from headrace.errors import HeadraceError
from headrace.feeds.postgres_names import IndexColumn as NamedColumn
from headrace.feeds.postgres_names import read_target
from headrace.feeds.sinks import SINKS
from headrace.feeds.target import target_of
from headrace.reading.access import Index, IndexColumn

_log = logging.getLogger("headrace.serving")
_SINK = "postgres"
# With one of these a table does not hold what the relation holds.
_PARTIAL = ("filter", "cursor")


@dataclass(frozen=True, eq=False)
class ServingTable:
    """A table of PostgreSQL that equals a relation as of some epoch."""

    feed_id: str
    schema: str | None
    table: str
    keys: tuple[str, ...]
    indexes: tuple[Index, ...]


def declared_by_feeds(catalog: Catalog, relation: str) -> tuple[tuple[str, ...], tuple[Index, ...]]:
    """The key and the indexes that changefeeds into PostgreSQL name for a relation, running or not."""
    key: tuple[str, ...] = ()
    indexes: list[Index] = []
    for feed in catalog.feeds.values():
        if feed.table == relation and feed.sink.lower() == _SINK and (found := _described(catalog, feed)) is not None:
            key = key or found.keys
            indexes.extend(found.indexes)
    return key, tuple(dict.fromkeys(indexes))


def serving_table(catalog: Catalog, relation: str, database: str) -> ServingTable | None:
    """The table of a relation in a database of this name, if a running changefeed sees to it that it is the same."""
    for feed in catalog.feeds.values():
        partial = any(feed.options.get(option) for option in _PARTIAL)
        whole = str(feed.options.get("initial_scan", "yes")).lower() == "yes" and not partial
        mirrors = str(feed.options.get("mode", "mirror")).lower() == "mirror"
        if feed.table == relation and feed.sink.lower() == _SINK and feed.state == "Running" and whole and mirrors:
            found = _described(catalog, feed, database)
            if found is not None:
                return found
    return None


def database_of(dsn: str) -> str:
    """The name of the database in a URL."""
    return unquote(urlsplit(dsn).path.strip("/"))


def _described(catalog: Catalog, feed: Feed, database: str | None = None) -> ServingTable | None:
    try:
        described = read_target(target_of(feed, SINKS[_SINK], catalog.get(feed.table)))
    except HeadraceError as error:
        _log.info(
            "changefeed %s does not say where its table is: %s", feed.name, error.message, extra={"feed": feed.name}
        )
        return None
    if database is not None and database_of(described.database) != database:
        return None
    indexes = tuple(as_index(one) for one in described.indexes)
    return ServingTable(feed.id, described.schema, described.table, described.keys, indexes)


def as_index(named: tuple[NamedColumn, ...]) -> Index:
    """An index as the data API goes along it, where NULL is the largest value."""
    return tuple(IndexColumn(one.name, one.descending) for one in named)
