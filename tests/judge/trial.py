"""A home under judgement: steps are applied, the model follows, and every view is compared."""

from __future__ import annotations

import contextlib
import copy
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import headrace
from headrace.errors import HeadraceError, ViewEvaluationError
from tests.judge.model import Model, json_form
from tests.judge.oracle import SPARK_ERRORS, Answer, Oracle, Rows, answer_of, canonical_list, read_columns, same
from tests.judge.schemas import TABLES
from tests.judge.steps import Step

FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


@dataclass(frozen=True)
class View:
    """A view under judgement: its name, its SQL and the tables below it, through other views too."""

    name: str
    sql: str
    tables: frozenset[str]


@dataclass(frozen=True)
class Fault:
    """Something that was not as it must be: in which view (none: the home), where, and what."""

    view: str
    where: str
    text: str


@dataclass
class Standing:
    """What is known of one view: the sum of its feed, how often it was judged, its first fault."""

    view: View
    columns: tuple[tuple[str, str], ...] = ()
    rows: Rows = field(default_factory=Counter)
    judged: int = 0
    fault: Fault | None = None


class Trial:
    """One home with its model and its oracle."""

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        views: Iterable[View],
        *,
        tables: Iterable[str] = tuple(TABLES),
        open_home: Callable[..., Any] = headrace.open,
        may_be_ambiguous: bool = False,
    ) -> None:
        self.spark = spark
        self.home = home
        self._open_home = open_home
        # Only drawn views may have answers that depend on the order of rows; a fixed case has one answer.
        self._may_be_ambiguous = may_be_ambiguous
        self.hr: Any = open_home(str(home), spark=spark)
        self.model = Model([TABLES[name] for name in tables])
        self.oracle = Oracle(spark)
        self.oracle.load(self.model)
        self.standings: dict[str, Standing] = {}
        self.faults: list[Fault] = []
        self.epochs = 0
        self.comparisons = 0
        self.rejections = 0
        self.ambiguous = 0
        self._seen = 0
        self._reads: dict[str, dict[str, frozenset[str]]] = {}
        for name in tables:
            self.hr.execute(TABLES[name].create_sql())
        for view in views:
            self.create(view)

    def create(self, view: View) -> bool:
        """Create one view; when Headrace refuses it, that is its fault and the others go on."""
        standing = Standing(view)
        self.standings[view.name] = standing
        self.oracle.define(view.name, view.sql)
        try:
            self.hr.execute(f"CREATE VIEW {view.name} AS {view.sql}")
        except Exception as error:
            self._blame(standing, "create", f"refused: {_words(error)}\n{view.sql}")
            return False
        return True

    def close(self) -> None:
        self.hr.close()

    def live(self) -> list[Standing]:
        """The views without a fault so far."""
        return [standing for standing in self.standings.values() if standing.fault is None]

    def judge_all(self, where: str) -> None:
        """Judge every view, whatever changed."""
        self._follow_feeds(where, Step("judge"), None)
        self._judge(where, self.live(), queried=True)

    def advance(self, where: str, step: Step, *, judged: Iterable[str] | None = None, queried: bool = True) -> None:
        """Apply one step and judge the views that it may move, or only those that are named.

        Raises what `apply` raises, except where Spark fails too: a batch that makes a view's own
        expression fail must be rejected, and both the home and the model stay as they are.
        """
        place = f"{where}: {step.note}"
        changes = json_form(step.changes) if step.as_json else step.changes
        try:
            receipt = self.hr.apply(changes, key=step.key)
        except ViewEvaluationError:
            # Right only if Spark itself fails on what the tables would be; then nothing has moved.
            if not self._spark_fails(step):
                raise
            self.rejections += 1
            return
        self.model.apply(step.changes)
        self.epochs += 1
        touched = frozenset(name for name, rows in step.changes.items() if rows)
        self.oracle.load(self.model, touched)
        names = None if judged is None else frozenset(judged)
        self._follow_feeds(place, step, touched, names)
        chosen = [
            standing
            for standing in self.live()
            if standing.view.tables & touched and (names is None or standing.view.name in names)
        ]
        self._judge(place, chosen, queried=queried)
        if step.replay:
            self._replay(place, step, changes, receipt)

    def check_served(self, where: str) -> None:
        """Compare what is served with the sum of the deltas, which the steps have judged already."""
        for standing in self.live():
            difference = self._served_difference(standing, Answer(standing.columns, standing.rows))
            if difference:
                self._blame(standing, where, difference)

    def judge_cold(self, where: str) -> None:
        """Create every view once more over the data that is there: a cold fill must equal the rest."""
        for standing in self.live():
            name = f"cold_{standing.view.name}"
            try:
                self.hr.execute(f"CREATE VIEW {name} AS {standing.view.sql}")
                actual = answer_of(self.hr.query(f"SELECT * FROM {name}"))
                self.hr.execute(f"DROP VIEW {name}")
            except Exception as error:
                self._blame(standing, where, f"cold fill failed: {_words(error)}")
                continue
            difference = same(self.oracle.run(standing.view.sql), actual)
            if difference:
                self._blame(standing, where, f"a cold fill differs: {difference}")

    def verify(self, where: str) -> None:
        """Ask Headrace's own judge; it must agree."""
        report = self.hr.verify()
        if not report.ok:
            self.faults.append(Fault("", where, f"verify found differences: {report.differences}"))

    def reopen(self) -> None:
        self.hr.close()
        self.hr = self._open_home(str(self.home), spark=self.spark)

    def _replay(self, where: str, step: Step, changes: Any, receipt: Any) -> None:
        if step.reopen:
            self.reopen()
        before = self.hr.epoch
        again = self.hr.apply(changes, key=step.key)
        if again.epoch != receipt.epoch:
            text = f"the same key gave epoch {again.epoch}, first {receipt.epoch}"
            self.faults.append(Fault("", where, text))
        if self.hr.epoch != before:
            text = f"the same key moved the home from epoch {before} to {self.hr.epoch}"
            self.faults.append(Fault("", where, text))
        self._follow_feeds(f"{where}, sent again", Step("sent again", still=True), frozenset())
        if step.reopen:
            self._judge(f"{where}, after reopening", self.live(), queried=True)

    def _follow_feeds(
        self,
        where: str,
        step: Step,
        touched: frozenset[str] | None,
        judged: frozenset[str] | None = None,
    ) -> None:
        """Add each view's new deltas to its sum; `touched` None means that anything may have moved."""
        until = self.hr.epoch
        if until == self._seen:
            return
        for standing in self.live():
            try:
                feed = self.hr.changes(standing.view.name, since=self._seen, until=until)
                problem = self._add(standing, feed)
            except Exception as error:
                problem = f"changes failed: {_words(error)}"
            else:
                if problem is None and feed.num_rows and touched is not None:
                    still = step.still and (judged is None or standing.view.name in judged)
                    problem = self._unasked(standing, step, touched, feed, still=still)
            if problem:
                self._blame(standing, where, problem)
        self._seen = until

    def _add(self, standing: Standing, feed: pa.Table) -> str | None:
        """Add a feed to the sum; the fault when a pair cancels or a row would be there less than never."""
        values = feed.drop_columns(list(FEED_COLUMNS))
        standing.columns = answer_of(values.slice(0, 0)).columns
        kinds = feed.column("_change_type").to_pylist()
        versions = feed.column("_commit_version").to_pylist()
        rows = canonical_list(values)
        inserted: set[tuple[int, Any]] = set()
        deleted: set[tuple[int, Any]] = set()
        for kind, version, row in zip(kinds, versions, rows, strict=True):
            standing.rows[row] += SIGNS[kind]
            (inserted if SIGNS[kind] > 0 else deleted).add((version, row))
        both = inserted & deleted
        if both:
            version, row = min(both, key=repr)
            return f"{len(both)} emitted pairs cancel, as in epoch {version}: {row}"
        below = [row for row, count in standing.rows.items() if count < 0]
        if below:
            return f"the feed deletes {len(below)} rows that are not there, as {below[0]}"
        standing.rows = +standing.rows
        return None

    def _unasked(
        self, standing: Standing, step: Step, touched: frozenset[str], feed: pa.Table, *, still: bool
    ) -> str | None:
        """Why this view should not have moved at all, if so."""
        shown = f"{feed.num_rows} rows, as {feed.slice(0, 2).to_pylist()}"
        if still:
            return f"the delta must be empty, but has {shown}"
        if not standing.view.tables & touched:
            return f"no input changed, but the delta has {shown}"
        if step.only is not None:
            reads = self._reads_of(standing.view)
            if not any(columns & reads[name] for name, columns in step.only.items() if name in reads):
                return f"only columns that it does not read changed ({dict(step.only)}), but: {shown}"
        return None

    def _reads_of(self, view: View) -> dict[str, frozenset[str]]:
        if view.name not in self._reads:
            self._reads[view.name] = read_columns(self.spark, view.sql, view.tables)
        return self._reads[view.name]

    def _judge(self, where: str, standings: list[Standing], *, queried: bool) -> None:
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(self._ask, standings))
        for standing, answer in zip(standings, answers, strict=True):
            if isinstance(answer, str):
                difference = f"Headrace accepted changes on which Spark itself fails: {answer}"
            else:
                difference = self._difference(standing, answer, queried=queried)
            standing.judged += 1
            self.comparisons += 1
            if difference and self._may_be_ambiguous and self._ambiguous(standing):
                self.ambiguous += 1
            elif difference:
                self._blame(standing, where, difference)

    def _ask(self, standing: Standing) -> Answer | str:
        """What Spark answers, or the words with which it fails."""
        try:
            return self.oracle.run(standing.view.sql)
        except SPARK_ERRORS as error:
            return str(error).splitlines()[0]

    def _ambiguous(self, standing: Standing) -> bool:
        """Whether Spark's own answer depends on the order in which it meets the rows."""
        forwards = self._ask(standing)
        self.oracle.load(self.model, standing.view.tables, backwards=True)
        backwards = self._ask(standing)
        self.oracle.load(self.model, standing.view.tables)
        if isinstance(forwards, str) or isinstance(backwards, str):
            return False
        return same(forwards, backwards) is not None

    def _spark_fails(self, step: Step) -> bool:
        """Whether some view cannot be computed by Spark over the tables as this step would leave them."""
        ahead = copy.deepcopy(self.model)
        ahead.apply(step.changes)
        self.oracle.load(ahead, step.changes)
        fails = any(
            isinstance(self._ask(standing), str)
            for standing in self.live()
            if standing.view.tables & step.changes.keys()
        )
        self.oracle.load(self.model, step.changes)
        return fails

    def _difference(self, standing: Standing, answer: Answer, *, queried: bool) -> str | None:
        difference = same(answer, Answer(standing.columns, standing.rows))
        if difference:
            return f"the sum of its deltas: {difference}"
        return self._served_difference(standing, answer) if queried else None

    def _served_difference(self, standing: Standing, answer: Answer) -> str | None:
        try:
            served = answer_of(self.hr.query(f"SELECT * FROM {standing.view.name}"))
        except Exception as error:
            return f"query failed: {_words(error)}"
        difference = same(answer, served)
        if difference:
            return f"what is served: {difference}"
        if served.rows != standing.rows:
            return "what is served is not the sum of its deltas (below the ninth digit)"
        return None

    def blame_home(self, where: str, error: Exception) -> None:
        """A call that should have gone through did not: the named view's fault, else the home's.

        That view is dropped, so that the others can go on.
        """
        standing = self.standings.get(str(getattr(error, "view", "")))
        if standing is not None:
            self._blame(standing, where, _words(error))
            with contextlib.suppress(HeadraceError):
                self.hr.execute(f"DROP VIEW {standing.view.name}")
        else:
            self.faults.append(Fault("", where, "".join(traceback.format_exception(error)[-12:])))

    def _blame(self, standing: Standing, where: str, text: str) -> None:
        fault = Fault(standing.view.name, where, text)
        standing.fault = standing.fault or fault
        self.faults.append(fault)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
