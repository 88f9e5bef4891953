"""Writes the measured figures into the README, from what the benchmarks left in bench/results.

python bench/readme.py
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
_WIDTH = 120


def medallion(results: Mapping[str, Any]) -> str:
    """An hour of the medallion, beside what it takes otherwise."""
    machine, scales = results["machine"], results["scales"]
    small, large = scales[0], scales[-1]
    firsts = sorted(one["first_twenty"][0] for one in scales)
    most = large["memory_mb_most"]
    names = ("scale", "changes in the hour", "faster than the full recompute", "faster than MERGE")
    table = _table(
        (*names, "epoch, median (95th)", "full recompute", "MERGE"),
        [
            (
                f"{one['scale']:g}",
                f"{one['changes_per_hour']:,.0f}",
                f"**{one['faster_than_recompute']:.0f}**",
                f"**{one['faster_than_merge']:.0f}**",
                f"{one['epoch_median']:.2f} s ({one['epoch_p95']:.2f} s)",
                f"{one['recompute_median']:.1f} s",
                f"{one['merge_median']:.1f} s",
            )
            for one in scales
        ],
    )
    before = _filled(
        "One hour of changes on the shop of [examples/medallion](examples/medallion) (7 tables, 15 views), in one run:",
        "Headrace brings all 15 views up to date in one durable epoch; plain Spark computes the same views in full,",
        "silver cached, and writes nothing; a hand-written pipeline merges the hour into 22 Delta tables.",
    )
    after = _filled(
        f"From scale {small['scale']:g} to {large['scale']:g}, with ten times the rows and ten times the changes,",
        f"an hour takes {results['slower_at_largest']:.2f} times as long.",
        "One changed supplier, which touches every item of his,",
        f"takes {large['trick_to_epoch']:.1f} times an hour at scale {large['scale']:g}.",
        f"The first epoch after a start takes {firsts[0]:.0f} to {firsts[-1]:.0f} s:",
        "it plans and compiles what every later one uses again.",
        f"Python and Spark together held at most {most['resident'] / 1024:.1f} GB,",
        f"{most['own'] / 1024:.1f} GB of it their own.",
        f"The backfill of all 22 relations took {large['backfill']:.0f} s at scale {large['scale']:g},",
        f"where plain Spark wrote them in {large['plain_backfill_written']:.0f} s.",
        f"{'Two' if machine['cores'] == 2 else machine['cores']} cores, local Spark {machine['spark']},",
        f"Python {machine['python']}; `make bench`, each scale in a process of its own, hour by hour in turn,",
        "medians of 20 hours after 20 to warm up and of 3 runs of the others,",
        "all in [bench/results/medallion.json](bench/results/medallion.json).",
    )
    return f"{before}\n\n{table}\n\n{after}"


def epoch(results: Mapping[str, Any]) -> str:
    """An epoch of a thousand changes, beside the full recompute."""
    machine, sizes = results["machine"], results["results"]
    small, large = sizes[0], sizes[-1]
    table = _table(
        ("orders", "times faster", "epoch, median", "full recompute", "Spark jobs per epoch"),
        [
            (
                f"{one['rows']:,}",
                f"**{one['ratio']:.0f}**",
                f"{one['epoch_seconds']:.2f} s",
                f"{one['recompute_seconds']:.1f} s",
                f"{one['jobs_per_epoch']:.0f}",
            )
            for one in sizes
        ],
    )
    before = _filled(
        "One epoch of 1,000 mixed changes, committed, through three views on top of each other (a join of three",
        "tables, a GROUP BY over it, a window over that), against Spark's own full recompute of the same three views",
        "in the same run:",
    )
    after = _filled(
        f"From {small['rows'] / 1e6:.0f} M to {large['rows'] / 1e6:.0f} M orders the epoch's own time grows",
        f"{large['epoch_seconds'] / small['epoch_seconds']:.2f} times;",
        f"{large['stages']['ledger']:.2f} s of it are the commit, synced to disk.",
        f"Local Spark {machine['spark']}, Python {machine['python']}; `make bench-epoch`,",
        "figures in [bench/results/epoch.json](bench/results/epoch.json).",
        "Medians of 20 epochs after 15 to warm up; 988 of the changes are orders, 12 are customers and products.",
        "The machine is noisy: compare the ratios.",
    )
    return f"{before}\n\n{table}\n\n{after}"


def capture(results: Mapping[str, Any]) -> str:
    """A backlog beside the usual pipeline, how late changes are, and what they cost their database."""
    machine, backlog = results["machine"], results["backlog"]
    ours, merge = backlog["headrace"], backlog["merge"]
    table = _table(
        ("a backlog of Debezium's changes", "changes/s", "seconds", "what it keeps"),
        [
            (
                "Headrace",
                f"**{ours['changes_per_second']:,.0f}**",
                f"{ours['seconds']:.0f}",
                "2 tables, 3 views, raw rows; all of them together in each epoch",
            ),
            (
                "`readStream`, `foreachBatch`, `MERGE`",
                f"{merge['changes_per_second']:,.0f}",
                f"{merge['seconds']:.0f}",
                "2 tables",
            ),
        ],
    )
    before = _filled(
        f"{backlog['changes']:,} inserts, updates and deletes of two tables of PostgreSQL, as Debezium writes them,",
        "wait in a real Kafka; both take the same topics, one after the other, in one run:",
    )
    after = _filled(
        f"{backlog['faster_than_merge']:.1f} times as fast.",
        *_part_only(backlog),
        *_as_they_come(results),
        f"{'Two' if machine['cores'] == 2 else machine['cores']} cores for all of it, brokers and databases included,",
        f"local Spark {machine['spark']}, Python {machine['python']}; `make bench-capture`,",
        "figures in [bench/results/capture.json](bench/results/capture.json).",
    )
    return f"{before}\n\n{table}\n\n{after}"


def _as_they_come(results: Mapping[str, Any]) -> list[str]:
    """How late changes are, and what they cost their database, as far as that was measured."""
    found: list[str] = []
    if (live := results.get("latency")) is not None:
        found += [
            f"As they come, {live['rate']} changes a second from a real PostgreSQL through Debezium and Kafka are in",
            f"all views {live['median']:.2f} s after their write (median; 99th percentile {live['p99']:.2f} s,",
            f"{live['measured']:,} of them measured over {live['seconds']:.0f} s).",
        ]
    if (database := results.get("source-cpu")) is not None:
        found += [
            f"For the same {database['transactions']:,} transactions PostgreSQL used {database['without']:.1f} s of",
            f"CPU without capture and {database['with']:.1f} s with it.",
        ]
    if (readers := results.get("readers")) is not None:
        ours, theirs = readers["consumer"], readers["read_stream"]
        found += [
            "The reader of Kafka by itself, up to columns in the driver, took",
            f"{ours['records_per_second']:,.0f} records/s of a backlog and brought {readers['rate']} a second",
            f"{ours['median']:.2f} s after their write (99th percentile {ours['p99']:.2f} s); Structured Streaming",
            f"took {theirs['records_per_second']:,.0f}/s of the same topics and needed {theirs['median']:.2f} s",
            f"({theirs['p99']:.2f} s).",
        ]
    return found


def _part_only(backlog: Mapping[str, Any]) -> list[str]:
    """What is to be said of a way that was given up before it had taken all."""
    names = {"headrace": "Headrace", "merge": "The pipeline"}
    return [
        f"{name} was stopped after {backlog[way]['taken']:,} of {backlog['records']:,} records."
        for way, name in names.items()
        if backlog[way]["taken"] < backlog["records"]
    ]


def api(results: Mapping[str, Any]) -> str:
    """The data API beside a bare handler of the same query."""
    machine = results["machine"]
    names = {
        "bare": "bare FastAPI and psycopg",
        "table": "the data API, from the same table of PostgreSQL",
        "straight": "the data API, straight from Headrace",
    }
    table = _table(
        ("the newest 20 rows of a user", "answers/s", "of the bare handler", "at half of that: median", "99th"),
        [
            (
                said,
                f"**{results[name]['capacity']:,.0f}**",
                f"{results[name].get('of_bare', 1.0):.2f}",
                f"{results[name]['half']['p50_ms']:.1f} ms",
                f"{results[name]['half']['p99_ms']:.1f} ms",
            )
            for name, said in names.items()
        ],
    )
    before = _filled(
        f"The [data API](docs/reference/data-api.md) at {results['rows']:,} rows, in one process, beside a handler",
        "that knows one query; each is asked in turn over 16 connections:",
    )
    after = _filled(
        f"{'Two' if machine['cores'] == 2 else machine['cores']} cores for servers, PostgreSQL, Spark and the load,",
        f"whose average was {results['load_before']:.1f} before it began, Python {machine['python']}; `make",
        "bench-api`, figures in",
        "[bench/results/api.json](bench/results/api.json). Compare the ratios.",
    )
    return f"{before}\n\n{table}\n\n{after}"


def feeds(results: Mapping[str, Any]) -> str:
    """What feeds carry, beside loops that write row by row."""
    kafka, postgres, machine = results["kafka"], results["postgres"], results["machine"]
    rows = [
        (
            said,
            f"**{results[sink][name][f'{unit}_per_second']:,}**",
            f"{results[sink][name]['seconds']:.1f}",
            f"{results[sink][name]['epoch_ms']:.0f} ms" if "epoch_ms" in results[sink][name] else "",
        )
        for sink, unit, name, said in (
            ("kafka", "events", "plain", f"Kafka: a first scan of {kafka['rows']:,} rows"),
            ("kafka", "events", "exact", "Kafka: the same, exactly once by transactions"),
            ("kafka", "events", "changes", "Kafka: as many updates that waited"),
            ("kafka", "events", "tutorial", "Kafka: a loop of `produce`, flushed after each 100"),
            ("postgres", "rows", "feed", f"PostgreSQL: a first scan of {postgres['rows']:,} rows"),
            ("postgres", "rows", "changes", "PostgreSQL: as many updates that waited"),
            ("postgres", "rows", "deletes", "PostgreSQL: half as many deletes that waited"),
            ("postgres", "rows", "tutorial", "PostgreSQL: upserts row by row, committed after each 100"),
        )
    ]
    before = _filled(
        "[Changefeeds](docs/reference/changefeeds.md) of a table into a real Kafka and a real PostgreSQL (a primary",
        "key and two indexes), from the statement until the last event is confirmed, beside the loops that tutorials",
        "show, on the same rows in the same run:",
    )
    after = _filled(
        f"{kafka['times_the_tutorial']:.1f} and {postgres['times_the_tutorial']:.1f} times the loops. An epoch of 100",
        f"updates under a view took {kafka['epoch_alone_ms']:.0f} and {postgres['epoch_alone_ms']:.0f} ms (median)",
        "without a feed.",
        f"{'Two' if machine['cores'] == 2 else machine['cores']} cores for Headrace, Spark, broker and database, whose",
        f"load was {kafka['load_before']:.1f} and {postgres['load_before']:.1f} before the two parts began,",
        f"Python {machine['python']}; `make bench-feeds`, figures in",
        "[bench/results/feeds.json](bench/results/feeds.json).",
    )
    return f"{before}\n\n{_table(('into', 'events/s', 'seconds', 'median epoch beside it'), rows)}\n\n{after}"


def transactions(results: Mapping[str, Any]) -> str:
    """How long a transaction takes from Kafka to the API."""
    machine = results["machine"]
    return _filled(
        f"[The support desk](docs/how-to/serve-transactions.md), {results['rate']} transactions a second: from",
        f"the send to Kafka through a join and PostgreSQL to the API's answer, median {results['p50']:.2f} s,",
        "95th percentile",
        f"{results['p95']:.2f} s, largest {results['largest']:.2f} s, {results['watched']} watched.",
        f"{'Two' if machine['cores'] == 2 else machine['cores']} cores for all of it,",
        f"load {machine['load_after']:.1f};",
        "`make demo-transactions`, figures in [bench/results/transactions.json](bench/results/transactions.json).",
    )


def events(results: Mapping[str, Any]) -> str:
    """Durable appends, a replay, and states with and without snapshots."""
    machine, batches, single = results["machine"], results["batches"], results["single"]
    replay, state = results["replay"], results["state"]
    table = _table(
        ("an event store over one projection", "measured"),
        [
            (
                "8 clients in batches of 50, acknowledged durable",
                f"**{batches['events_per_second']:,.0f}** events/s (an append: 95th percentile "
                f"{batches['append_p95']:.2f} s)",
            ),
            (
                "one client, one event at a time",
                f"**{single['median'] * 1000:.0f} ms** (95th percentile {single['p95'] * 1000:.0f} ms; "
                f"without any view {results['single_without_views']['median'] * 1000:.0f} ms)",
            ),
            (
                f"a fresh projection of {replay['events']:,} events",
                f"**{replay['events_per_second']:,.0f}** events/s ({replay['seconds']:.1f} s; "
                f"the first after a start {replay['first_seconds']:.1f} s)",
            ),
            (
                f"the state of an aggregate of {state['events']:,} events, by a snapshot",
                f"**{state['faster']:.0f}** times faster ({state['with'] * 1000:.1f} ms, else "
                f"{state['without'] * 1000:.0f} ms)",
            ),
        ],
    )
    before = _filled(
        "An [event store](docs/reference/events.md) whose projection is current whenever an append returns:",
    )
    after = _filled(
        f"{'Two' if machine['cores'] == 2 else machine['cores']} cores for clients, Headrace and Spark together, whose",
        f"load was {results['load_before']:.1f} before it began; local Spark {machine['spark']}, Python",
        f"{machine['python']}; `make bench-events`, figures in",
        "[bench/results/events.json](bench/results/events.json).",
    )
    return f"{before}\n\n{table}\n\n{after}"


BLOCKS = {
    "medallion": medallion,
    "epoch": epoch,
    "capture": capture,
    "api": api,
    "feeds": feeds,
    "transactions": transactions,
    "events": events,
}


def with_figures(readme: str) -> str:
    """The README with the newest figures between its marks."""
    for name, block in BLOCKS.items():
        if not (RESULTS / f"{name}.json").exists():
            continue
        content = block(json.loads((RESULTS / f"{name}.json").read_text()))
        start, end = f"<!-- bench:{name}:start -->", f"<!-- bench:{name}:end -->"
        marked = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
        readme = marked.sub(lambda _, text=f"{start}\n{content}\n{end}": text, readme)
    return readme


def _filled(*parts: str) -> str:
    return textwrap.fill(" ".join(parts), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (names, *rows)]
    return "\n".join([lines[0], "|---" * len(names) + "|", *lines[1:]])


def main() -> None:
    """Write the README anew."""
    readme = ROOT / "README.md"
    readme.write_text(with_figures(readme.read_text()))


if __name__ == "__main__":
    main()
