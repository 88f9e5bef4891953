"""The filter of a feed: a condition of Spark SQL, judged and compiled once, asked about many rows at a time."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import LongType

from headrace.catalog.catalog import Relation
from headrace.epoch.core import Core
from headrace.errors import FeedError, HeadraceError
from headrace.feeds.batch import Events
from headrace.plans.catalyst import Catalyst
from headrace.plans.failures import FAILURES
from headrace.plans.query import Leaf, LeafShape, Query
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java
from headrace.rules.all import RULES
from headrace.rules.context import NoRule, RuleContext
from headrace.rules.filter_project import FilterProject
from headrace.rules.scan import Scan
from headrace.rules.signed import leaf_table, named
from headrace.sql.names import quoted
from headrace.sql.query_errors import query_error
from headrace.sql.resolve import resolve

Passes = npt.NDArray[np.bool_]


class RowFilter:
    """One condition over the rows of one relation."""

    def __init__(self, core: Core, feed: str, relation: Relation, condition: str) -> None:
        self._core = core
        self._feed = feed
        self._relation = relation
        self._condition = condition
        self._catalyst: Catalyst | None = None
        self._context: RuleContext | None = None
        # None where the condition holds for every row.
        self._query: Query | None = None
        self._columns: tuple[int, ...] = ()

    def compile(self) -> None:
        """Have Spark resolve the condition; `FeedError` where it is none over a row of the relation.

        In turn: the analyzer knows relations as a definition under way has them.
        """
        catalyst = self._core.sessions.catalyst
        with catalyst.active():
            self._compile(catalyst)

    def passes(self, rows: pa.Table) -> Passes:
        """Which rows the condition holds for."""
        found = np.zeros(rows.num_rows, dtype=bool)
        if not rows.num_rows:
            return found
        with self._core.spark.working():
            catalyst = self._core.sessions.catalyst
            with catalyst.active():
                # A Spark that was replaced knows nothing of what the one before it had compiled.
                if catalyst is not self._catalyst:
                    self._compile(catalyst)
                if self._query is None:
                    return ~found
                given = [rows.column(index) for index in self._columns]
                try:
                    kept = self._query.run([leaf_table([*given, pa.array(np.arange(rows.num_rows))])])
                except FAILURES as error:
                    failed = query_error(error)
                    if failed.transient:
                        raise failed from None
                    raise FeedError(
                        f"the filter of changefeed {self._feed} fails on a row",
                        detail=f"{failed.message}. {failed.detail}".rstrip(),
                        hint="ALTER CHANGEFEED SET (filter = ...) with an expression that cannot fail, such as "
                        "try_divide or try_cast, then RESUME CHANGEFEED",
                    ) from None
        found[np.asarray(kept.column(0))] = True
        return found

    def close(self) -> None:
        """Remove its files."""
        if self._context is not None:
            self._context.clear()

    def _compile(self, catalyst: Catalyst) -> None:
        self.close()
        name = self._relation.name
        try:
            # What closes a bracket that it did not open is no condition, whatever the whole would be.
            catalyst.parse_expression(self._condition)
        except FAILURES as error:
            raise self._refused(query_error(error)) from None
        sql = f"SELECT * FROM {quoted(name)} WHERE ({self._condition}\n)"
        with catalyst.view_names_lock:
            try:
                resolved = resolve(catalyst, self._feed, sql)
            except HeadraceError as error:
                raise self._refused(error) from None
        if not set(resolved.reads) <= {name} or resolved.uses_clock or resolved.no_rule_for:
            raise self._not_of_a_row()
        context = RuleContext(catalyst, self._core.leaves, f"feed-{secrets.token_hex(4)}", RULES)
        try:
            node = context.lower(resolved.plan)
        except NoRule:
            raise self._not_of_a_row() from None
        if isinstance(node, Scan):
            self._catalyst, self._query = catalyst, None
            return
        if not isinstance(node, FilterProject) or not isinstance(node.child, Scan):
            raise self._not_of_a_row()
        steps, child = node.steps, node.child

        def build(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            number = leaf.extra["number"]
            plan = apply_steps(catalyst, context.javas(steps), leaf.plan, [number])
            return named(catalyst, plan, [number])

        query: Any = context.query([LeafShape(child.output, (("number", LongType()),))], build)
        self._catalyst, self._context, self._query, self._columns = catalyst, context, query, child.columns

    def _refused(self, error: HeadraceError) -> HeadraceError:
        if error.transient:
            return error
        return FeedError(
            f"the filter of changefeed {self._feed} is no condition over {self._relation.name}",
            detail=f"{error.message}. {error.detail}".rstrip(),
            hint=error.hint or f"its columns are {', '.join(self._relation.schema.names)}",
        )

    def _not_of_a_row(self) -> FeedError:
        return FeedError(
            f"the filter of changefeed {self._feed} needs more than a row of {self._relation.name}",
            detail="A filter has no subquery, no aggregate and no clock: it sees one row at a time.",
            hint="write a view with that condition, and a changefeed of the view",
        )


def filtered(events: Events, passes: RowFilter, exits: bool) -> Events:
    """The events that a filter lets pass; where exits are told, what leaves it is a DELETE, what enters an INSERT."""
    new = passes.passes(events.rows)
    if not exits:
        return events if bool(new.all()) else events.part(np.flatnonzero(new))
    operations = events.operations.copy()
    updated = np.flatnonzero(operations == "UPDATE")
    old = np.zeros(len(events), dtype=bool)
    if len(updated):
        old[updated] = passes.passes(events.old_rows.take(pa.array(updated)))
    left = (operations == "UPDATE") & old & ~new
    operations[left] = "DELETE"
    operations[(operations == "UPDATE") & new & ~old] = "INSERT"
    rows = events.rows
    if bool(left.any()):
        both = pa.concat_tables([rows, pa.table(events.old_rows.columns, schema=rows.schema)])
        rows = both.take(pa.array(np.where(left, np.arange(len(events)) + len(events), np.arange(len(events)))))
    entered = (events.operations == "UPDATE") & (operations == "INSERT")
    old_rows = events.old_rows
    if bool(entered.any()):
        old_rows = old_rows.take(pa.array(np.arange(len(events)), mask=entered))
    kept = np.flatnonzero(new | left)
    return replace(events, operations=operations, rows=rows, old_rows=old_rows).part(kept)
