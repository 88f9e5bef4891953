"""Fold keeps bases current and the home small, and forgets only what nobody needs."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.catalog.catalog import Table
from headrace.catalog.columns import ColumnHistory
from headrace.errors import EpochExpired, OwnerLost, QueryStopped, ReadOnly
from headrace.intake.table import TableContract
from headrace.ledger.base import Base, BaseSchema
from headrace.ledger.ledger import Ledger, now_utc, summed
from headrace.ledger.readers import Reader, Readers
from headrace.reading.history import RelationsAt, refuse_expired, state_at
from headrace.settings import Settings
from headrace.state.delta import Delta, consolidate
from headrace.state.snapshot import Snapshot
from headrace.state.store import Store
from headrace.storage.folders import make_folder
from headrace.storage.objects import Location
from headrace.upkeep.fold import Fold, FoldInput, FoldInputs, base_path, sweep_after_crash
from tests.thinned import thinned
from tests.waiting import until

SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
BASE_SCHEMAS = {"t": BaseSchema(("id", "name"), SCHEMA), "v#0": BaseSchema(("c0", "c1"), SCHEMA, hidden=True)}
COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])
CONTRACT = TableContract("t", COLUMNS, (), None)
DEFINITION = {"kind": "table", "name": "t", "schema": COLUMNS.jsonValue(), "key": [], "sequence": None}
Rows = Counter[tuple[int, str]]


def content(delta: Delta) -> Rows:
    pairs = zip(delta.rows.to_pylist(), delta.weights.tolist(), strict=True)
    return Counter({(row["c0"], row["c1"]): weight for row, weight in pairs})


def held(snapshot: Snapshot) -> Rows:
    total: Rows = Counter()
    for run in snapshot.runs:
        for pair, weight in content(run.delta).items():
            total[pair] += weight
    return Counter({pair: n for pair, n in total.items() if n})


class Home:
    """A table and a hidden store, changed at random; what they held at each epoch is remembered."""

    def __init__(self, path: Location, **settings: Any) -> None:
        self.path = path
        self.settings = Settings(vacuum_grace=timedelta(0), **settings)
        self.ledger = Ledger(path, inline_bytes=2000)
        self.ledger.open()
        self.ledger.claim(1)
        self.readers = Readers(path)
        self.stores = {name: Store(name, SCHEMA) for name in BASE_SCHEMAS}
        self.epoch = 0
        self.past: list[Rows] = [Counter()]
        self.fold = Fold(path, self.ledger, self.readers, self.settings, self.inputs)
        self.random = np.random.default_rng(3)

    def inputs(self) -> FoldInputs:
        return FoldInputs(
            self.epoch,
            {
                name: FoldInput(BASE_SCHEMAS[name], store.snapshot(), self.epoch, 1)
                for name, store in self.stores.items()
            },
        )

    def advance(self, epochs: int) -> None:
        for _ in range(epochs):
            self.commit({name: self._change(store) for name, store in self.stores.items()})

    def commit(self, deltas: dict[str, Delta]) -> None:
        self.epoch += 1
        head = {"reset": list(BASE_SCHEMAS), "define": [DEFINITION]} if self.epoch == 1 else {}
        self.ledger.commit(self.epoch, now_utc(), head, deltas)
        for name, delta in deltas.items():
            self.stores[name].apply(delta)
        self.past.append(held(self.stores["t"].snapshot()))

    def _change(self, store: Store) -> Delta:
        change: Rows = Counter()
        for pair in sorted(held(store.snapshot()))[: int(self.random.integers(0, 6))]:
            change[pair] -= 1
        for _ in range(int(self.random.integers(1, 12))):
            change[int(self.random.integers(0, 40)), f"v{self.random.integers(0, 3)}"] += 1
        # An epoch in which nothing changes has nothing in the log.
        pairs = [pair for pair, n in change.items() if n] or [(40, "v0")]
        change[pairs[0]] = change[pairs[0]] or 1
        columns = [pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs], pa.string())]
        return consolidate(pa.table(columns, schema=SCHEMA), np.array([change[p] for p in pairs], dtype=np.int64))

    def at(self, epoch: int, newest: Snapshot, ledger: Ledger | None = None) -> Snapshot:
        """The table at an earlier epoch."""
        history = ColumnHistory()
        for head in (ledger or self.ledger).heads():
            history = history.recorded(head.epoch, head.content)
        table = Table("t", CONTRACT, self.stores["t"])
        return state_at(ledger or self.ledger, history, table, newest, self.epoch, epoch)[0]

    def restored(self, name: str) -> Rows:
        store = Store(name, SCHEMA)
        store.replace(Base(base_path(self.path, name)).contents(BASE_SCHEMAS[name]))
        return held(store.snapshot())


def test_an_earlier_state_is_not_worked_out_to_its_end_for_one_who_has_gone(location: Location) -> None:
    home = Home(location)
    home.advance(9)
    history = ColumnHistory()
    for head in home.ledger.heads():
        history = history.recorded(head.epoch, head.content)
    newest = {"t": (Table("t", CONTRACT, home.stores["t"]), home.stores["t"].snapshot())}
    asked = 0

    def go_on() -> None:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise QueryStopped("the query was stopped")

    with pytest.raises(QueryStopped):
        RelationsAt(home.ledger, history, newest, home.epoch, 2, go_on)["t"]
    assert asked == 4


@pytest.mark.thorough
def test_bases_follow_whatever_the_intervals(location: Location) -> None:
    home = Home(location)
    for epochs in (1, 3, 50, 2, 40):
        home.advance(epochs)
        report = home.fold.now()
        assert report.epoch == home.epoch
        assert home.restored("t") == home.past[-1]
        assert home.restored("v#0") == held(home.stores["v#0"].snapshot())
    for epoch in range(0, home.epoch, 7):
        newest = home.stores["t"].snapshot()
        assert held(home.at(epoch, newest)) == home.past[epoch]
    assert list(home.ledger.unreferenced(home.epoch)) == []


def test_the_log_keeps_what_users_read_and_drops_what_only_recovery_needs(location: Location) -> None:
    home = Home(location)
    home.advance(60)
    home.fold.now()
    again = Ledger(location, 2000)
    again.open()
    assert [entry.epoch for entry in again.entries("t")] == list(range(1, 61))
    assert list(again.entries("v#0")) == []
    assert content(summed(SCHEMA, list(again.entries("t")))) == home.past[-1]


def test_expired_epochs_go_and_say_so(location: Location) -> None:
    home = Home(location, keep_epochs=50)
    home.advance(150)
    home.fold.now()
    again = Ledger(location, 2000)
    again.open()
    assert again.oldest == home.ledger.oldest == 100
    with pytest.raises(EpochExpired, match="epoch 99 has expired") as expired:
        refuse_expired(again, 99)
    assert "100" in expired.value.detail
    newest = home.stores["t"].snapshot()
    assert held(home.at(100, newest, again)) == home.past[100]
    assert [head.epoch for head in again.heads()] == [1, *range(100, 151)]
    assert [head.epoch for head in home.ledger.heads()] == [1, *range(100, 151)]


def test_the_newest_epoch_never_expires(location: Location) -> None:
    home = Home(location, keep_time=timedelta(0))
    home.advance(60)
    home.fold.now()
    again = Ledger(location, 2000)
    again.open()
    assert [head.epoch for head in again.heads()] == [1, 59, 60]
    assert again.oldest == 59
    assert held(home.at(60, home.stores["t"].snapshot(), again)) == home.past[60]


@pytest.mark.slow
@pytest.mark.thorough
def test_a_reader_holds_the_log_until_its_limit(location: Location) -> None:
    home = Home(location, keep_epochs=10)
    home.readers.register(Reader("feed", epoch=40, limit_epochs=100))
    home.advance(120)
    home.fold.now()
    assert home.ledger.oldest == 40
    home.readers.register(Reader("feed", epoch=90, limit_epochs=100))
    home.advance(50)
    home.fold.now()
    assert home.ledger.oldest == 90
    home.advance(50)
    home.fold.now()
    assert home.ledger.oldest == 210, "the limit of the reader was passed"
    with pytest.raises(ReadOnly):
        Readers(location, may_write=False).register(Reader("other", epoch=0, limit_epochs=1))


def row(a: int, weight: int) -> Delta:
    table = pa.table([pa.array([a], pa.int64()), pa.array(["w"], pa.string())], schema=SCHEMA)
    return consolidate(table, np.array([weight], dtype=np.int64))


def test_rows_that_came_and_went_are_not_forgotten_by_half(location: Location) -> None:
    home = Home(location, keep_epochs=10)
    home.advance(3)
    home.fold.now()
    for _ in range(32):
        home.commit({})
    home.commit({name: row(77, +1) for name in BASE_SCHEMAS})
    home.commit({name: row(77, -1) for name in BASE_SCHEMAS})
    for _ in range(9):
        home.commit({})
    home.fold.now()
    assert home.ledger.oldest == home.epoch - 10, "the first of the two epochs has expired, the second has not"
    home.fold.now()
    for name in BASE_SCHEMAS:
        assert Base(base_path(location, name)).epoch == home.epoch
        assert home.restored(name) == held(home.stores[name].snapshot())


class Checks:
    """An owner's check that fails from some call on."""

    def __init__(self, passes: int) -> None:
        self.left = passes

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OwnerLost("another process owns the home")


def listed(location: Location) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in location.rglob("*") if path.is_file()}


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_who_was_replaced_folds_nothing(location: Location, passes: int) -> None:
    home = Home(location)
    home.advance(3)
    home.fold.now()
    home.advance(2)
    stranger = base_path(location, "made_by_the_next_owner")
    make_folder(stranger)
    (stranger / "rows.parquet").write_bytes(b"rows")
    before = listed(location)
    fold = Fold(location, home.ledger, home.readers, home.settings, home.inputs, Checks(passes))
    with pytest.raises(OwnerLost):
        fold.now()
    # The check before the second base's commit is the third; the first base was committed while it was right to.
    changed = {path for path, content in listed(location).items() if before.get(path) != content}
    assert all(str(base_path(location, "t")) in path for path in changed) if passes == 2 else changed == set()
    assert before.keys() <= listed(location).keys()
    assert home.ledger.epoch == 5


def test_who_was_stopped_before_a_commit_does_not_name_what_was_swept(location: Location) -> None:
    home = Home(location)
    home.advance(3)
    home.fold.now()
    stopped = Base(base_path(location, "t"))
    (base_path(location, "t") / "rows-of-the-stopped.parquet").write_bytes(b"")
    sweep_after_crash(location, home.ledger, BASE_SCHEMAS)
    with pytest.raises(OwnerLost):
        stopped.fold(BASE_SCHEMAS["t"], row(1, +1), 4)
    home.fold = Fold(location, home.ledger, home.readers, home.settings, home.inputs)
    home.advance(1)
    home.fold.now()
    assert home.restored("t") == home.past[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("raised", thinned([KeyboardInterrupt, ValueError], 2))
def test_a_fold_that_fails_is_told_and_tried_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    home = Home(tmp_path, fold_when_idle=timedelta(0))
    tries: list[float] = []

    def fail(*_: Any) -> None:
        tries.append(time.monotonic())
        raise raised("nobody thought of this")

    monkeypatch.setattr(home.ledger, "compact", fail)
    home.advance(1)
    home.fold.start()
    # Until the third is noted, not only begun: what is noted later would outlive the fold that succeeds.
    until(lambda: home.fold.failures.count >= 3)
    assert home.fold.failures.text == "nobody thought of this"
    assert tries[1] - tries[0] > 1.9
    assert tries[2] - tries[1] > 3.9
    monkeypatch.undo()
    home.fold.now()
    home.fold.stop()
    assert home.fold.failures.text is None


def test_strange_files_are_left_alone_while_a_fold_goes_on(location: Location) -> None:
    home = Home(location)
    home.advance(40)
    home.fold.now()
    strange = [location / "ledger" / ".nfs0001", location / "deltas" / ".DS_Store", location / "deltas" / "notes.txt"]
    for path in strange:
        make_folder(path.parent)
        path.write_bytes(b"")
    home.advance(40)
    home.fold.now()
    home.fold.now()
    assert all(path.is_file() for path in strange)


@pytest.mark.slow
@pytest.mark.thorough
def test_files_stay_bounded(tmp_path: Path) -> None:
    home = Home(tmp_path, keep_epochs=64)
    counts: list[int] = []
    for _ in range(8):
        home.advance(64)
        home.fold.now()
        home.fold.now()
        counts.append(sum(1 for path in tmp_path.rglob("*") if path.is_file()))
    assert max(counts[4:]) <= 2 * max(counts[:4])
    assert max(counts) < 500


def test_what_a_crash_left_goes_and_what_is_named_stays(location: Location) -> None:
    home = Home(location)
    home.advance(3)
    home.fold.now()
    named = {path for path in location.rglob("*") if path.is_file()}
    unborn, unknown = base_path(location, "w"), base_path(location, "gone")
    for folder in (unborn / "_delta_log", unborn / "_identities", unknown / "_delta_log"):
        make_folder(folder)
    left = [
        unborn / "_delta_log" / ".tmp-1",
        unborn / "rows-1.parquet",
        unknown / "_delta_log" / f"{0:020d}.json",
        location / ".tmp-2",
        location / "ledger" / ".tmp-3",
        base_path(location, "t") / "rows-4.parquet",
    ]
    for path in left:
        path.write_bytes(b"")
    sweep_after_crash(location, home.ledger, {**BASE_SCHEMAS, "w": BASE_SCHEMAS["t"]})
    fence = base_path(location, "t") / "_delta_log" / f"{1:020d}.json"
    assert {path for path in location.rglob("*") if path.is_file()} == {*named, fence}
    assert not unborn.exists()
