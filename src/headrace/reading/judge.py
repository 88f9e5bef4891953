"""The judge: recompute a view with plain Spark and compare it with what is served, as multisets, types included."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.catalog.catalog import View
from headrace.intake.identity import row_identity_of
from headrace.plans.failures import FAILURES, work_failed
from headrace.progress import Listener, Step, silent
from headrace.reading.queries import Queries, Relations
from headrace.rules.base import is_floating
from headrace.settings import Settings
from headrace.sql.resolve import KnownColumns
from headrace.state.delta import concat, consolidate, negate

_SHOWN = 20
# While Spark runs the query of one view, the next is planned; but only one at a time reads more rows than these: two of
# them would need the memory of both.
_AT_A_TIME = 2
_FEW_ROWS = 10_000


@dataclass(frozen=True)
class Difference:
    """A row that is served too often or not often enough."""

    view: str
    row: tuple[Any, ...]
    served: int
    expected: int

    def __str__(self) -> str:
        return f"{self.view}: {self.row!r} is served {self.served} times, expected {self.expected}"


@dataclass(frozen=True)
class Imbalance:
    """A count of a source that is not what the tables prove."""

    source: str
    what: str
    told: int
    found: int

    def __str__(self) -> str:
        return f"source {self.source}: {self.what}: told are {self.told}, found {self.found}"


@dataclass(frozen=True)
class Verdict:
    """What the judge found: rows of views, and counts of sources, that are not as they must be."""

    differences: tuple[Difference, ...] = ()
    checked: tuple[str, ...] = field(default_factory=tuple[str, ...])
    imbalances: tuple[Imbalance, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that was checked is right."""
        return not self.differences and not self.imbalances

    def __str__(self) -> str:
        if self.ok:
            return f"every view equals its full recompute: {len(self.checked)} verified"
        return "\n".join(str(one) for one in (*self.differences, *self.imbalances))


def recompute(
    queries: Queries,
    views: Sequence[View],
    relations: Relations,
    known_columns: Mapping[str, Mapping[str, KnownColumns]],
    settings: Settings,
    tell: Listener = silent,
) -> Verdict:
    """Have Spark alone answer each view's query over these relations, and compare."""
    frames = queries.frames
    one_large = threading.Lock()

    def size(name: str) -> int:
        return relations[name][0].count

    def judge(view: View) -> list[Difference]:
        tell(Step("view", view.name, 0, 1))
        large = size(view.name) > settings.small_bound
        most = max(map(size, (view.name, *view.resolved.reads)))
        with one_large if most > _FEW_ROWS else nullcontext(), _told_as_ours(view.name):
            # From its text, unless ties or the clock had to be settled.
            if view.resolved.ties or view.resolved.uses_clock:
                expected = frames.bind(view.resolved.plan, relations.__getitem__)
            else:
                expected = queries.frame(
                    view.resolved.sql, relations, known_columns=known_columns[view.name], as_tables=True
                )
            differences = compare(
                view.name,
                frames.rows(*relations[view.name], large),
                frames.collect(expected, view.schema, large),
                [field.dataType for field in view.schema.fields],
                settings.verify_digits,
            )
        tell(Step("view", view.name, 1, 1))
        return differences

    with ThreadPoolExecutor(_AT_A_TIME, "headrace-judge") as pool:
        differences = [one for found in pool.map(judge, views) for one in found]
    return Verdict(tuple(differences), tuple(view.name for view in views))


@contextmanager
def _told_as_ours(view: str) -> Generator[None, None, None]:
    try:
        yield
    except FAILURES as error:
        raise work_failed(f"the recompute of {view}", error) from error


def compare(
    view: str, served: pa.Table, expected: pa.Table, types: Sequence[DataType], digits: int
) -> list[Difference]:
    """The rows by which two tables differ as multisets; floating-point values at so many significant digits."""
    if any(is_floating(kind) for kind in types):
        return _compare_rounded(view, served, expected, types, digits)
    ones = [np.ones(table.num_rows, dtype=np.int64) for table in (served, expected)]
    left, right = consolidate(served, ones[0]), consolidate(expected, ones[1])
    rest = concat(served.schema, [left, negate(right)])
    rows = [tuple(row.values()) for row in rest.rows.slice(0, _SHOWN).to_pylist()]
    return [
        Difference(view, row, max(int(weight), 0), max(-int(weight), 0))
        for row, weight in zip(rows, rest.weights.tolist(), strict=False)
    ]


def _compare_rounded(
    view: str, served: pa.Table, expected: pa.Table, types: Sequence[DataType], digits: int
) -> list[Difference]:
    identify = row_identity_of(types)
    counts: list[Counter[Any]] = []
    shown: dict[Any, tuple[Any, ...]] = {}
    for table in (served, expected):
        counter: Counter[Any] = Counter()
        columns = [column.to_pylist() for column in table.columns]
        for row in zip(*columns, strict=True) if columns else ():
            known = identify(tuple(_rounded(value, digits) for value in row))
            counter[known] += 1
            shown.setdefault(known, row)
        counts.append(counter)
    differing = [known for known in counts[0].keys() | counts[1].keys() if counts[0][known] != counts[1][known]]
    surplus = [shown[known] for known in differing for _ in range(counts[0][known] - counts[1][known])]
    missing = [shown[known] for known in differing for _ in range(counts[1][known] - counts[0][known])]
    # Two values on either side of a rounding step are still close: pair them before they count as a difference.
    for row in list(surplus):
        near = next((other for other in missing if _close(row, other, 10.0 ** (1 - digits))), None)
        if near is not None:
            surplus.remove(row)
            missing.remove(near)
    found = [Difference(view, row, 1, 0) for row in surplus] + [Difference(view, row, 0, 1) for row in missing]
    return found[:_SHOWN]


def _close(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=tolerance) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(_close(a, b, tolerance) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_close(left[k], right[k], tolerance) for k in left)
    return bool(left == right)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits - 1}e}") if np.isfinite(value) else value
    if isinstance(value, list):
        return [_rounded(one, digits) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one, digits) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_rounded(one, digits) for one in value)
    return value
