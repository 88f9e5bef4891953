"""Write the EXPLAIN texts and deltas of the golden files anew: `python -m tests.golden.regenerate [file ...]`.

EXPLAIN comes from the engine. The deltas do not: each is the difference between Spark's full answers to the view's
query before and after the change. Where the engine disagrees, that is said, and Spark's delta is what is written.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.golden.cases import FOLDER, Case, Step, difference, feed, load, plain_names, recomputed, renamed, write


def regenerate(hr: Any, case: Case, number: int) -> Case:
    """The case as Spark answers it."""
    own = renamed(case, number)
    hr.execute(own.sql)
    explain = plain_names(str(hr.explain(own.view)), number)
    before = recomputed(hr, own.query)
    steps: list[Step] = []
    for step, written in zip(own.steps, case.steps, strict=True):
        since = hr.epoch
        hr.apply(step.calls())
        after = recomputed(hr, own.query)
        delta = difference(before, after)
        found = feed(hr, own.view, since)
        if found != delta:
            print(f"{case.file}, {case.title}: the engine says\n  " + "\n  ".join(found))
            print("where Spark says\n  " + "\n  ".join(delta))
        steps.append(replace(written, delta=delta))
        before = after
    return replace(case, explain=explain, steps=tuple(steps))


def main(names: list[str]) -> None:
    """Regenerate the named files, or all."""
    import headrace

    wanted = [case for case in load() if not names or case.file in names]
    with tempfile.TemporaryDirectory() as folder, headrace.open(str(Path(folder) / "home")) as hr:
        new = [regenerate(hr, case, number) for number, case in enumerate(wanted)]
    for file, cases in groupby(new, key=lambda case: case.file):
        write(FOLDER / f"{file}.md", list(cases))


if __name__ == "__main__":
    main(sys.argv[1:])
