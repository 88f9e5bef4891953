"""One canonical hash of values, the same wherever rows are compared.

Equal means Spark's grouping equality: NULL = NULL, NaN = NaN, 0.0 = -0.0, maps by their entries. Integers hash
by value whatever their width, so that keys of different integer types meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pandas.core.util.hashing import hash_array

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SEEDS = (np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F))
_SAMPLE = 1024
_SIP_KEYS = ("headrace-lane-00", "headrace-lane-01")


def mix(values: Hashes) -> Hashes:
    """Spread 64 bits over 64 bits, one to one (the finalizer of SplitMix64)."""
    h = values + _STEP
    shifted = h >> np.uint64(30)
    h ^= shifted
    h *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(h, np.uint64(27), out=shifted)
    h ^= shifted
    h *= np.uint64(0x94D049BB133111EB)
    np.right_shift(h, np.uint64(31), out=shifted)
    h ^= shifted
    return h


def hash_columns(columns: Sequence[pa.ChunkedArray | pa.Array], length: int, lane: int = 0) -> Hashes:
    """Hash each row over the given columns; two lanes are independent of each other."""
    return _hash_chunks([_chunks(column) for column in columns], length, lane)


def identity(columns: Sequence[pa.ChunkedArray | pa.Array], length: int) -> tuple[Hashes, Hashes]:
    """The 128 bits that stand for a row: two rows are equal when both halves are."""
    chunks = [_chunks(column) for column in columns]
    return _hash_chunks(chunks, length, 0), _hash_chunks(chunks, length, 1)


def _hash_chunks(columns: Sequence[Sequence[pa.Array]], length: int, lane: int) -> Hashes:
    with np.errstate(over="ignore"):
        total = np.full(length, np.uint64(lane * 2 + 1) * _STEP, dtype=np.uint64)
        for chunks in columns:
            # Chunk by chunk: some types are hashed through Python objects, and a whole column of them is large.
            hashes = [_hash_array(chunk, lane) for chunk in chunks]
            found = hashes[0] if len(hashes) == 1 else np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])
            total = mix(total ^ found) + _STEP
        return total


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    """The parts of a column; strings that repeat themselves are numbered, so that each is hashed once."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [chunk.dictionary_encode() if _repeats(chunk) else chunk for chunk in chunks]


def _repeats(array: pa.Array) -> bool:
    if len(array) < _SAMPLE or not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return False
    sample = array.slice(len(array) // 2, _SAMPLE)
    return len(sample.unique()) <= len(sample) // 4


def _spread(values: Hashes, lane: int) -> Hashes:
    """Spread values differently in each lane, so that no value stands for NULL in both."""
    return mix(values ^ _SEEDS[lane])


def _with_nulls(array: pa.Array, hashes: Hashes) -> Hashes:
    if array.null_count:
        hashes = np.where(np.asarray(array.is_null()), _NULL, hashes)
    return hashes


def _hash_array(array: pa.Array, lane: int) -> Hashes:
    kind = array.type
    length = len(array)
    if pa.types.is_null(kind):
        return np.full(length, _NULL, dtype=np.uint64)
    if pa.types.is_dictionary(kind):
        if not len(array.dictionary):
            return np.full(length, _NULL, dtype=np.uint64)
        places = np.asarray(array.indices.fill_null(0) if array.null_count else array.indices)
        return _with_nulls(array, _hash_array(array.dictionary, lane)[places])
    if pa.types.is_boolean(kind):
        values = np.asarray(array.cast(pa.uint8()).fill_null(0)).astype(np.uint64)
        return _with_nulls(array, _spread(values, lane))
    if pa.types.is_integer(kind):
        values = np.asarray(array.fill_null(0) if array.null_count else array).astype(np.int64)
        return _with_nulls(array, _spread(values.view(np.uint64), lane))
    if pa.types.is_floating(kind):
        numbers = np.asarray(array.fill_null(0) if array.null_count else array).astype(np.float64) + 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        return _with_nulls(array, _spread(numbers.view(np.uint64), lane))
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _with_nulls(array, _spread(_fixed(array, np.int32).astype(np.int64).view(np.uint64), lane))
    if (
        pa.types.is_timestamp(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_time64(kind)
        or pa.types.is_date64(kind)
    ):
        return _with_nulls(array, _spread(_fixed(array, np.int64).view(np.uint64), lane))
    if pa.types.is_decimal128(kind):
        words = _fixed(array, np.uint64, 2)
        return _with_nulls(array, _spread(words[0::2] ^ mix(words[1::2]), lane))
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    ):
        filler = "" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else b""
        objects = (array.fill_null(filler) if array.null_count else array).to_numpy(zero_copy_only=False)
        hashes = hash_array(objects.astype(object), hash_key=_SIP_KEYS[lane], categorize=False)
        return _with_nulls(array, hashes)
    if pa.types.is_struct(kind):
        fields = [array.field(i) for i in range(kind.num_fields)]
        return _with_nulls(array, hash_columns(fields, length, lane))
    if pa.types.is_map(kind):
        offsets = np.asarray(array.offsets)
        entries = hash_columns([array.keys, array.items], len(array.keys), lane)
        base = int(offsets[0]) if len(offsets) else 0
        return _with_nulls(array, _sum_by_offsets(_slice_values(entries, array.keys, offsets), offsets - base))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = np.asarray(array.offsets).astype(np.int64)
        values = array.values
        hashes = _hash_array(values, lane) if len(values) else np.zeros(0, dtype=np.uint64)
        start, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        hashes = hashes[start:end]
        offsets = offsets - start
        lengths = np.diff(offsets)
        places = np.arange(len(hashes), dtype=np.int64) - np.repeat(offsets[:-1], lengths)
        return _with_nulls(array, _sum_by_offsets(mix(hashes + mix(places.view(np.uint64))), offsets))
    if pa.types.is_fixed_size_binary(kind):
        return _hash_array(array.cast(pa.binary()), lane)
    values = np.array([repr(value) for value in array.to_pylist()], dtype=object)
    return _with_nulls(array, hash_array(values, hash_key=_SIP_KEYS[lane], categorize=False))


def _slice_values(hashes: Hashes, keys: pa.Array, offsets: npt.NDArray[np.int32]) -> Hashes:
    """The entries that lie inside the offsets: a sliced map array keeps all of its entries."""
    start, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return hashes[start:end] if len(hashes) == len(keys) and len(hashes) >= end else hashes


def _sum_by_offsets(hashes: Hashes, offsets: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> Hashes:
    """Sum hashes between neighbouring offsets, and make the number of entries count too."""
    sums = np.zeros(len(hashes) + 1, dtype=np.uint64)
    np.cumsum(hashes, out=sums[1:])
    lengths = np.diff(offsets).astype(np.uint64)
    return mix(sums[offsets[1:]] - sums[offsets[:-1]] + mix(lengths))


def _fixed(array: pa.Array, dtype: Any, width: int = 1) -> npt.NDArray[Any]:
    """The raw values of a fixed-width array, with zeros where it is NULL."""
    if len(array) == 0:
        return np.zeros(0, dtype=dtype)
    buffer = array.buffers()[1]
    values = np.frombuffer(buffer, dtype=dtype)[array.offset * width : (array.offset + len(array)) * width]
    if array.null_count:
        gone = np.asarray(array.is_null())
        values = np.where(np.repeat(gone, width), np.zeros(1, dtype=dtype), values)
    return values
