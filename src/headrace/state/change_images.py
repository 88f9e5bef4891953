"""A delta told as changes: inserts and deletes, and where a key has one of each, the two images of an update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.state.delta import Positions, Weights, number_identities
from headrace.state.hashing import identity


def change_images(rows: pa.Table, weights: Weights, key: Sequence[int]) -> tuple[Positions, pa.Array]:
    """The positions of the rows, each as often as its weight says, and what kind of change each is.

    Keys come as they first do, and of each what goes before what comes; without a key, all that goes is first.
    """
    positions = np.repeat(np.arange(len(weights)), np.abs(weights))
    deleted = weights[positions] < 0
    kinds = np.where(deleted, "delete", "insert").astype(object)
    order = np.argsort(~deleted, kind="stable")
    if key:
        columns = [rows.column(index).take(pa.array(positions)) for index in key]
        firsts, keys = number_identities(*identity(columns, len(positions)))
        paired = (np.bincount(keys) == 2) & (np.bincount(keys, deleted) == 1)
        kinds[paired[keys] & deleted], kinds[paired[keys] & ~deleted] = "update_preimage", "update_postimage"
        order = np.lexsort((~deleted, firsts[keys]))
    return positions[order], pa.array(kinds[order].tolist(), type=pa.string())
