"""One canonical hash of values, the same wherever rows are compared.

Equal means Spark's grouping equality: NULL = NULL, NaN = NaN, 0.0 = -0.0, maps by their entries. Integers hash
by value whatever their width, so that keys of different integer types meet. Identities lie beside the files of bases,
so what a value hashes to is part of a home's format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pandas._libs.hashing import hash_object_array

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_STEP = np.uint64(0x9E3779B97F4A7C15)
# One row of hashes for each half of an identity; a key needs the first alone.
_LANES = np.array([[0xD6E8FEB86659FD93], [0xA0761D6478BD642F]], dtype=np.uint64)
_STARTS = np.array([[1], [3]], dtype=np.uint64) * _STEP
_SIP_KEYS = ("headrace-lane-00", "headrace-lane-01")
_SAMPLE = 1024
_ALL = 2**64 - 1
# So many strings are worth a look whether they repeat themselves.
_MANY = 50_000


def mix(values: Hashes) -> Hashes:
    """Spread 64 bits over 64 bits, one to one (SplitMix64)."""
    return _finish(values + _STEP)


def _finish(h: Hashes) -> Hashes:
    """The finalizer of SplitMix64, in place."""
    shifted = h >> np.uint64(30)
    h ^= shifted
    h *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(h, np.uint64(27), out=shifted)
    h ^= shifted
    h *= np.uint64(0x94D049BB133111EB)
    np.right_shift(h, np.uint64(31), out=shifted)
    h ^= shifted
    return h


def hash_columns(columns: Sequence[pa.ChunkedArray | pa.Array], length: int) -> Hashes:
    """Hash each row over the given columns: the first half of the identity that they make up."""
    return _hash_columns(columns, length, _LANES[:1])[0]


def key_hashes(rows: pa.Table, key: Sequence[int]) -> Hashes:
    """The hash of each row's key columns."""
    return hash_columns([rows.column(i) for i in key], rows.num_rows)


def identity(columns: Sequence[pa.ChunkedArray | pa.Array], length: int) -> tuple[Hashes, Hashes]:
    """The 128 bits that stand for a row: two rows are equal when both halves are."""
    low, high = _hash_columns(columns, length, _LANES)
    return low, high


def identity_of_one(values: Sequence[pa.Array]) -> tuple[int, int]:
    """The identity of one row, from arrays of one value each; of whole numbers without the steps that are for many."""
    if not all(pa.types.is_integer(one.type) and not one.null_count for one in values):
        low, high = identity(values, 1)
        return int(low[0]), int(high[0])
    numbers = [one[0].as_py() & _ALL for one in values]
    low, high = (
        _one_lane(numbers, int(start), int(lane)) for start, lane in zip(_STARTS[:, 0], _LANES[:, 0], strict=True)
    )
    return low, high


def _one_lane(numbers: Sequence[int], total: int, lane: int) -> int:
    for number in numbers:
        total = (_mixed(total ^ _mixed(number ^ lane)) + int(_STEP)) & _ALL
    return total


def _mixed(number: int) -> int:
    """What `mix` makes of one number."""
    number = (number + int(_STEP)) & _ALL
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _ALL
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _ALL
    return number ^ (number >> 31)


def _hash_columns(columns: Sequence[pa.ChunkedArray | pa.Array], length: int, lanes: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        total = np.broadcast_to(_STARTS[: len(lanes)], (len(lanes), length))
        for column in columns:
            # Chunk by chunk: some types are hashed through Python objects, and a whole column of them is large.
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            hashes = [_hash_array(_numbered(chunk), lanes) for chunk in chunks]
            if len(hashes) != 1:
                hashes = [np.concatenate([np.zeros((len(lanes), 0), dtype=np.uint64), *hashes], axis=1)]
            total = mix(total ^ hashes[0])
            total += _STEP
        return np.ascontiguousarray(total)


def _numbered(array: pa.Array) -> pa.Array:
    """Strings that repeat themselves are numbered, so that each is hashed once."""
    if len(array) < _MANY or not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return array
    sample = array.slice(len(array) // 2, _SAMPLE)
    return array.dictionary_encode() if len(sample.unique()) <= len(sample) // 4 else array


def _with_nulls(array: pa.Array, hashes: Hashes) -> Hashes:
    if array.null_count:
        hashes = np.where(np.asarray(array.is_null()), _NULL, hashes)
    return hashes


def _hash_array(array: pa.Array, lanes: Hashes) -> Hashes:
    """The hashes of all values, one row for each lane; values are spread differently in each, none is NULL in both."""
    kind = array.type
    length = len(array)
    if pa.types.is_integer(kind):
        values = np.asarray(array.fill_null(0) if array.null_count else array).astype(np.int64)
        return _with_nulls(array, mix(values.view(np.uint64) ^ lanes))
    if pa.types.is_string(kind):
        return _hash_array(array.view(pa.binary()), lanes)
    if pa.types.is_large_string(kind):
        return _hash_array(array.view(pa.large_binary()), lanes)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _with_nulls(array, _hash_strings(array, lanes))
    if pa.types.is_null(kind):
        return np.full((len(lanes), length), _NULL, dtype=np.uint64)
    if pa.types.is_dictionary(kind):
        if not len(array.dictionary):
            return np.full((len(lanes), length), _NULL, dtype=np.uint64)
        positions = np.asarray(array.indices.fill_null(0) if array.null_count else array.indices)
        return _with_nulls(array, _hash_array(array.dictionary, lanes)[:, positions])
    if pa.types.is_boolean(kind):
        values = np.asarray(array.cast(pa.uint8()).fill_null(0)).astype(np.uint64)
        return _with_nulls(array, mix(values ^ lanes))
    if pa.types.is_floating(kind):
        numbers = np.asarray(array.fill_null(0) if array.null_count else array).astype(np.float64) + 0.0
        numbers = np.where(np.isnan(numbers), np.nan, numbers)
        return _with_nulls(array, mix(numbers.view(np.uint64) ^ lanes))
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _with_nulls(array, mix(_fixed(array, np.int32).astype(np.int64).view(np.uint64) ^ lanes))
    if (
        pa.types.is_timestamp(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_time64(kind)
        or pa.types.is_date64(kind)
    ):
        return _with_nulls(array, mix(_fixed(array, np.int64).view(np.uint64) ^ lanes))
    if pa.types.is_decimal128(kind):
        words = _fixed(array, np.uint64, 2)
        return _with_nulls(array, mix(words[0::2] ^ mix(words[1::2]) ^ lanes))
    if pa.types.is_struct(kind):
        fields = [array.field(i) for i in range(kind.num_fields)]
        return _with_nulls(array, _hash_columns(fields, length, lanes))
    if pa.types.is_map(kind):
        offsets = np.asarray(array.offsets)
        entries = _hash_columns([array.keys, array.items], len(array.keys), lanes)
        base = int(offsets[0]) if len(offsets) else 0
        return _with_nulls(array, _sum_by_offsets(_slice_values(entries, array.keys, offsets), offsets - base))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = np.asarray(array.offsets).astype(np.int64)
        start, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        hashes = _hash_array(array.values, lanes)[:, start:end]
        offsets = offsets - start
        lengths = np.diff(offsets)
        positions = np.arange(hashes.shape[1], dtype=np.int64) - np.repeat(offsets[:-1], lengths)
        return _with_nulls(array, _sum_by_offsets(mix(hashes + mix(positions.view(np.uint64))), offsets))
    if pa.types.is_fixed_size_binary(kind):
        return _hash_array(array.cast(pa.binary()), lanes)
    texts = pa.array([repr(value) for value in array.to_pylist()], type=pa.string())
    return _with_nulls(array, _hash_array(texts, lanes))


def _hash_strings(array: pa.Array, lanes: Hashes) -> Hashes:
    """Strings by their bytes: to make text of them, and bytes of that again, takes longer than to hash them."""
    values = array.to_numpy(zero_copy_only=False)
    return _finish(np.stack([hash_object_array(values, key, "utf8") for key in _SIP_KEYS[: len(lanes)]]))


def _slice_values(hashes: Hashes, keys: pa.Array, offsets: npt.NDArray[np.int32]) -> Hashes:
    """The entries that lie inside the offsets: a sliced map array keeps all of its entries."""
    start, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return hashes[:, start:end] if hashes.shape[1] == len(keys) and hashes.shape[1] >= end else hashes


def _sum_by_offsets(hashes: Hashes, offsets: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> Hashes:
    """Sum hashes between neighbouring offsets, and make the number of entries count too."""
    sums = np.zeros((len(hashes), hashes.shape[1] + 1), dtype=np.uint64)
    np.cumsum(hashes, axis=1, out=sums[:, 1:])
    lengths = np.diff(offsets).astype(np.uint64)
    return mix(sums[:, offsets[1:]] - sums[:, offsets[:-1]] + mix(lengths))


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
