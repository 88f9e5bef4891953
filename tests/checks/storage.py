"""A home's files as an outside reader finds them: which are named by a table's log, and which by nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from headrace.ledger.delta_log import delta_table
from headrace.storage.objects import Location, local_file

_LOG = "_delta_log"
_OWN = {"owner.json", "owner.lock", "readers.json"}
_LOG_FILE = re.compile(r"\d{20}\.(json|checkpoint\.parquet(\.sha256)?)|_last_checkpoint")


def orphans(home: Location) -> list[Location]:
    """Files of a home that nothing names."""
    named: set[Location] = {home / name for name in _OWN}
    for log in home.rglob(_LOG):
        named.update(_named(log.parent))
    named.update(_large_deltas(home))
    named.update((home / "owner").glob("*"))
    # Who may do what and who did it, how far feeds are, and secrets: each kept by itself, beside the ledger.
    for folder in ("access", "feeds", "secrets", "event-keys"):
        named.update((home / folder).rglob("*"))
    return sorted((path for path in home.rglob("*") if path not in named and path.is_file()), key=str)


def _named(table: Location) -> Iterator[Location]:
    if not any((table / _LOG).glob("*.json")):
        return
    live = [table / str(name) for name in _live(table)]
    yield from live
    yield from (file for file in (table / _LOG).iterdir() if _LOG_FILE.fullmatch(file.name))
    for path in live:
        yield from (table / "_identities").glob(f"{path.name}-*.npy")
    for commit in (table / _LOG).glob("*.json"):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "cdc" in action:
                yield table / action["cdc"]["path"]


def _live(table: Location) -> list[Any]:
    return delta_table(table).get_add_actions(flatten=True)["path"].to_pylist()


def _large_deltas(home: Location) -> Iterator[Location]:
    for name in _live(home / "ledger"):
        with local_file(home / "ledger" / name) as path:
            names = pq.read_table(path, columns=["file"]).column("file").drop_null().to_pylist()
        yield from (home / "deltas" / one for one in names)


def base_rows(path: Location) -> tuple[int, Counter[tuple[Any, ...]]]:
    """The epoch of a base, and its rows as delta-rs reads them."""
    table = delta_table(path)
    epoch = table.transaction_version("headrace-base")
    rows = table.to_pyarrow_table().to_pylist()
    return epoch or 0, Counter(tuple(row.values()) for row in rows)
