"""What Prometheus is told of changefeeds, read when it asks."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.statements.engine import Engine

_STATES = ("Running", "Paused", "Error", "Done")
_COUNTED = {
    "delivered": ("headrace_changefeed_events", "Events that sinks confirmed since the server began."),
    "batches": ("headrace_changefeed_batches", "Batches that sinks confirmed since the server began."),
    "retries": ("headrace_changefeed_retries", "How often a sink had to be tried again since the server began."),
    "failures": ("headrace_changefeed_failures", "How often a feed stopped at an error since the server began."),
}


class FeedMetrics(Collector):
    """The figures of a home's changefeeds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        """None are asked for before there is a home to ask."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All figures, of one moment."""
        core, feeds = self._engine.core, self._engine.feeds
        counters = {kind: CounterMetricFamily(*told, labels=["changefeed"]) for kind, told in _COUNTED.items()}
        sequence = _gauge("headrace_changefeed_sequence", "The number of the last event that was told.")
        lag = _gauge("headrace_changefeed_lag_epochs", "Epochs that a feed has not told yet.")
        waiting = _gauge("headrace_changefeed_waiting_events", "Events that wait for a refused one of their key.")
        parked = _gauge("headrace_changefeed_parked_events", "Events that were parked since the feed was made.")
        states = _gauge(
            "headrace_changefeed_state",
            "1 for the state that a feed is in; Retrying is 1 beside Running while its sink fails.",
            "state",
        )
        for feed in list(core.catalog.feeds.values()):
            status, name = feeds.status_of(feed), feed.name
            totals = feeds.totals.get(name, {})
            for kind, counter in counters.items():
                counter.add_metric([name], totals.get(kind, 0))
            sequence.add_metric([name], status.mark.sequence)
            if status.lag is not None:
                lag.add_metric([name], status.lag)
            waiting.add_metric([name], status.waiting)
            parked.add_metric([name], status.parked)
            for state in _STATES:
                states.add_metric([name, state], state == status.state)
            states.add_metric([name, "Retrying"], status.state == "Running" and status.retries > 0)
        return [*counters.values(), sequence, lag, waiting, parked, states]


def _gauge(name: str, description: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, description, labels=["changefeed", *more])
