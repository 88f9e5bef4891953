"""Filling a view from what its inputs hold now: one ordinary Spark query for its rows, one for each hidden store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headrace.catalog.catalog import Catalog, View
from headrace.plans.trees import Java
from headrace.progress import Step
from headrace.reading.frames import Frames, hold
from headrace.reading.queries import Queries
from headrace.rules.context import HiddenStore
from headrace.sql.one_row import CLOCK, CLOCK_SCHEMA
from headrace.state.arrow_types import spark_schema
from headrace.state.delta import Delta
from headrace.state.snapshot import difference, holding
from headrace.state.state import State

if TYPE_CHECKING:
    from headrace.epoch.work import Work

_AT_A_TIME = 2

Relations = Callable[[str], tuple[State, StructType]]


def refill(work: Work, catalog: Catalog, frames: Frames, view: View) -> None:
    """Record the difference between what a view and its state must hold and what they hold."""

    def relation(name: str) -> tuple[State, StructType]:
        if name == CLOCK:
            return work.after(name), CLOCK_SCHEMA
        return work.after(name), catalog.get(name).schema

    reads = [*view.resolved.reads, *([CLOCK] if view.resolved.uses_clock else [])]
    large = sum(work.after(name).count for name in reads) > work.bound
    wanted: dict[str, Delta] = {}
    known: list[tuple[Java, Any]] = []
    stores = view.context.stores if view.rule is not None else []
    parts = len(stores) + 1
    work.tell(Step("view", view.name, 0, parts))
    for hidden in stores:
        if hidden.stands_for is not None:
            wanted[hidden.name] = content = _content(frames, hidden, relation, large, known)()
            state = holding(hidden.schema, content)
            frame = frames.frame(state, spark_schema(hidden.types))
            known.append((hidden.stands_for, hold(hidden.gives(frame), frame)))
            work.tell(Step("view", view.name, len(wanted), parts))
    jobs = {one.name: _content(frames, one, relation, large, known) for one in stores if one.stands_for is None}
    if view.resolved.no_rule_for is not None:
        # The plan hides subqueries that binding does not reach, so the text itself is asked.
        inputs = {name: relation(name) for name in view.resolved.reads}
        frame = Queries(frames).frame(view.resolved.sql, inputs, known_columns=catalog.known_columns(view.definition))
    else:
        frame = frames.bind(view.resolved.plan, relation, known)
    jobs[view.name] = lambda: frames.fill(frame, view.schema, large)
    for name, content in _together(jobs):
        wanted[name] = content
        work.tell(Step("view", view.name, len(wanted), parts))
    for name, content in wanted.items():
        delta = difference(work.before(name), content)
        written = frames.written(delta)
        if written is None:
            work.record(name, delta)
        else:
            work.record_written(name, written)


def _together(jobs: Mapping[str, Callable[[], Delta]]) -> Iterator[tuple[str, Delta]]:
    """Do all jobs, a few at a time: while one is planned or gathered by one thread, Spark computes another."""
    with ThreadPoolExecutor(_AT_A_TIME, "headrace-fill") as pool:
        running = {pool.submit(job): name for name, job in jobs.items()}
        for one in as_completed(running):
            yield running[one], one.result()


def _content(
    frames: Frames, hidden: HiddenStore, relation: Relations, large: bool, known: Sequence[tuple[Java, Any]]
) -> Callable[[], Delta]:
    """The work of filling a hidden store: planned here, done when it is called."""
    frame = frames.bind(hidden.plan, relation, known)
    finished = hold(hidden.finish(frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))), frame)
    schema = spark_schema(hidden.types)
    return lambda: frames.fill(finished, schema, large, weighted=hidden.weighted)
