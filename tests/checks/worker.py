"""One life of a home: opened, validated, changed with fold going on beside, and closed unless it is killed before."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import headrace
from headrace.engine import fold
from headrace.home import Headrace
from headrace.ledger import base, durable, ledger
from headrace.ledger.readers import Reader
from headrace.settings import Settings
from tests.checks.book import BY_NAME
from tests.checks.journal import Journal
from tests.checks.jvm import Address, attach
from tests.checks.model import Action, Apply, Change, Statement
from tests.checks.validate import Fault, key_of, settle, validate


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


@dataclass(frozen=True)
class Said:
    """What a life tells its parent: opening, ready or done; with all that is wrong."""

    word: str
    epoch: int = 0
    faults: tuple[Fault, ...] = ()


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
    hr = headrace.open(life.home, spark=spark, settings=settings)
    at, faults = settle(hr, check, life.seed, life.journal)
    if not faults:
        faults = validate(hr, at, Random(f"{life.seed}-{life.number}"), life.thorough)
    if not faults:
        parent.send(Said("ready", hr.epoch))
        faults = _manipulate(hr, life, at.count, parent)
    epoch = hr.epoch
    hr.close()
    parent.send(Said("done", epoch, tuple(faults)))


def _manipulate(hr: Headrace, life: Life, first: int, parent: Connection) -> list[Fault]:
    """Go on with the check while another thread folds without a pause, for a reader that follows closely."""
    stopped = threading.Event()
    faults: list[Fault] = []

    def fold_on() -> None:
        rng = Random(f"fold-{life.seed}-{life.number}")
        while not stopped.wait(rng.random() * 0.2):
            try:
                hr.readers.register(Reader("follower", hr.epoch, 3))
                hr.fold()
            except Exception:
                faults.append(Fault("wrong", f"fold failed: {traceback.format_exc()}"))
                return

    folding = threading.Thread(target=fold_on, daemon=True)
    folding.start()
    actions = BY_NAME[life.check].actions(life.seed)
    for number in range(first + life.actions):
        action, _ = next(actions)
        if number < first:
            continue
        # The parent sends nothing: there is something to read once it has gone.
        if faults or parent.poll():
            break
        # The other thread may lag far behind where actions are quick, and a base is dropped only if one fold sees a
        # view and the next sees it gone: a point that is waited for must come.
        drops = isinstance(action, Statement) and action.view is not None and action.query is None
        folds = life.crash_at != "" and (drops or (number >= first + 20 and number % 5 == 0))
        if folds:
            hr.fold()
        life.journal.begin(number)
        _send(hr, action, number, life.journal)
        if folds:
            hr.fold()
    stopped.set()
    folding.join()
    return faults


def _send(hr: Headrace, action: Action, number: int, journal: Journal) -> None:
    """Make all calls of an action at the same time; each is acknowledged on its own."""

    def call(place: int, changes: Mapping[str, Sequence[Change]]) -> None:
        journal.acknowledge((number, place), hr.apply(changes, key=key_of((number, place))).epoch)

    if isinstance(action, Statement):
        hr.execute(action.sql)
        journal.acknowledge((number, 0), hr.epoch)
        return
    if isinstance(action, Apply):
        call(0, action.changes)
        return
    with ThreadPoolExecutor(len(action.calls)) as callers:
        for made in [callers.submit(call, place, one.changes) for place, one in enumerate(action.calls)]:
            made.result()


def _bring_near() -> None:
    """Let happen in every life what else happens once in a hundred epochs: compaction, joined files, checkpoints."""
    fold._SMALL_FILES = 4  # pyright: ignore[reportPrivateUsage]
    ledger._CHECKPOINT_EVERY = 9  # pyright: ignore[reportPrivateUsage]
    base._CHECKPOINT_EVERY = 4  # pyright: ignore[reportPrivateUsage]
    base._JOIN_AT = 3  # pyright: ignore[reportPrivateUsage]
    base._KEEP_COMMITS = 3  # pyright: ignore[reportPrivateUsage]
