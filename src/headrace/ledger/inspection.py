"""Inspection: every file of a home against its checksum, and which epoch everything can still be had for.

Works without Spark, beside a running owner, and where a log can no longer be loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import LedgerError
from headrace.ledger.base import BASE_EPOCH
from headrace.ledger.durable import Progress, no_progress, what_is_wrong
from headrace.ledger.ledger import COMPACTED_EPOCH, NEWEST_EPOCH, OLDEST_EPOCH
from headrace.ledger.log_state import LogState, read_log
from headrace.ledger.names import plain_name
from headrace.ledger.readers import Readers
from headrace.ledger.whole_epoch import Kept, Span, newest_whole_epoch
from headrace.storage.objects import Location, local_file, name_below, size_of

_ROW_COLUMNS = ("epoch", "relation", "file", "head")


@dataclass(frozen=True)
class Damage:
    """A file that is torn, missing or altered, and what it takes with it."""

    path: str
    problem: str
    relation: str = ""
    epochs: tuple[int, int] | None = None
    harmless: bool = False

    def __str__(self) -> str:
        what = f" of {self.relation}" if self.relation else ""
        when = ""
        if self.epochs is not None:
            first, last = self.epochs
            when = f" (epoch {first}{what})" if first == last else f" (epochs {first} to {last}{what})"
        elif what:
            when = f" ({what.removeprefix(' of ')})"
        return f"{self.path}: {self.problem}{when}"


@dataclass(frozen=True)
class Inspection:
    """What was found; `whole_epoch` is the newest that everything can be had for, if there is one."""

    damaged: tuple[Damage, ...]
    newest_epoch: int
    whole_epoch: int | None
    oldest_epoch: int
    bases: Mapping[str, int]
    files: int
    size: int

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged that cannot be worked out anew."""
        return all(one.harmless for one in self.damaged)

    def verdict(self) -> str:
        """What it comes to, in a sentence or two."""
        if self.ok:
            return f"every epoch from {self.oldest_epoch} to {self.newest_epoch} is whole"
        if self.whole_epoch == self.newest_epoch:
            return (
                f"epoch {self.newest_epoch}, the newest, is still whole: a damaged base is built anew from the log "
                "once its folder is removed; other damage concerns older epochs, or the change feed of a base"
            )
        if self.whole_epoch is not None:
            return f"epoch {self.whole_epoch} is still whole; the newest is {self.newest_epoch}"
        alone = ", ".join(f"{name} at epoch {epoch}" for name, epoch in sorted(self.bases.items()))
        rest = f"; bases that are whole by themselves: {alone}" if alone else ""
        return f"no epoch is whole any more; the newest is {self.newest_epoch}{rest}"

    def to_json(self) -> dict[str, Any]:
        """The inspection as plain values."""
        return {"ok": self.ok, **asdict(self)}


def inspect_storage(home: Location, progress: Progress = no_progress) -> Inspection:
    """Check every file of a home that an epoch or a reader needs."""
    if not any((home / name).is_dir() for name in ("ledger", "tables", "state")):
        raise LedgerError(f"there is no ledger in {home}", hint="name the folder of a home that has been opened once")
    found = _Inspector(home, progress).inspection()
    if not found.damaged:
        return found
    # Beside a running owner a file may have been folded away while it was looked for: only what is still wrong counts.
    again = _Inspector(home, no_progress, {one.path for one in found.damaged}).inspection()
    return replace(again, size=found.size, files=found.files)


@dataclass
class _Inspector:
    """One walk through a home; with suspects given, no other file is read again."""

    home: Location
    progress: Progress
    suspects: set[str] | None = None
    damaged: list[Damage] = field(default_factory=list[Damage])
    bases: dict[str, int] = field(default_factory=dict[str, int])
    files: int = 0
    size: int = 0
    total: int = 0

    def inspection(self) -> Inspection:
        folders = [one for one in self.home.iterdir() if one.is_dir()]
        self.total = sum(_size(file) for folder in folders for file in folder.rglob("*"))
        # Before the ledger's: beside a running owner no base may seem to be ahead of it.
        logs = {path: read_log(path) for path in (*self.home.glob("tables/*"), *self.home.glob("state/*"))}
        ledger = read_log(self.home / "ledger")
        rows, lost = self._ledger_rows(ledger)
        lost_deltas = self._deltas(rows)
        names = {plain_name(row["relation"]): row["relation"] for row in rows} | self._defined(rows)
        base_epochs = [self._base(path, names.get(path.name, path.name), log) for path, log in logs.items()]
        self._readers()
        known, oldest = ledger.numbers.get(NEWEST_EPOCH, 0), ledger.numbers.get(OLDEST_EPOCH, 0)
        newest = max([known, ledger.later_numbers.get(NEWEST_EPOCH, 0), *base_epochs])
        if not ledger.known:
            newest = max([newest, *(_epochs(file.name)[1] for file in self.home.glob("ledger/epoch-*.parquet"))])
        self._note_log("ledger", ledger, epochs=(known + 1, newest) if newest > known else None)
        if newest > known:
            lost = [*lost, Span(known + 1, newest)]
            if ledger.known:
                text = f"commits are missing: it ends at epoch {known}, but bases stand at epoch {newest}"
                self._add("ledger/_delta_log", text, epochs=(known + 1, newest))
        if not ledger.known and ledger.version < 0:
            lost = [*lost, Span(0, newest)]
        kept = Kept(
            newest=newest,
            oldest=oldest,
            compacted=ledger.numbers.get(COMPACTED_EPOCH, 0),
            heads={row["epoch"]: json.loads(row["head"]) for row in rows if row["relation"] == ""},
            lost=lost,
            lost_deltas=lost_deltas,
            bases=self.bases,
        )
        for first, last in kept.unexplained():
            self._add("ledger", "its files do not hold what was committed", epochs=(first, last))
            kept.lost.append(Span(first, last))
        self.progress(self.total, self.total)
        whole = newest if not self._harmful() else newest_whole_epoch(kept)
        return Inspection(tuple(self.damaged), newest, whole, oldest, self.bases, self.files, self.size)

    def _harmful(self) -> bool:
        return any(not one.harmless for one in self.damaged)

    def _ledger_rows(self, ledger: LogState) -> tuple[list[dict[str, Any]], list[Span]]:
        """The rows of the ledger's sound files, without their deltas, and the epochs of the others."""
        rows: list[dict[str, Any]] = []
        lost: list[Span] = []
        for name, size in ledger.files.items():
            first, last = _epochs(name)
            if not self._check(f"ledger/{name}", size, epochs=(first, last)):
                lost.append(Span(first, last))
                continue
            try:
                with local_file(self.home / "ledger" / name) as path, pq.ParquetFile(path) as file:
                    rows.extend(file.read(list(_ROW_COLUMNS)).to_pylist())
            except (OSError, pa.ArrowInvalid) as error:
                self._add(f"ledger/{name}", f"it cannot be read ({error})", epochs=(first, last))
                lost.append(Span(first, last))
        return sorted(rows, key=lambda row: row["epoch"]), lost

    def _deltas(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Span]]:
        lost: dict[str, list[Span]] = {}
        for row in rows:
            epoch, relation = row["epoch"], row["relation"]
            if row["file"] and not self._check(f"deltas/{row['file']}", None, relation, (epoch, epoch)):
                lost.setdefault(relation, []).append(Span(epoch, epoch))
        return lost

    def _defined(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The names of all relations by the names of their folders."""
        heads = [json.loads(row["head"]) for row in rows if row["relation"] == ""]
        return {plain_name(name): name for head in heads for name in head.get("reset", ())}

    def _base(self, path: Location, relation: str, log: LogState) -> int:
        """Check one base; its epoch."""
        folder = name_below(self.home, path)
        self._note_log(folder, log, relation)
        epoch = max(log.numbers.get(BASE_EPOCH, 0), log.later_numbers.get(BASE_EPOCH, 0))
        sound = [self._check(f"{folder}/{name}", size, relation) for name, size in log.files.items()]
        for name, size in log.changes.items():
            self._check(f"{folder}/{name}", size, relation)
        for file in sorted(path.glob("_identities/*.npy"), key=lambda one: one.name):
            if file.name.split(".parquet-")[0] + ".parquet" in log.files:
                self._check(f"{folder}/_identities/{file.name}", None, relation, harmless=True)
        if log.version >= 0 and log.loads and all(sound):
            self.bases[relation] = epoch
        return epoch

    def _readers(self) -> None:
        try:
            Readers(self.home)
        except (LedgerError, OSError) as error:
            self._add("readers.json", f"it cannot be read ({error})")

    def _note_log(self, folder: str, log: LogState, relation: str = "", epochs: tuple[int, int] | None = None) -> None:
        for one in log.damaged:
            problem = one.problem
            if not one.needed:
                problem += "; a checkpoint stands in for it"
            elif one.file.suffix == ".parquet" and log.known:
                problem += "; the commits that it sums up are all there: remove it and _last_checkpoint"
            self._add(
                f"{folder}/_delta_log/{one.file.name}",
                problem,
                relation,
                epochs if one.needed else None,
                not one.needed,
            )

    def _check(
        self,
        name: str,
        size: int | None,
        relation: str = "",
        epochs: tuple[int, int] | None = None,
        harmless: bool = False,
    ) -> bool:
        if self.suspects is not None and name not in self.suspects:
            return True
        problem = what_is_wrong(self.home / name, size)
        self.files += 1
        if size_now := _size(self.home / name):
            self.size += size_now
            self.progress(self.size, self.total)
        if problem:
            cure = "; it is a cache, and is worked out anew when it is needed" if harmless else ""
            self._add(name, problem + cure, relation, epochs, harmless)
        return not problem

    def _add(
        self,
        name: str,
        problem: str,
        relation: str = "",
        epochs: tuple[int, int] | None = None,
        harmless: bool = False,
    ) -> None:
        self.damaged.append(Damage(name, problem, relation, epochs, harmless))


def _epochs(name: str) -> tuple[int, int]:
    """The first and the last epoch of a file of the ledger, by its name."""
    first, last = name.split("-")[1:3]
    return int(first), int(last)


def _size(path: Location) -> int:
    """The bytes of a file; none for what is no file, or is gone by now, as files of a running owner may be."""
    try:
        return size_of(path) if path.is_file() else 0
    except OSError:
        return 0
