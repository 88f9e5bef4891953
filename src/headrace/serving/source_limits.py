"""What sources that clients define may name: folders, registries, databases and references of secrets, by a setting."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from headrace.serving.problems import Refusal

_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "postgres": 5432, "mysql": 3306, "mariadb": 3306, "kafka": 9092}

_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "truststore", "keystore"})


def refuse_unlisted(allowed: Sequence[str] | None, connector: str, location: str, options: Mapping[str, Any]) -> None:
    """Refuse a source that names what the setting does not list; without a list, all may be named."""
    if allowed is None:
        return
    for named in (*_places(connector, location), *_options(options)):
        if not any(_is_within(named, one) for one in allowed):
            raise Refusal(
                403,
                "location_refused",
                f"this server makes no source or changefeed with {named}",
                detail="What those may name that clients define is listed by the setting serve_source_locations.",
                hint="add it to that setting, or run headrace source or changefeed create where the server runs",
            )


def _places(connector: str, location: str) -> list[str]:
    """Where a source is, each place by itself."""
    if connector == "kafka" and location:
        servers = location.removeprefix("kafka://").partition("/")[0]
        return [f"kafka://{one.strip()}" for one in servers.split(",")]
    try:
        asked = parse_qsl(urlsplit(location).query)
    except ValueError:
        asked = []
    # Of a database the URL may name files too: a key, and who signs certificates.
    files = [value for name, value in asked if name in _FILES]
    return [location, *files] if location else []


def _options(options: Mapping[str, Any]) -> list[str]:
    """The registry that options name, other brokers, and what they refer to."""
    texts = {name: value for name, value in options.items() if isinstance(value, str)}
    named = [value for name, value in texts.items() if _names_a_place(name, value)]
    brokers = [texts[name] for name in ("kafka.bootstrap.servers", "kafka.metadata.broker.list") if name in texts]
    return [*named, *(f"kafka://{one.strip()}" for listed in brokers for one in listed.split(","))]


def _names_a_place(name: str, value: str) -> bool:
    """Whether an option says where something is: a file that is read, or a server that is spoken to."""
    return (
        name == "registry"
        or value.startswith(("env:", "file:"))
        or name in ("ca_cert", "client_cert", "client_key", "endpoint")
        # As of a driver: 'sslkey', or 'debezium.database.sslkey'.
        or name.rpartition(".")[2] in _FILES
        or name.endswith((".location", "_location", ".url", "_url"))
    )


def _is_within(named: str, allowed: str) -> bool:
    """Whether something is what is allowed, or lies under it: a folder, a URL; env:NAME, with a * at its end."""
    if allowed.startswith("env:") or named.startswith("env:"):
        return named == allowed or (
            allowed.endswith("*") and named.startswith(allowed[:-1]) and allowed.startswith("env:")
        )
    if "://" in named or "://" in allowed:
        return _is_url_within(named, allowed)
    if named.startswith("file:") != allowed.startswith("file:"):
        return False
    # A link that leads elsewhere is elsewhere.
    inner, outer = (os.path.realpath(Path(one.removeprefix("file:")).expanduser()) for one in (named, allowed))
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _is_url_within(named: str, allowed: str) -> bool:
    try:
        inner, outer = urlsplit(named), urlsplit(allowed)
        same = (inner.scheme, inner.hostname, _port(inner)) == (outer.scheme, outer.hostname, _port(outer))
    except ValueError:
        return False
    paths = [os.path.normpath("/" + one.path).rstrip("/") for one in (inner, outer)]
    return same and (paths[0] == paths[1] or paths[0].startswith(paths[1] + "/"))


def _port(url: SplitResult) -> int | None:
    return url.port or _PORTS.get(url.scheme)
