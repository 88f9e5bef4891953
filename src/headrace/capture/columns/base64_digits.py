"""Digits of decimals as Kafka Connect writes them, base64 of the two's complement: a column of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WIDTH = 16
_VALUES = np.zeros(256, dtype=np.uint8)
_VALUES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)] = np.arange(
    64
)


def decimals_of(texts: pa.Array, scale: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Decimals of 38 digits from base64 texts, NULLs among them; and which of them need more bytes than that has."""
    content = texts.cast(pa.large_binary())
    length = len(content)
    offsets = np.frombuffer(content.buffers()[1], dtype=np.int64)[content.offset : content.offset + length + 1]
    data = content.buffers()[2]
    characters = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    sizes = np.diff(offsets)
    little = np.zeros((length, _WIDTH), dtype=np.uint8)
    wide = np.zeros(length, dtype=bool)
    gone = np.asarray(content.is_null())
    for size in np.unique(sizes[~gone]).tolist():
        of_size = np.flatnonzero((sizes == size) & ~gone)
        block = characters[offsets[of_size][:, None] + np.arange(size)]
        padding = (block[:, -2:] == ord("=")).sum(axis=1)
        decoded = _decoded(_VALUES[block])
        for pad in np.unique(padding).tolist():
            mine = padding == pad
            count = size // 4 * 3 - pad
            if count > _WIDTH:
                wide[of_size[mine]] = True
                continue
            digits = decoded[mine, :count]
            filled = np.where(digits[:, :1] >= 128, np.uint8(255), np.uint8(0)).repeat(_WIDTH, axis=1)
            filled[:, :count] = digits[:, ::-1]
            little[of_size[mine]] = filled
    buffers = [pa.array(~gone).buffers()[1] if gone.any() else None, pa.py_buffer(little.tobytes())]
    return pa.Array.from_buffers(pa.decimal128(38, scale), length, buffers), wide


def _decoded(sixes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Bytes of rows of six bits each, four of which make three."""
    a, b, c, d = (sixes[:, one::4].astype(np.uint16) for one in range(4))
    parts: Any = np.stack([a << 2 | b >> 4, (b & 15) << 4 | c >> 2, (c & 3) << 6 | d], axis=2)
    return (parts & 255).astype(np.uint8).reshape(len(sixes), -1)
