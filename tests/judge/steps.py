"""One step of a sequence: a batch of changes and what must be seen after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.judge.model import Change, Changes, delete, insert


@dataclass(frozen=True)
class Step:
    """A batch for `apply`, with the expectations that go beyond the judge's.

    `still` asks for an empty delta of the judged views; `only` names the columns that the batch changes,
    so that views which do not read them must stay still; `key` is the idempotency key; with `replay` the
    batch is sent again under its key, with `reopen` after closing and opening the home in between.
    """

    note: str
    changes: Changes = field(default_factory=dict)
    still: bool = False
    only: Mapping[str, frozenset[str]] | None = None
    key: str | None = None
    replay: bool = False
    reopen: bool = False
    as_json: bool = False


def put(table: str, *rows: Mapping[str, Any], **row: Any) -> Changes:
    """Inserts into one table: several rows, or one given by its columns; what is left out is NULL."""
    given = [dict(each) for each in rows] or [row]
    return {table: [insert(each) for each in given]}


def cut(table: str, *rows: Mapping[str, Any], **row: Any) -> Changes:
    """Deletes from one table: several rows, or one given by its key columns or, without a key, whole."""
    given = [dict(each) for each in rows] or [row]
    return {table: [delete(each) for each in given]}


def both(*parts: Changes) -> Changes:
    """Several changes as one batch, in this order within each table."""
    together: dict[str, list[Change]] = {}
    for part in parts:
        for table, changes in part.items():
            together.setdefault(table, []).extend(changes)
    return together
