"""A home of tables alone, without Spark: its ledger, owner, epochs, sources, followers and feeds are the real ones.

What would ask Spark is not there: views, filters, and statements with expressions. So a process opens it in
milliseconds, and can be killed as often as a test wants.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.catalog.make import make_table
from headrace.definitions.adopt import adopt
from headrace.definitions.recover import recover
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.feeds.running import Feeds
from headrace.intake.table import TableContract
from headrace.ledger.ledger import Ledger
from headrace.ledger.readers import Readers
from headrace.owner.ownership import take_ownership
from headrace.query_processes.queries import read_plain_text
from headrace.settings import Settings
from headrace.sources.running import Sources
from headrace.sql.statements import parse
from headrace.statements.create import drop_relation
from headrace.statements.engine import Engine
from headrace.statements.run import run_statements


def _no_spark() -> Any:
    """What knows names of relations, and is never asked for more."""
    names: Any = SimpleNamespace(createOrReplaceTempView=lambda _: None)
    session = SimpleNamespace(catalog=SimpleNamespace(dropTempView=lambda _: None))
    catalyst = SimpleNamespace(no_data=lambda _: names, session=session)
    return SimpleNamespace(catalyst=catalyst, frames=None, queries=None)


class BareHome:
    """An open home of tables."""

    def __init__(self, path: Path, owner_timeout: float = 30.0, **settings: Any) -> None:
        self._ownership = take_ownership(path, timedelta(seconds=owner_timeout))
        self._leaves = tempfile.TemporaryDirectory()
        chosen = Settings(**settings)
        ledger = Ledger(path, chosen.inline_bytes)
        core = self.core = Core(path, ledger, chosen, _no_spark(), Path(self._leaves.name), self._ownership)
        core.spark = SimpleNamespace(working=lambda needed=True, busy=True: nullcontext(), wait=lambda: None)  # pyright: ignore[reportAttributeAccessIssue]
        self.loop = Loop(core)
        self.readers = Readers(path)
        ledger.open()
        ledger.claim(self._ownership.fence)
        recovered = recover(core)
        core.stand_at(recovered.present, recovered.receipts)
        core.begin_following()
        self.feeds = Feeds(self.loop, self.readers, self._ownership.fence)
        self.sources = Sources(self.loop)
        self.engine = Engine(self.loop, self.sources, self.feeds)
        self.loop.defined = self._reconcile
        self._reconcile()

    def _reconcile(self) -> None:
        self.sources.reconcile()
        self.feeds.reconcile()

    @property
    def epoch(self) -> int:
        return self.core.epoch

    def create_table(self, name: str, columns: StructType, key: tuple[str, ...] = ()) -> None:
        """Make a table, unless it is there."""
        if name not in self.core.catalog:
            self.loop.define(lambda: adopt(self.core, [make_table(TableContract(name, columns, key))]))

    def replace_table(self, name: str, columns: StructType, key: tuple[str, ...] = ()) -> None:
        """Drop a table and make another of its name."""

        def replaced() -> None:
            drop_relation(self.core, self.core.catalog.table(name))
            adopt(self.core, [make_table(TableContract(name, columns, key))])

        self.loop.define(replaced)

    def apply(self, changes: Mapping[str, Sequence[object]]) -> Receipt:
        return self.loop.apply(changes)

    def execute(self, sql: str) -> Any:
        return run_statements(self.engine, parse(sql))

    def query(self, sql: str, epoch: int | None = None) -> pa.Table:
        found = read_plain_text(self.core, sql, epoch)
        assert found is not None, "this query needs Spark"
        return found

    def close(self) -> None:
        self.sources.close()
        self.feeds.close()
        with self.loop.turn:
            self.core.closed = True
            self.core.following.end()
            self._ownership.release()
        self._leaves.cleanup()
