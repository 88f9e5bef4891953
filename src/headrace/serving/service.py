"""What every route works with: the home, and what lies between it and the requests.

A route that brings changes goes through these steps, and none of them blocks the event loop:

    with service.arrivals.receiving():                    # an epoch that takes long waits a moment for it
        slot = service.pushes.enter()                     # 429 when too much is under way
        body = await read_body(request, slot)             # 413; release the slot if anything up to here fails
        read = await run_in_threadpool(read_lines, body, "insert_delete")     # changes, their lines, the bad lines
        submission = service.submissions.submit({table: read.changes}, key, slot)    # in line: a Future[Receipt]
    receipt = await outcome(submission)                   # committed, durable, every view current; or the rejection
    token = service.completions.issue(submission)         # or instead: answer now, and let the sender ask
    service.completions.ask(token).state                  # "complete", "in progress", "failed" or "unknown"
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from headrace.access.ring import KeyRing
from headrace.errors import SetupError
from headrace.home import Home
from headrace.query_processes.for_others import query_verb, served
from headrace.query_processes.pool import QueryProcesses
from headrace.query_processes.queries import ServedQueries
from headrace.reading.readings import Readings
from headrace.secrets import referred_to
from headrace.serving.alerts import Alerts
from headrace.serving.arrivals import Arrivals
from headrace.serving.completions import Completions
from headrace.serving.feed_metrics import FeedMetrics
from headrace.serving.finding_metrics import FindingMetrics
from headrace.serving.findings import Finding, findings
from headrace.serving.home_metrics import HomeMetrics
from headrace.serving.limits import Pushes
from headrace.serving.metrics import Metrics
from headrace.serving.rehearsal import Rehearsal
from headrace.serving.source_metrics import SourceMetrics
from headrace.serving.statement_runner import StatementRunner
from headrace.serving.streams import Streams
from headrace.serving.submissions import Submissions
from headrace.settings import Settings
from headrace.statements.engine import Engine


@dataclass
class Held:
    """The settings of now: a reload replaces them as a whole."""

    settings: Settings


@dataclass(frozen=True)
class Service:
    """One server's parts; routes get it from `Depends(service_of)`.

    Routes read through `readings` and bring changes through `submissions`; of the home itself only its health is asked.
    """

    home: Home
    engine: Engine
    readings: Readings
    held: Held
    metrics: Metrics
    submissions: Submissions
    completions: Completions
    pushes: Pushes
    arrivals: Arrivals
    statements: StatementRunner
    queries: ServedQueries
    streams: Streams
    rehearsal: Rehearsal
    ring: KeyRing | None = None

    @property
    def settings(self) -> Settings:
        """As they are now; a route that asks twice may be given two answers."""
        return self.held.settings

    def limit(self, settings: Settings) -> None:
        """Hold to the limits of these settings from now on; what is under way goes on."""
        self.held.settings = settings
        self.pushes.limit(settings.serve_pushes, settings.serve_body_bytes, settings.serve_room_bytes)
        self.completions.limit(settings.serve_completions)
        self.statements.limit(settings.serve_queries)
        self.streams.limit(settings.serve_streams)

    def rehearse(self) -> None:
        """Have the first push and the first query find what they need; the server is ready when they would."""
        if self.readings.newest()[1]:
            self.rehearsal.begin([self.home.renewal.rehearse, self.queries.rehearse])

    def answer_others(self) -> None:
        """Have queries of other processes, which would otherwise be asked of the home's own Spark, run with these."""
        seconds = self.settings.serve_query_time.total_seconds()
        self.home.offer("query", query_verb(served(self.queries), seconds))
        self.home.offer("findings", lambda: {"findings": [one.to_json() for one in self.look()]})

    @property
    def is_lost(self) -> bool:
        """Whether another process owns the home by now: this server has nothing to serve any more."""
        return self.submissions.lost is not None or self.home.core.is_lost

    def look(self) -> list[Finding]:
        """What is wrong with the home now."""
        found = findings(self.home, self.settings.alert_lag.total_seconds())
        failure = None if self.ring is None else self.ring.failure
        if failure is not None:
            found.append(Finding("keys", "access", "warning", f"New and revoked keys are not noticed: {failure}"))
        return found

    def alerts(self) -> Alerts | None:
        """Who tells a webhook what is wrong; none if no webhook is set."""
        url = self.settings.alert_webhook
        if url is None:
            return None
        found = referred_to("alert_webhook", url, SetupError, "start the server again")
        is_first = self.home.core.epoch == 0
        return Alerts(str(found), self.home.path.name, self.look, is_first=is_first, is_lost=lambda: self.is_lost)

    def end(self) -> None:
        """Take part in no stream any more; what else is under way goes on."""
        self.streams.end()

    def close(self) -> None:
        """Let what is under way come to its end."""
        self.end()
        self.statements.close()
        self.submissions.close()
        self.streams.close()


def service_for(home: Home, settings: Settings, processes: QueryProcesses, ring: KeyRing | None = None) -> Service:
    """The parts of a server of this home."""
    metrics = Metrics(home.core)
    service = Service(
        home,
        home.engine,
        home.core,
        Held(settings),
        metrics,
        Submissions(home.loop, metrics),
        Completions(settings.serve_completions),
        Pushes(settings.serve_pushes, settings.serve_body_bytes, settings.serve_room_bytes),
        Arrivals(),
        StatementRunner(settings.serve_queries),
        ServedQueries(home.core, processes),
        Streams(home.core, settings.serve_streams),
        Rehearsal(),
        ring,
    )
    home.loop.arriving = service.arrivals.expected
    metrics.gauge("headrace_pushes_under_way", "Requests with changes.", lambda: service.pushes.under_way)
    metrics.gauge("headrace_queries_under_way", "Queries that run.", lambda: service.statements.under_way)
    metrics.gauge("headrace_fold_failing", "1 while folds fail.", lambda: home.fold_failure is not None)
    metrics.registry.register(SourceMetrics(home.engine))
    metrics.registry.register(FeedMetrics(home.engine))
    metrics.registry.register(HomeMetrics(home))
    metrics.registry.register(FindingMetrics(service.look))
    metrics.gauge("headrace_streams_open", "Change streams.", lambda: service.streams.open)
    return service


async def service_of(request: Request) -> Service:
    """The parts of the server that got the request; without a thread of the pool, which others may fill."""
    return request.app.state.service
