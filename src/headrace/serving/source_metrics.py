"""What Prometheus is told of sources and dead letters, read when it asks."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.reading.held_rows import HeldRows
from headrace.sources.pace import OUTCOMES
from headrace.sources.system_tables import DEAD_LETTERS
from headrace.state.state import BEGIN
from headrace.statements.engine import Engine

_STATES = ("Running", "Paused", "Error", "Done")


class SourceMetrics(Collector):
    """The figures of a home's sources."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        # Letters change rarely: what was found of them holds until they do.
        self._of_epoch = -1
        self._letters: dict[str, tuple[int, datetime]] = {}

    def describe(self) -> Iterable[Metric]:
        """None are asked for before there is a home to ask."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All figures, of one moment."""
        core, sources = self._engine.core, self._engine.sources
        records = CounterMetricFamily(
            "headrace_source_records",
            "Changes that sources brought since the server began, by what became of them.",
            labels=["source", "outcome"],
        )
        lag_records = _gauge("headrace_source_lag_records", "Records that a source has and that were not read.")
        lag_seconds = _gauge("headrace_source_lag_seconds", "Seconds from a commit in a source until views show it.")
        throughput = _gauge("headrace_source_records_per_second", "Records taken a second, over the last minute.")
        late = _gauge("headrace_source_late", "1 while a source is behind by more than its lag_warning.")
        failing = _gauge("headrace_source_failing", "1 while a source cannot be read and is tried again and again.")
        states = _gauge("headrace_source_state", "1 for the state that a source is in.", "state")
        for source in list(core.catalog.sources.values()):
            status, name = sources.status_of(source), source.name
            for outcome in OUTCOMES:
                records.add_metric([name, outcome], sources.totals[name][outcome])
            if status.lag_records is not None:
                lag_records.add_metric([name], status.lag_records)
            if status.lag_seconds is not None:
                lag_seconds.add_metric([name], status.lag_seconds)
            throughput.add_metric([name], status.records_per_second)
            late.add_metric([name], status.warning is not None)
            failing.add_metric([name], status.failing_since is not None)
            for state in _STATES:
                states.add_metric([name, state], state == status.state)
        held = _gauge("headrace_dead_letters", "Dead letters that are there.")
        oldest = _gauge("headrace_dead_letters_oldest_age_seconds", "For how long the oldest dead letter is there.")
        now = datetime.now(UTC)
        for name, (count, first_at) in self._found().items():
            held.add_metric([name], count)
            oldest.add_metric([name], max(0.0, (now - first_at).total_seconds()))
        return [records, lag_records, lag_seconds, throughput, late, failing, states, held, oldest]

    def _found(self) -> dict[str, tuple[int, datetime]]:
        """By source, how many letters there are, and when the oldest came."""
        core = self._engine.core
        with self._lock:
            changed_at = core.changed_at.get(DEAD_LETTERS, 0)
            if changed_at == self._of_epoch:
                return self._letters
            relations = core.relations()
            if DEAD_LETTERS not in relations:
                return {}
            state, schema = relations[DEAD_LETTERS]
            rows = HeldRows(state, schema.names).piece(BEGIN, state.count + 1).rows.select(["source", "arrived_at"])
            grouped = pa.TableGroupBy(rows, "source").aggregate([("arrived_at", "min"), ("arrived_at", "count")])
            self._letters = {
                one["source"]: (one["arrived_at_count"], one["arrived_at_min"]) for one in grouped.to_pylist()
            }
            self._of_epoch = changed_at
            return self._letters


def _gauge(name: str, description: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, description, labels=["source", *more])
