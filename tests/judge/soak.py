"""Random views under random changes for as long as told: `python -m tests.judge.soak --minutes 20`.

Every round has a seed of its own, a fresh home, a few random views (some on views) and random batches;
every view is judged after every epoch. A difference stops the run and prints how to replay its round.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.rules import window_pieces
from headrace.settings import Settings
from headrace.spark.session import start_spark
from tests.judge.grammar import Grammar
from tests.judge.model import Model, insert
from tests.judge.oracle import SPARK_ERRORS, Oracle, same
from tests.judge.schemas import TABLES
from tests.judge.sequences import Scene, mixed
from tests.judge.steps import Step
from tests.judge.trial import Fault, Trial, View

VIEWS = 6
BATCHES = 8


@dataclass
class Tally:
    """What was done so far."""

    rounds: int = 0
    epochs: int = 0
    views: int = 0
    comparisons: int = 0
    incremental: int = 0
    refused_by_both: int = 0
    rejections: int = 0
    ambiguous: int = 0

    def line(self) -> str:
        return (
            f"{self.rounds} rounds, {self.epochs} epochs, "
            f"{self.views} views ({self.incremental} incremental), {self.comparisons} comparisons; "
            f"where Spark fails too: {self.refused_by_both} views, {self.rejections} batches; "
            f"{self.ambiguous} answers that depend on the order of rows"
        )


@dataclass(frozen=True)
class Finding:
    """A round that went wrong."""

    seed: int
    fault: Fault
    script: str

    def text(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}, view {self.fault.view or '(the home)'}, {self.fault.where}",
                self.fault.text,
                "",
                self.script,
                "",
                f"replay: python -m tests.judge.soak --rounds 1 --seed {self.seed}",
            ]
        )


def draw_views(spark: SparkSession, seed: int, count: int = VIEWS) -> list[View]:
    """Random views for one round; each was run by Spark on random rows, in two orders, to the same result.

    A view whose result depends on the order of its rows has no right answer, so it is not drawn.
    """
    rng = Random(f"views-{seed}")
    oracle = Oracle(spark)
    model = Model(TABLES.values())
    for name, table in TABLES.items():
        model.apply({name: [insert(table.random_row(rng)) for _ in range(25)]})
    oracle.load(model)
    relations = {name: frozenset({name}) for name in TABLES}
    grammar = Grammar(rng, oracle.schema, relations)
    views: list[View] = []
    while len(views) < count:
        sql, tables = grammar.view(depth=rng.choice((0, 1, 1, 2)))
        if not tables or not sound(oracle, model, sql, tables, empty=rng.random() < 0.2):
            continue
        name = f"v{len(views) + 1}"
        oracle.define(name, sql)
        views.append(View(name, sql, tables))
        if rng.random() < 0.5:
            grammar.relations[name] = tables
    return views


def sound(oracle: Oracle, model: Model, sql: str, tables: frozenset[str], *, empty: bool) -> bool:
    """Whether the query runs, to one result in either order of rows, and (unless `empty`) has any."""
    try:
        answer = oracle.run(sql)
        oracle.load(model, tables, backwards=True)
        return same(answer, oracle.run(sql)) is None and (empty or bool(answer.rows))
    except SPARK_ERRORS:
        return False
    finally:
        oracle.load(model, tables)


def run_round(spark: SparkSession, home: Path, seed: int, tally: Tally, batches: int = BATCHES) -> Finding | None:
    """One round; None when every view was right after every epoch.

    In every other round windows take each partition for a large one, of which they read pieces.
    """
    with mock.patch.object(window_pieces, "FEW", 0 if seed % 2 else window_pieces.FEW):
        return _run_round(spark, home, seed, tally, batches)


def _run_round(spark: SparkSession, home: Path, seed: int, tally: Tally, batches: int) -> Finding | None:
    views = draw_views(spark, seed)
    tables = [name for name in TABLES if any(name in view.tables for view in views)]
    trial = Trial(spark, home, (), tables=tables, may_be_ambiguous=True)
    tally.rounds += 1
    try:
        rng = Random(f"changes-{seed}")
        scene = Scene(trial.model, tuple(TABLES[name] for name in tables), rng)
        # Some views are created over rows that are there already, the others see every row come.
        late = rng.randrange(len(views))
        for number, view in enumerate(views):
            if number == late:
                trial.advance("before the views", Step("fill", scene.every(lambda t: mixed(scene, t, 12))))
            fault = create(trial, view, tally)
            if fault is not None:
                return finding(seed, fault, views)
        trial.judge_all("created")
        for number in range(batches):
            if trial.faults:
                break
            trial.advance(f"batch {number + 1}", draw_step(scene, number))
        if not trial.faults:
            trial.verify("end")
        tally.incremental += sum(1 for standing in trial.live() if trial.hr.explain(standing.view.name).incremental)
        return finding(seed, trial.faults[0], views) if trial.faults else None
    except Exception as error:
        trial.blame_home("round", error)
        return finding(seed, trial.faults[-1], views)
    finally:
        tally.epochs += trial.epochs
        tally.comparisons += trial.comparisons
        tally.rejections += trial.rejections
        tally.ambiguous += trial.ambiguous
        trial.close()


def draw_step(scene: Scene, number: int) -> Step:
    """A random batch: mostly mixed changes of some tables, now and then everything goes."""
    rng = scene.rng
    if rng.random() < 0.06:
        return Step("delete everything", scene.model.clear(table.name for table in scene.tables))
    most = rng.choice((1, 3, 8, 20))
    quiet = rng.random() * 0.6
    chosen = {t.name: 0 if rng.random() < quiet else rng.randint(1, most) for t in scene.tables}
    changes = scene.every(lambda t: mixed(scene, t, chosen[t.name]))
    return Step("mixed", changes, key=f"batch-{number}", as_json=rng.random() < 0.3)


def create(trial: Trial, view: View, tally: Tally) -> Fault | None:
    """Create one view; a refusal is a fault unless Spark refuses the view as well."""
    tally.views += 1
    if trial.create(view):
        return None
    standing = trial.standings.pop(view.name)
    fault = standing.fault
    assert fault is not None
    try:
        trial.oracle.run(view.sql)
    except SPARK_ERRORS:
        trial.faults.remove(fault)
        tally.refused_by_both += 1
        return None
    return fault


def finding(seed: int, fault: Fault, views: Sequence[View]) -> Finding:
    statements = [f"CREATE VIEW {view.name} AS {view.sql};" for view in views]
    return Finding(seed, fault, "\n".join(statements))


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak for the given time; 1 when a difference was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; later rounds count up")
    parser.add_argument("--rounds", type=int, default=None, help="stop after so many rounds")
    parser.add_argument("--keep-going", action="store_true", help="print differences and go on")
    options = parser.parse_args(arguments)
    console = Console()
    first = options.seed if options.seed is not None else int(time.time())
    console.print(f"first seed {first}")
    spark = start_spark(Settings())
    tally = Tally()
    findings: list[Finding] = []
    started = time.monotonic()
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("", total=options.minutes * 60)
        while (elapsed := time.monotonic() - started) < options.minutes * 60:
            progress.update(task, completed=elapsed, description=tally.line())
            if options.rounds is not None and tally.rounds >= options.rounds:
                break
            folder = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
            try:
                found = run_round(spark, folder / "home", first + tally.rounds, tally)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            if not console.is_terminal:
                console.print(tally.line(), highlight=False, soft_wrap=True)
            if found is not None:
                findings.append(found)
                console.print(found.text(), markup=False, highlight=False, soft_wrap=True)
                if not options.keep_going:
                    break
    spark.stop()
    console.print(tally.line(), highlight=False)
    console.print(f"{len(findings)} differences found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
