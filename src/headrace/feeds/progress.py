"""How far a feed is, kept in its home: a small file for each owner that the home had while the feed was at work.

An owner writes its own file alone, and begins at the furthest of all: so one that was stopped, and woke up when another
had taken its place, never takes the position back. No epoch is made for it, which would push others out of the history.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import LedgerError
from headrace.feeds.batch import Mark
from headrace.ledger.durable import is_temporary, remove_folder, replace_file
from headrace.storage.folders import make_folder
from headrace.storage.objects import Location

FOLDER = "feeds"
_KEPT = ("scan_epoch", "scanning", "reset_due", "reserved", "scans", "delivered", "parked", "done")
# Files of earlier releases lack these.
_LATER = ("begun", "confirmed", "columns_at", "restored")


@dataclass(frozen=True)
class Progress:
    """All up to a mark was told; a mark of the epoch that was scanned last is past so many rows of it.

    Where a reset is due, what comes next is that the relation is another, or is told anew.
    """

    mark: Mark
    scan_epoch: int | None = None
    scanning: bool = False
    reset_due: bool = False
    # Up to which number events may have been told that nobody noted: a RESET comes after them, so that no number ever
    # stands for two events.
    reserved: int = 0
    # How many of the requests to tell all anew have been begun.
    scans: int = 0
    delivered: int = 0
    parked: int = 0
    # Whether all that the feed is to tell was told.
    done: bool = False
    # Whether the sink knows that the scan has begun: what it took of it since then may be more than the mark says.
    begun: bool = False
    # The last event that the sink confirmed with all before it: one that keeps marks knows at least this one.
    confirmed: int = 0
    # The epoch whose columns the feed delivers, where that is later than its mark: without a scan, changes from before
    # an alteration are delivered under the columns that came with it.
    columns_at: int = 0
    # The id of the restore that made the home, if the position was recorded after it.
    restored: str = ""

    def lag(self, epoch: int) -> int:
        """How many epochs up to one are not told whole."""
        part = not self.done and (self.scanning or self.reset_due or self.mark.event is not None)
        return max(0, epoch - self.mark.epoch + part)


@dataclass
class ProgressFiles:
    """The files of one feed."""

    home: Location
    feed_id: str
    fence: int = 0
    _swept: bool = field(default=False, init=False)

    @property
    def folder(self) -> Location:
        """Where they lie."""
        return self.home / FOLDER / self.feed_id

    def read(self) -> Progress | None:
        """How far the feed is by the furthest of all owners; None before it began."""
        found = [progress for _, progress in self._all()]
        return max(found, key=lambda one: (one.scans, one.mark), default=None)

    def write(self, progress: Progress) -> None:
        """Note how far this owner is, durably; then those before it need their files no more."""
        mark = progress.mark
        content: dict[str, Any] = {"epoch": mark.epoch, "event": mark.event, "sequence": mark.sequence}
        content |= {name: getattr(progress, name) for name in (*_KEPT, *_LATER)}
        try:
            if not self._swept:
                make_folder(self.folder)
            replace_file(self.folder / f"{self.fence:020d}.json", json.dumps(content).encode())
        except FileNotFoundError:
            # The feed was dropped meanwhile.
            return
        if not self._swept:
            for fence, _ in self._all():
                if fence < self.fence:
                    (self.folder / f"{fence:020d}.json").unlink(missing_ok=True)
            self._swept = True

    def forget(self) -> None:
        """Remove them: the feed was dropped."""
        remove_folder(self.folder)

    def _all(self) -> list[tuple[int, Progress]]:
        try:
            names = [one.name for one in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found: list[tuple[int, Progress]] = []
        for name in names:
            if is_temporary(name) or not name.endswith(".json"):
                continue
            try:
                found.append((int(name.removesuffix(".json")), _read(json.loads((self.folder / name).read_text()))))
            except FileNotFoundError:
                continue
            except (ValueError, KeyError, TypeError) as error:
                raise LedgerError(
                    f"{self.folder / name} cannot be read",
                    detail=f"{error}. It says how far a changefeed is.",
                    hint="remove it: the feed then begins anew, or where another file of the folder says",
                ) from error
        return found


def _read(content: dict[str, Any]) -> Progress:
    event = content["event"]
    if not content["scanning"] and (event == 0 or content["epoch"] == content["scan_epoch"]):
        # Earlier releases wrote 0 for a whole epoch, and the number of rows for one that was scanned.
        event = None
    mark = Mark(int(content["epoch"]), event, int(content["sequence"]))
    later = {name: content[name] for name in _LATER if name in content}
    return Progress(mark, **{name: content[name] for name in _KEPT}, **later)
