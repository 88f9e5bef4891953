"""What sources that clients define may name: folders, registries, databases and references of secrets, by a setting."""

from __future__ import annotations

import importlib
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from headrace.serving.problems import Refusal

_PORTS = {
    "http": 80,
    "https": 443,
    "postgresql": 5432,
    "postgres": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "kafka": 9092,
    "redis": 6379,
    "rediss": 6379,
}
_POSTGRES = ("postgresql", "postgres")
_REDIS = ("redis", "rediss")

# Parameters of a URL, or the last words of an option, whose value is the path of a file.
_FILES = frozenset(
    {
        *("sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "truststore", "keystore", "keytab", "file"),
        *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"),
    }
)
# Parameters of a PostgreSQL URL that name neither a server nor a database nor a file: of libpq, and of Debezium's
# driver. Any other, such as host, hostaddr, service or passfile, may take the place of what the URL names.
_CONNECTION_PARAMETERS = frozenset(
    {
        *("application_name", "channel_binding", "client_encoding", "connect_timeout", "fallback_application_name"),
        *("gssencmode", "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval"),
        *("load_balance_hosts", "options", "require_auth", "ssl_max_protocol_version", "ssl_min_protocol_version"),
        *("sslcertmode", "sslmode", "sslnegotiation", "sslsni", "target_session_attrs", "tcp_user_timeout", "user"),
        *("connectTimeout", "socketTimeout", "tcpKeepAlive"),
    }
)


def refuse_unlisted(allowed: Sequence[str] | None, connector: str, location: str, options: Mapping[str, Any]) -> None:
    """Refuse a source that names what the setting does not list; without a list, all may be named."""
    if allowed is None:
        return
    for named in (*_places(connector, location), *_options(options)):
        if not any(_is_within(named, one) for one in allowed):
            raise _refused(named)


def _refused(named: str) -> Refusal:
    return Refusal(
        403,
        "location_refused",
        f"this server makes no source or changefeed with {named}",
        detail="What those may name that clients define is listed by the setting serve_source_locations.",
        hint="add it to that setting, or run headrace source or changefeed create where the server runs",
    )


def _places(connector: str, location: str) -> list[str]:
    """Return each place that a location names, by itself."""
    if connector == "kafka" and location:
        servers = location.removeprefix("kafka://").partition("/")[0]
        return [f"kafka://{one.strip()}" for one in servers.split(",")]
    try:
        url = urlsplit(location)
    except ValueError:
        url = urlsplit("")
    asked = parse_qsl(url.query, keep_blank_values=True)
    # Of a database the URL may name files too: a key, and who signs certificates.
    files = [value for name, value in asked if name in _FILES and value]
    if url.scheme in _REDIS and any(name == "db" for name, _ in asked):
        # It goes before the database in the path.
        raise _refused(location)
    if url.scheme not in _POSTGRES:
        return [location, *files] if location else []
    for name, _ in asked:
        if name not in _CONNECTION_PARAMETERS and name not in _FILES:
            raise Refusal(
                403,
                "location_refused",
                f"the URL of a PostgreSQL cannot have the parameter {name[:60]} here",
                detail="It may name another server, database or file than the URL does, which this server limits by "
                "the setting serve_source_locations.",
                hint="write host, port and database in the URL itself: 'postgresql://user@host:5432/database'",
            )
    return [*_databases(url, location), *files]


def _databases(url: SplitResult, location: str) -> list[str]:
    """Return a URL for each host of a PostgreSQL URL as libpq reads it, which may try one host after the other."""
    database, slash, table = url.path.removeprefix("/").partition("/")
    if {".", ".."} & {database, *table.split("/")}:
        raise _refused(location)
    plain = url._replace(scheme="postgresql", path=f"/{database}", query="", fragment="").geturl()
    try:
        psycopg, conninfo = importlib.import_module("psycopg"), importlib.import_module("psycopg.conninfo")
    except ImportError:
        # Neither this nor any other URL is connected to by libpq here.
        return [location]
    try:
        read = conninfo.conninfo_to_dict(plain)
    except psycopg.Error:
        raise _refused(location) from None
    hosts, ports = str(read.get("host", "")).split(","), str(read.get("port", "")).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    places: list[str] = []
    for host, port in zip(hosts, ports, strict=False):
        named = f"[{host}]" if ":" in host else quote(host, safe="")
        places.append(f"postgresql://{named}{port and ':'}{port}/{database}{slash}{table}")
    return places


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
        same = (_scheme(inner), inner.hostname, _port(inner)) == (_scheme(outer), outer.hostname, _port(outer))
    except ValueError:
        return False
    paths = [os.path.normpath("/" + one.path).rstrip("/") for one in (inner, outer)]
    return same and (paths[0] == paths[1] or paths[0].startswith(paths[1] + "/"))


def _scheme(url: SplitResult) -> str:
    """Return the scheme of a URL, of a PostgreSQL by the longer of its two names."""
    return _POSTGRES[0] if url.scheme in _POSTGRES else url.scheme


def _port(url: SplitResult) -> int | None:
    return url.port or _PORTS.get(url.scheme)
