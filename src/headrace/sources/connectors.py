"""The connectors there are, and the options that every source has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

from headrace.capture.connector import Connector, Description
from headrace.capture.debezium.mysql import MYSQL
from headrace.capture.debezium.postgres import POSTGRES
from headrace.capture.delta_follow import DELTA
from headrace.capture.files import FILES
from headrace.capture.formats import FORMATS
from headrace.capture.formats.registry import Registry, RegistrySettings
from headrace.capture.kafka import KAFKA
from headrace.capture.options import FormatOptions, read_options
from headrace.capture.python_source import PYTHON
from headrace.catalog.catalog import Source
from headrace.errors import SourceError
from headrace.sources.intake import MOST_BYTES
from headrace.sources.positions import Positions
from headrace.sources.retention import retention_of
from headrace.sources.schema_policy import policy_of

CONNECTORS: Mapping[str, Connector] = {
    one.keyword.lower(): one for one in (DELTA, FILES, KAFKA, MYSQL, POSTGRES, PYTHON)
}

ORDERS = ("position", "arrival")
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_SECONDS = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?:(?P<unit>second|minute|hour|day)s?)?", re.ASCII)
FORMAT_OPTIONS = frozenset(one.name for one in fields(FormatOptions))
COMMON_OPTIONS: Mapping[str, str] = {
    "format": "What records are written in: debezium, insert_delete, weighted, raw, avro, dms, goldengate.",
    "registry": "For avro: where the registry of the schemas is, such as 'http://registry:8081'.",
    "registry_user": "For avro: who asks the registry.",
    "registry_password": "For avro: the password, by reference.",
    "registry_token": "For avro: a bearer token, by reference.",
    "max_records": "How many records are taken into one epoch at most.",
    "max_records_per_second": "How many records are read a second at most, those of a further snapshot included.",
    "bulk_records": "How many records of a backlog are taken into one epoch as columns at most; 0 for none.",
    "raw": "Whether all that comes is kept in <source>_raw.",
    "raw_retention": "How long that is kept, such as '30 days', or how much of it, such as '1000000 rows'.",
    "max_record_bytes": "A larger record is a dead letter, of which so much is kept.",
    "lag_warning": "How long the source may be behind before that is told as a warning: '60 seconds', or seconds.",
    "dead_letter_limit": "With more dead letters than this the source stops and says so.",
    "order": "Which of two changes of a key is newer: by 'position' in the source, or by 'arrival'.",
    "schema_change": "What to do when a record has other columns: lenient, evolve, try_evolve, exception, ignore.",
    "include_schema_changes": "The changes that schema_change is for, such as 'add.column, alter'; all if not given.",
    "exclude_schema_changes": "The changes that are ignored, such as 'drop'.",
}


def check(description: Description, connector: Connector) -> None:
    """Refuse options that nobody reads, and what the connector itself refuses."""
    known = {*COMMON_OPTIONS, *connector.options, *(FORMAT_OPTIONS if connector.has_format else ())}
    for name in description.options:
        prefixed = any(one.endswith(".*") and name.startswith(one[:-1]) for one in connector.options)
        if name not in known and not prefixed and "*" not in connector.options:
            near = difflib.get_close_matches(name, known, n=1)
            raise SourceError(
                f"a source from {connector.keyword} has no option {name}",
                hint=f"did you mean {near[0]}?" if near else f"its options are {', '.join(sorted(known))}",
            )
    if connector.has_format:
        name = str(description.options.get("format", connector.format))
        if name != "avro" and name not in FORMATS:
            raise SourceError(f"there is no format {name}", hint=f"there are {', '.join([*FORMATS, 'avro'])}")
        if name == "avro":
            registry_of(description.options)
        read_options({one: value for one, value in description.options.items() if one in FORMAT_OPTIONS})
    order = description.options.get("order", "position")
    if order not in ORDERS:
        raise SourceError(f"order cannot be {order!r}", hint=f"write order = {' or '.join(map(repr, ORDERS))}")
    for name in ("max_records", "max_records_per_second", "bulk_records", "dead_letter_limit", "max_record_bytes"):
        _refuse_no_number(name, description.options.get(name))
    lag_warning_of(description.options)
    policy_of(description.options)
    retention_of(description.options)
    connector.check(description)


def positions_of(source: Source, connector: Connector) -> Positions | None:
    """What tells old changes of a source from new ones; nothing if they are taken as they arrive."""
    ordered = connector.ordered and source.options.get("order", "position") == "position"
    return Positions() if ordered else None


def registry_of(options: Mapping[str, Any]) -> Registry:
    """The registry that the schemas of Avro records are asked from."""
    url = str(options.get("registry", ""))
    if not url.startswith(("http://", "https://")):
        raise SourceError(
            "the format avro needs the registry of its schemas", hint="write registry = 'http://registry:8081'"
        )
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and url.isprintable() and " " not in url and (parts.port or 1) > 0
    except ValueError:
        known, parts = False, urlsplit("")
    if not known:
        raise SourceError("the registry of a source is at no URL", hint="write registry = 'http://registry:8081'")
    if parts.username is not None or parts.password is not None:
        raise SourceError(
            "the URL of a registry would keep a secret in the home",
            detail="What a statement says stays in the ledger, in backups and in SHOW.",
            hint="write registry_user = '...' and registry_password = 'env:NAME' or 'file:/path'",
        )
    user, password, token = (str(options.get(f"registry_{name}", "")) for name in ("user", "password", "token"))
    return Registry(RegistrySettings(url, user, password, token))


def most_bytes_of(options: Mapping[str, Any]) -> int:
    """How large a record of a source may be."""
    return int(options.get("max_record_bytes", MOST_BYTES))


def lag_warning_of(options: Mapping[str, Any]) -> float | None:
    """After how many seconds behind a source is told to be late; none if it never is."""
    given = options.get("lag_warning")
    if given is None:
        return None
    found = _SECONDS.fullmatch(str(given).strip().lower())
    if found is None or isinstance(given, bool):
        raise SourceError(f"lag_warning cannot be {given!r}", hint="write lag_warning = '60 seconds', or 60")
    return float(found["number"]) * _UNITS[found["unit"] or "second"]


def _refuse_no_number(name: str, value: Any) -> None:
    least = 0 if name in ("dead_letter_limit", "bulk_records") else 1
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise SourceError(f"{name} cannot be {value!r}", hint=f"write a whole number: {name} = 1000")
