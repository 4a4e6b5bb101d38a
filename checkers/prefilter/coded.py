"""Columns of Arrow as numbers: strings by their codes, integers without nulls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from checkers.prefilter.hashing import Ints, Mask, xxh64


class Coded:
    """A string column as numbers: `names`, and `codes` into them (the last name is null's)."""

    def __init__(self, column: pa.Array | pa.ChunkedArray) -> None:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(array, pa.ChunkedArray):
            array = array.chunk(0) if array.num_chunks else pa.array([], pa.string()).dictionary_encode()
        if not isinstance(array, pa.DictionaryArray):
            array = array.dictionary_encode()
        self.names: list[str | None] = [*array.dictionary.to_pylist(), None]
        self.codes: Ints = array.indices.fill_null(len(self.names) - 1).to_numpy(zero_copy_only=False).astype(np.int64)

    def among(self, *names: str | None) -> Mask:
        """True where the string is one of these."""
        return np.array([n in names for n in self.names])[self.codes]

    def bits(self, bit: int, *names: str) -> Ints:
        """The bit where the string is one of these, else 0."""
        return self.among(*names).astype(np.int64) * bit

    def keys(self, default: str = "") -> Ints:
        """The key of every row's string; for nulls that of `default`."""
        return self.of_names(default)[self.codes]

    def of_names(self, default: str = "") -> Ints:
        """The key of every name."""
        return xxh64(pa.array([default if n is None else n for n in self.names]))

    def take(self, rows: Ints) -> Coded:
        """Some rows."""
        some = object.__new__(Coded)
        some.names, some.codes = self.names, self.codes[rows]
        return some


def ints(column: pa.Array | pa.ChunkedArray, default: int | Ints = 0) -> Ints:
    """An integer column; nulls become the default (a number, or a column)."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    values: Ints = array.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not array.null_count:
        return values
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), values, default)
