"""What a Delta log says, read by hand: as far as its undamaged files reach, also where no reader could load it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.ledger.log_files import all_lines, checksum_file, log_files, version_of
from headrace.storage.objects import Location

_CHECKPOINT_COLUMNS = ("add", "txn")


@dataclass(frozen=True)
class LogDamage:
    """A file of the log that is not as it was written."""

    file: Location
    problem: str
    needed: bool


@dataclass
class LogState:
    """A table as of the newest version that is known for sure, and what is damaged.

    `known` says whether that is also the newest that was written; `later_numbers` come from sound commits after it.
    """

    version: int = -1
    files: dict[str, int] = field(default_factory=dict[str, int])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    changes: dict[str, int] = field(default_factory=dict[str, int])
    later_numbers: dict[str, int] = field(default_factory=dict[str, int])
    damaged: list[LogDamage] = field(default_factory=list[LogDamage])
    known: bool = True

    @property
    def loads(self) -> bool:
        """Whether any Delta reader can load the newest version."""
        return not any(one.needed for one in self.damaged)


def read_log(path: Location) -> LogState:
    """Follow a table's log from its newest sound checkpoint, commit by commit, up to the first damage."""
    state = LogState()
    logged = log_files(path)
    commits = {version_of(file) or 0: file for file in logged if file.suffix == ".json"}
    checkpoints = {version_of(file) or 0: file for file in logged if file.suffix == ".parquet"}
    for version, file in sorted(checkpoints.items(), reverse=True):
        actions, problem = _checkpoint(file)
        if problem:
            # Readers start from the newest checkpoint and give up if they cannot read it, whatever lies beside it.
            state.damaged.append(LogDamage(file, problem, needed=True))
        else:
            state.version = version
            _follow(state, actions)
            break
    lines_of = dict(zip(commits, all_lines(list(commits.values())), strict=True))
    newest = max([*commits, *checkpoints], default=-1)
    first = state.version + 1
    if state.damaged and state.version < 0:
        first = min(commits, default=newest + 1)
    known = first == state.version + 1
    for version in sorted({*commits, *range(first, newest + 1)}):
        file = path / "_delta_log" / f"{version:020d}.json"
        lines = lines_of.get(version)
        needed = version > state.version
        if lines is None:
            problem = "its content has changed since it was written" if version in commits else "it is missing"
            state.damaged.append(LogDamage(file, problem, needed))
            known = known and not needed
            continue
        actions = [json.loads(line) for line in lines]
        state.changes.update((action["cdc"]["path"], action["cdc"]["size"]) for action in actions if "cdc" in action)
        if needed and known:
            state.version = version
            _follow(state, actions)
        elif needed:
            state.later_numbers.update(_numbers(actions))
    state.known = known
    return state


def _follow(state: LogState, actions: list[dict[str, Any]]) -> None:
    state.numbers.update(_numbers(actions))
    for action in actions:
        if "remove" in action:
            state.files.pop(action["remove"]["path"], None)
        elif "add" in action:
            state.files[action["add"]["path"]] = action["add"]["size"]


def _numbers(actions: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    return ((action["txn"]["appId"], action["txn"]["version"]) for action in actions if "txn" in action)


def _checkpoint(file: Location) -> tuple[list[dict[str, Any]], str]:
    """The actions that a checkpoint sums up, and what is wrong with it."""
    try:
        content = file.read_bytes()
        written = checksum_file(file)
        if written.is_file() and written.read_text() != hashlib.sha256(content).hexdigest():
            return [], "its content has changed since it was written"
        rows = pq.read_table(pa.BufferReader(content), columns=list(_CHECKPOINT_COLUMNS)).to_pylist()
    except (OSError, ValueError, KeyError) as error:
        return [], f"it cannot be read ({error})"
    return [_present(row) for row in rows], ""


def _present(row: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: action for kind, action in row.items() if action is not None}
