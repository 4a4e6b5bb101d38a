"""64-bit keys of strings, and of several keys together; whole columns at a time.

`xxh64` gives the same as Spark's `xxhash64` for one string column, so that its keys can be joined in Spark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SEED = np.uint64(42)  # Spark's
_STRIPE = 32
_POSITIVE = np.int64((1 << 63) - 1)


def xxh64(strings: pa.Array | pa.ChunkedArray) -> Ints:
    """XXH64 of each string's UTF-8 bytes. The result for nulls is undefined."""
    if isinstance(strings, pa.ChunkedArray):
        strings = strings.combine_chunks() if strings.num_chunks != 1 else strings.chunk(0)
    if isinstance(strings, pa.DictionaryArray):
        keys: Ints = xxh64(strings.dictionary)[strings.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        return keys
    if len(strings) == 0:
        return np.zeros(0, np.int64)
    strings = strings.cast(pa.large_string())
    _, ends, content = strings.buffers()
    bounds = np.frombuffer(ends, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    data = np.zeros(8, np.uint8) if content is None or content.size < 8 else np.frombuffer(content, np.uint8)
    if content is not None and content.size < 8:
        data[: content.size] = np.frombuffer(content, np.uint8)
    with np.errstate(over="ignore"):
        return _xxh64(data, bounds[:-1].copy(), np.diff(bounds)).view(np.int64)


def _xxh64(data: NDArray[np.uint8], at: Ints, length: Ints) -> Words:
    words = _every(data, np.dtype("<u8"))
    left = length.copy()
    h = np.full(len(at), _SEED + _P5)
    long = np.flatnonzero(length >= _STRIPE)
    if long.size:
        h[long] = _stripes(words, at[long], length[long] // _STRIPE)
        at[long] += length[long] // _STRIPE * _STRIPE
        left[long] %= _STRIPE
    h += length.astype(np.uint64)
    while (rows := np.flatnonzero(left >= 8)).size:
        h[rows] = _rotated(h[rows] ^ _round(np.uint64(0), words[at[rows]]), 27) * _P1 + _P4
        at[rows] += 8
        left[rows] -= 8
    if (rows := np.flatnonzero(left >= 4)).size:
        half = _every(data, np.dtype("<u4"))[at[rows]].astype(np.uint64)
        h[rows] = _rotated(h[rows] ^ (half * _P1), 23) * _P2 + _P3
        at[rows] += 4
        left[rows] -= 4
    while (rows := np.flatnonzero(left > 0)).size:
        h[rows] = _rotated(h[rows] ^ (data[at[rows]].astype(np.uint64) * _P5), 11) * _P1
        at[rows] += 1
        left[rows] -= 1
    return _scattered(h)


def _stripes(words: Words, at: Ints, stripes: Ints) -> Words:
    """The four accumulators of strings of 32 bytes and more, over their whole stripes, as one."""
    starts = (_SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1)
    lanes = [np.full(len(at), start) for start in starts]
    for n in range(int(stripes.max())):
        rows = np.flatnonzero(stripes > n)
        for k, lane in enumerate(lanes):
            lane[rows] = _round(lane[rows], words[at[rows] + n * _STRIPE + k * 8])
    h = sum((_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
    for lane in lanes:
        h = (h ^ _round(np.uint64(0), lane)) * _P1 + _P4
    return np.asarray(h, np.uint64)


def _every(data: NDArray[np.uint8], kind: Any) -> Any:
    """The words that begin at each byte, without a copy."""
    return np.ndarray((len(data) - kind.itemsize + 1,), kind, data, strides=(1,))


def _round(h: Any, word: Any) -> Any:
    return _rotated(h + word * _P2, 31) * _P1


def _rotated(h: Any, bits: int) -> Any:
    return (h << np.uint64(bits)) | (h >> np.uint64(64 - bits))


def _scattered(h: Words) -> Words:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def mixed(*keys: Any) -> Ints:
    """One key of several integer columns. Never 0 and never negative, so that 0 can stand for "none"."""
    with np.errstate(over="ignore"):
        h: Words = np.zeros((), np.uint64)
        for key in keys:
            h = np.asarray(_scattered((h ^ np.asarray(key).astype(np.int64).view(np.uint64)) * _P1 + _P4))
    return np.asarray(np.maximum(h.view(np.int64) & _POSITIVE, 1), np.int64)
