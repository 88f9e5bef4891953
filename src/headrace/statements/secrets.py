"""Secrets in statements: kept in files of the home, so that what the ledger keeps of a statement has none."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from headrace.epoch.core import Core
from headrace.feeds.sinks import SINKS
from headrace.secrets import is_secret
from headrace.sql.syntax import AlterFeed, CreateFeed, CreateSource
from headrace.storage.secret_files import forget_others, kept_apart

S = TypeVar("S", CreateFeed, CreateSource)


@contextmanager
def feed_without_secrets(core: Core, statement: CreateFeed) -> Generator[CreateFeed, None, None]:
    """A statement with references in place of its secrets; if it comes to nothing, nothing of them is kept."""
    with _tidied(core):
        sink = SINKS.get(statement.sink)
        has_password = sink is not None and "password" in sink.options
        yield _apart(core, statement, _secrets_of(statement.sink), has_password)


@contextmanager
def source_without_secrets(core: Core, statement: CreateSource) -> Generator[CreateSource, None, None]:
    """The same of a source whose URL has a password in it, as the URL of a database may."""
    if not _has_password(statement.location):
        yield statement
        return
    with _tidied(core):
        yield _apart(core, statement, lambda name: name == "password", statement.connector in ("postgres", "mysql"))


@contextmanager
def altered_without_secrets(core: Core, statement: AlterFeed) -> Generator[AlterFeed, None, None]:
    """The same of options that a feed is to have from now on."""
    known = core.catalog.feeds.get(statement.name)
    with _tidied(core):
        secret = _secrets_of(known.sink if known else "")
        _, options = kept_apart(core.path, "", dict(statement.options), secret)
        yield replace(statement, options=tuple(sorted(options.items())))


def forget_secrets(core: Core) -> None:
    """Remove the secrets that nothing refers to any more."""
    catalog = core.catalog
    forget_others(core.path, [one.options for one in (*catalog.feeds.values(), *catalog.sources.values())])


def _apart(core: Core, statement: S, secret: Callable[[str], bool], has_password: bool) -> S:
    location, options = kept_apart(core.path, statement.location, dict(statement.options), secret, has_password)
    return replace(statement, location=location, options=tuple(sorted(options.items())))


def _secrets_of(sink: str) -> Callable[[str], bool]:
    known = SINKS.get(sink)
    return lambda name: is_secret(name) or (known is not None and name in known.secrets)


def _has_password(location: str) -> bool:
    try:
        return bool(urlsplit(location).password)
    except ValueError:
        return False


@contextmanager
def _tidied(core: Core) -> Generator[None, None, None]:
    try:
        yield
    except BaseException:
        forget_secrets(core)
        raise
