"""Letters of records that are read again: each is one letter, and its changes count once.

A record has the same id each time. It comes again to a source that was dropped and created under its name, and to one
that reads all anew, and its letter takes the place of the one that is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa

from headrace.epoch.batch import Changes
from headrace.epoch.core import Core
from headrace.sources.intake import Progress
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS
from headrace.state.arrow_compute import pc
from headrace.state.delta import combine
from headrace.state.hashing import hash_columns
from headrace.state.state import State


def counted_once(core: Core, source: str, kept: Changes, progress: Progress) -> tuple[Changes, Progress]:
    """What is kept of records, and the progress after them, without the changes of letters that are replaced."""
    letters = cast("Sequence[Mapping[str, Any]]", kept.get(DEAD_LETTERS, ()))
    if not letters:
        return kept, progress
    new = {one["insert"]["id"]: one["insert"]["changes"] for one in letters}
    among_them = sum(one["insert"]["changes"] for one in letters) - sum(new.values())
    state, schema = core.relations()[DEAD_LETTERS]
    again = among_them + _changes_of(state, schema.names.index("changes"), list(new))
    if not again:
        return kept, progress
    counted = replace(progress, received=progress.received - again, dead=progress.dead - again)
    return {**kept, PROGRESS: [{"insert": counted.row(source, datetime.now(UTC))}]}, counted


def _changes_of(state: State, column: int, ids: Sequence[str]) -> int:
    """How many changes the letters of some ids stand for, of those that are there."""
    wanted = pa.array(ids, state.schema.field(0).type)
    hashes = np.unique(hash_columns([pa.chunked_array([wanted])], len(ids)))
    # Payloads may be large, and nobody asks for them here.
    found = state.lookup((0,), hashes, (0, column))
    summed = combine(found.rows, found.weights, found.low, found.high).rows
    # A hash may be that of another id too.
    return pc.sum(summed.filter(pc.is_in(summed.column(0), wanted)).column(1)).as_py() or 0
