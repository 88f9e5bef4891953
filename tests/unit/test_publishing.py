"""After the commit only assignments: what is raised around it leaves the old epoch or the new one, and says which."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.catalog.catalog import Catalog, Table, View
from headrace.catalog.make import make_table
from headrace.epoch.core import Core
from headrace.epoch.present import Present
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work
from headrace.errors import HomeBroken
from headrace.intake.table import TableContract
from headrace.interrupts import interrupts_held
from headrace.ledger import durable
from headrace.ledger.ledger import Ledger, summed
from headrace.state import mapped
from headrace.state.delta import Delta, consolidate
from headrace.state.store import Store
from headrace.upkeep.failures import Failures
from headrace.upkeep.merger import Merger
from headrace.upkeep.ticker import Ticker
from tests.small_engine import view as small_view
from tests.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("c0", pa.int64())])


def delta(*ids: int) -> Delta:
    return consolidate(pa.table([pa.array(ids, pa.int64())], schema=SCHEMA), np.ones(len(ids), np.int64))


def table(name: str) -> Table:
    return make_table(TableContract(name, StructType([StructField("id", LongType(), False)]), ("id",), None))


pytestmark = pytest.mark.usefixtures("interruptible")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Core]:
    """As much of a home as commits: tables t and u over a ledger, without Spark."""
    ledger = Ledger(tmp_path / "home", 1 << 20)
    ledger.open()
    ledger.claim(1)
    settings, sessions = cast(Any, SimpleNamespace(small_bound=1000)), cast(Any, None)
    core = Core(tmp_path / "home", ledger, settings, sessions, tmp_path, ownership=None)
    core.stand_at(Present(catalog=Catalog().having(table("t"), table("u"))), {})
    idle = threading.Event()
    merger = Merger(idle)
    core.tidy = merger.submit
    yield core
    durable._crash_at = ""  # pyright: ignore[reportPrivateUsage]
    idle.set()
    merger.close()


def commit(hr: Core, *ids: int, key: str | None = None) -> None:
    work = Work({}, 1000)
    work.record("t", delta(*ids))
    work.record("u", delta(*ids))
    head = {} if key is None else {"keys": {key: Receipt(hr.epoch + 1).to_json()}}
    hr.commit(work, NOW, head)


def counts(hr: Core) -> dict[str, int]:
    return {name: snapshot.count for name, (snapshot, _) in hr.relations().items()}


def raise_at(point: str) -> None:
    durable._crash_at = point  # pyright: ignore[reportPrivateUsage]


def test_a_store_that_cannot_map_its_rows_stops_the_epoch_before_it_is_committed(
    home: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(mapped, "LARGE", 2)
        patched.setattr(mapped, "rows", full)
        with pytest.raises(OSError, match="No space left"):
            commit(home, 1, 2, 3)
    assert (home.ledger.epoch, home.epoch, counts(home)) == (0, 0, {"t": 0, "u": 0})
    commit(home, 1, 2, 3)
    assert (home.ledger.epoch, home.epoch, counts(home)) == (1, 1, {"t": 3, "u": 3})
    assert summed(SCHEMA, list(home.ledger.entries("t"))).weights.tolist() == [1, 1, 1]


@pytest.mark.parametrize("point", ["epoch prepared", "files written", "data written"])
@pytest.mark.parametrize("error", ["interrupt", "error", "full"])
def test_what_is_raised_before_the_commit_leaves_the_old_epoch(home: Core, point: str, error: str) -> None:
    raise_at(f"{point}!{error}")
    with pytest.raises(BaseException):  # noqa: B017, PT011 - any of them
        commit(home, 1)
    assert home.broken is None
    assert (home.ledger.epoch, home.epoch, counts(home)) == (0, 0, {"t": 0, "u": 0})
    commit(home, 1)
    assert counts(home) == {"t": 1, "u": 1}


def test_a_disk_that_is_full_once_the_commit_is_named_has_taken_it(home: Core) -> None:
    raise_at("log named!full")
    commit(home, 1)
    assert home.broken is None
    assert (home.ledger.epoch, home.epoch, counts(home)) == (1, 1, {"t": 1, "u": 1})
    commit(home, 2)
    assert counts(home) == {"t": 2, "u": 2}


@pytest.mark.parametrize("point", ["log named", "committed", "epoch committed", "epoch shown"])
def test_what_is_raised_after_the_commit_breaks_the_home_and_tells_the_epoch(home: Core, point: str) -> None:
    commit(home, 1)
    raise_at(f"{point}!error")
    with pytest.raises(HomeBroken, match="epoch 2 is committed") as told:
        commit(home, 2)
    assert isinstance(told.value.__cause__, RuntimeError)
    assert "open the home again" in told.value.hint
    assert told.value.included
    assert "part of epoch 2" in told.value.detail
    for refused in (lambda: commit(home, 3), home.newest, home.relations, lambda: home.newest_of("t")):
        with pytest.raises(HomeBroken, match="epoch 2 is committed") as later:
            refused()
        assert not later.value.included
        assert "Nothing of this call was done" in later.value.detail
    assert home.ledger.epoch == 2
    assert sorted(summed(SCHEMA, list(home.ledger.entries("t"))).rows.column(0).to_pylist()) == [1, 2]


def test_an_interrupt_after_the_commit_goes_on_with_a_note(home: Core) -> None:
    raise_at("epoch committed!interrupt")
    with pytest.raises(KeyboardInterrupt) as told:
        commit(home, 1)
    assert any("epoch 1 is committed" in note for note in told.value.__notes__)
    assert home.broken is not None


def test_who_reads_while_an_epoch_is_shown_sees_all_of_it_or_nothing(
    home: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(home, 1)
    seen: list[Any] = []
    readers: list[threading.Thread] = []
    show = Store.add_prepared

    def read() -> None:
        epoch, held = home.newest()
        seen.append((epoch, {name: snapshot.count for name, (snapshot, _) in held.items()}))

    def show_and_read(store: Store, runs: Any) -> None:
        show(store, runs)
        readers.append(threading.Thread(target=read))
        readers[-1].start()
        readers[-1].join(0.3)

    monkeypatch.setattr(Store, "add_prepared", show_and_read)
    commit(home, 2)
    for reader in readers:
        reader.join(90)
    assert len(seen) == 2
    for epoch, counted in seen:
        assert counted == {"t": epoch, "u": epoch}


def test_who_waits_for_a_commit_is_woken_when_the_home_breaks(home: Core) -> None:
    woken: list[bool] = []
    home.following.listen(lambda: woken.append(home.broken is not None and home.following.ended))
    waiting = threading.Thread(target=home.following.wait, args=(0,))
    waiting.start()
    raise_at("epoch committed!error")
    with pytest.raises(HomeBroken):
        commit(home, 1)
    waiting.join(90)
    assert not waiting.is_alive()
    assert woken == [True]


def test_ctrl_c_waits_until_the_epoch_is_shown(home: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ledger.commit

    def interrupted(self: Ledger, *given: Any) -> None:
        real(self, *given)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Ledger, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt) as told:
        commit(home, 1)
    assert told.value.__notes__ == ["epoch 1 is committed"]
    assert home.broken is None
    assert (home.epoch, counts(home)) == (1, {"t": 1, "u": 1})


def test_a_second_ctrl_c_does_not_wait() -> None:
    reached: list[str] = []

    def interrupted_twice() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            reached.append("first")
            signal.raise_signal(signal.SIGINT)
            reached.append("second")

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert reached == ["first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_receipts_expire_with_their_epochs(home: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 5):
        commit(home, number, key=f"key-{number}")
    assert home.known("key-1") is not None
    monkeypatch.setattr(Ledger, "oldest", property(lambda _: 3))
    assert [home.known(f"key-{number}") is not None for number in range(1, 5)] == [False, False, True, True]
    commit(home, 5)
    assert len(home._receipts) == 2  # pyright: ignore[reportPrivateUsage]


def test_what_is_remembered_of_a_dropped_relation_goes(home: Core) -> None:
    commit(home, 1)
    home.commit(Work({}, 1000), NOW, {"drop": ["u"]}, home.catalog.without("u"))
    assert set(home.changed_at) == {"t"}
    assert "u" not in home.catalog


def view(name: str, *reads: str) -> View:
    made = View.__new__(View)
    made.definition, made.resolved = cast(Any, SimpleNamespace(name=name)), cast(Any, None)
    made.resolved = cast(Any, SimpleNamespace(reads=reads, uses_clock=True))
    return made


def test_a_catalog_orders_its_views_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of each epoch asks for them; the order of a thousand that read each other takes long to find."""
    chain = [small_view(f"v{one}", "t" if one == 0 else f"v{one - 1}") for one in range(1000)]
    catalog = Catalog().having(*reversed(chain[1:]), table("t"), chain[0])
    assert catalog.has_views
    assert [one.name for one in catalog.views()] == [one.name for one in chain]
    with monkeypatch.context() as ordered:
        # Without these no order is found.
        ordered.setattr(Catalog, "tables", lambda _: pytest.fail("the views are ordered again"))
        assert len(catalog.views()) == 1000
    # Who adds to what was given adds to nothing else.
    catalog.views().clear()
    assert len(catalog.views()) == 1000
    fewer = catalog.without("v999")
    assert len(fewer.views()) == 999
    assert not Catalog().having(table("t")).has_views


def test_a_catalog_is_read_while_definitions_go_on() -> None:
    """Readers of any thread hold one catalog; a definition makes another."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    shown = [Catalog().having(*(table(f"t{i}") for i in range(11)), *(view(f"v{i}", f"t{i}") for i in range(11)))]
    stopped, failures, seen = threading.Event(), Failures("reading"), [0]

    def read() -> None:
        while not stopped.is_set():
            try:
                assert len(shown[0].views()) in (11, 12)
                seen[0] += shown[0].reads_clock
            except Exception as error:
                failures.note(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        old, ends = shown[0], time.monotonic() + 1.0
        new, late = table("new"), view("w", "new")
        while time.monotonic() < ends or not seen[0]:
            shown[0] = old.having(new).having(late)
            shown[0] = shown[0].without("w").without("new")
    finally:
        stopped.set()
        reader.join()
        sys.setswitchinterval(before)
    assert failures.text is None
    assert seen[0] > 0


def test_pages_are_released_while_others_map_files(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mapped, "_TRIM", None)
    file = tmp_path / "rows"
    file.write_bytes(b"x" * 4096)
    stopped = threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def map_on() -> None:
        held: deque[object] = deque(maxlen=300)
        while not stopped.is_set():
            held.append(mapped._map(str(file)))  # pyright: ignore[reportPrivateUsage]

    mappers = [threading.Thread(target=map_on) for _ in range(4)]
    for one in mappers:
        one.start()
    try:
        ends = time.monotonic() + 1.0
        while time.monotonic() < ends:
            mapped.release()
    finally:
        stopped.set()
        for one in mappers:
            one.join()
        sys.setswitchinterval(before)
    # It never raises; what stopped it would be in the log.
    assert [record.getMessage() for record in caplog.records] == []


def test_what_cannot_be_released_is_only_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("not now")

    monkeypatch.setattr(mapped.pa, "default_memory_pool", refuse)
    mapped.release()


@pytest.mark.parametrize("raised", [OSError, KeyboardInterrupt, SystemExit])
def test_the_clock_goes_on_after_what_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 1:
            raise raised("nobody thought of this")

    monkeypatch.setattr(Failures, "pausing", property(lambda _: False))
    ticker = Ticker(0.01, lambda: True, tick)
    ticker.start()
    until(lambda: len(ticks) >= 3 and ticker.failures.text is None)
    ticker.stop()


def test_a_failure_is_remembered_until_it_succeeds() -> None:
    failures = Failures("a task")
    failures.note(RuntimeError())
    assert (failures.text, failures.pausing) == ("RuntimeError", True)
    failures.clear()
    assert (failures.text, failures.pausing) == (None, False)


@pytest.mark.parametrize("raised", [OSError, KeyboardInterrupt])
def test_a_merge_that_fails_is_noted(monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]) -> None:
    idle = threading.Event()
    idle.set()
    merger = Merger(idle)
    store = Store("t", SCHEMA)

    def refuse() -> None:
        raise raised("no room")

    monkeypatch.setattr(store, "merge", refuse)
    merger.submit(store)
    merger.close()
    assert merger.failures.text == "no room"
    merger.submit(store)
    assert merger.failures.count == 2
