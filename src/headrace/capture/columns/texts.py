"""JSON texts of values and rows, column by column: the same that json.dumps writes of them one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.state.arrow_compute import pc

_NULL = pa.scalar("null", pa.large_string())
_ESCAPED = r'["\\\x00-\x1f]'


def plain_text(array: pa.Array) -> pa.Array:
    """Numbers and truth values as JSON, NULL as null."""
    return or_null(array.cast(pa.large_string()))


def quoted_text(array: pa.Array) -> pa.Array:
    """Text as JSON, NULL as null."""
    texts = array.cast(pa.large_string())
    quoted: pa.Array = join('"', texts, '"')
    special = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), False)
    if pc.any(special).as_py():
        escaped = [json.dumps(one, ensure_ascii=False) for one in texts.filter(special).to_pylist()]
        quoted = pc.replace_with_mask(quoted, special, pa.array(escaped, pa.large_string()))
    return or_null(quoted)


def or_null(array: pa.Array) -> pa.Array:
    """JSON texts with null where there is none."""
    return pc.fill_null(array, _NULL) if array.null_count else array


def row_text(names: Sequence[str], values: Sequence[pa.Array], length: int) -> pa.Array:
    """Rows as JSON objects, of the JSON texts of their values."""
    if not names:
        return pa.array(["{}"] * length, pa.large_string())
    parts: list[Any] = []
    for number, (name, texts) in enumerate(zip(names, values, strict=True)):
        parts += [f"{', ' if number else '{'}{json.dumps(name, ensure_ascii=False)}: ", texts]
    return join(*parts, "}")


def join(*parts: str | pa.Array) -> pa.Array:
    """Texts end to end; NULL where any of them is."""
    scalars = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", pa.large_string()))


def scattered(length: int, places: np.ndarray[Any, Any], texts: pa.Array) -> pa.Array:
    """Texts at their places among so many, NULL at all others."""
    order = np.full(length, -1, dtype=np.int64)
    order[places] = np.arange(len(places))
    return texts.take(pa.array(order, mask=order < 0))
