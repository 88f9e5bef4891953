"""INTO FILES: events as lines of JSON, in files that are whole or not there, in a folder.

A file is named by the first and the last event in it and by the mark after them: so what was written before a crash is
known, and no event is ever in two files that the folder still has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from headrace.errors import FeedError
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.json_events import event_texts
from headrace.feeds.sink import Delivery, LogDelivery, SinkUnavailable, Target
from headrace.ledger.durable import replace_file

_NAME = re.compile(r"-(\d{20})-(\d{20})-e(\d+)\.(\d+)\.ndjson")


class FilesDelivery(LogDelivery):
    """An open folder."""

    keeps_marks = False

    def __init__(self, folder: Path, target: Target) -> None:
        self._folder = folder
        self._prefix = f"{quote(target.feed, safe='')}-{target.feed_id[:8]}"

    def known_mark(self) -> Mark | None:
        """The mark of the last file that is there."""
        found: list[Mark] = []
        try:
            for path in self._folder.iterdir():
                name = path.name.removeprefix(self._prefix)
                matched = _NAME.fullmatch(name) if name != path.name else None
                if matched is not None:
                    _, last, epoch, event = map(int, matched.groups())
                    found.append(Mark.stored(epoch, event, last))
        except OSError as error:
            raise _unavailable(error) from error
        return max(found, default=None)

    def deliver(self, batch: Batch) -> None:
        """Write one file."""
        mark = batch.after
        first, last = batch.sequences[0], batch.sequences[-1]
        name = f"{self._prefix}-{first:020d}-{last:020d}-e{mark.epoch}.{mark.stored_event}.ndjson"
        self._put(name, b"\n".join([*event_texts(batch), b""]))

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Say in a file of its own how far all files together are."""
        at = datetime.fromtimestamp(epoch_committed_at, UTC).isoformat()
        told = {"resolved": at, "epoch": mark.epoch, "sequence": mark.sequence}
        self._put(f"{self._prefix}.resolved.json", json.dumps(told).encode() + b"\n")

    def close(self) -> None:
        """Nothing is held open."""

    def _put(self, name: str, content: bytes) -> None:
        try:
            replace_file(self._folder / name, content)
        except OSError as error:
            raise _unavailable(error) from error


class FilesSink:
    """Folders on this machine."""

    keyword = "FILES"
    options: Mapping[str, str] = {}
    secrets: frozenset[str] = frozenset()

    def check(self, target: Target) -> None:
        """A folder is named, and is not a file."""
        if folder_of(target.location).is_file():
            raise FeedError(f"{target.location} is a file", hint="name a folder; it is made if it is not there")

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Nothing is asked before the sink is opened."""

    def open(self, target: Target) -> Delivery:
        """Make the folder if it is not there."""
        folder = folder_of(target.location)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unavailable(error) from error
        return FilesDelivery(folder, target)

    def forget(self, target: Target) -> None:
        """What was written stays."""


def folder_of(location: str) -> Path:
    """Return the folder that a location names, which is the same whichever process opens the home.

    A relative path in a statement is absolute by now, so that only one that a reference stood for is refused.
    """
    scheme, found, _ = location.partition("://")
    hint = "name a folder of this machine, as a path or file:///path"
    if found and scheme != "file":
        raise FeedError(f"FILES has no {scheme}://", hint=hint)
    parts = urlsplit(location) if found else None
    if parts and parts.netloc not in ("", "localhost"):
        raise FeedError(f"FILES has no host {parts.netloc!r}, which {location} names", hint=hint)
    try:
        folder = Path(parts.path if parts else location).expanduser()
    except RuntimeError as error:
        raise FeedError(f"{location}: {error}", hint=hint) from error
    if not folder.is_absolute():
        raise FeedError(
            "the location that the reference stands for is a relative path",
            detail="Each process that opens the home would begin it in a folder of its own.",
            hint="write the folder as an absolute path, such as /data/out",
        )
    return folder


def _unavailable(error: OSError) -> SinkUnavailable:
    return SinkUnavailable(f"{error.filename or 'the folder'}: {error.strerror or error}")


FILES = FilesSink()
