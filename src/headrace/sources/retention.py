"""How long what a source brought is kept: by age or by number, and let go a part at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.epoch.bulk import Bulk
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.errors import SourceError
from headrace.sources.intake import Progress
from headrace.sources.system_tables import PROGRESS, raw_name
from headrace.state.delta import consolidate
from headrace.state.repeat import repeat

# No epoch takes longer for it than for so many rows.
MOST_AT_ONCE = 20_000
_FORM = re.compile(r"\s*(\d{1,12})\s*([a-z]+?)s?\s*", re.IGNORECASE)
_UNITS = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}


@dataclass(frozen=True)
class Retention:
    """What is kept: what is no older than an age, or no more than so many rows."""

    age: timedelta | None = None
    rows: int | None = None


def retention_of(options: Mapping[str, Any]) -> Retention | None:
    """The retention that options tell; None if all is kept."""
    value = options.get("raw_retention")
    if value is None:
        return None
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    count, unit = (int(found[1]), found[2].lower()) if found is not None else (0, "")
    if unit == "row":
        return Retention(rows=count)
    try:
        return Retention(age=count * _UNITS[unit])
    except (KeyError, OverflowError):
        raise SourceError(
            f"raw_retention cannot be {value!r}", hint="write raw_retention = '30 days', or '1000000 rows'"
        ) from None


def outlived(core: Core, source: str, retention: Retention, progress: Progress) -> Call:
    """The call that lets go of what is no longer to be kept, the oldest first; it is worked out in turn."""
    relations = core.relations()
    state, schema = relations[raw_name(source)]
    column = schema.names.index("arrived_at")
    now = datetime.now(UTC)
    last = np.inf if retention.age is None else (now - retention.age).timestamp() * 1e6
    excess = MOST_AT_ONCE if retention.rows is None else min(max(state.count - retention.rows, 0), MOST_AT_ONCE)
    if not excess:
        return Call({}, quiet=True)
    old = state.between(column, -np.inf, last, [column])
    times, places = np.unique(_times(old.rows.column(0)), return_inverse=True)
    # Rows that were let go before may still be held beside what takes them away: only those count that are there.
    held = np.cumsum(np.bincount(places, np.asarray(old.weights), len(times)))
    if not len(held) or held[-1] <= 0:
        return Call({}, quiet=True)
    bound = float(times[min(int(np.searchsorted(held, excess)), len(times) - 1)])
    found = state.between(column, -np.inf, bound)
    summed = consolidate(found.rows, found.weights)
    rows = repeat(summed.rows, summed.weights).slice(0, excess)
    if not rows.num_rows:
        return Call({}, quiet=True)
    after = replace(progress, recorded=progress.recorded - rows.num_rows)
    changes = {raw_name(source): Bulk(rows, rows.slice(0, 0)), PROGRESS: [{"insert": after.row(source, now)}]}
    return Call(changes)


def _times(column: pa.ChunkedArray) -> Any:
    return column.cast(pa.int64()).to_numpy()
