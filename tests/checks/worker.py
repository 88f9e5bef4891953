"""One life of a home: opened, validated, changed with fold going on beside, and closed unless it is killed before.

Where a point raises instead of killing, the life goes on: with the same open home, or, if that is broken, with the home
opened again. All is validated then, by what each caller was told, and some more is done.
"""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import headrace
from headrace.errors import HeadraceError, HomeBroken, LedgerError
from headrace.face import Headrace, home_of
from headrace.ledger import base, durable, ledger
from headrace.ledger.readers import Reader
from headrace.settings import Settings
from headrace.upkeep import fold
from tests.changes import Change
from tests.checks.book import BY_NAME
from tests.checks.journal import Journal
from tests.checks.jvm import Address, attach
from tests.checks.model import Action, Apply, Statement
from tests.checks.validate import Fault, Standing, key_of, settle, validate

_ACTIONS_AFTER = 3
_COMMITTED = re.compile(r"epoch (\d+) is committed")


@dataclass(frozen=True)
class Life:
    """What one process is to do; its home is in the folder, or where the URI says."""

    check: str
    seed: int
    number: int
    folder: Path
    spark: Address
    actions: int
    crash_at: str = ""
    thorough: bool = False
    uri: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def home(self) -> str:
        return self.uri or str(self.folder / "home")

    @property
    def journal(self) -> Journal:
        return Journal(self.folder / "journal")

    @property
    def raises(self) -> bool:
        """Whether its point raises, instead of ending it."""
        return "!" in self.crash_at

    @property
    def raised(self) -> bool:
        """Whether its point has raised by now."""
        return self.raises and durable._crash_at == ""  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class Said:
    """What a life tells its parent: opening, ready or done; with all that is wrong, and whether its point raised."""

    word: str
    epoch: int = 0
    faults: tuple[Fault, ...] = ()
    raised: bool = False


def live(life: Life, parent: Connection) -> None:
    """Live one life, and tell the parent how far it came."""
    try:
        _live(life, parent)
    except BaseException:
        parent.send(Said("done", faults=(Fault("wrong", traceback.format_exc()),)))


def _live(life: Life, parent: Connection) -> None:
    _bring_near()
    # The environment is read when the module is loaded, which here was before the fork.
    durable._crash_at = life.crash_at  # pyright: ignore[reportPrivateUsage]
    os.environ["TMPDIR"] = str(life.folder)
    spark: Any = attach(life.spark)
    check = BY_NAME[life.check]
    parent.send(Said("opening"))
    settings = Settings(  # pyright: ignore[reportArgumentType]
        **check.settings, vacuum_grace=0, storage_options=dict(life.options)
    )

    def opened() -> Headrace:
        return headrace.open(life.home, spark=spark, settings=settings)

    try:
        hr = opened()
    except BaseException:
        if not life.raised:
            raise
        hr = opened()
    ready, calm = False, life.raised
    while True:
        met: list[BaseException] = []
        faults: list[Fault] = []
        try:
            at, faults = _validated(hr, life, swept=life.raised)
            if not ready:
                ready = True
                parent.send(Said("ready", hr.epoch))
            if not faults and calm:
                faults = _manipulate(hr, replace(life, crash_at=""), at.count, _ACTIONS_AFTER, met, parent)
            elif not faults:
                faults = _manipulate(hr, life, at.count, life.actions, met, parent)
        except BaseException as error:
            if calm or not life.raised:
                raise
            met.append(error)
        if calm or not life.raised:
            break
        calm = True
        if _must_be_opened_again(hr, met):
            hr.close()
            hr = opened()
    faults.extend(_dead_threads(hr))
    epoch = hr.epoch
    hr.close()
    parent.send(Said("done", epoch, tuple(faults), life.raised))


def _validated(hr: Headrace, life: Life, swept: bool) -> tuple[Standing, list[Fault]]:
    if swept:
        # What a fold that failed has left behind, the next one sweeps.
        hr.fold()
    at, faults = settle(hr, BY_NAME[life.check], life.seed, life.journal)
    return at, faults or validate(hr, at, Random(f"{life.seed}-{life.number}"), life.thorough)


def _must_be_opened_again(hr: Headrace, met: Sequence[BaseException]) -> bool:
    """Whether the home says so: it is broken, or its storage has not confirmed a commit."""
    try:
        hr.fold()
    except HeadraceError as error:
        met = [*met, error]
    folder = home_of(hr).core.ledger._folder  # pyright: ignore[reportPrivateUsage]
    if folder._unconfirmed == folder.version + 1:  # pyright: ignore[reportPrivateUsage]
        # Every commit from now on says so; none has been tried since.
        return True
    return any(isinstance(error, HeadraceError) and "open the home again" in error.hint for error in met)


def _dead_threads(hr: Headrace) -> list[Fault]:
    """The threads that a home must have, and has no more."""
    living = {thread.name for thread in threading.enumerate()}
    wanted = {"headrace-fold-timer"} | ({"headrace-clock"} if home_of(hr).core.catalog.reads_clock else set())
    return [Fault("wrong", f"the thread {name} has died") for name in sorted(wanted - living)]


def _manipulate(
    hr: Headrace, life: Life, first: int, count: int, met: list[BaseException], parent: Connection
) -> list[Fault]:
    """Go on with the check while another thread folds without a pause, for a reader that follows closely.

    It ends early once its point has raised, wherever that was; what was met then is kept.
    """
    stopped = threading.Event()
    faults: list[Fault] = []

    def fold_on() -> None:
        rng = Random(f"fold-{life.seed}-{life.number}")
        while not stopped.wait(rng.random() * 0.2):
            try:
                home_of(hr).readers.register(Reader("follower", hr.epoch, 3))
                hr.fold()
            except BaseException as error:
                if life.raised:
                    met.append(error)
                else:
                    faults.append(Fault("wrong", f"fold failed: {traceback.format_exc()}"))
                return

    folding = threading.Thread(target=fold_on, daemon=True)
    folding.start()
    actions = BY_NAME[life.check].actions(life.seed)
    for number in range(first + count):
        action, _ = next(actions)
        if number < first:
            continue
        # The parent sends nothing: there is something to read once it has gone.
        if faults or life.raised or parent.poll():
            break
        # The other thread may lag far behind where actions are quick, and a base is dropped only if one fold sees a
        # view and the next sees it gone: a point that is waited for must come.
        drops = isinstance(action, Statement) and action.view is not None and action.query is None
        folds = life.crash_at != "" and (drops or (number >= first + 20 and number % 5 == 0))
        try:
            if folds:
                hr.fold()
            life.journal.begin(number)
            _send(hr, action, number, life, met)
            if folds:
                hr.fold()
        except BaseException as error:
            if not life.raised:
                raise
            met.append(error)
    stopped.set()
    folding.join()
    return faults


def _send(hr: Headrace, action: Action, number: int, life: Life, met: list[BaseException]) -> None:
    """Make all calls of an action at the same time; each is acknowledged on its own, or told that it is not in."""

    def tell(index: int, make: Callable[[], int]) -> None:
        try:
            epoch = make()
        except BaseException as error:
            if not life.raised:
                raise
            met.append(error)
            if _is_unconfirmed(error):
                return
            committed = _committed_in(error)
            if committed is None:
                life.journal.refuse((number, index))
                return
            epoch = committed
        life.journal.acknowledge((number, index), epoch)

    def call(index: int, changes: Mapping[str, Sequence[Change]]) -> None:
        tell(index, lambda: hr.apply(changes, key=key_of((number, index))).epoch)

    def execute(sql: str) -> int:
        hr.execute(sql)
        return hr.epoch

    if isinstance(action, Statement):
        tell(0, lambda: execute(action.sql))
        return
    if isinstance(action, Apply):
        call(0, action.changes)
        return
    with ThreadPoolExecutor(len(action.calls)) as callers:
        for made in [callers.submit(call, index, one.changes) for index, one in enumerate(action.calls)]:
            made.result()


def _committed_in(error: BaseException) -> int | None:
    """The epoch that a call which raised is part of, by what it was told; None if nothing of it is committed."""
    if isinstance(error, HomeBroken):
        return error.epoch if error.included else None
    noted = [found for note in getattr(error, "__notes__", ()) if (found := _COMMITTED.search(note))]
    return int(noted[0][1]) if noted else None


def _is_unconfirmed(error: BaseException) -> bool:
    """Whether the storage did not say what became of a commit, so that nobody can, before the home is opened again."""
    return isinstance(error, LedgerError) and "not confirmed" in error.message


def _bring_near() -> None:
    """Let happen in every life what else happens once in a hundred epochs: compaction, joined files, checkpoints."""
    fold._SMALL_FILES = 4  # pyright: ignore[reportPrivateUsage]
    ledger._CHECKPOINT_EVERY = 9  # pyright: ignore[reportPrivateUsage]
    base._CHECKPOINT_EVERY = 4  # pyright: ignore[reportPrivateUsage]
    base._JOIN_AT = 3  # pyright: ignore[reportPrivateUsage]
    base._KEEP_COMMITS = 3  # pyright: ignore[reportPrivateUsage]
