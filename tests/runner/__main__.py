"""Run a tier of the suite: `python -m tests.runner`, `--tier fast`, `--part capture`, `--steady`.

The tests of a tier run in several pytest processes at the same time. A test that fails is run once more at the end of
the run, alone: if it passes then, the run is green and lists the test as unsteady. The last lines are a summary; the
exit code is 0 only if no test failed twice, and the run left no process and no file in the checkout.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.ending_with_us import ending_with_us
from tests.runner.leftovers import adopt_orphans, checkout_files, descendants, kill, reap, wait_for_descendants
from tests.runner.plugin import FILE
from tests.runner.report import print_failure, print_summary
from tests.runner.results import PhaseReader, Results
from tests.runner.tiers import FAST, PARTS, STEADY, TEST, Lane, Tier

ROOT = Path(__file__).parents[2]
_TURN_SECONDS = 1.0
_REPORT_SECONDS = 60.0
_LEFTOVER_SECONDS = 60.0
# pytest's exit codes.
_PASSED, _FAILED, _NOTHING_SELECTED = 0, 1, 5
# More failures than these are no accident, and are not run again.
_MOST_REPEATED = 10
# Twice the longest tier on two quiet cores.
_LONGEST_SECONDS = 80 * 60.0


class LaneProcess:
    """A pytest process, its log and its results."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path, root: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.has_failed = False
        self.may_be_empty = "-k" in arguments
        self.reader = PhaseReader(folder / f"{name}.results")
        command = ending_with_us([sys.executable, "-m", "pytest", "-q", "-p", "tests.runner.plugin", *arguments])
        environment = {**os.environ, FILE: str(folder / f"{name}.results"), "TMPDIR": str(folder)}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    @property
    def failure(self) -> str:
        """Why the process itself failed, apart from its tests; empty if it did not."""
        code = self.process.poll()
        if (
            code == _PASSED
            or (code == _FAILED and self.has_failed)
            or (code == _NOTHING_SELECTED and self.may_be_empty)
        ):
            return ""
        lines = self.log.read_text(errors="replace").splitlines()[-40:]
        return "\n".join([f"pytest of {self.name} ended with code {code}:", *lines])


def run_lanes(
    lanes: Sequence[tuple[str, Sequence[str]]], folder: Path, seconds: float = _LONGEST_SECONDS, root: Path = ROOT
) -> tuple[Results, list[str]]:
    """Run pytest processes at the same time; return the results, and the failures of the processes themselves."""
    results = Results()
    running = [LaneProcess(name, arguments, folder, root) for name, arguments in lanes]
    ended: list[LaneProcess] = []
    reported_at = started_at = time.monotonic()
    try:
        while running:
            time.sleep(_TURN_SECONDS)
            for lane in list(running):
                has_ended = lane.process.poll() is not None
                phases = list(lane.reader.new_phases())
                lane.has_failed = lane.has_failed or any(phase.outcome == "failed" for phase in phases)
                results.add(phases)
                if has_ended:
                    running.remove(lane)
                    ended.append(lane)
                    print(f"{lane.name} ended after {time.monotonic() - started_at:.0f} s", flush=True)
            if time.monotonic() - reported_at > _REPORT_SECONDS:
                reported_at = time.monotonic()
                names = ", ".join(lane.name for lane in running)
                failed = len(results.of("failed"))
                done = sum(result.ended for result in results.by_test.values())
                print(f"{done} of {len(results.by_test)} tests, {failed} failed; running: {names}", flush=True)
            if time.monotonic() - started_at > seconds:
                names = ", ".join(lane.name for lane in running)
                results.fail_unended()
                return results, [f"the run was ended after {seconds:.0f} s, before: {names}"]
    finally:
        for lane in running:
            lane.process.send_signal(signal.SIGINT)
        for lane in running:
            try:
                lane.process.wait(60)
            except subprocess.TimeoutExpired:
                lane.process.kill()
                lane.process.wait()
    results.fail_unended()
    return results, [failure for lane in ended if (failure := lane.failure)]


def run_again(failed: Sequence[str], folder: Path, root: Path = ROOT) -> tuple[Results, list[str]]:
    """Run failed tests once more, in one process."""
    listed = folder / "failed.txt"
    listed.write_text("\n".join(failed) + "\n")
    return run_lanes([("again", [f"@{listed}"])], folder, root=root)


def run_tier(tier: Tier, folder: Path) -> tuple[bool, int]:
    """Run a tier and print its summary; return whether it is green, and how many tests were unsteady."""
    started_at = time.monotonic()
    files_before, processes_before = checkout_files(ROOT), set(descendants())
    print(f"{tier.name}: {len(tier.lanes)} processes: {', '.join(lane.name for lane in tier.lanes)}", flush=True)
    results, problems = run_lanes([(lane.name, lane.arguments()) for lane in tier.lanes], folder)
    first = results.of("failed")
    unsteady = []
    if problems or len(first) > _MOST_REPEATED:
        for result in first:
            print_failure(result)
    elif first:
        print(f"{len(first)} failed; each is run once more", flush=True)
        repeated, further = run_again([result.test for result in first], folder)
        problems += further
        for result in first:
            second = repeated.by_test.get(result.test)
            if second is not None and second.ended and second.outcome == "passed":
                result.outcome = "passed"
                unsteady.append(result)
            else:
                print_failure(result)
    problems += _leftovers(files_before, processes_before)
    green = not results.of("failed") and not problems and bool(results.by_test)
    print_summary(tier.name, results, unsteady, problems, time.monotonic() - started_at, _processor_seconds())
    return green, len(unsteady)


def _processor_seconds() -> float:
    """Return the processor time of all processes of this run that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _leftovers(files_before: set[str], processes_before: set[int]) -> list[str]:
    remaining = wait_for_descendants(_LEFTOVER_SECONDS, processes_before)
    kill(remaining)
    wait_for_descendants(_LEFTOVER_SECONDS, processes_before)
    reap()
    return [
        *(f"a process outlived its test: {number} {command}" for number, command in remaining.items()),
        *(f"left in the checkout: {path!r}" for path in sorted(checkout_files(ROOT) - files_before)),
    ]


@contextmanager
def run_folder() -> Iterator[Path]:
    """Make a temporary folder for one run; at the end, remove it and kill the processes that the run started."""
    before = set(descendants())
    folder = Path(tempfile.mkdtemp(prefix="hr-"))
    # Servers that refuse to run as root keep their data inside, as another user.
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        kill(descendants().keys() - before)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many processors busy."""
    loop = f"import time\nends = time.monotonic() + {2 * _LONGEST_SECONDS}\nwhile time.monotonic() < ends: pass"
    loops = [subprocess.Popen(ending_with_us([sys.executable, "-c", loop])) for _ in range(count)]
    try:
        yield
    finally:
        for process in loops:
            process.kill()
            process.wait()


def _run_once(tier: Tier) -> tuple[bool, int]:
    with run_folder() as folder:
        return run_tier(tier, folder)


def _run_steady() -> bool:
    """Run the steady tier twice beside two busy loops; return whether nothing failed even once."""
    outcomes: list[tuple[bool, int]] = []
    with busy_loops(2):
        for _ in range(2):
            outcomes.append(_run_once(STEADY))
    return all(green and not unsteady for green, unsteady in outcomes)


def _only(tier: Tier, words: Sequence[str]) -> Tier:
    """Return the tier with further arguments for pytest in each lane."""
    return Tier(tier.name, tuple(Lane(**{**vars(lane), "further": tuple(words)}) for lane in tier.lanes))


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.runner", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tier", choices=["fast", "test"], default="test", help="what make test-fast and make test run"
    )
    parser.add_argument("--part", help=f"a part of everything ({', '.join(PARTS)}), or all")
    parser.add_argument("--steady", action="store_true", help="tests with Spark and servers, twice, beside busy loops")
    asked, further = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    adopt_orphans()
    if asked.steady:
        return 0 if _run_steady() else 1
    if asked.part is None:
        tiers = [FAST if asked.tier == "fast" else TEST]
    elif asked.part == "all":
        tiers = list(PARTS.values())
    elif asked.part in PARTS:
        tiers = [PARTS[asked.part]]
    else:
        parser.error(f"no part is called {asked.part}; there are {', '.join(PARTS)}, and all")
    outcomes = [_run_once(_only(tier, further)) for tier in tiers]
    return 0 if all(green for green, _ in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
