"""What Prometheus is told of relations, views, state and upkeep of a home, read when it asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.catalog.catalog import Table
from headrace.home import Home
from headrace.sources.running import tables_of
from headrace.spark.proc import resident_bytes
from headrace.spark.session import jvm_of
from headrace.state.snapshot import Snapshot
from headrace.state.state import State


class HomeMetrics(Collector):
    """The figures of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def describe(self) -> Iterable[Metric]:
        """None are asked for before there is a home to ask."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All figures, of one moment; what cannot be told now is left out."""
        if self._home.core.closed:
            return []
        return [*self._relations(), *self._upkeep()]

    def _relations(self) -> list[Metric]:
        core = self._home.core
        rows = _gauge("headrace_relation_rows", "Rows of a table or view.", "relation")
        bytes_held = _gauge("headrace_state_bytes", "Bytes of rows held for a relation, hidden state too.", "relation")
        fresh = _gauge("headrace_view_freshness_seconds", "How far a view is behind what its sources have.", "view")
        lags = self._lags()
        held = core.relations()
        for name, one in core.catalog.relations.items():
            if name not in held:
                continue
            rows.add_metric([name], held[name][0].count)
            stores = one.stores if isinstance(one, Table) else [one.store, *one.hidden.values()]
            bytes_held.add_metric([name], sum(_bytes_of(store.snapshot()) for store in stores))
            if not isinstance(one, Table):
                fresh.add_metric([name], self._behind(name, lags))
        return [rows, bytes_held, fresh]

    def behind(self) -> dict[str, float]:
        """By view, how many seconds it is behind what its sources have."""
        lags = self._lags()
        return {view.name: self._behind(view.name, lags) for view in self._home.core.catalog.views()}

    def _lags(self) -> dict[str, float]:
        """By table, how many seconds its sources are behind."""
        found: dict[str, float] = {}
        for source in list(self._home.core.catalog.sources.values()):
            lag = self._home.sources.status_of(source).lag_seconds
            for table in tables_of(self._home.core, source) if lag is not None else ():
                found[table] = max(lag or 0.0, found.get(table, 0.0))
        return found

    def _behind(self, view: str, lags: Mapping[str, float]) -> float:
        """The largest lag of all tables that a view reads, directly or through others."""
        catalog, seen, waiting, most = self._home.core.catalog, {view}, [view], 0.0
        while waiting:
            one = catalog.relations.get(waiting.pop())
            if one is None or isinstance(one, Table):
                most = max(most, lags.get(one.name, 0.0) if one is not None else 0.0)
                continue
            fresh = [name for name in one.resolved.reads if name not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
        return most

    def _upkeep(self) -> list[Metric]:
        epochs, log_bytes = self._home.fold_backlog
        committed = GaugeMetricFamily(
            "headrace_epoch_timestamp_seconds", "When the newest epoch was committed.",
            value=self._home.core.committed_at.timestamp(),
        )  # fmt: skip
        found: list[Metric] = [
            committed,
            GaugeMetricFamily("headrace_fold_backlog_epochs", "Epochs that no base holds yet.", value=epochs),
            GaugeMetricFamily("headrace_fold_backlog_bytes", "Bytes of the log since the last fold.", value=log_bytes),
        ]
        with suppress(Exception):
            # Spark may be ending just now.
            jvm = jvm_of(self._home.core.sessions.catalyst.session)
            if jvm is not None:
                resident = resident_bytes(jvm.process.pid)
                found.append(
                    GaugeMetricFamily("headrace_spark_resident_memory_bytes", "Memory of Spark's JVM.", value=resident)
                )
        return found


def _bytes_of(state: State) -> int:
    if not isinstance(state, Snapshot):
        return 0
    return sum(run.delta.rows.nbytes + run.delta.weights.nbytes for run in state.runs)


def _gauge(name: str, description: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, description, labels=[label])
