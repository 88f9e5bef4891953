"""Report of a run: failures, unsteady tests, the slowest tests, and what was skipped for want of a package."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tests.runner.results import Result, Results

_SLOWEST = 15
_PACKAGE = re.compile(r"apt-get install ([a-z0-9.+-]+)")


def print_failure(result: Result) -> None:
    """Print one failed test with its traceback and what it wrote."""
    print(f"\n{'_' * 20} {result.test} {'_' * 20}\n{result.text}", flush=True)


def print_summary(
    name: str, results: Results, unsteady: Sequence[Result], problems: Sequence[str], seconds: float, cpu: float
) -> None:
    """Print the end of a run; the line of counts is alone on its line."""
    passed, failed, skipped = (len(results.of(outcome)) for outcome in ("passed", "failed", "skipped"))
    print(f"\nslowest {_SLOWEST} of {name}:")
    for result in results.slowest(_SLOWEST):
        print(f"{result.seconds:8.1f} s  {result.test}")
    for reason, count in Counter(result.text for result in results.of("skipped")).most_common():
        print(f"skipped {count}: {reason}")
    if unsteady:
        print(f"\n{len(unsteady)} unsteady (failed, then passed alone):")
    for result in unsteady:
        print(f"unsteady {result.test} - {result.first_error}")
    for result in results.of("failed"):
        print(f"FAILED {result.test} - {result.first_error}")
    for problem in problems:
        print(f"ERROR {problem}")
    print(f"\n{name}: {seconds:.0f} s ({cpu:.0f} s of processor time), {len(unsteady)} unsteady")
    print(f"{passed} passed, {failed + len(problems)} failed, {skipped} skipped")
    if skipped:
        print(_missing_packages(results.of("skipped")), flush=True)


def _missing_packages(skipped: Sequence[Result]) -> str:
    """Return one line that says which packages the skipped tests need."""
    packages = Counter(found[1] for result in skipped if (found := _PACKAGE.search(result.text)))
    others = len(skipped) - packages.total()
    said = [f"{count} skipped for want of {package}" for package, count in packages.most_common()]
    if others:
        said.append(f"{others} skipped for another reason (above)")
    install = f": apt-get install {' '.join(sorted(packages))}" if packages else ""
    return "; ".join(said) + install
