"""What Prometheus is told of what is wrong with a home, read when it asks: the same as status and the webhook tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.serving.findings import Finding


class FindingMetrics(Collector):
    """A series for each finding, for as long as it holds."""

    def __init__(self, look: Callable[[], list[Finding]]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """None are asked for before there is a home to ask."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All that is wrong now; without its words, which change."""
        found = GaugeMetricFamily(
            "headrace_findings", "1 for each thing that somebody should look at.", labels=["kind", "about", "level"]
        )
        for one in self._look():
            found.add_metric([one.kind, one.about, one.level], 1)
        return [found]
