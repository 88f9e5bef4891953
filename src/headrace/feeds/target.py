"""What a feed's definition says of its sink, with secrets looked up, which stand in nothing that is kept or shown."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pyspark.sql.types import StructType

from headrace.catalog.catalog import Feed, Relation, Table
from headrace.errors import FeedError, HeadraceError
from headrace.feeds.options import OPTIONS
from headrace.feeds.postgres_names import read_keys
from headrace.feeds.sink import Sink, Target
from headrace.secrets import hidden, is_reference, is_secret, referred_to, refuse_plain

_LOCATION = "location"
_WEBHOOK = "webhook"
# A shorter path, or a shorter part of one, stands in texts that have nothing to do with it.
_LEAST_PATH = 4
_LEAST_PART = 16
_THEN = "RESUME CHANGEFEED"


def key_of(relation: Relation) -> tuple[str, ...]:
    """The columns of a relation's key; none where it has no key."""
    return relation.contract.key if isinstance(relation, Table) else relation.key


def is_referred(location: str) -> bool:
    """Whether a location says where it lies, rather than what it is, as the URL of a file does."""
    return is_reference(location) and not location.startswith("file://")


def location_referred_to(location: str) -> str:
    """Return a location, or what its reference stands for."""
    return referred_to(_LOCATION, location, FeedError, _THEN) if is_referred(location) else location


def target_of(feed: Feed, sink: Sink, relation: Relation | None, fence: int = 0, home: str = "") -> Target:
    """What the sink of a feed is given; of a relation that is gone, its name alone."""
    columns = relation.schema if relation is not None else StructType([])
    key = (_named_key(feed, columns) or key_of(relation)) if relation is not None else ()
    return Target(
        feed.name,
        feed.id,
        location_referred_to(feed.location),
        {
            name: referred_to(name, value, FeedError, _THEN) if _may_refer(name, sink) else value
            for name, value in feed.options.items()
            if name not in OPTIONS or name in sink.options
        },
        relation.name if relation is not None else feed.table,
        columns,
        key or tuple(columns.names),
        bool(key),
        fence,
        home,
    )


def _named_key(feed: Feed, columns: StructType) -> tuple[str, ...]:
    """Return the columns that the option keys names, if the feed has it."""
    named = feed.options.get("keys")
    return () if named is None else read_keys(str(named), {name.casefold(): name for name in columns.names})


def warning_of(feed: Feed, relation: Relation) -> str | None:
    """Return what somebody should know of a feed: that no column identifies the rows of its relation."""
    if key_of(relation) or "keys" in feed.options:
        return None
    return (
        f"{relation.name} has no key, so all columns identify a row, and an update is a DELETE and an INSERT under two "
        "keys; the option keys = 'a, b' names the columns that identify a row"
    )


def refuse_plain_secrets(location: str, options: Mapping[str, Any], sink: Sink) -> None:
    """Refuse what would put a secret into the home."""
    refuse_plain(options, FeedError, lambda name: is_secret(name) or name in sink.secrets)
    if is_referred(location):
        return
    try:
        parts = urlsplit(location)
        password = parts.password
    except ValueError:
        return
    if password is not None or any(is_secret(name) for name, _ in parse_qsl(parts.query)):
        own = "password = 'env:NAME', or " if "password" in sink.options else ""
        raise FeedError(
            "the location would keep a secret in the home",
            detail="What a statement says stays in the ledger, in backups and in SHOW.",
            hint=f"say where it lies instead: {own}the whole location as 'env:NAME' or 'file:/path'",
        )


def shown_location(feed: Feed) -> str:
    """Return the location of a feed without secrets: of a webhook the host, for its path is often a secret."""
    if feed.sink != _WEBHOOK or is_referred(feed.location):
        return feed.location
    try:
        parts = urlsplit(feed.location)
    except ValueError:
        return "***"
    is_bare = parts.path in ("", "/") and not parts.query and not parts.fragment
    return feed.location if is_bare else f"{parts.scheme}://{parts.netloc}/***"


def told_without_secrets(text: str, feed: Feed, target: Target | None) -> str:
    """Return a text without what references of a feed refer to, and without the path of a webhook."""
    if target is not None:
        text = _without_references(text, feed, target)
    if feed.sink == _WEBHOOK:
        for part in _secret_parts(feed.location if target is None else target.location):
            text = text.replace(part, "***")
    return text


def _secret_parts(url: str) -> list[str]:
    """Return what follows the host in the URL of a webhook, whole and in parts, the longest first."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    path = parts.path.removeprefix("/")
    whole = url.partition("://")[2].partition("/")[2]
    pieces = [*path.split("/"), *(value for _, value in parse_qsl(parts.query)), parts.fragment]
    found = {one for one in (whole, path, parts.query) if len(one) >= _LEAST_PATH}
    found |= {one for one in pieces if len(one) >= _LEAST_PART}
    return sorted(found | {unquote(one) for one in found}, key=len, reverse=True)


def _without_references(text: str, feed: Feed, target: Target) -> str:
    given = {**feed.options, _LOCATION: feed.location}
    text = hidden(text, given, {**target.options, _LOCATION: target.location})
    if is_referred(feed.location):
        try:
            password = urlsplit(target.location).password
        except ValueError:
            password = None
        for one in {password, unquote(password or "")} - {None, ""}:
            text = text.replace(str(one), "***")
    return text


@contextmanager
def secrets_hidden(feed: Feed, target: Target | None) -> Generator[None, None, None]:
    """Inside, no error tells what a reference refers to."""
    try:
        yield
    except HeadraceError as error:
        error.message, error.detail, error.hint = (
            told_without_secrets(part, feed, target) for part in (error.message, error.detail, error.hint)
        )
        raise


def _may_refer(name: str, sink: Sink) -> bool:
    """Who may name an option may not thereby read files and the environment, but for what is a secret."""
    return is_secret(name) or name in sink.secrets
