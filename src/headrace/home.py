"""A home: everything durable in one place, and the one object through which it is used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.catalog.catalog import Catalog, View, ViewDefinition
from headrace.catalog.make import make_view
from headrace.definitions.adopt import adopt
from headrace.definitions.catch_up import can_catch_up, catch_up, newer_heads
from headrace.definitions.recover import recover
from headrace.epoch.blame import with_guilty_row
from headrace.epoch.digest import digest_of
from headrace.epoch.loop import Basis, Call, Loop
from headrace.epoch.present import Prepared, Present, prepare
from headrace.epoch.receipt import Receipt, Receipts
from headrace.epoch.work import Work, follow
from headrace.errors import (
    EpochExpired,
    HomeBroken,
    HomeClosed,
    LedgerError,
    ReadOnly,
    SparkLost,
    ViewEvaluationError,
)
from headrace.intake.changes import refuse_no_changes
from headrace.interrupts import interrupts_held
from headrace.ledger.backup import backup
from headrace.ledger.durable import crash_point
from headrace.ledger.ledger import Ledger, now_utc
from headrace.ledger.migrations import migrate, pending
from headrace.ledger.readers import Readers
from headrace.owner.control import Control, Verb
from headrace.owner.ownership import Ownership, take_ownership
from headrace.progress import Listener, Progress
from headrace.reading.explain import Explanation, explain_view
from headrace.reading.files import Files
from headrace.reading.following import Following, Newest
from headrace.reading.history import GoOn, RelationsAt, always, changes_table, refuse_expired
from headrace.reading.judge import Verdict, recompute
from headrace.reading.queries import Relations
from headrace.settings import Settings, read_settings
from headrace.spark.session import start_spark
from headrace.sql.one_row import CLOCK, CLOCK_SCHEMA
from headrace.sql.resolve import forget
from headrace.state import mapped
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta
from headrace.state.store import Snapshot, Store
from headrace.statements.answers import to_answer
from headrace.statements.changes import ReadRows, read_rows
from headrace.storage.objects import Place, place_of
from headrace.storage.scratch import Scratch, memory_folder
from headrace.upkeep.fold import Fold, Moment, moment_of, shapes_of, sweep_after_crash
from headrace.upkeep.merger import Merger
from headrace.upkeep.renew import Doors, Renewal, open_doors
from headrace.upkeep.ticker import Ticker, move_clock

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
    """Open a home, or make one; starts a local Spark unless one is given.

    One that is started is watched, and replaced if it ends; one that is given is for who gave it to replace.
    """
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
        files = Files(self._disk.path)
        doors = open_doors(spark, files)
        self.catalyst, self.frames, self.queries = doors.catalyst, doors.frames, doors.queries
        self.clock = Store(CLOCK, arrow_schema(f.dataType for f in CLOCK_SCHEMA.fields))
        self.ledger = Ledger(path, settings.inline_bytes)
        self.readers = Readers(path, may_write=ownership is not None)
        # One value, replaced by each epoch; while `_visible` is held, the stores are of the same epoch.
        self._present = Present()
        self._receipts = Receipts()
        self._broken_by: tuple[int, BaseException] | None = None
        self._last_work: Work | None = None
        self._visible = threading.RLock()
        self._loop = Loop(self)
        self._merger = Merger(self._loop.idle)
        self.progress = Progress()
        self.read_rows: ReadRows = lambda query, relations: read_rows(self.queries, query, relations)
        self.definitions = 0
        self.closed = False
        self.renewal = Renewal(self, spark, self._leaves.path, files)
        try:
            outdated = self._load(ownership)
        except BaseException:
            self._leaves.close()
            self._disk.close()
            raise
        self.following = Following(self.ledger, self.epoch, self.newest_of)
        self._fold = Fold(path, self.ledger, self.readers, settings, self._moment, self._check_owner)
        self._ticker = Ticker(settings.clock_resolution_seconds, lambda: self.catalog.reads_clock, self._tick_alone)
        self._control: Control | None = None
        try:
            if ownership is not None:
                self._begin_to_own(ownership, outdated)
        except BaseException:
            self.close()
            raise

    def _begin_to_own(self, ownership: Ownership, outdated: Sequence[ViewDefinition]) -> None:
        """What only an owner does: tidy up, answer others, fold, follow the clock."""
        sweep_after_crash(self.path, self.ledger, shapes_of(self.all_stores(), self.catalog))
        self._control = self._listen(ownership)
        if outdated:
            self.define(lambda: adopt(self, views=outdated))
        self._fold.start()
        self._ticker.start()

    def _load(self, ownership: Ownership | None) -> Sequence[ViewDefinition]:
        """Bring the home to its newest epoch; the views that must be filled anew before they can follow a change."""
        if pending(self.path):
            if ownership is None:
                raise LedgerError(
                    f"the home {self.path} was written by an older release",
                    hint="open it once without read_only=True, which brings it forward",
                )
            migrate(self.path)
        if ownership is None:
            return self._again_where_moved(self._recover)
        self.ledger.open()
        self.ledger.claim(ownership.fence)
        crash_point("home claimed")
        return self._recover(opened=True)

    def _recover(self, opened: bool = False) -> Sequence[ViewDefinition]:
        if not opened:
            self.ledger.open()
        recovered = recover(self, self._leaves.path)
        self._present = recovered.present
        self._receipts.add(recovered.receipts)
        mapped.release()
        return recovered.outdated

    def _again_where_moved(self, read: Callable[[], T]) -> T:
        """What reading comes to; files that the owner has folded away meanwhile are looked for again."""
        for _ in range(_READ_ATTEMPTS - 1):
            with suppress(LedgerError):
                return read()
        return read()

    def __repr__(self) -> str:
        tables, views = len(self.catalog.tables()), len(self.catalog.views())
        state = "closed" if self.closed else "read-only" if self.read_only else "open"
        return f"<Headrace {self.path}: {state}, epoch {self.epoch}, {tables} tables, {views} views>"

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
        self._ticker.stop()
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
        from headrace.statements.run import run_script

        self._refuse_closed()
        return run_script(self, sql)

    def apply(self, changes: Mapping[str, Sequence[object]], key: str | None = None) -> Receipt:
        """Apply changes of any number of tables as part of one atomic epoch, all of them or none.

        A change is {"insert": row}, {"update": row} or {"delete": row}, a row a dict by column names; of a table with a
        key, an insert replaces the row of its key, an update keeps what it does not name, and a delete needs only the
        key. The same key= again returns the first receipt.

            hr.apply({"orders": [{"insert": {"id": 1, "amount": "9.50"}}, {"delete": {"id": 2}}]}, key="order-1")

        Raises ChangesRejected, which lists every change that breaks its table's contract, or ViewEvaluationError, which
        names the view, the expression and the row.
        """
        call = self._call(changes, key)
        with self._loop.leaving(call):
            return self.settle(self._loop.enter(call))

    def enter(self, changes: Mapping[str, Sequence[object]], key: str | None = None, digest: str = "") -> Call:
        """Put changes in line for the next epoch, in the order of arrival; `settle` waits for their verdict.

        The digest is what the key stands for from now on; without one, it is that of the changes.
        """
        return self._loop.enter(self._call(changes, key, digest))

    def _call(self, changes: Mapping[str, Sequence[object]], key: str | None, digest: str = "") -> Call:
        refuse_no_changes(changes)
        self._refuse_closed()
        self._refuse_read_only()
        self._refuse_broken()
        catalog = self.catalog
        for name in changes:
            catalog.table(name)
        if key is not None:
            digest = digest or digest_of(changes)
        # Where nothing is to be changed or kept, no epoch is made.
        return Call(changes, key, digest, quiet=not any(map(len, changes.values())))

    def settle(self, call: Call) -> Receipt:
        """The receipt of changes that were put in line; raises what `apply` raises."""
        with self._loop.leaving(call):
            try:
                # Without views, no Spark is needed to follow a change.
                if self.catalog.has_views:
                    self.renewal.wait()
            except SparkLost:
                # Another may have taken it into an epoch meanwhile, whose verdict then holds.
                if self._loop.withdraw(call):
                    raise
            return self._loop.settle(call)

    def withdraw(self, call: Call) -> bool:
        """Take changes out of the line; False if they are under way or over already."""
        return self._loop.withdraw(call)

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

    def submit(self, work_out: Callable[[], Call], in_turn: bool = True) -> Receipt:
        """Have changes applied that depend on what the relations hold when they are accepted.

        They may be worked out in turn, while every epoch waits, if they are overtaken again and again.
        """
        self._refuse_read_only()
        self._refuse_broken()
        with self.renewal.working():
            return self._loop.submit_worked_out(work_out, in_turn)

    def expect(self, arriving: Callable[[], bool]) -> None:
        """Have epochs that take long wait a moment for changes that are on their way, as long as this says so."""
        self._loop.arriving = arriving

    def _tick_alone(self) -> None:
        """Make an epoch if time alone moves a row; one that moves nothing is not committed."""
        with self.renewal.working():
            self._loop.submit(Call({}, quiet=True))

    def watch(self, listener: Listener) -> AbstractContextManager[None]:
        """Inside, the listener is told how far backfills, fills and the judge have come."""
        return self.progress.heard_by(listener)

    def query(self, sql: str, epoch: int | None = None) -> pa.Table:
        """The rows of a query over one consistent epoch."""
        from headrace.query_processes.queries import read_home_plainly
        from headrace.statements.run import run_query_text

        self._refuse_closed()
        found = read_home_plainly(self, sql, epoch)
        if found is not None:
            return found
        with self.renewal.working():
            return run_query_text(self, sql, epoch)

    def refresh(self) -> int:
        """Move a home that is open for reading to its owner's newest epoch, and tell it; an owner is always there.

        What was read before stays as it was: each query is of one epoch.
        """
        self._refuse_closed()
        if self.read_only:
            with self._loop.turn:
                self._again_where_moved(self._refresh)
        return self.epoch

    def _refresh(self) -> None:
        self.ledger.open()
        heads = newer_heads(self)
        if not heads:
            return
        if can_catch_up(self, heads):
            prepared = catch_up(self, self._present, heads)
            with self._visible:
                for store, runs in prepared.runs:
                    store.add_runs(runs)
                self._present = prepared.present
            return
        before = self.catalog
        self._recover(opened=True)
        for view in before.views():
            view.context.clear()
        for name in before.relations.keys() - self.catalog.relations.keys():
            forget(self.catalyst, name)

    def changes(self, name: str, since: int = 0, until: int | None = None) -> pa.Table:
        """A relation's changes after one epoch, up to and including another, with Spark's change columns."""
        self._refuse_closed()
        self._refuse_broken()
        newest = self._present
        last = newest.epoch if until is None else until
        catalog = newest.catalog
        return changes_table(self.ledger, catalog.history, catalog.get(name), since, last, newest.epoch)

    def explain(self, name: str) -> Explanation:
        """How a view is kept current."""
        self._refuse_closed()
        return explain_view(self.catalog.view(name))

    def verify(self, name: str | None = None) -> Verdict:
        """Recompute views in full with plain Spark and compare them with what is served."""
        self._refuse_closed()
        with self._loop.turn:
            views = self.catalog.views() if name is None else [self.catalog.view(name)]
            seen = {view.name: self.catalog.seen(view.definition) for view in views}
            relations = self.relations()
            relations[CLOCK] = self.clock.snapshot(), CLOCK_SCHEMA
        with self.renewal.working():
            return recompute(self.queries, views, relations, seen, self.settings, self.progress.tell)

    def _status(self) -> dict[str, Any]:
        """What others may ask about the home while it is open here."""
        newest = self._present
        return {
            "home": str(self.path),
            "epoch": newest.epoch,
            "committed_at": newest.committed_at.isoformat(),
            "tables": [table.name for table in newest.catalog.tables()],
            "views": [view.name for view in newest.catalog.views()],
            "pid": os.getpid(),
            "fold_failure": self.fold_failure,
            "clock_failure": self._ticker.failures.text,
            "merge_failure": self._merger.failures.text,
            "spark_failure": self.renewal.failure,
            "broken": None if self.broken is None else str(self.broken),
        }

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self._present.epoch

    @property
    def committed_at(self) -> datetime:
        """When the newest epoch was committed."""
        return self._present.committed_at

    @property
    def catalog(self) -> Catalog:
        """All relations of the newest epoch, as a value."""
        return self._present.catalog

    @property
    def changed_at(self) -> Mapping[str, int]:
        """The epoch in which each relation last changed."""
        return self._present.changed_at

    @property
    def reset_at(self) -> Mapping[str, int]:
        """The epoch in which the log of each relation began anew."""
        return self._present.reset_at

    @property
    def broken(self) -> HomeBroken | None:
        """Why this open home cannot go on, if an epoch was committed that it could not take in."""
        return None if self._broken_by is None else HomeBroken(*self._broken_by)

    def newest(self) -> tuple[int, dict[str, tuple[Snapshot, StructType]]]:
        """The newest epoch, and all relations that a query may read at it."""
        self._refuse_broken()
        with self._visible:
            newest = self._present
            held = {name: (one.store.snapshot(), one.schema) for name, one in newest.catalog.relations.items()}
            return newest.epoch, held

    def stands(self, basis: Basis) -> bool:
        """Whether what changes were worked out from is still so; asked in turn."""
        changed = (self.changed_at.get(name, 0) for name in basis.relations)
        return basis.definitions == self.definitions and all(epoch <= basis.epoch for epoch in changed)

    def relations(self) -> dict[str, tuple[Snapshot, StructType]]:
        """All relations that a query may read, all of the newest epoch."""
        return self.newest()[1]

    def newest_of(self, name: str) -> Newest:
        """One relation as it is at the newest epoch, if it is there, with all that its followers ask for."""
        self._refuse_broken()
        with self._visible:
            present = self._present
            one = present.catalog.relations.get(name)
            content = None if one is None else one.store.snapshot()
            changed_at = present.changed_at.get(name, present.epoch)
            return Newest(present.epoch, present.catalog.history, one, content, changed_at)

    def _moment(self) -> Moment:
        """What fold works on."""
        self._refuse_broken()
        with self._visible:
            return moment_of(self._present, self.all_stores())

    def fold(self) -> dict[str, Any]:
        """Bring every base to the newest epoch now."""
        self._check_owner()
        return self._fold.now().to_json()

    @property
    def fold_failure(self) -> str | None:
        """Why the last fold in the background failed, if it did; nothing is lost, but the log grows."""
        return self._fold.failures.text

    def backup(self, destination: str | os.PathLike[str]) -> dict[str, Any]:
        """Copy the newest epoch, older ones included, to an empty place, while epochs go on."""
        self._check_owner()
        with self._fold.held_off():
            return backup(self.path, place_of(destination, self.settings.storage_options))

    def relations_at(self, epoch: int, go_on: GoOn = always) -> Relations:
        """Every relation at an earlier epoch, under the columns of that epoch, from the ledger."""
        self._refuse_broken()
        with self._visible:
            newest, catalog = self.epoch, self.catalog
            held = {name: (one, one.store.snapshot()) for name, one in catalog.relations.items()}
        refuse_expired(self.ledger, epoch)
        if epoch < 0 or epoch > newest:
            raise EpochExpired(
                f"epoch {epoch} cannot be read",
                detail=f"The newest epoch is {newest}.",
                hint=f"name an epoch from 0 to {newest}",
            )
        return RelationsAt(self.ledger, catalog.history, held, newest, epoch, go_on)

    def epoch_at(self, moment: datetime) -> int:
        """The newest epoch that was committed at or before a moment."""
        # The next epoch may be committed already, and not yet be visible.
        newest = self.epoch
        found = [one.epoch for one in list(self.ledger.heads()) if one.committed_at <= moment and one.epoch <= newest]
        if not found:
            raise EpochExpired(f"there is no epoch at or before {moment.isoformat()}", hint="name a later time")
        return max(found)

    def all_stores(self) -> list[Store]:
        """Every store, hidden ones included."""
        return list(self._stores(self.catalog).values())

    def _stores(self, catalog: Catalog) -> dict[str, Store]:
        return {store.name: store for store in (self.clock, *catalog.stores())}

    def _refuse_closed(self) -> None:
        if self.closed:
            raise HomeClosed(self.path)

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise ReadOnly("the home was opened read-only", hint="open it without read_only=True to change it")

    def _refuse_broken(self) -> None:
        if (broken := self.broken) is not None:
            raise broken

    def _check_owner(self) -> None:
        """Only who owns the home now may write there."""
        self._refuse_read_only()
        self._refuse_broken()
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

    def begin(self, now: datetime, catalog: Catalog | None = None) -> Work:
        """The work of a new epoch, over the catalog that it is to leave, with the clock moved to its time."""
        planned = catalog or self.catalog
        work = Work(self._stores(planned), self.settings.small_bound, self.progress.tell)
        move_clock(work, planned, now, self.settings.clock_resolution_seconds)
        return work

    def known(self, key: str | None) -> Receipt | None:
        """The receipt of an idempotency key that was used before."""
        return None if key is None else self._receipts.get(key, self.ledger.oldest)

    def remember(self, key: str, receipt: Receipt) -> None:
        """Keep the receipt of an idempotency key with its seconds, which the ledger does not keep."""
        self._receipts.add({key: receipt})

    def follow(self, work: Work) -> None:
        """Bring every view up to date."""
        self._last_work = work
        # Here and not by each caller: what became of Spark is looked at once for an epoch, and all hear the same.
        with self.renewal.working(needed=False):
            follow(work, self.catalog, self.frames)

    def blame(self, error: ViewEvaluationError) -> ViewEvaluationError:
        """The error with the row that caused it, where one can be found."""

        def try_change(name: str, change: Delta) -> None:
            work = Work(self._stores(self.catalog), self.settings.small_bound)
            work.record(name, change)
            follow(work, self.catalog, self.frames)

        return error if self._last_work is None else with_guilty_row(error, self._last_work, self.catalog, try_change)

    def moves_anything(self, work: Work) -> bool:
        """Whether an epoch changes more than the clock."""
        return any(len(delta) for name, delta in work.deltas.items() if name != CLOCK)

    def commit(self, work: Work, now: datetime, head: Mapping[str, Any], catalog: Catalog | None = None) -> None:
        """Make an epoch durable, then visible, all of it at once, with the catalog that a definition leaves.

        All that can fail is done before the append. What is raised after it breaks the home, and tells so.
        """
        self._check_owner()
        if self.ledger.settled_epoch() > self.epoch:
            # An interrupt of an interrupt: nobody was left to notice that the last epoch exists.
            self._end_broken(self.ledger.epoch, InterruptedError("its commit was cut short"))
            self._refuse_broken()
        planned = catalog or self.catalog
        prepared = prepare(self._present, now, head, work.deltas, planned, self._stores(planned).values())
        epoch = prepared.present.epoch
        crash_point("epoch prepared")
        with interrupts_held() as held:
            try:
                self.ledger.commit(epoch, now, head, work.deltas)
                crash_point("epoch committed")
                self._show(prepared, work.deltas)
                held.note = f"epoch {epoch} is committed"
                crash_point("epoch shown")
            except BaseException as error:
                self._break(epoch, error)
                raise
        for store, _ in prepared.runs:
            self._merger.submit(store)

    def _show(self, prepared: Prepared, deltas: Mapping[str, Delta]) -> None:
        """Let everyone see a committed epoch: assignments only."""
        with self._visible:
            for store, runs in prepared.runs:
                store.add_runs(runs)
            present = self._present = prepared.present
            self.following.add(present.epoch, present.committed_at, deltas)
        self._receipts.add(prepared.receipts)
        self._receipts.forget(self.ledger.oldest)
        self.following.wake()

    def _break(self, epoch: int, error: BaseException) -> None:
        """Go no further, if an epoch exists that could not be shown; who sent it is told that it does."""
        if self.ledger.epoch < epoch:
            return
        self._end_broken(epoch, error)
        broken = HomeBroken(epoch, error, included=True)
        if isinstance(error, Exception):
            raise broken from error
        error.add_note(str(broken))

    def _end_broken(self, epoch: int, error: BaseException) -> None:
        """Refuse everything from now on, and let those who follow a relation hear of it."""
        self._broken_by = epoch, error
        self.following.end()

    def between_epochs(self, make: Callable[[], T]) -> T:
        """Run something while no epoch and no definition is under way."""
        with self._loop.turn:
            return make()

    def define(self, make: Callable[[], T]) -> T:
        """Run a definition between epochs."""
        self._refuse_read_only()
        self._refuse_broken()
        with self.renewal.working(), self._loop.turn:
            try:
                made = make()
            finally:
                # After the commit, so that whoever read the old number knows no more than the old definitions.
                self.definitions += 1
            mapped.release()
            self._ticker.start()
            return made

    def swap_spark(self, doors: Doors, views: Sequence[View]) -> None:
        """Go on with another Spark, in which these are the views; between epochs."""
        with self._visible:
            self._present = replace(self._present, catalog=self.catalog.having(*views))
            self.catalyst, self.frames, self.queries = doors.catalyst, doors.frames, doors.queries

    def make_view(self, definition: ViewDefinition, catalog: Catalog | None = None) -> View:
        """A view of this home, or of a catalog that it may come to have; not yet part of it."""
        return make_view(self.catalyst, catalog or self.catalog, self._leaves.path, definition)
