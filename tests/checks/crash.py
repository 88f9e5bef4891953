"""Crash checks: `python -m tests.checks.crash --kills 200` kills a home's process, opens the home again, and validates.

Every check of the book goes through every scenario: no crash, restarts, kill -9 at each named point, Ctrl-C or an error
at each of them, after which the same process goes on, and, shared among the checks, kill -9 at so many random instants.
Lives are forked from one process that has everything loaded and attach to one Spark, which is fair because all that
lasts is written by the killed process itself (see jvm.py); every twentieth kill takes Spark along. A run is repeated by
its seed: what is done is the same, only random instants differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.checks.book import BY_NAME, CHECKS
from tests.checks.scenarios import POINTS, CrashTest
from tests.object_store import ObjectStore

SCENARIOS = ("quiet", "restarts", "points", "raises", "instants")


def run(crash_test: CrashTest, checks: Sequence[str], scenarios: Sequence[str], kills: int) -> None:
    """Take each check through each scenario, until one fails."""
    for index, check in enumerate(checks):
        share = kills // len(checks) + (index < kills % len(checks))
        for scenario in scenarios:
            if scenario == "instants":
                crash_test.instants(check, share)
            else:
                getattr(crash_test, scenario)(check)
            if crash_test.tally.findings:
                return


def main(arguments: Sequence[str] | None = None) -> int:
    """Crash and validate; 1 when anything was lost, doubled, left behind or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="at random instants; those at named points come on top")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--check", choices=list(BY_NAME), action="append", help="only this one; may be repeated")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="only this one; may be repeated")
    parser.add_argument("--object-store", action="store_true", help="homes in an object store instead of folders")
    options = parser.parse_args(arguments)
    console = Console()
    seed = options.seed if options.seed is not None else int(time.time())
    console.print(f"seed {seed}")
    checks = options.check or [check.name for check in CHECKS]
    scenarios = options.scenario or list(SCENARIOS)
    lives = {"quiet": 2, "restarts": 5, "points": len(POINTS) + 1, "raises": len(POINTS) + 2}
    total = options.kills * ("instants" in scenarios) + len(checks) * sum(lives.get(one, 0) for one in scenarios)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)

        def said(line: str) -> None:
            progress.update(task, advance=1, description=line)
            if not console.is_terminal and crash_test.tally.runs % 10 == 0:
                console.print(line, highlight=False, soft_wrap=True)

        with ExitStack() as stack:
            store = stack.enter_context(ObjectStore()) if options.object_store else None
            crash_test = stack.enter_context(CrashTest(seed, said, store))
            run(crash_test, checks, scenarios, options.kills)
    tally = crash_test.tally
    for finding in tally.findings:
        console.print(f"{finding.kind}: {finding.text}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"repeat: python -m tests.checks.crash {finding.repeat}", highlight=False, soft_wrap=True)
    for point in tally.unreached:
        console.print(f"not reached: {point}", highlight=False)
    console.print(f"seed {seed}: {tally.line()}", highlight=False, soft_wrap=True)
    return 1 if tally.findings or tally.unreached else 0


if __name__ == "__main__":
    sys.exit(main())
