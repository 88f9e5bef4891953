"""Run the fixed views through every change sequence: `python -m tests.judge.run_cases`.

All chosen views live in one home over the same tables, so that one sequence exercises them all. After
every epoch each view that it may have moved is judged against plain Spark; the others must not move.
Views on which Spark itself fails for some data live in a home of their own: there such batches must be
rejected, which would keep them from the other views.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from tests.judge.cases import Case, load_cases, select_cases
from tests.judge.deltas import delta_steps
from tests.judge.sequences import SEQUENCES, scene_for
from tests.judge.steps import Step
from tests.judge.trial import Fault, Trial, View
from tests.spark_cluster import spark_and_folder

LEAST_INCREMENTAL = 49
DELTA = "D"
# corr of a constant column divides by zero under ANSI.
FAILING = frozenset({"C25"})


@dataclass(frozen=True)
class Plan:
    """What to run: cases, sequences by name (D: each case's own), the seed, and how much of it."""

    cases: tuple[Case, ...]
    sequences: tuple[str, ...]
    seed: int
    fast: bool
    batches: int = 30
    on_cluster: bool = False

    @property
    def generic(self) -> tuple[str, ...]:
        return tuple(name for name in self.sequences if name != DELTA)

    @property
    def own(self) -> tuple[Case, ...]:
        return self.cases if DELTA in self.sequences else ()

    def apart(self) -> list[Plan]:
        """One plan for each home: the ordinary cases, and those on which Spark may fail."""
        sound = tuple(case for case in self.cases if case.id not in FAILING)
        failing = tuple(case for case in self.cases if case.id in FAILING)
        return [replace(self, cases=cases) for cases in (sound, failing) if cases]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the verdicts, and return the exit code."""
    plan = read_plan(arguments)
    console = Console()
    started = time.monotonic()
    trials: list[tuple[Trial, Plan]] = []
    with spark_and_folder(plan.on_cluster, "headrace-judge-") as (spark, folder):
        console.print(f"{len(plan.cases)} cases, sequences {', '.join(plan.sequences)}, seed {plan.seed}")
        for number, part in enumerate(plan.apart()):
            trial = Trial(spark, folder / f"home{number}", map(view_of, part.cases))
            trials.append((trial, part))
            run(trial, part, console)
        failed = report(trials, plan, console)
        for trial, _ in trials:
            trial.close()
    epochs, comparisons = sum(t.epochs for t, _ in trials), sum(t.comparisons for t, _ in trials)
    rejections = sum(t.rejections for t, _ in trials)
    console.print(
        f"{epochs} epochs, {comparisons} comparisons, {rejections} batches rejected where Spark fails too, "
        f"{time.monotonic() - started:.0f} s"
    )
    wrong = sum(1 for trial, _ in trials for standing in trial.standings.values() if standing.fault)
    console.print(f"{len(plan.cases) - wrong} passed, {wrong} failed")
    return 1 if failed else 0


def read_plan(arguments: Sequence[str] | None) -> Plan:
    """The plan that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.run_cases", description=__doc__)
    parser.add_argument("--only", default="", help="cases, as C01,C05; all when left out")
    parser.add_argument("--sequences", default="", help=f"as S1,S14,{DELTA} ({DELTA}: each case's own)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fast", action="store_true", help="a shorter S14; queries only after each sequence")
    parser.add_argument("--cluster", action="store_true", help="on a Spark of several processes; needs root")
    options = parser.parse_args(arguments)
    known = (*SEQUENCES, DELTA)
    wanted = tuple(part.strip().upper() for part in options.sequences.split(",") if part.strip()) or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"unknown sequences: {', '.join(unknown)}")
    batches = 8 if options.fast else 30
    return Plan(select_cases(options.only), wanted, options.seed, options.fast, batches, options.cluster)


def view_of(case: Case) -> View:
    return View(case.view, case.sql, case.tables)


def run(trial: Trial, plan: Plan, console: Console) -> None:
    """All sequences of the plan over one home, with a progress bar, faults shown as they appear."""
    columns = (
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        total = len(plan.generic) + len(plan.own) + 2
        task = progress.add_task("empty home", total=total, state="")

        def settle(seen: int) -> None:
            for fault in trial.faults[seen:]:
                show_fault(console, fault)
            wrong = sum(1 for standing in trial.standings.values() if standing.fault)
            state = f"{trial.epochs} epochs, {wrong} wrong"
            progress.update(task, advance=1, state=state)
            if not console.is_terminal:
                console.print(f"{progress.tasks[0].description}: {state}", highlight=False)

        trial.judge_all("empty home")
        if all(case.id in FAILING for case in plan.cases):
            fill_until_accepted(trial, plan)
        settle(0)
        for name in plan.generic:
            progress.update(task, description=name)
            seen = len(trial.faults)
            run_generic(trial, plan, name)
            settle(seen)
        for case in plan.own:
            progress.update(task, description=f"{case.id} {case.name}")
            seen = len(trial.faults)
            run_own(trial, case)
            settle(seen)
        progress.update(task, description="cold fills")
        seen = len(trial.faults)
        finish(trial, plan)
        settle(seen)


def fill_until_accepted(trial: Trial, plan: Plan) -> None:
    """Rows enough that most later batches do not make Spark fail."""
    for attempt in range(20):
        before = trial.epochs
        scene = scene_for(trial.model, tables_of_plan(plan), plan.seed + attempt, "fill")
        follow(trial, "fill", scene.fill(40))
        if trial.epochs > before:
            return


def tables_of_plan(plan: Plan) -> frozenset[str]:
    return frozenset[str]().union(*(case.tables for case in plan.cases))


def run_generic(trial: Trial, plan: Plan, name: str) -> None:
    """One of S1 to S16 over all tables that the cases read, judging every view."""
    scene = scene_for(trial.model, tables_of_plan(plan), plan.seed, name, batches=plan.batches)
    follow(trial, name, SEQUENCES[name](scene), queried=not plan.fast)
    if plan.fast:
        trial.check_served(f"{name}: at its end")


def run_own(trial: Trial, case: Case) -> None:
    """The case's own adversarial sequence from empty tables, judging this view only."""
    follow(trial, case.id, delta_steps(case, trial.model), judged=[case.view])


def follow(
    trial: Trial,
    where: str,
    steps: Iterable[Step],
    *,
    judged: Iterable[str] | None = None,
    queried: bool = True,
) -> None:
    """Take the steps one by one; a call that fails ends the sequence, and is a fault."""
    note = "before its first step"
    try:
        for step in steps:
            note = step.note
            trial.advance(where, step, judged=judged, queried=queried)
    except Exception as error:
        trial.blame_home(f"{where}: {note}", error)


def finish(trial: Trial, plan: Plan) -> None:
    """At the end: every view once more, cold fills of them all, and Headrace's own judge."""
    try:
        scene = scene_for(trial.model, frozenset(trial.model), plan.seed, "end")
        follow(trial, "end", scene.fill(8))
        trial.judge_all("end")
        if not plan.fast:
            trial.judge_cold("end")
        trial.verify("end")
    except Exception as error:
        trial.blame_home("end", error)


def show_fault(console: Console, fault: Fault) -> None:
    console.print(f"[red]{escape(fault.view or 'home')}[/red] in {escape(fault.where)}")
    console.print(escape(fault.text), highlight=False, soft_wrap=True)


def report(trials: list[tuple[Trial, Plan]], plan: Plan, console: Console) -> bool:
    """Print one line a case; True when something is not as it must be."""
    grid = Grid("case", "incremental", "verdict", "judged", "fault or reason", box=None)
    incremental = 0
    for trial, part in trials:
        for case in part.cases:
            standing = trial.standings[case.view]
            explained, reason = explain(trial, case)
            incremental += explained is True
            verdict = "[green]right[/green]" if standing.fault is None else "[red]wrong[/red]"
            remark = reason if standing.fault is None else standing.fault.where
            word = {True: "yes", False: "[yellow]no[/yellow]", None: "-"}[explained]
            grid.add_row(f"{case.id} {case.name}", word, verdict, str(standing.judged), escape(remark))
    console.print(grid)
    faults = [fault for trial, _ in trials for fault in trial.faults]
    home = [fault for fault in faults if not fault.view]
    if home:
        console.print(f"[red]{len(home)} faults of a home itself, shown above[/red]")
    console.print(f"{incremental} of {len(plan.cases)} incremental")
    too_few = incremental < LEAST_INCREMENTAL - (len(load_cases()) - len(plan.cases))
    if too_few:
        console.print(f"[red]at least {LEAST_INCREMENTAL} of {len(load_cases())} must be incremental[/red]")
    return bool(faults) or too_few


def explain(trial: Trial, case: Case) -> tuple[bool | None, str]:
    """Whether EXPLAIN calls the view incremental, and its first reason if not."""
    try:
        plan = trial.hr.explain(case.view)
    except Exception as error:
        return None, str(error).splitlines()[0]
    return plan.incremental, "" if plan.incremental else "; ".join(plan.reasons)[:90]


if __name__ == "__main__":
    sys.exit(main())
