"""Writes the measured figures into the README, from what the benchmarks left in bench/results.

python bench/readme.py
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
_WIDTH = 120


def medallion(results: Mapping[str, Any]) -> str:
    """An hour of the medallion, beside what it takes otherwise."""
    machine, scales = results["machine"], results["scales"]
    small, large = scales[0], scales[-1]
    rows = "\n".join(
        f"| {one['scale']:g} | {one['changes_per_hour']:,.0f} | **{one['faster_than_recompute']:.0f}** "
        f"| **{one['faster_than_merge']:.0f}** | {one['epoch_median']:.2f} s ({one['epoch_p95']:.2f} s) "
        f"| {one['recompute_median']:.1f} s | {one['merge_median']:.1f} s |"
        for one in scales
    )
    firsts = sorted(one["first_twenty"][0] for one in scales)
    most = large["memory_mb_most"]
    return f"""\
{
        _filled('''One hour of changes on the shop of [examples/medallion](examples/medallion) (7 tables, 15 views), in one run:
Headrace brings all 15 views up to date in one durable epoch; plain Spark computes the same views in full, silver cached,
and writes nothing; a hand-written pipeline merges the hour into 22 Delta tables.''')
    }

| scale | changes in the hour | faster than the full recompute | faster than MERGE | epoch, median (95th) | \
full recompute | MERGE |
|---|---|---|---|---|---|---|
{rows}

{
        _filled(f'''From scale {small['scale']:g} to {large['scale']:g}, with ten times the rows and ten times the changes, an
hour takes {results['slower_at_largest']:.2f} times as long. One changed supplier, which touches every item of his, takes
{large['trick_to_epoch']:.1f} times an hour at scale {large['scale']:g}. The first epoch after a start takes
{firsts[0]:.0f} to {firsts[-1]:.0f} s: it plans and compiles what every later one uses again. Python and Spark together
held at most {most['resident'] / 1024:.1f} GB, {most['own'] / 1024:.1f} GB of it their own. The backfill of all 22
relations took {large['backfill']:.0f} s at scale {large['scale']:g}, where plain Spark wrote them in
{large['plain_backfill_written']:.0f} s. {_cores(machine['cores'])}, local Spark {machine['spark']}, Python
{machine['python']}; `make bench`, each scale in a process of its own, hour by hour in turn, medians of 20 hours after
20 to warm up and of 3 runs of the others, all in [bench/results/medallion.json](bench/results/medallion.json).''')
    }"""


def epoch(results: Mapping[str, Any]) -> str:
    """An epoch of a thousand changes, beside the full recompute."""
    machine, sizes = results["machine"], results["results"]
    small, large = sizes[0], sizes[-1]
    rows = "\n".join(
        f"| {one['rows']:,} | **{one['ratio']:.0f}** | {one['epoch_seconds']:.2f} s | {one['recompute_seconds']:.1f} s "
        f"| {one['jobs_per_epoch']:.0f} |"
        for one in sizes
    )
    growth = large["epoch_seconds"] / small["epoch_seconds"]
    return f"""\
{
        _filled('''One epoch of 1,000 mixed changes, committed, through three views on top of each other (a join of three tables,
a GROUP BY over it, a window over that), against Spark's own full recompute of the same three views in the same run:''')
    }

| orders | times faster | epoch, median | full recompute | Spark jobs per epoch |
|---|---|---|---|---|
{rows}

{
        _filled(f'''From {small['rows'] / 1e6:.0f} M to {large['rows'] / 1e6:.0f} M orders the epoch's own time grows
{growth:.2f} times; {large['stages']['ledger']:.2f} s of it are the commit, synced to disk. Local Spark {machine['spark']}, Python
{machine['python']}; `make bench-epoch`, figures in [bench/results/epoch.json](bench/results/epoch.json). Medians of 20
epochs after 15 to warm up; 988 of the changes are orders, 12 are customers and products. The machine is noisy: compare
the ratios.''')
    }"""


BLOCKS = {"medallion": medallion, "epoch": epoch}


def with_figures(readme: str) -> str:
    """The README with the newest figures between its marks."""
    for name, block in BLOCKS.items():
        content = block(json.loads((RESULTS / f"{name}.json").read_text()))
        start, end = f"<!-- bench:{name}:start -->", f"<!-- bench:{name}:end -->"
        marked = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
        readme = marked.sub(lambda _, text=f"{start}\n{content}\n{end}": text, readme)
    return readme


def _filled(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _cores(count: int) -> str:
    return "Two cores" if count == 2 else f"{count} cores"


def main() -> None:
    """Write the README anew."""
    readme = ROOT / "README.md"
    readme.write_text(with_figures(readme.read_text()))


if __name__ == "__main__":
    main()
