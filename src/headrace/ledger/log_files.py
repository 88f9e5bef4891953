"""The files of a Delta table's log: commits and checkpoints, and whether they are what was written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.storage.objects import Location, ObjectPath

LOG = "_delta_log"
_ASKED_AT_A_TIME = 16


def checksum(lines: Sequence[str]) -> str:
    """What a commit's own note says of its other lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def log_files(path: Location) -> list[Location]:
    """The commits and checkpoints of a table, in order."""
    return sorted((file for file in (path / LOG).glob("*") if version_of(file) is not None), key=by_name)


def version_of(file: Location) -> int | None:
    """The version that a commit or a checkpoint belongs to; none for other files."""
    number, _, kind = file.name.partition(".")
    return int(number) if number.isdigit() and kind in ("json", "checkpoint.parquet") else None


def checksum_file(checkpoint: Location) -> Location:
    """Where the checksum of a checkpoint lies."""
    return checkpoint.with_name(f"{checkpoint.name}.sha256")


def commit_lines(file: Location) -> list[str] | None:
    """The lines of a commit after its note; none if they are not what was written."""
    try:
        first, *rest = file.read_text().splitlines()
        note = json.loads(json.loads(first)["commitInfo"]["userMetadata"])
        return rest if note["sha256"] == checksum(rest) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def damaged_commits(path: Location, after: int = -1) -> list[Location]:
    """The commit files after a version whose content is not what was written."""
    commits = [file for file in log_files(path) if file.suffix == ".json" and (version_of(file) or 0) > after]
    return [file for file, lines in zip(commits, all_lines(commits), strict=True) if lines is None]


def all_lines(commits: Sequence[Location]) -> list[list[str] | None]:
    """The lines of many commits; an object store, which answers late, is asked for several at a time."""
    if not commits or not isinstance(commits[0], ObjectPath):
        return [commit_lines(file) for file in commits]
    with ThreadPoolExecutor(_ASKED_AT_A_TIME) as asking:
        return list(asking.map(commit_lines, commits))


def needed_but_damaged(path: Location) -> list[Location]:
    """The damaged commits that no checkpoint stands in for."""
    damaged = damaged_commits(path, _covered(path))
    # Asked again: the owner may have summed up the log, and dropped commits, while they were read here.
    return [file for file in damaged if (version_of(file) or 0) > _covered(path)] if damaged else []


def _covered(path: Location) -> int:
    return max((version_of(file) or 0 for file in (path / LOG).glob("*.checkpoint.parquet")), default=-1)


def damage(path: Location) -> str:
    """A sentence that names the damaged commit files, if there are any."""
    try:
        found = damaged_commits(path)
    except OSError:
        return ""
    return f"Damaged: {', '.join(file.name for file in found)}." if found else ""


def by_name(file: Location) -> str:
    """What log files are sorted by: versions have leading zeros."""
    return file.name
