"""A home at its newest epoch, and the way to the next: begun over it, committed by one append, then shown.

Readers of any thread see one committed epoch whole. All that can fail is done before the append; after it there are
only assignments, and what is raised there nevertheless breaks the home until it is opened again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql.types import StructType

from headrace.catalog.catalog import Catalog, View, ViewDefinition
from headrace.catalog.make import make_view
from headrace.epoch.blame import with_guilty_row
from headrace.epoch.calls import Basis
from headrace.epoch.clock import move_clock
from headrace.epoch.present import Prepared, Present, prepare
from headrace.epoch.receipt import Receipt, Receipts
from headrace.epoch.threads import ViewThreads
from headrace.epoch.work import Work, follow
from headrace.errors import EpochExpired, HomeBroken, HomeClosed, ReadOnly, ViewEvaluationError
from headrace.interrupts import interrupts_held
from headrace.ledger.durable import crash_point
from headrace.ledger.ledger import Ledger, now_utc
from headrace.owner.ownership import Ownership
from headrace.progress import Progress
from headrace.reading.following import Following, Newest
from headrace.reading.history import GoOn, RelationsAt, always, refuse_expired
from headrace.reading.queries import Relations
from headrace.reading.sessions import Sessions
from headrace.settings import Settings
from headrace.sql.one_row import CLOCK, CLOCK_SCHEMA
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta
from headrace.state.state import State
from headrace.state.store import Store
from headrace.storage.objects import Location


class SparkUse(Protocol):
    """Knows whether the Spark of a home lives."""

    def working(self, needed: bool = True, busy: bool = True) -> AbstractContextManager[None]:
        """Inside, the end of Spark is told as `SparkLost`; where it is needed, one being started is waited for.

        Who is not busy waits, for a turn or for others, and has no part in what Spark does meanwhile.
        """
        ...

    def wait(self) -> None:
        """Wait for the Spark that is being started, if one is, but not for long."""
        ...


class Core:
    """The newest epoch of a home, as one value that each commit replaces."""

    spark: SparkUse

    def __init__(
        self,
        path: Location,
        ledger: Ledger,
        settings: Settings,
        sessions: Sessions,
        leaves: Path,
        ownership: Ownership | None,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self.ledger = ledger
        self.settings = settings
        self.sessions = sessions
        self.leaves = leaves
        self.read_only = read_only
        self.closed = False
        self.progress = Progress()
        self.threads = ViewThreads()
        self.clock = Store(CLOCK, arrow_schema(f.dataType for f in CLOCK_SCHEMA.fields))
        self.following = Following(ledger, 0, self.newest_of)
        # How many definitions were made or tried: what was worked out under an older number may no longer hold.
        self.definitions = 0
        # Called after each commit with every store that it has added to.
        self.tidy: Callable[[Store], None] = lambda _: None
        # Called after each commit with its epoch, its time and how many rows each relation's delta has.
        self.committed: Callable[[int, datetime, Mapping[str, int]], None] = lambda *_: None
        self._ownership = ownership
        # While `_visible` is held, the stores are of the same epoch.
        self._present = Present()
        self._visible = threading.RLock()
        self._receipts = Receipts()
        self._broken_by: tuple[int, BaseException] | None = None
        self._last_work: Work | None = None

    # What there is.

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
    def present(self) -> Present:
        """All that is known of the newest epoch."""
        return self._present

    @property
    def broken(self) -> HomeBroken | None:
        """Why this open home cannot go on, if an epoch was committed that it could not take in."""
        return None if self._broken_by is None else HomeBroken(*self._broken_by)

    def newest(self) -> tuple[int, dict[str, tuple[State, StructType]]]:
        """The newest epoch, and all relations that a query may read at it."""
        self.refuse_broken()
        with self._visible:
            newest = self._present
            held = {name: (one.store.snapshot(), one.schema) for name, one in newest.catalog.relations.items()}
            return newest.epoch, held

    def relations(self) -> dict[str, tuple[State, StructType]]:
        """All relations that a query may read, all of the newest epoch."""
        return self.newest()[1]

    def newest_of_names(self, names: Sequence[str]) -> dict[str, tuple[State, StructType]]:
        """Some relations at the newest epoch, each that is there."""
        self.refuse_broken()
        with self._visible:
            found = {name: self._present.catalog.relations.get(name) for name in names}
            return {name: (one.store.snapshot(), one.schema) for name, one in found.items() if one is not None}

    def newest_of(self, name: str) -> Newest:
        """One relation as it is at the newest epoch, if it is there, with all that its followers ask for."""
        self.refuse_broken()
        with self._visible:
            present = self._present
            one = present.catalog.relations.get(name)
            content = None if one is None else one.store.snapshot()
            changed_at = present.changed_at.get(name, present.epoch)
            return Newest(present.epoch, present.catalog.history, one, content, changed_at)

    def all_at_once(self) -> tuple[Present, list[tuple[Store, State]]]:
        """The newest epoch, and what every store holds at it, hidden ones included."""
        self.refuse_broken()
        with self._visible:
            return self._present, [(store, store.snapshot()) for store in self.all_stores()]

    def relations_at(self, epoch: int, go_on: GoOn = always) -> Relations:
        """Every relation at an earlier epoch, under the columns of that epoch, from the ledger."""
        self.refuse_broken()
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

    def make_view(self, definition: ViewDefinition, catalog: Catalog | None = None) -> View:
        """A view of this home, or of a catalog that it may come to have; not yet part of it."""
        return make_view(self.sessions.catalyst, catalog or self.catalog, self.leaves, definition)

    # What may be done.

    def refuse_closed(self) -> None:
        """Nothing is read from a closed home, nor written."""
        if self.closed:
            raise HomeClosed(self.path)

    def refuse_broken(self) -> None:
        """Nothing is done with a home that could not take in what it has committed."""
        if (broken := self.broken) is not None:
            raise broken

    def refuse_read_only(self) -> None:
        """Only an owner changes anything."""
        if self.read_only:
            raise ReadOnly("the home was opened read-only", hint="open it without read_only=True to change it")

    def check_owner(self) -> None:
        """Only who owns the home now may write there."""
        self.refuse_read_only()
        self.refuse_broken()
        if self._ownership is not None:
            self._ownership.check()

    @property
    def is_lost(self) -> bool:
        """Whether another process owns the home by now, as far as is known without asking."""
        return self._ownership is not None and self._ownership.is_lost

    # What calls are checked against.

    @property
    def tombstone_retention(self) -> timedelta:
        """How long deleted keys are remembered."""
        return self.settings.tombstone_retention

    def known(self, key: str | None) -> Receipt | None:
        """The receipt of an idempotency key that was used before."""
        return None if key is None else self._receipts.get(key, self.ledger.oldest)

    def remember(self, key: str, receipt: Receipt) -> None:
        """Keep the receipt of an idempotency key with its seconds, which the ledger does not keep."""
        self._receipts.add({key: receipt})

    def stands(self, basis: Basis) -> bool:
        """Whether what changes were worked out from is still so; asked in turn."""
        changed = (self.changed_at.get(name, 0) for name in basis.relations)
        return basis.definitions == self.definitions and all(epoch <= basis.epoch for epoch in changed)

    # The next epoch.

    def tick(self) -> datetime:
        """The time of the next epoch: never before the last one, at the clock's resolution."""
        return max(now_utc(), self.committed_at)

    def begin(self, now: datetime, catalog: Catalog | None = None) -> Work:
        """The work of a new epoch, over the catalog that it is to leave, with the clock moved to its time."""
        planned = catalog or self.catalog
        work = Work(self._stores(planned), self.settings.small_bound, self.progress.tell)
        move_clock(work, planned, now, self.settings.clock_resolution_seconds)
        return work

    def follow(self, work: Work) -> None:
        """Bring every view up to date."""
        self._last_work = work
        # Here and not by each caller: what became of Spark is looked at once for an epoch, and all hear the same.
        with self.spark.working(needed=False):
            follow(work, self.catalog, self.sessions.frames, self.threads)

    def moves_anything(self, work: Work) -> bool:
        """Whether an epoch changes more than the clock."""
        return any(len(delta) for name, delta in work.deltas.items() if name != CLOCK)

    @property
    def last_work(self) -> Work | None:
        """What the last epoch that was tried was given; asked in turn."""
        return self._last_work

    def try_change(self, name: str, change: Delta, but: Collection[str] = ()) -> None:
        """Work out the views over one table's change, but for some, and throw it away; raises what they raise."""
        work = Work(self._stores(self.catalog), self.settings.small_bound)
        work.record(name, change)
        follow(work, self.catalog, self.sessions.frames, self.threads, but)

    def blame(self, error: ViewEvaluationError) -> ViewEvaluationError:
        """The error with the row that caused it, where one can be found."""
        failed = self._last_work
        return error if failed is None else with_guilty_row(error, failed, self.catalog, self.try_change)

    def commit(self, work: Work, now: datetime, head: Mapping[str, Any], catalog: Catalog | None = None) -> None:
        """Make an epoch durable, then visible, all of it at once, with the catalog that a definition leaves.

        All that can fail is done before the append. What is raised after it breaks the home, and tells so.
        """
        self.check_owner()
        if self.ledger.committed_epoch() > self.epoch:
            # An interrupt of an interrupt: nobody was left to notice that the last epoch exists.
            self._end_broken(self.ledger.epoch, InterruptedError("its commit was cut short"))
            self.refuse_broken()
        planned = catalog or self.catalog
        prepared = prepare(self._present, now, head, work.deltas, planned, self._stores(planned).values())
        epoch = prepared.present.epoch
        crash_point("epoch prepared")
        with interrupts_held() as held:
            try:
                self.ledger.commit(epoch, now, head, work.to_commit())
                crash_point("epoch committed")
                self._show(prepared, work.deltas)
                held.note = f"epoch {epoch} is committed"
                crash_point("epoch shown")
            except BaseException as error:
                self._break(epoch, error)
                raise
        for store, _ in prepared.additions:
            self.tidy(store)
        self.committed(epoch, now, {name: len(delta) for name, delta in work.deltas.items() if len(delta)})

    def _show(self, prepared: Prepared, deltas: Mapping[str, Delta]) -> None:
        """Let everyone see a committed epoch: assignments only."""
        with self._visible:
            for store, addition in prepared.additions:
                store.add_prepared(addition)
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

    # What others bring about.

    def stand_at(self, present: Present, receipts: Mapping[str, Receipt]) -> None:
        """Be at what was recovered from the ledger, over stores that hold it."""
        self._present = present
        self._receipts.add(receipts)

    def begin_following(self) -> None:
        """Let relations be followed from the newest epoch on."""
        self.following = Following(self.ledger, self.epoch, self.newest_of)

    def catch_up(self, prepared: Prepared) -> None:
        """Show what the owner in another process has committed."""
        with self._visible:
            for store, addition in prepared.additions:
                store.add_prepared(addition)
            self._present = prepared.present
        self._receipts.add(prepared.receipts)
        self._receipts.forget(self.ledger.oldest)
        for store, _ in prepared.additions:
            self.tidy(store)

    def begin_to_own(self, ownership: Ownership) -> None:
        """Make epochs from now on, where only those of others were followed before."""
        self._ownership = ownership
        self.read_only = False
        self.begin_following()

    def swap_spark(self, sessions: Sessions, views: Sequence[View]) -> None:
        """Go on with another Spark, in which these are the views; between epochs."""
        with self._visible:
            self._present = replace(self._present, catalog=self.catalog.having(*views))
            self.sessions = sessions
