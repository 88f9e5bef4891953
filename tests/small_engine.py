"""An engine in memory: tables and views whose rules are plain functions, and a host that the loop runs in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from headrace.catalog.catalog import Catalog, Table, View, ViewDefinition
from headrace.epoch.calls import Basis, Call
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.epoch.threads import ViewThreads
from headrace.epoch.work import Work, follow
from headrace.errors import HomeBroken, ViewEvaluationError
from headrace.intake.positions import POSITION_TYPES
from headrace.intake.table import TableContract
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta
from headrace.state.snapshot import Snapshot
from headrace.state.store import Store

COLUMNS = StructType([StructField("id", LongType(), False), StructField("n", IntegerType())])
Follow = Callable[[Any], Delta]
THREADS = ViewThreads()


class Following:
    """A rule that is a function."""

    types = ()

    def __init__(self, function: Follow) -> None:
        self._function = function
        self.runs = 0

    def delta(self, epoch: Any) -> Delta:
        self.runs += 1
        return self._function(epoch)


def table(name: str, key: tuple[str, ...] = ("id",), sequence: str | None = None) -> Table:
    contract = TableContract(name, COLUMNS, key, sequence)
    store = Store(name, arrow_schema([field.dataType for field in COLUMNS.fields]))
    buried = None
    if sequence is not None:
        buried = Store(f"{name}#tombstones", arrow_schema([LongType(), IntegerType(), TimestampType()]))
    positions = None
    if key:
        positions = Store(f"{name}#positions", arrow_schema([LongType() for _ in key] + [*POSITION_TYPES]))
    return Table(name, contract, store, buried, positions=positions)


def view(name: str, *reads: str, rule: Any = None, hidden: tuple[str, ...] = ()) -> View:
    resolved: Any = SimpleNamespace(reads=reads, uses_clock=False, ties=())
    schema = arrow_schema([field.dataType for field in COLUMNS.fields])
    rule = rule or Following(lambda epoch: epoch.delta_of(reads[0]))
    context: Any = None
    stores = {one: Store(one, arrow_schema([StringType()])) for one in hidden}
    return View(ViewDefinition(name, ""), resolved, COLUMNS, Store(name, schema), context, rule, stores)


def picky(epoch: Any) -> Delta:
    """A view's expression that fails on one value."""
    delta = epoch.delta_of("t")
    if 666 in delta.rows.column(1).to_pylist():
        raise ViewEvaluationError("view v cannot be computed", view="v")
    return delta


def catalog_of(*relations: Table | View) -> Catalog:
    return Catalog().having(*relations)


def rows(snapshot: Snapshot) -> Counter[tuple[Any, ...]]:
    """What a store holds."""
    held = snapshot.all()
    columns = [column.to_pylist() for column in held.rows.columns]
    return Counter(dict(zip(zip(*columns, strict=True), held.weights.tolist(), strict=True)))


class Host:
    """A home without a disk: an epoch is committed when its deltas are in the stores."""

    tombstone_retention = timedelta(days=1)
    spark: Any = SimpleNamespace(working=lambda needed=True, busy=True: nullcontext(), wait=lambda: None)

    def __init__(self, *relations: Table | View) -> None:
        self.catalog = catalog_of(*relations)
        self.epoch = 0
        self.definitions = 0
        self.heads: list[Mapping[str, Any]] = []
        self.blamed: list[ViewEvaluationError] = []
        self.last_work: Work | None = None
        self.before_commit: Callable[[], None] = lambda: None
        self.broken: HomeBroken | None = None
        self._keys: dict[str, Receipt] = {}
        self._changed_at: dict[str, int] = {}

    @property
    def stores(self) -> dict[str, Store]:
        return {store.name: store for store in self.catalog.stores()}

    def holds(self, name: str) -> set[tuple[Any, ...]]:
        return set(rows(self.stores[name].snapshot()))

    def relations(self) -> dict[str, Any]:
        return {name: (one.store.snapshot(), one.schema) for name, one in self.catalog.relations.items()}

    def tick(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.epoch)

    def begin(self, now: datetime) -> Work:
        self.last_work = Work(self.stores, 1000)
        return self.last_work

    def known(self, key: str | None) -> Receipt | None:
        return None if key is None else self._keys.get(key)

    def stands(self, basis: Basis) -> bool:
        return all(self._changed_at.get(name, 0) <= basis.epoch for name in basis.relations)

    def follow(self, work: Work) -> None:
        frames: Any = None
        follow(work, self.catalog, frames, THREADS)

    def try_change(self, name: str, change: Delta, but: Collection[str] = ()) -> None:
        work = Work(self.stores, 1000)
        work.record(name, change)
        self.follow(work)

    def commit(self, work: Work, now: datetime, head: Mapping[str, Any], *_: Any, **__: Any) -> None:
        self.before_commit()
        for name, delta in work.deltas.items():
            self.stores[name].apply(delta)
        self.epoch += 1
        self._changed_at.update({name: self.epoch for name, delta in work.deltas.items() if len(delta)})
        self.heads.append(head)

    def refuse_closed(self) -> None:
        """It is open."""

    def refuse_read_only(self) -> None:
        """It may be changed."""

    def refuse_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def blame(self, error: ViewEvaluationError) -> ViewEvaluationError:
        self.blamed.append(error)
        return error

    def moves_anything(self, work: Work) -> bool:
        return any(len(delta) for delta in work.deltas.values())

    def remember(self, key: str, receipt: Receipt) -> None:
        self._keys[key] = receipt


def verdicts(loop: Loop, *calls: Call) -> list[Any]:
    """Enter all, then wait for each: its receipt, or what it raised."""
    for call in calls:
        loop.enter(call)
    found: list[Any] = []
    for call in calls:
        try:
            found.append(loop.wait_for(call))
        except Exception as error:
            found.append(error)
    return found
