"""Where in its database each change of a batch comes from: the position as text, and the time of its commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.capture.columns import pattern
from headrace.capture.formats.debezium_origin import FILE_NUMBER, lsn_text
from headrace.intake.positions import sortable
from headrace.state.arrow_compute import pc

_TIMES = (("ts_ns", 1, 1000), ("ts_us", 1, 1), ("ts_ms", 1000, 1))
# Times farther from 1970 than this, in microseconds, may be none that Python can hold.
_FAR = 60_000_000_000_000_000
Fields = Mapping[str, pa.Array]


class Place(NamedTuple):
    """Where changes are in their log: as people write it, and as texts that sort, empty where it is not told."""

    texts: pa.Array
    orders: pa.Array


@dataclass(frozen=True)
class Block:
    """The source block of a connector: what is read of it, with its pattern, and how that tells the position."""

    fields: Mapping[str, tuple[str, pa.DataType]]
    position: Callable[[Fields, int], Place]


def source_times(fields: Fields, length: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """The time of each change in microseconds, as finely as the block tells, and which must be looked at alone."""
    found = pa.nulls(length, pa.int64())
    far = np.zeros(length, dtype=bool)
    for name, many, of_micro in _TIMES:
        values = fields.get(name)
        if values is None:
            continue
        numbers = np.asarray(values.fill_null(0))
        most = min(_FAR * of_micro // many, (1 << 63) - 1)
        large = (numbers > most) | (numbers < -most)
        micros = np.where(large, 0, numbers) * many // of_micro
        found = pc.coalesce(found, pa.array(micros, mask=np.asarray(values.is_null())))
        far |= large
    return found, far


def _postgresql(fields: Fields, length: int) -> Place:
    """The place of the change itself, after the last commit before it where the pair of both is there."""
    pairs = fields.get("sequence", pa.nulls(length, pa.string()))
    alone = fields.get("lsn", pa.nulls(length, pa.int64())).to_pylist()
    changes = pc.replace_substring_regex(pairs, r'^.*,"([0-9]+)"\]$', r"\1").cast(pa.int64()).to_pylist()
    commits = pc.replace_substring_regex(pairs, r'^\[(?:null|"([0-9]+)"),.*$', r"0\1").cast(pa.int64()).to_pylist()
    texts: list[str | None] = []
    orders: list[str] = []
    for commit, change, lsn in zip(commits, changes, alone, strict=True):
        if change is not None:
            texts.append(lsn_text(change))
            orders.append(_sortable_pair(commit, change))
        elif lsn is not None:
            texts.append(lsn_text(lsn))
            orders.append(sortable((lsn,)))
        else:
            texts.append(None)
            orders.append("")
    return Place(pa.array(texts, pa.large_string()), pa.array(orders, pa.string()))


def _sortable_pair(first: int, second: int) -> str:
    """What `sortable` makes of two numbers; there is one of these for each change."""
    one, two = f"{first:x}", f"{second:x}"
    return f"{len(one):02x}{one}{len(two):02x}{two}"


def _mysql(fields: Fields, length: int) -> Place:
    columns = [fields.get(name, pa.nulls(length, pa.null())).to_pylist() for name in ("file", "pos", "row")]
    texts: list[str | None] = []
    orders: list[str] = []
    for file, at, row in zip(*columns, strict=True):
        if not file or at is None:
            texts.append(None)
            orders.append("")
            continue
        numbered = FILE_NUMBER.search(file)
        texts.append(f"{file}:{at}:{row or 0}")
        orders.append(sortable((int(numbered[1]), at, row or 0)) if numbered else "")
    return Place(pa.array(texts, pa.large_string()), pa.array(orders, pa.string()))


_INTEGER = pattern.optional(pattern.INTEGER), pa.int64()
_MOMENT = dict.fromkeys(("ts_ns", "ts_us", "ts_ms"), _INTEGER)
_FILE = pattern.optional(r'"[A-Za-z0-9._/-]{0,200}"'), pa.string()
_MYSQL = Block({**_MOMENT, "file": _FILE, "pos": _INTEGER, "row": _INTEGER}, _mysql)
# Those of other connectors are told record by record.
BLOCKS: Mapping[str, Block] = {
    "postgresql": Block(
        {**_MOMENT, "lsn": _INTEGER, "sequence": (pattern.optional(pattern.LSN_PAIR), pa.string())}, _postgresql
    ),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
