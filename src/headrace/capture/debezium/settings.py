"""What a statement says of a database, in the settings of Debezium."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from headrace.capture.connector import Description
from headrace.capture.debezium.allowed import PREFIX, refuse_others
from headrace.capture.name_patterns import name_pattern
from headrace.errors import SourceError

SNAPSHOTS = ("initial", "never", "always", "when_needed")
HEARTBEAT_SECONDS = 60

OPTIONS: Mapping[str, str] = {
    "tables": "Which tables: 'public.orders, public.customers', where a * stands for any letters.",
    "password": "The password of the user in the URL, by reference.",
    "snapshot": "Whether the tables are read before their changes: 'initial' (the default), 'never', 'always' (at each "
    "start), 'when_needed' (also when the log no longer has what comes next).",
    "heartbeat_seconds": "How often the position moves on while no table changes: 60 if nobody says, 0 for never.",
    "debezium.*": "A setting of the connector of those that a statement may bring, such as 'debezium.max.batch.size'.",
}


def read_url(description: Description, schemes: tuple[str, ...], port: int) -> SplitResult:
    """Where a database is: checked, and with nothing secret in it."""
    url = urlsplit(description.location)
    example = f"{schemes[0]}://user@host:{port}/database"
    if url.scheme not in schemes or not url.hostname or not url.username or not url.path.strip("/"):
        raise SourceError(
            "a source needs the host, the user and the name of its database", hint=f"write it as '{example}'"
        )
    if url.password is not None:
        raise SourceError(
            "the URL of a source would keep a secret in the home",
            detail="What a statement says stays in the ledger, in backups and in SHOW.",
            hint=f"write '{example}' and password = 'env:NAME' or 'file:/path'",
        )
    try:
        url.port  # noqa: B018
    except ValueError as error:
        raise SourceError("the URL of a source has no port that can be", hint=f"write it as '{example}'") from error
    return url


def tables_of(description: Description, schema: str) -> list[str]:
    """The tables that are captured, as the statement names them; without, the one it is for."""
    given = str(description.options.get("tables", ""))
    named = [one.strip() for one in given.split(",") if one.strip()]
    if not named and description.table:
        named = [description.table]
    if not named:
        raise SourceError(
            "a source does not say which tables it captures",
            hint=f"write tables = '{schema}.orders, {schema}.customers', or INTO t for a table of the same name",
        )
    return [one if "." in one else f"{schema}.{one}" for one in named]


def named_tables(description: Description, schema: str, wanted: Sequence[str]) -> list[str]:
    """The tables of a source that somebody names, with or without their schema; all if none is named."""
    captured = tables_of(description, schema)
    if not wanted:
        return [name_pattern(one) for one in captured]
    full = [one if "." in one else next((two for two in captured if two.endswith(f".{one}")), one) for one in wanted]
    for one in full:
        if not any(re.fullmatch(name_pattern(two), one) for two in captured):
            raise SourceError(
                f"source {description.name} does not capture {one}", hint=f"it captures {', '.join(captured)}"
            )
    return [name_pattern(one) for one in full]


def usual(description: Description, url: SplitResult, port: int, schema: str) -> dict[str, str]:
    """The settings that every connector has; those that are given go before what is usual."""
    refuse_others(list(given(description.options)))
    snapshot = str(description.options.get("snapshot", "initial"))
    seconds = description.options.get("heartbeat_seconds", HEARTBEAT_SECONDS)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
        raise SourceError(f"heartbeat_seconds cannot be {seconds!r}", hint="write a whole number, 0 for never")
    return {
        "name": description.name,
        "task.id": "0",
        "topic.prefix": description.name,
        "database.hostname": str(url.hostname),
        "database.port": str(url.port or port),
        "database.user": unquote(str(url.username)),
        "database.password": str(description.options.get("password", "")),
        "table.include.list": ",".join(map(name_pattern, tables_of(description, schema))),
        "snapshot.mode": _snapshot(snapshot),
        "heartbeat.interval.ms": str(seconds * 1000),
        # A delete says all: there is no topic to be compacted.
        "tombstones.on.delete": "false",
        # Usually a TRUNCATE is left out, and the rows that it took would stay here for ever.
        "skipped.operations": "none",
        # So that what was changed together comes into one epoch.
        "provide.transaction.metadata": "true",
        "signal.enabled.channels": "in-process",
        "signal.poll.interval.ms": "500",
        "poll.interval.ms": "50",
        # Whoever fails ends, and is started again by the source, less and less often.
        "errors.max.retries": "0",
    }


def given(options: Mapping[str, Any]) -> dict[str, str]:
    """The settings of the connector that a statement brings itself."""
    return {
        name[len(PREFIX) :]: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if name.startswith(PREFIX)
    }


def _snapshot(name: str) -> str:
    if name not in SNAPSHOTS:
        raise SourceError(f"snapshot cannot be {name!r}", hint=f"it is one of {', '.join(SNAPSHOTS)}")
    return {"never": "no_data"}.get(name, name)
