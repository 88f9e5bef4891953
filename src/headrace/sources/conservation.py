"""Whether anything that a source brought was lost or counted twice: its counts against tables that prove them."""

from __future__ import annotations

import pyarrow as pa

from headrace.catalog.catalog import Catalog
from headrace.reading.held_rows import HeldRows
from headrace.reading.judge import Imbalance
from headrace.reading.queries import Relations
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, raw_name
from headrace.state.state import BEGIN


def imbalances(catalog: Catalog, relations: Relations) -> list[Imbalance]:
    """What does not add up of the sources of a home, all as of one epoch.

    received = applied + stale + dead; of the dead, those that were not discarded are the changes of its letters; and
    there are as many rows of what came as were recorded.
    """
    if PROGRESS not in relations:
        return []
    letters = _changes_of_letters(relations)
    found: list[Imbalance] = []
    for row in _held(relations, PROGRESS).to_pylist():
        name = row["source"]
        if name not in catalog.sources:
            continue
        ends = row["applied"] + row["stale"] + row["dead"]
        pairs = [
            ("changes received, by what became of them", row["received"], ends),
            ("dead changes, by its dead letters", row["dead"] - row["discarded"], letters.get(name, 0)),
        ]
        raw = raw_name(name)
        if raw in relations:
            pairs.append((f"records kept, by the rows of {raw}", row["recorded"], relations[raw][0].count))
        found += [Imbalance(name, what, told, there) for what, told, there in pairs if told != there]
    return found


def _changes_of_letters(relations: Relations) -> dict[str, int]:
    if DEAD_LETTERS not in relations:
        return {}
    rows = _held(relations, DEAD_LETTERS).select(["source", "changes"])
    summed = pa.TableGroupBy(rows, "source").aggregate([("changes", "sum")])
    return dict(zip(summed["source"].to_pylist(), summed["changes_sum"].to_pylist(), strict=True))


def _held(relations: Relations, name: str) -> pa.Table:
    state, schema = relations[name]
    return HeldRows(state, schema.names).piece(BEGIN, state.count + 1).rows
