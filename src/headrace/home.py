"""A home: everything durable in one place, and the one object through which it is used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.engine.adopt import adopt
from headrace.engine.answers import to_answer
from headrace.engine.blame import with_guilty_row
from headrace.engine.catalog import Catalog, Table, View, ViewDefinition
from headrace.engine.control import Control, Verb
from headrace.engine.define import make_view
from headrace.engine.digest import digest_of
from headrace.engine.explain import Explanation, explain_view
from headrace.engine.fold import Fold, Foldable, Moment, shape_of, sweep_after_crash
from headrace.engine.frames import Frames
from headrace.engine.history import RelationsAt, changes_table, refuse_expired
from headrace.engine.judge import Verdict, recompute
from headrace.engine.loop import Call, Loop
from headrace.engine.merger import Merger
from headrace.engine.progress import Listener, Progress
from headrace.engine.queries import Queries, Relations
from headrace.engine.receipt import Receipt
from headrace.engine.recover import recover
from headrace.engine.work import Work, follow
from headrace.errors import (
    EpochExpired,
    HeadraceError,
    LedgerError,
    OwnerLost,
    ReadOnly,
    ViewEvaluationError,
)
from headrace.ledger.backup import backup
from headrace.ledger.base import Shape
from headrace.ledger.durable import crash_point
from headrace.ledger.ledger import Ledger, now_utc
from headrace.ledger.migrations import migrate, pending
from headrace.ledger.readers import Readers
from headrace.objects import Place, place_of
from headrace.owner import Ownership, take_ownership
from headrace.plans.catalyst import Catalyst, arrow_schema
from headrace.reading.following import Following, Newest
from headrace.scratch import Scratch, memory_folder
from headrace.session import large_session, small_session, start_spark
from headrace.settings import Settings, read_settings
from headrace.sql.one_row import CLOCK, CLOCK_SCHEMA
from headrace.sql.resolve import register
from headrace.state import mapped
from headrace.state.delta import Delta, consolidate
from headrace.state.store import Snapshot, Store

T = TypeVar("T")
_READ_ATTEMPTS = 3


def open_home(
    home: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    settings: Settings | None = None,
    read_only: bool = False,
    **overrides: Any,
) -> Headrace:
    """Open a home, or make one; starts a local Spark unless one is given."""
    chosen = settings or read_settings()
    if overrides:
        chosen = read_settings(**{**chosen.model_dump(), **overrides})
    path = place_of(home, chosen.storage_options)
    # Before Spark is started: a refusal should not take seconds.
    ownership = None if read_only else take_ownership(path, chosen.owner_timeout)
    try:
        return Headrace(path, spark or start_spark(chosen), chosen, ownership)
    except BaseException:
        if ownership is not None:
            ownership.release()
        raise


class Headrace:
    """An open home, read-only for one who does not own it. Use it as a context manager, or close it."""

    def __init__(self, path: Place, spark: SparkSession, settings: Settings, ownership: Ownership | None) -> None:
        self.path = path
        self.settings = settings
        self.read_only = ownership is None
        self._ownership = ownership
        self._leaves = Scratch(memory_folder())
        self._disk = Scratch()
        self.catalyst = Catalyst(small_session(spark))
        self.frames = Frames(Catalyst(large_session(spark)), self._disk.path)
        # What statements work on, one at a time; readers and fold see what was committed of it.
        self.catalog = Catalog()
        self._committed = Catalog()
        self.clock = Store(CLOCK, arrow_schema(f.dataType for f in CLOCK_SCHEMA.fields))
        self.ledger = Ledger(path, settings.inline_bytes)
        self.readers = Readers(path, may_write=ownership is not None)
        self.reset_at: dict[str, int] = {}
        self.changed_at: dict[str, int] = {}
        self.epoch = 0
        self.committed_at = datetime(1970, 1, 1, tzinfo=UTC)
        self._receipts: dict[str, Receipt] = {}
        self._last_work: Work | None = None
        self._visible = threading.RLock()
        self._loop = Loop(self)
        self._merger = Merger(self._loop.idle)
        self.progress = Progress()
        self.queries = Queries(self.frames)
        self.closed = False
        register(self.catalyst, CLOCK, CLOCK_SCHEMA)
        try:
            outdated = self._load(ownership)
        except BaseException:
            self._leaves.close()
            self._disk.close()
            raise
        self._committed = self.catalog.copy()
        self.following = Following(self.ledger, self.epoch, self.newest)
        self._fold = Fold(path, self.ledger, self.readers, settings, self._moment, self._check_owner)
        self._ticking = threading.Event()
        self._ticker: threading.Thread | None = None
        self._control: Control | None = None
        try:
            if ownership is not None:
                self._begin_to_own(ownership, outdated)
        except BaseException:
            self.close()
            raise

    def _begin_to_own(self, ownership: Ownership, outdated: list[ViewDefinition]) -> None:
        """What only an owner does: tidy up, answer others, fold, follow the clock."""
        sweep_after_crash(self.path, self.ledger, self.shapes())
        self._control = self._listen(ownership)
        if outdated:
            self.define(lambda: adopt(self, views=outdated))
        self._fold.start()
        self._start_ticking()

    def _load(self, ownership: Ownership | None) -> list[ViewDefinition]:
        """Bring the home to its newest epoch; files that an owner folds away meanwhile are looked for again.

        The views that must be filled anew before they can follow a change.
        """
        if pending(self.path):
            if ownership is None:
                raise LedgerError(
                    f"the home {self.path} was written by an older release",
                    hint="open it once without read_only=True, which brings it forward",
                )
            migrate(self.path)
        for attempt in range(_READ_ATTEMPTS):
            try:
                self.ledger.open()
                if ownership is not None:
                    self.ledger.claim(ownership.fence)
                    crash_point("home claimed")
                outdated = recover(self, self._leaves.path)
                mapped.release()
                return outdated
            except LedgerError:
                if ownership is not None or attempt == _READ_ATTEMPTS - 1:
                    raise
                self.catalog.relations.clear()
        raise AssertionError("the last attempt returns or raises")

    def __enter__(self) -> Headrace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the home; everything committed stays."""
        if self.closed:
            return
        if self._control is not None:
            self._control.close()
        self._ticking.set()
        if self._ticker is not None:
            self._ticker.join()
        self._fold.stop()
        with self._loop.turn:
            self.closed = True
            self.following.end()
            self._merger.close()
            self._leaves.close()
            self._disk.close()
            if self._ownership is not None:
                self._ownership.release()

    def execute(self, sql: str) -> pa.Table | Receipt | None:
        """Run one statement or a script; the result is that of the last statement."""
        from headrace.engine.statements import run_script

        return run_script(self, sql)

    def apply(self, changes: Mapping[str, Sequence[object]], key: str | None = None) -> Receipt:
        """Apply changes of any number of tables as part of one atomic epoch."""
        return self.settle(self.enter(changes, key))

    def enter(self, changes: Mapping[str, Sequence[object]], key: str | None = None, digest: str = "") -> Call:
        """Put changes in line for the next epoch, in the order of arrival; `settle` waits for their verdict.

        The digest is what the key stands for from now on; without one, it is that of the changes.
        """
        self._refuse_read_only()
        for name in changes:
            self.catalog.table(name)
        if key is not None:
            digest = digest or digest_of(changes)
        # Where nothing is to be changed, no epoch is made.
        return self._loop.enter(Call(changes, key, digest, quiet=not any(map(len, changes.values()))))

    def settle(self, call: Call) -> Receipt:
        """The receipt of changes that were put in line; raises what `apply` raises."""
        return self._loop.settle(call)

    def _listen(self, ownership: Ownership) -> Control:
        """Run verbs for other processes from now on."""
        verbs = {"fold": self.fold, "backup": self.backup, "status": self._status}
        control = Control({**verbs, "execute": lambda sql: to_answer(self.execute(sql))})
        try:
            ownership.announce(control.address)
        except BaseException:
            control.close()
            raise
        return control

    def offer(self, name: str, verb: Verb) -> None:
        """Run one more verb for other processes, if this one owns the home."""
        if self._control is not None:
            self._control.offer(name, verb)

    def _start_ticking(self) -> None:
        """Follow the clock while the home is idle, if any view reads it."""
        if self.read_only or self._ticker is not None or not self._reads_clock():
            return
        self._ticker = threading.Thread(target=self._tick_on, name="headrace-clock", daemon=True)
        self._ticker.start()

    def _reads_clock(self) -> bool:
        return any(view.resolved.uses_clock for view in self.catalog.views())

    def _tick_on(self) -> None:
        """Make an epoch whenever time alone moves a row; one that moves nothing is not committed."""
        while not self._ticking.wait(self.settings.clock_resolution_seconds):
            if self._reads_clock() and not self._ticking.is_set():
                try:
                    self._loop.submit(Call({}, quiet=True))
                except OwnerLost:
                    return
                except HeadraceError:
                    # A view that fails by the clock alone fails again, loudly, at the next change.
                    continue

    def submit(self, call: Call) -> Receipt:
        """Have changes applied that depend on what the relations hold when their turn comes."""
        self._refuse_read_only()
        return self._loop.submit(call)

    def watch(self, listener: Listener) -> AbstractContextManager[None]:
        """Inside, the listener is told how far backfills, fills and the judge have come."""
        return self.progress.heard_by(listener)

    def query(self, sql: str, epoch: int | None = None) -> pa.Table:
        """The rows of a query over one consistent epoch."""
        from headrace.engine.statements import run_query_text

        return run_query_text(self, sql, epoch)

    def changes(self, name: str, since: int = 0, until: int | None = None) -> pa.Table:
        """A relation's changes after one epoch, up to and including another, with Spark's change columns."""
        with self._visible:
            committed, now = self._committed, self.epoch
        last = now if until is None else until
        return changes_table(self.ledger, committed.history, committed.get(name), since, last, now)

    def explain(self, name: str) -> Explanation:
        """How a view is kept current."""
        return explain_view(self.catalog.view(name))

    def verify(self, name: str | None = None) -> Verdict:
        """Recompute views in full with plain Spark and compare them with what is served."""
        with self._loop.turn:
            views = self.catalog.views() if name is None else [self.catalog.view(name)]
            seen = {view.name: self.catalog.seen(view.definition) for view in views}
            relations = self.relations()
            relations[CLOCK] = self.clock.snapshot(), CLOCK_SCHEMA
        return recompute(self.queries, views, relations, seen, self.settings, self.progress.tell)

    def _status(self) -> dict[str, Any]:
        """What others may ask about the home while it is open here."""
        with self._visible:
            return {
                "home": str(self.path),
                "epoch": self.epoch,
                "committed_at": self.committed_at.isoformat(),
                "tables": [table.name for table in self.catalog.tables()],
                "views": [view.name for view in self.catalog.views()],
                "pid": os.getpid(),
                "fold_failure": self.fold_failure,
            }

    def relations(self) -> dict[str, tuple[Snapshot, StructType]]:
        """All relations that a query may read, all of the newest epoch."""
        with self._visible:
            return {name: (one.store.snapshot(), one.schema) for name, one in self._committed.relations.items()}

    def newest(self, name: str) -> Newest:
        """One relation as it is at the newest epoch, if it is there, with all that its followers ask for."""
        with self._visible:
            one = self._committed.relations.get(name)
            content = None if one is None else one.store.snapshot()
            changed_at = self.changed_at.get(name, self.epoch)
            return Newest(self.epoch, self._committed.history, one, content, changed_at)

    def snapshots(self) -> dict[str, Snapshot]:
        """Every store at the newest epoch, all of the same epoch."""
        with self._visible:
            return {store.name: store.snapshot() for store in (self.clock, *self._committed.stores())}

    def shapes(self) -> dict[str, Shape]:
        """What the base of every store looks like."""
        return self._shapes(self.catalog)

    def _shapes(self, catalog: Catalog) -> dict[str, Shape]:
        return {
            store.name: shape_of(store.name, catalog.relations.get(store.name), store.schema)
            for store in (self.clock, *catalog.stores())
        }

    def _moment(self) -> Moment:
        """What fold works on."""
        with self._visible:
            shapes = self._shapes(self._committed)
            stores = {
                name: Foldable(shapes[name], snapshot, self.changed_at.get(name, 0), self._shaped_at(name))
                for name, snapshot in self.snapshots().items()
            }
            return Moment(self.epoch, stores)

    def _shaped_at(self, name: str) -> int:
        """Since when a store has its present columns."""
        columns = self.catalog.history.at(name, self.epoch)
        if columns is not None and isinstance(self.catalog.relations.get(name), Table):
            return columns.since
        return self.reset_at.get(name, 0)

    def fold(self) -> dict[str, Any]:
        """Bring every base to the newest epoch now."""
        self._check_owner()
        return self._fold.now().to_json()

    @property
    def fold_failure(self) -> str | None:
        """Why the last fold in the background failed, if it did; nothing is lost, but the log grows."""
        return None if self._fold.failure is None else str(self._fold.failure)

    def backup(self, destination: str | os.PathLike[str]) -> dict[str, Any]:
        """Copy the newest epoch, older ones included, to an empty place, while epochs go on."""
        self._check_owner()
        with self._fold.held_off():
            return backup(self.path, place_of(destination, self.settings.storage_options))

    def relations_at(self, epoch: int) -> Relations:
        """Every relation at an earlier epoch, under the columns of that epoch, from the ledger."""
        with self._visible:
            newest = self.epoch
            held = {name: (one, one.store.snapshot()) for name, one in self._committed.relations.items()}
        refuse_expired(self.ledger, epoch)
        if epoch < 0 or epoch > newest:
            raise EpochExpired(
                f"epoch {epoch} cannot be read",
                detail=f"The newest epoch is {newest}.",
                hint=f"name an epoch from 0 to {newest}",
            )
        return RelationsAt(self.ledger, self.catalog.history, held, newest, epoch)

    def epoch_at(self, moment: datetime) -> int:
        """The newest epoch that was committed at or before a moment."""
        # The next epoch may be committed already, and not yet be visible.
        newest = self.epoch
        found = [one.epoch for one in list(self.ledger.heads()) if one.committed_at <= moment and one.epoch <= newest]
        if not found:
            raise EpochExpired(
                f"there is no epoch at or before {moment.isoformat()}",
                hint="name a later time",
            )
        return max(found)

    def all_stores(self) -> list[Store]:
        """Every store, hidden ones included."""
        return list(self._stores().values())

    def _stores(self) -> dict[str, Store]:
        return {store.name: store for store in (self.clock, *self.catalog.stores())}

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise ReadOnly("the home was opened read-only", hint="open it without read_only=True to change it")

    def _check_owner(self) -> None:
        """Only who owns the home now may write there."""
        self._refuse_read_only()
        if self._ownership is not None:
            self._ownership.check()

    # What the loop asks for.

    @property
    def tombstone_retention(self) -> timedelta:
        """How long deleted keys are remembered."""
        return self.settings.tombstone_retention

    def tick(self) -> datetime:
        """The time of the next epoch: never before the last one, at the clock's resolution."""
        return max(now_utc(), self.committed_at)

    def begin(self, now: datetime) -> Work:
        """The work of a new epoch, with the clock moved to its time."""
        work = Work(self._stores(), self.settings.small_bound, self.progress.tell)
        self.move_clock(work, now)
        return work

    def move_clock(self, work: Work, now: datetime) -> None:
        """Set the epoch's clock, if any view reads it."""
        if not self._reads_clock() and not work.before(CLOCK).runs:
            return
        resolution = self.settings.clock_resolution_seconds
        seconds = now.timestamp() // resolution * resolution
        moment = datetime.fromtimestamp(seconds, UTC)
        known = work.before(CLOCK).all()
        rows = [*known.rows.column(0).to_pylist(), moment]
        weights = np.concatenate([-known.weights, np.ones(1, dtype=np.int64)])
        table = pa.table([pa.array(rows, type=self.clock.schema.types[0])], schema=self.clock.schema)
        delta: Delta = consolidate(table, weights)
        if len(delta):
            work.leave(CLOCK, delta)

    def known(self, key: str | None) -> Receipt | None:
        """The receipt of an idempotency key that was used before."""
        return None if key is None else self._receipts.get(key)

    def remember(self, key: str, receipt: Receipt) -> None:
        """Keep the receipt of an idempotency key."""
        self._receipts[key] = receipt

    def follow(self, work: Work) -> None:
        """Bring every view up to date."""
        self._last_work = work
        follow(work, self.catalog, self.frames)

    def blame(self, error: ViewEvaluationError) -> ViewEvaluationError:
        """The error with the row that caused it, where one can be found."""

        def try_change(name: str, change: Delta) -> None:
            work = Work(self._stores(), self.settings.small_bound)
            work.leave(name, change)
            follow(work, self.catalog, self.frames)

        return error if self._last_work is None else with_guilty_row(error, self._last_work, self.catalog, try_change)

    def moves_anything(self, work: Work) -> bool:
        """Whether an epoch changes more than the clock."""
        return any(len(delta) for name, delta in work.deltas.items() if name != CLOCK)

    def commit(
        self,
        work: Work,
        now: datetime,
        head: Mapping[str, Any],
        swap: Callable[[], None] = lambda: None,
    ) -> None:
        """Make an epoch durable, then visible, all of it at once; a definition may swap relations in between."""
        self._check_owner()
        epoch = self.epoch + 1
        self.ledger.commit(epoch, now, head, work.deltas)
        with self._visible:
            swap()
            self.catalog.record(epoch, head)
            self._committed = self.catalog.copy()
            for name in head.get("reset", ()):
                self.reset_at[name] = epoch
            stores = self._stores()
            changed = [name for name, delta in work.deltas.items() if name in stores and len(delta)]
            for name in changed:
                stores[name].add(work.deltas[name])
                self.changed_at[name] = epoch
            self.epoch = epoch
            self.committed_at = now
            self.following.add(epoch, now, work.deltas)
        self.following.wake()
        for name in changed:
            self._merger.submit(stores[name])

    def define(self, make: Callable[[], T]) -> T:
        """Run a definition between epochs."""
        self._refuse_read_only()
        with self._loop.turn:
            made = make()
            mapped.release()
            self._start_ticking()
            return made

    def make_view(self, definition: ViewDefinition, catalog: Catalog | None = None) -> View:
        """A view of this home, or of a catalog that it may come to have; not yet part of it."""
        return make_view(self.catalyst, catalog or self.catalog, self._leaves.path, definition)
