"""An open home: its parts, put together in the order in which they need each other, and taken apart again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Literal, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.access.audit import Audit
from headrace.catalog.catalog import Catalog, ViewDefinition
from headrace.definitions.adopt import adopt
from headrace.definitions.catch_up import can_catch_up, catch_up, changes_rows_alone, newer_heads
from headrace.definitions.recover import recover
from headrace.definitions.restored import paused_by_restore
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.errors import LedgerError
from headrace.events.for_others import events_verb
from headrace.events.store import EventStore
from headrace.events.stores import EventStores
from headrace.feeds.running import Feeds
from headrace.json_forms import json_form
from headrace.ledger.backup import backup
from headrace.ledger.durable import crash_point
from headrace.ledger.ledger import Ledger
from headrace.ledger.migrations import migrate, pending
from headrace.ledger.readers import Readers
from headrace.owner.control import Control, Verb
from headrace.owner.ownership import Ownership, take_ownership
from headrace.query_processes.for_others import reading_verbs
from headrace.query_processes.queries import read_plain_text
from headrace.reading.explain import Explanation, explain_view
from headrace.reading.files import Files
from headrace.reading.history import changes_table
from headrace.reading.judge import Verdict, recompute
from headrace.reading.sessions import open_sessions
from headrace.settings import Settings
from headrace.sources.conservation import imbalances
from headrace.sources.dead_letters import Filter, count_letters, discard, find_letters, refuse_unknown, replay
from headrace.sources.running import Sources
from headrace.spark.shared_scratch import open_scratch
from headrace.sql.one_row import CLOCK, CLOCK_SCHEMA
from headrace.sql.resolve import forget
from headrace.state import mapped
from headrace.statements.answers import Result, to_answer
from headrace.statements.audited import noted_letters
from headrace.statements.engine import Engine
from headrace.statements.run import run_query_text, run_script
from headrace.statements.secrets import forget_secrets
from headrace.storage.objects import Location, location_of
from headrace.storage.scratch import Scratch, memory_folder
from headrace.upkeep.executors import ExecutorWatch
from headrace.upkeep.fold import Fold, FoldInputs, base_schemas_of, fold_inputs, sweep_after_crash, sweep_bases
from headrace.upkeep.merger import Merger
from headrace.upkeep.renew import Renewal
from headrace.upkeep.ticker import Ticker

T = TypeVar("T")
_READ_ATTEMPTS = 3


class Home:
    """One open home, read-only for one who does not own it."""

    def __init__(self, path: Location, spark: SparkSession, settings: Settings, ownership: Ownership | None) -> None:
        self.path = path
        self.settings = settings
        self._ownership = ownership
        with ExitStack() as left_behind:
            self._leaves = Scratch(memory_folder())
            left_behind.callback(self._leaves.close)
            self._disk = open_scratch(path, spark, settings, sweeping=ownership is not None)
            left_behind.callback(self._disk.close)
            files = Files(self._disk.path)
            sessions = open_sessions(spark, files)
            left_behind.pop_all()
        ledger = Ledger(path, settings.inline_bytes)
        self.readers = Readers(path, may_write=ownership is not None)
        self.core = Core(path, ledger, settings, sessions, self._leaves.path, ownership, read_only=ownership is None)
        self.loop = Loop(self.core)
        self.loop.pauses_collector = settings.pause_garbage_collection
        self.sources = Sources(self.loop)
        self.feeds = Feeds(self.loop, self.readers, 0 if ownership is None else ownership.fence)
        self.engine = Engine(self.loop, self.sources, self.feeds, Audit(path))
        self.event_stores = EventStores(self.loop)
        self.events_verb = events_verb(self.events)
        self._merger = Merger(self.loop.idle)
        self.core.tidy = self._merger.submit
        self.renewal = Renewal(self.loop, spark, files)
        self.core.spark = self.renewal
        self._executors: ExecutorWatch | None = None
        if not sessions.catalyst.is_local:
            patience = settings.spark_patience.total_seconds()
            self._executors = ExecutorWatch(self._spark_sessions, patience, self.renewal.note_stopped)
        try:
            with sessions.catalyst.active():
                self._outdated = self._load(ownership)
        except BaseException:
            self._let_go()
            raise
        self.core.begin_following()
        self._fold = Fold(path, ledger, self.readers, settings, self._fold_inputs, self.core.check_owner)
        self._ticker = Ticker(settings.clock_resolution_seconds, lambda: self.core.catalog.reads_clock, self._tick)
        self.loop.defined = self._go_on
        self._control: Control | None = None
        try:
            if ownership is not None:
                self._begin_to_own(ownership)
        except BaseException:
            self.close()
            raise

    def take_over(self) -> None:
        """Own a home that was open for reading, now that its owner is gone; raises HomeBusy if it is not.

        All that a reader has stays: the views' rules, and the state that it has followed so far. Whose ledger is not
        there, or cannot be read, stays a reader.
        """
        self.core.refuse_closed()
        # Before anything is made: that no owner is seen in an empty folder, where a mount is gone, says nothing.
        self._follow_ledger()
        is_new = not self.core.ledger.exists
        ownership = take_ownership(self.path, self.settings.owner_timeout, create=is_new)
        try:
            self._follow_ledger()
        except BaseException:
            ownership.abandon()
            raise
        try:
            with self.loop.turn, self.core.sessions.catalyst.active():
                self.core.ledger.claim(ownership.fence)
                self._move()
                self.readers.begin_to_own()
                self.feeds.begin_to_own(ownership.fence)
                self.core.begin_to_own(ownership)
            self._ownership = ownership
            # Not now, while everybody waits: the first fold tidies up before it begins.
            self._fold.first = self._sweep_bases
            self._begin_to_own(ownership, swept=True)
        except BaseException:
            self._ownership = ownership
            self.close()
            raise

    def _follow_ledger(self) -> None:
        with self.loop.turn:
            _again_where_moved(self.core.ledger.follow)

    def _sweep_bases(self) -> None:
        sweep_bases(self.path, base_schemas_of(self.core.all_stores(), self.core.catalog))

    def _begin_to_own(self, ownership: Ownership, swept: bool = False) -> None:
        """What only an owner does: tidy up, answer others, fold, follow the clock."""
        core, outdated = self.core, self._outdated
        if not swept:
            sweep_after_crash(self.path, core.ledger, base_schemas_of(core.all_stores(), core.catalog))
        forget_secrets(core)
        self._control = self._listen(ownership)
        if outdated:
            self.loop.define(lambda: adopt(core, views=outdated))
        self._fold.start()
        self._go_on()

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
            return _again_where_moved(self._recover)
        self.core.ledger.open()
        self.core.ledger.claim(ownership.fence)
        crash_point("home claimed")
        return self._recover(opened=True)

    def _recover(self, opened: bool = False, made: Catalog | None = None) -> Sequence[ViewDefinition]:
        if not opened:
            self.core.ledger.open()
        recovered = recover(self.core, made)
        self.core.stand_at(recovered.present, recovered.receipts)
        mapped.release()
        return recovered.outdated

    def close(self) -> None:
        """Let go of the home; everything committed stays."""
        if self.core.closed:
            return
        if self._control is not None:
            self._control.close()
        self.sources.close()
        self.feeds.close()
        self.event_stores.close()
        self._ticker.stop()
        self._fold.stop()
        with self.loop.turn:
            self.core.closed = True
            self.core.following.end()
            self._merger.close()
            self._let_go()
            if self._ownership is not None:
                self._ownership.release()

    def _let_go(self) -> None:
        """Of threads and files that are there for this opening alone."""
        if self._executors is not None:
            self._executors.close()
        self.core.threads.close()
        self._leaves.close()
        self._disk.close()

    # The verbs.

    def execute(self, sql: str) -> Result:
        """Run one statement or a script; the result is that of the last statement."""
        self.core.refuse_closed()
        with self.core.sessions.catalyst.active():
            return run_script(self.engine, sql)

    def query(self, sql: str, epoch: int | None = None) -> pa.Table:
        """The rows of a query over one consistent epoch; many need no Spark."""
        self.core.refuse_closed()
        found = read_plain_text(self.core, sql, epoch)
        if found is not None:
            return found
        with self.renewal.working(), self.core.sessions.catalyst.active():
            return run_query_text(self.core, sql, epoch)

    def changes(self, name: str, since: int = 0, until: int | None = None, most_bytes: int | None = None) -> pa.Table:
        """A relation's changes after one epoch, up to and including another; `ResultTooLarge` if they are too many."""
        core = self.core
        core.refuse_closed()
        core.refuse_broken()
        newest = core.present
        last = newest.epoch if until is None else until
        catalog = newest.catalog
        return changes_table(core.ledger, catalog.history, catalog.get(name), since, last, newest.epoch, most_bytes)

    def explain(self, name: str) -> Explanation:
        """How a view is kept current."""
        self.core.refuse_closed()
        return explain_view(self.core.catalog.view(name))

    def verify(self, name: str | None = None) -> Verdict:
        """Recompute views in full with plain Spark and compare them with what is served; and the counts of sources."""
        core = self.core
        core.refuse_closed()
        with self.loop.turn:
            catalog = core.catalog
            views = catalog.views() if name is None else [catalog.view(name)]
            known_columns = {view.name: catalog.known_columns(view.definition) for view in views}
            relations = core.relations()
            unbalanced = imbalances(catalog, relations) if name is None else []
            relations[CLOCK] = core.clock.snapshot(), CLOCK_SCHEMA
        with self.renewal.working(), core.sessions.catalyst.active():
            queries, tell = core.sessions.queries, core.progress.tell
            verdict = recompute(queries, views, relations, known_columns, self.settings, tell)
        return replace(verdict, imbalances=tuple(unbalanced))

    def refresh(self) -> int:
        """Move a home that is open for reading to its owner's newest epoch, and tell it; an owner is always there."""
        self.core.refuse_closed()
        if self.core.read_only:
            with self.loop.turn:
                _again_where_moved(self._refresh)
        return self.core.epoch

    def _refresh(self) -> None:
        self.core.ledger.follow()
        self._move()

    def _move(self) -> None:
        """Be at the newest epoch of the ledger, as it was just read."""
        core = self.core
        heads = newer_heads(core)
        if not heads:
            return
        if can_catch_up(core, heads):
            core.catch_up(catch_up(core, heads))
            return
        before = core.catalog
        kept = before if changes_rows_alone(heads) and not self._outdated else None
        self._outdated = self._recover(opened=True, made=kept)
        for view in before.views() if kept is None else ():
            view.context.clear()
        for name in before.relations.keys() - core.catalog.relations.keys():
            forget(core.sessions.catalyst, name)

    def fold(self) -> dict[str, Any]:
        """Bring every base to the newest epoch now."""
        self.core.check_owner()
        return self._fold.now().to_json()

    @property
    def fold_backlog(self) -> tuple[int, int]:
        """How many epochs, and bytes of the log, no base holds yet."""
        return self._fold.backlog

    @property
    def fold_failure(self) -> str | None:
        """Why the last fold in the background failed, if it did; nothing is lost, but the log grows."""
        return self._fold.failures.text

    def backup(self, destination: str | os.PathLike[str]) -> dict[str, Any]:
        """Copy the newest epoch, older ones included, to an empty location, while epochs go on."""
        self.core.check_owner()
        with self._fold.held_off():
            return backup(self.path, location_of(destination, self.settings.storage_options))

    def status(self) -> dict[str, Any]:
        """What others may ask about the home while it is open here."""
        newest, broken = self.core.present, self.core.broken
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
            "broken": None if broken is None else str(broken),
        }

    def paused_by_restore(self) -> list[str]:
        """Return the sources and changefeeds that wait for RESUME since the home was restored from a backup."""
        return paused_by_restore(self.core.catalog)

    def events(self, name: str | None = None) -> EventStore:
        """An event store; the only one, or the one called events, where none is named."""
        self.core.refuse_closed()
        return self.event_stores.get(name)

    def dead_letters(
        self,
        deed: Literal["list", "replay", "discard"],
        ids: Sequence[str] | None = None,
        source: str | None = None,
        stage: str | None = None,
        payload: str | None = None,
        most: int | None = None,
    ) -> dict[str, Any]:
        """What others may ask of the dead letters of a home: which there are, to try them again, to let them go."""
        self.core.refuse_closed()
        chosen = None if ids is None else tuple(ids)
        wanted = Filter(chosen, source and source.lower(), stage)
        if deed == "list":
            shown = find_letters(self.core, wanted, most=most)
            refuse_unknown(chosen or (), shown)
            return {"letters": json_form(shown), "count": count_letters(self.core, wanted)}
        with noted_letters(self.engine.audit, deed):
            letters = find_letters(self.core, wanted)
            refuse_unknown(chosen or (), letters)
            if deed == "discard":
                return {"receipt": discard(self.loop, letters).to_json()}
            edited = letters if payload is None else [{**one, "payload": payload} for one in letters]
            return {"receipt": replay(self.loop, edited).to_json()}

    # What goes on beside them.

    def _go_on(self) -> None:
        """After each definition: run what it asks for."""
        self._ticker.start()
        self.sources.reconcile()
        self.feeds.reconcile()
        self.event_stores.resume()

    def _spark_sessions(self) -> list[SparkSession]:
        sessions = self.core.sessions
        return [sessions.catalyst.session, sessions.frames.catalyst.session]

    def _listen(self, ownership: Ownership) -> Control:
        """Run verbs for other processes from now on."""
        verbs: dict[str, Verb] = {"fold": self.fold, "backup": self.backup, "status": self.status}
        verbs |= {"dead_letters": self.dead_letters, "events": self.events_verb, **reading_verbs(self)}
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

    def _tick(self) -> None:
        """Make an epoch if time alone moves a row; one that moves nothing is not committed."""
        with self.renewal.working(busy=False):
            self.loop.submit(Call({}, quiet=True))

    def _fold_inputs(self) -> FoldInputs:
        """What fold works on."""
        return fold_inputs(*self.core.all_at_once())


def _again_where_moved(read: Callable[[], T]) -> T:
    """What reading comes to; files that the owner has folded away meanwhile are looked for again."""
    for _ in range(_READ_ATTEMPTS - 1):
        with suppress(LedgerError):
            return read()
    return read()
