"""The options that every feed has, whatever its sink: read, checked, and as one typed value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.errors import FeedError
from headrace.feeds.sink import Sink

OPTIONS: Mapping[str, str] = {
    "include_old_values": "Whether events tell the old row of an update or a delete; false.",
    "batch_size": "How many events are delivered together at most; 100.",
    "flush_interval_ms": "How long events wait for others before they are delivered together; 1000.",
    "filter": "A condition of Spark SQL over the relation's columns: only events whose new row, of a delete whose old "
    "row, it holds for are told.",
    "filter_exits": "Whether a row that leaves the filter is told as a DELETE, one that enters as an INSERT; false.",
    "initial_scan": "'yes' tells all rows first, 'no' only changes, 'only' all rows and no changes; 'yes', but with a "
    "cursor 'no'.",
    "cursor": "An epoch or a time: the feed begins after it, rather than with its creation.",
    "resolved": "true, or an interval such as '10s': the sink is told now and then that all up to an epoch was told.",
    "on_error": "'fail' or 'pause': the state in which the feed waits for RESUME after an error that does not pass.",
    "envelope": "'ours', 'wrapped' (as CockroachDB has it) or 'debezium': the form of an event.",
    "max_retries": "How often an event is tried again that the sink refuses, before it is parked; 5.",
    "retention_epochs": "For how many epochs the log is kept for the feed while it is paused or behind; 100000.",
    "keys": "The columns that identify a row, as 'a, b'; the relation's own key if it has one, else all columns.",
    "on_reset": "'scan' or 'ignore': whether all rows are told anew when the relation was replaced or altered; 'scan'.",
}
# What is decided once, when a feed begins; keys only where the sink has no such option of its own.
FIXED = ("initial_scan", "cursor", "keys")
_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_MOST_EVENTS = 100_000


@dataclass(frozen=True)
class FeedOptions:
    """What a feed does, as its statement says."""

    include_old_values: bool = False
    batch_size: int = 100
    flush_seconds: float = 1.0
    filter: str = ""
    filter_exits: bool = False
    initial_scan: Literal["yes", "no", "only"] = "yes"
    cursor: str = ""
    # Seconds between two resolved marks; None without them.
    resolved: float | None = None
    on_error: Literal["fail", "pause"] = "fail"
    envelope: Literal["ours", "wrapped", "debezium"] = "ours"
    max_retries: int = 5
    retention_epochs: int = 100_000
    on_reset: Literal["scan", "ignore"] = "scan"


def read_options(given: Mapping[str, Any], sink: Sink) -> FeedOptions:
    """What the options of a statement come to; one that nobody knows, or that cannot be, is an error."""
    _refuse_unknown(given, sink)
    flush = _number(given, "flush_interval_ms", 1000, 0, 86_400_000)
    scan = _choice(given, "initial_scan", ("yes", "no", "only"), "no" if "cursor" in given else "yes")
    return FeedOptions(
        include_old_values=_flag(given, "include_old_values"),
        batch_size=_number(given, "batch_size", 100, 1, _MOST_EVENTS),
        flush_seconds=flush / 1000,
        filter=str(given.get("filter", "")).strip(),
        filter_exits=_flag(given, "filter_exits"),
        initial_scan=scan,
        cursor=str(given.get("cursor", "")).strip(),
        resolved=_resolved(given, flush / 1000),
        on_error=_choice(given, "on_error", ("fail", "pause"), "fail"),
        envelope=_choice(given, "envelope", ("ours", "wrapped", "debezium"), "ours"),
        max_retries=_number(given, "max_retries", 5, 0, 1000),
        retention_epochs=_number(given, "retention_epochs", 100_000, 1, 10**12),
        on_reset=_choice(given, "on_reset", ("scan", "ignore"), "scan"),
    )


def _refuse_unknown(given: Mapping[str, Any], sink: Sink) -> None:
    known = {**OPTIONS, **sink.options}
    prefixes = tuple(name.removesuffix("*") for name in known if name.endswith("*"))
    for name in given:
        if name in known or (prefixes and name.startswith(prefixes)):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        raise FeedError(
            f"a changefeed into {sink.keyword.upper()} has no option {name}",
            hint=f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}",
        )


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise _wrong(name, value, "true or false")


def _number(given: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name, default)
    text = "" if isinstance(value, bool) else str(value)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    if not least <= number <= most:
        raise _wrong(name, value, f"a whole number from {least} to {most}")
    return number


def _choice(given: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str) -> Any:
    value = given.get(name, default)
    if name == "initial_scan" and isinstance(value, bool):
        value = "yes" if value else "no"
    if str(value).lower() not in choices:
        raise _wrong(name, value, " or ".join(f"'{one}'" for one in choices))
    return str(value).lower()


def _resolved(given: Mapping[str, Any], flush: float) -> float | None:
    value = given.get("resolved", False)
    if isinstance(value, bool) or str(value).lower() in ("true", "false", ""):
        return flush if value is True or str(value).lower() == "true" else None
    found = _INTERVAL.fullmatch(str(value).strip().lower())
    if found is None:
        raise _wrong("resolved", value, "true, false or an interval such as '10s' or '500ms'")
    return float(found[1]) * _SECONDS[found[2]]


def _wrong(name: str, value: object, wanted: str) -> FeedError:
    return FeedError(f"option {name} cannot be {str(value)[:100]!r}", hint=f"it is {wanted}")
