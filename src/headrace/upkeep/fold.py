"""Fold: old deltas go into each relation's base, in the background; what is no longer needed goes.

It works on what is committed and never blocks an epoch: bases are folders of their own, and the ledger is locked only
while a finished file is named.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.catalog.catalog import Catalog, Relation, Table
from headrace.epoch.present import Present
from headrace.errors import HomeBroken, OwnerLost
from headrace.ledger.base import Base, BaseSchema
from headrace.ledger.durable import crash_point, is_temporary, remove_folder
from headrace.ledger.ledger import Ledger, now_utc, summed
from headrace.ledger.names import is_hidden, is_kept, plain_name
from headrace.ledger.readers import Readers
from headrace.settings import Settings
from headrace.state import mapped
from headrace.state.state import State
from headrace.state.store import Store
from headrace.storage.objects import Location
from headrace.upkeep.failures import Failures

_SMALL_FILES = 32
_NICENESS = 10


@dataclass(frozen=True)
class FoldInput:
    """A store with what its base needs to know: when it last changed, and since when it has its present columns."""

    base_schema: BaseSchema
    snapshot: State
    changed_at: int
    columns_since: int


@dataclass(frozen=True)
class FoldInputs:
    """Everything at one epoch."""

    epoch: int
    stores: Mapping[str, FoldInput]


@dataclass
class Report:
    """What one fold did."""

    epoch: int = 0
    folded: dict[str, int] = field(default_factory=dict[str, int])
    oldest: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


def base_schema_of(name: str, relation: Relation | None, schema: Any) -> BaseSchema:
    """What the base of a store looks like: a relation under its columns' names, hidden state under plain ones."""
    if relation is None or is_hidden(name):
        return BaseSchema(tuple(f"c{i}" for i in range(len(schema))), schema, hidden=True)
    key = relation.contract.key if isinstance(relation, Table) else relation.key
    names = tuple(relation.schema.names)
    partition = "aggregate_type" if isinstance(relation, Table) and relation.events is not None else ""
    return BaseSchema(names, schema, tuple(names.index(column) for column in key), partition=partition)


def base_schemas_of(stores: Iterable[Store], catalog: Catalog) -> dict[str, BaseSchema]:
    """What the base of every store looks like."""
    return {store.name: base_schema_of(store.name, catalog.relations.get(store.name), store.schema) for store in stores}


def fold_inputs(present: Present, held: Sequence[tuple[Store, State]]) -> FoldInputs:
    """What is to be folded at the newest epoch."""
    base_schemas, changed_at = base_schemas_of([store for store, _ in held], present.catalog), present.changed_at
    inputs = {
        one.name: FoldInput(
            base_schemas[one.name], snapshot, changed_at.get(one.name, 0), _columns_since(present, one.name)
        )
        for one, snapshot in held
    }
    return FoldInputs(present.epoch, inputs)


def _columns_since(present: Present, name: str) -> int:
    """Since when a store has its present columns."""
    columns = present.catalog.history.at(name, present.epoch)
    if columns is not None and isinstance(present.catalog.relations.get(name), Table):
        return columns.since
    return present.reset_at.get(name, 0)


def base_path(home: Location, name: str) -> Location:
    """Where the base of a store lies."""
    return home / ("state" if is_hidden(name) else "tables") / plain_name(name)


class Fold:
    """Folds one home, when it is due or when it is asked to."""

    def __init__(
        self,
        home: Location,
        ledger: Ledger,
        readers: Readers,
        settings: Settings,
        inputs: Callable[[], FoldInputs],
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self._home = home
        self._ledger = ledger
        self._readers = readers
        self._settings = settings
        self._inputs = inputs
        self._check_owner = check_owner
        self._turn = threading.Lock()
        self._bases: dict[str, Base] = {}
        self._doomed: dict[Location, float] = {}
        self._folded_epoch = 0
        self._folded_size = 0
        self._folded_at = time.monotonic()
        # What is to be done before the first fold, if anything is.
        self.first: Callable[[], None] | None = None
        self._stopped = threading.Event()
        self._worker = ThreadPoolExecutor(1, "headrace-fold", initializer=_give_way)
        self._thread = threading.Thread(target=self._run, name="headrace-fold-timer", daemon=True)
        self.failures = Failures(f"the fold of {home}")

    @property
    def backlog(self) -> tuple[int, int]:
        """How many epochs, and bytes of the log, no base holds yet; before the first fold, all that there are."""
        return self._inputs().epoch - self._folded_epoch, max(self._ledger.size - self._folded_size, 0)

    def start(self) -> None:
        """Fold in the background from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the fold under way, and begin no other."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._worker.shutdown()

    def _run(self) -> None:
        seen, quiet_since = -1, time.monotonic()
        while not self._stopped.wait(1.0):
            try:
                epoch = self._inputs().epoch
                if epoch != seen:
                    seen, quiet_since = epoch, time.monotonic()
                if seen > self._folded_epoch and self._due(time.monotonic() - quiet_since):
                    self.now()
            except (OwnerLost, HomeBroken) as error:
                self.failures.note(error)
                return
            except BaseException as error:
                # Nothing is lost: the log still has it all. The thread ends when it is told to, whatever was raised.
                self.failures.note(error)

    def _due(self, quiet: float) -> bool:
        if self.failures.pausing:
            return False
        return (
            quiet >= self._settings.fold_when_idle.total_seconds()
            or time.monotonic() - self._folded_at >= self._settings.fold_at_latest.total_seconds()
            or self._ledger.size - self._folded_size >= self._settings.fold_log_bytes
        )

    @contextmanager
    def held_off(self) -> Generator[None, None, None]:
        """Inside, no base moves and no file goes; epochs go on."""
        with self._turn:
            yield

    def now(self) -> Report:
        """Bring every base to the newest epoch, on a thread that gives way to epochs."""
        return self._worker.submit(self._fold_all).result()

    def _fold_all(self) -> Report:
        with self._turn:
            started = time.monotonic()
            self._check_owner()
            if self.first is not None:
                self.first()
                self.first = None
            inputs = self._inputs()
            report = Report(inputs.epoch)
            for name, store in inputs.stores.items():
                if store.changed_at or store.columns_since:
                    rows = self._fold_one(name, store, inputs.epoch)
                    if rows:
                        report.folded[name] = rows
            self._forget_dropped(inputs)
            self._ledger.compact(inputs.epoch, self._expired(inputs.epoch), is_kept, _SMALL_FILES)
            self._ledger.tidy()
            self._sweep(inputs.epoch)
            self._folded_epoch, self._folded_size = inputs.epoch, self._ledger.size
            self._folded_at = time.monotonic()
            self.failures.clear()
            report.oldest, report.seconds = self._ledger.oldest, self._folded_at - started
            mapped.release()
            return report

    def base(self, name: str) -> Base:
        """The base of a store."""
        if name not in self._bases:
            self._bases[name] = Base(base_path(self._home, name), self._check_owner)
        return self._bases[name]

    def _fold_one(self, name: str, store: FoldInput, epoch: int) -> int:
        base = self.base(name)
        if base.fits(store.base_schema) and base.epoch >= store.columns_since:
            if store.changed_at <= base.epoch:
                return 0
            net = summed(store.base_schema.schema, list(self._ledger.entries(name, base.epoch, epoch)))
            if len(net):
                base.fold(store.base_schema, net, epoch)
            else:
                # Or a part of what has cancelled out could expire, and the other part would be left after the base.
                base.move_on(epoch)
            return len(net)
        whole = store.snapshot.all()
        base.replace(store.base_schema, [whole], epoch)
        return len(whole)

    def _forget_dropped(self, inputs: FoldInputs) -> None:
        known = {base_path(self._home, name) for name in inputs.stores}
        found = [path for folder in ("tables", "state") for path in (self._home / folder).glob("*")]
        dropped = [path for path in found if path not in known]
        # After the look: what was there when this process still owned the home is its own to remove.
        if dropped:
            self._check_owner()
        for path in dropped:
            remove_folder(path)
            crash_point("base dropped")
        self._bases = {name: base for name, base in self._bases.items() if name in inputs.stores}

    def _expired(self, newest: int) -> int:
        """The newest epoch that nobody needs any more."""
        past = now_utc() - self._settings.keep_time
        old = [head.epoch for head in self._ledger.heads() if head.committed_at < past]
        expired = max(max(old, default=0), newest - self._settings.keep_epochs, self._ledger.oldest)
        protected = self._readers.protected(newest)
        if protected is not None:
            expired = min(expired, protected)
        # What the home is now is always needed, however long it has been so.
        expired = min(expired, newest - 1)
        # Rewriting the log for a handful of epochs is not worth it.
        return expired if expired - self._ledger.oldest >= _SMALL_FILES else self._ledger.oldest

    def _sweep(self, epoch: int) -> None:
        """Remove files that nothing names, once whoever read them has had time to finish."""
        now = time.monotonic()
        found: list[Location] = list(self._ledger.unreferenced(epoch))
        for base in self._bases.values():
            found.extend(base.unreferenced())
        self._doomed = {path: self._doomed.get(path, now) for path in found}
        grace = self._settings.vacuum_grace.total_seconds()
        if self._doomed:
            self._check_owner()
        for path, since in list(self._doomed.items()):
            if now - since >= grace:
                path.unlink(missing_ok=True)
                del self._doomed[path]
                crash_point("file swept")


def _give_way() -> None:
    """Let epochs have the processor first; where threads have no priority of their own, nothing changes."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def sweep_after_crash(home: Location, ledger: Ledger, names: Mapping[str, BaseSchema]) -> None:
    """Remove what a crash left behind; only the owner may, before it writes anything."""
    unfinished = [path for path in home.iterdir() if is_temporary(path.name)]
    for path in [*unfinished, *ledger.unreferenced(None)]:
        path.unlink(missing_ok=True)
        crash_point("ruins swept")
    sweep_bases(home, names)


def sweep_bases(home: Location, names: Mapping[str, BaseSchema]) -> None:
    """Remove what a crash left behind among the bases; only the owner may, before it folds."""
    known = {base_path(home, name): name for name in names}
    for folder in ("tables", "state"):
        for path in (home / folder).glob("*"):
            base = Base(path) if path in known else None
            if base is None or not base.exists:
                remove_folder(path)
                continue
            ruins = list(base.unreferenced())
            if ruins:
                # Whoever wrote them may only have been stopped, and must not name what is about to go.
                base.fence()
            for file in ruins:
                file.unlink(missing_ok=True)
                crash_point("ruins swept")
