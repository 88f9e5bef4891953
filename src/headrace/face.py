"""The public face: `headrace.open`, and the verbs of an open home."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.epoch.receipt import Receipt
from headrace.events.store import EventStore
from headrace.home import Home
from headrace.owner.ownership import take_ownership
from headrace.progress import Listener
from headrace.reading.explain import Explanation
from headrace.reading.judge import Verdict
from headrace.settings import Settings, read_settings
from headrace.spark.requirements import check_session
from headrace.spark.session import start_spark
from headrace.sql.flow_text import auto_cdc_text
from headrace.storage.objects import location_of
from headrace.tracing import begin_tracing


def open_home(
    home: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    settings: Settings | None = None,
    read_only: bool = False,
    **overrides: Any,
) -> Headrace:
    """Open a home, or make one; starts a local Spark unless one is given.

    One that is started is watched, and replaced if it ends; one that is given is for who gave it to replace. Settings
    come from `settings` or the environment (HEADRACE_...), and keywords override them.

        with headrace.open("shop", small_bound=50_000) as hr:
            hr.query("SELECT count(*) FROM orders")

    Raises HomeBusy if another process owns the home; `read_only=True` opens it beside that one.
    """
    chosen = settings or read_settings()
    if overrides:
        chosen = read_settings(**{**chosen.model_dump(), **overrides})
    path = location_of(home, chosen.storage_options)
    if spark is not None:
        check_session(spark)
    begin_tracing()
    # Before Spark is started: a refusal should not take seconds.
    ownership = None if read_only else take_ownership(path, chosen.owner_timeout)
    try:
        session = spark
        if session is None:
            session = start_spark(chosen)
            check_session(session)
        return Headrace(Home(path, session, chosen, ownership))
    except BaseException:
        if ownership is not None:
            ownership.abandon()
        raise


def home_of(hr: Headrace) -> Home:
    """The home behind the face, for the parts of Headrace that work on it: servers, projects, tests."""
    return hr._home  # pyright: ignore[reportPrivateUsage]


class Headrace:
    """An open home, read-only for one who does not own it. Use it as a context manager, or close it."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def __repr__(self) -> str:
        core = self._home.core
        tables, views = len(core.catalog.tables()), len(core.catalog.views())
        state = "closed" if core.closed else "read-only" if core.read_only else "open"
        return f"<Headrace {self._home.path}: {state}, epoch {core.epoch}, {tables} tables, {views} views>"

    def __enter__(self) -> Headrace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the home; everything committed stays."""
        self._home.close()

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        return self._home.core.epoch

    def execute(self, sql: str) -> pa.Table | Receipt | None:
        """Run one statement, or a script separated by ';'; the result is that of the last statement.

        A table for SELECT, SHOW, DESCRIBE and EXPLAIN, a receipt for INSERT, UPDATE and DELETE, otherwise None. An
        error tells which statements of the script are carried out.

            hr.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(10,2))")
        """
        return self._home.execute(sql)

    def apply(self, changes: Mapping[str, Sequence[object]], key: str | None = None) -> Receipt:
        """Apply changes of any number of tables as part of one atomic epoch, all of them or none.

        A change is {"insert": row}, {"update": row} or {"delete": row}, a row a dict by column names; of a table with a
        key, an insert replaces the row of its key, an update keeps what it does not name, and a delete needs only the
        key. The same key= again returns the first receipt.

            hr.apply({"orders": [{"insert": {"id": 1, "amount": "9.50"}}, {"delete": {"id": 2}}]}, key="order-1")

        Raises ChangesRejected, which lists every change that breaks its table's contract, or ViewEvaluationError, which
        names the view, the expression and the row.
        """
        return self._home.loop.apply(changes, key)

    def create_auto_cdc_flow(
        self,
        target: str,
        source: str,
        keys: Sequence[str],
        sequence_by: str,
        ignore_null_updates: bool = False,
        apply_as_deletes: str | None = None,
        apply_as_truncates: str | None = None,
        column_list: Sequence[str] | None = None,
        except_column_list: Sequence[str] | None = None,
        stored_as_scd_type: int | str = 1,
        track_history_column_list: Sequence[str] | None = None,
        track_history_except_column_list: Sequence[str] | None = None,
        name: str | None = None,
        once: bool = False,
    ) -> None:
        """CREATE FLOW ... AS AUTO CDC, under the parameter names of Spark's create_auto_cdc_flow.

        The target is made by the flow: of the events that the source holds, the latest row of each key (SCD type 1), or
        every row that a key had, with __START_AT and __END_AT (type 2). Expressions are SQL over the source's columns.

            hr.create_auto_cdc_flow("prices", "price_events", keys=["item"], sequence_by="at",
                                    apply_as_deletes="operation = 'delete'", stored_as_scd_type=2)

        Raises StatementError where arguments exclude each other, ViewError or RelationNameError where they do not fit.
        """
        text = auto_cdc_text(
            (name, target, source),
            keys,
            sequence_by,
            (column_list, except_column_list),
            (track_history_column_list, track_history_except_column_list),
            deletes=apply_as_deletes,
            truncates=apply_as_truncates,
            scd_type=stored_as_scd_type,
            ignores_nulls=ignore_null_updates,
            once=once,
        )
        self._home.execute(text)

    def query(self, sql: str, epoch: int | None = None) -> pa.Table:
        """The rows of a SELECT over one consistent epoch: the newest, or the one named.

            hr.query("SELECT city, sum(amount) AS total FROM orders GROUP BY city").to_pandas()

        Raises EpochExpired for an epoch that is no longer kept.
        """
        return self._home.query(sql, epoch)

    def changes(self, name: str, since: int = 0, until: int | None = None) -> pa.Table:
        """A relation's changes after one epoch, up to and including another, with Spark's change columns.

        Beside the relation's columns: _change_type (insert, delete, update_preimage, update_postimage),
        _commit_version (the epoch) and _commit_timestamp.
        """
        return self._home.changes(name, since, until)

    def events(self, name: str) -> EventStore:
        """An event store: append events with expected versions, read them, and ask what was true then.

        hr.execute("CREATE EVENT STORE events")
        hr.events("events").append("Customer", "c1", [{"event_type": "CustomerCreated"}], expected="none")
        """
        return self._home.events(name)

    def explain(self, name: str) -> Explanation:
        """How a view is kept current: .incremental, .reasons, and as text the rule of every operator."""
        return self._home.explain(name)

    def verify(self, name: str | None = None) -> Verdict:
        """Recompute views in full with plain Spark and compare them with what is served: .ok, .differences."""
        return self._home.verify(name)

    def refresh(self) -> int:
        """Move a home that is open for reading to its owner's newest epoch, and tell it; an owner is always there.

        What was read before stays as it was: each query is of one epoch.
        """
        return self._home.refresh()

    def fold(self) -> dict[str, Any]:
        """Bring the Delta tables under tables/ to the newest epoch now, instead of in the background."""
        return self._home.fold()

    def backup(self, destination: str | os.PathLike[str]) -> dict[str, Any]:
        """Copy the newest epoch, older ones included, to an empty folder or prefix, while epochs go on."""
        return self._home.backup(destination)

    def watch(self, listener: Listener) -> AbstractContextManager[None]:
        """Inside, the listener is told how far backfills, fills and the judge have come."""
        return self._home.core.progress.heard_by(listener)
