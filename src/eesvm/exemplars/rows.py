"""Tables of descriptors that may be larger than memory: read in blocks, in order, as float32.

In: an array, a memory map, a list of arrays (one per image, say), or a function that opens a stream of them. Out:
`Rows`, which training and scoring go through block by block; only `take` picks single rows, and only a few of them.
A float32 array is passed on as it is, any other in blocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from eesvm._support.validation import InputError, check_finite

F32 = NDArray[np.float32]

_CHECKED_ROWS = 4096  # looked at together
_MAX_SQUARE = 1e30  # of the length of a row; products of such rows are still far from the end of float32


@runtime_checkable
class Rows(Protocol):
    """A table (n, d) of finite float32 that can be read in blocks, any number of times."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    def blocks(self, n_rows: int) -> Iterator[tuple[int, F32]]:
        """(first row, rows) from the first row to the last, at most about `n_rows` at a time."""

    def take(self, indices: NDArray[np.int64]) -> F32:
        """The rows with these indices, which are increasing."""


@dataclass(frozen=True)
class ArrayRows:
    """An array or memory map; blocks are views where it is float32 already."""

    values: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.values.shape[0], self.values.shape[1]

    def blocks(self, n_rows: int) -> Iterator[tuple[int, F32]]:
        """(first row, rows) from the first row to the last, at most about `n_rows` at a time."""
        for start in range(0, len(self.values), n_rows):
            yield start, _float32(self.values[start : start + n_rows])

    def take(self, indices: NDArray[np.int64]) -> F32:
        """The rows with these indices, which are increasing."""
        return _float32(self.values[indices])


class PartedRows:
    """Arrays one after the other, such as the descriptors of one image each, in memory or mapped from a cache.

    Parameters
    ----------
    parts : arrays (n, d), at least one, all of one width.
    kept : for each part the rows to take, as a mask or as increasing indices; None takes them all.
    """

    def __init__(self, parts: Sequence[np.ndarray], kept: Sequence[np.ndarray] | None = None) -> None:
        self.parts = [_table(part, f"parts[{number}]") for number, part in enumerate(parts)]
        if not parts:
            raise InputError("`parts` is empty: at least one array of descriptors is needed")
        widths = {part.shape[1] for part in self.parts}
        if len(widths) > 1:
            raise InputError(f"`parts` must have the same number of columns, got {', '.join(map(str, sorted(widths)))}")
        self.kept = None if kept is None else _kept_rows(kept, self.parts)
        sizes = [len(part) for part in (self.parts if self.kept is None else self.kept)]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return int(self.starts[-1]), self.parts[0].shape[1]

    @property
    def part_of_row(self) -> NDArray[np.int64]:
        """(n,) which part each row comes from."""
        return np.repeat(np.arange(len(self.parts)), np.diff(self.starts))

    def blocks(self, n_rows: int) -> Iterator[tuple[int, F32]]:
        """(first row, rows) from the first row to the last, at most about `n_rows` at a time."""
        for first, last in _spans(self.starts, n_rows):
            block = self._part(first) if last == first + 1 else self._joined(first, last)
            for start in range(0, len(block), n_rows):
                yield int(self.starts[first]) + start, block[start : start + n_rows]

    def take(self, indices: NDArray[np.int64]) -> F32:
        """The rows with these indices, which are increasing."""
        taken = np.empty((len(indices), self.shape[1]), dtype=np.float32)
        bounds = np.searchsorted(indices, self.starts)
        for number, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                local = indices[low:high] - self.starts[number]
                taken[low:high] = self.parts[number][local if self.kept is None else self.kept[number][local]]
        return taken

    def held(self, n_bytes: int) -> PartedRows | HeldRows:
        """The same rows, in the same blocks, as one array in memory that is copied once; or these where it is larger.

        Parameters
        ----------
        n_bytes : of the array, at most.
        """
        n, width = self.shape
        if 4 * n * width > n_bytes:
            return self
        return HeldRows(self._joined(0, len(self.parts)), self.starts)

    def _joined(self, first: int, last: int) -> F32:
        """The rows of some parts, as one array."""
        origin = self.starts[first]
        values = np.empty((self.starts[last] - origin, self.shape[1]), dtype=np.float32)
        for number in range(first, last):
            part, own = self.parts[number], values[self.starts[number] - origin : self.starts[number + 1] - origin]
            if self.kept is not None and part.dtype == np.float32 and not self._is_whole(number):
                np.take(part, self.kept[number], axis=0, out=own, mode="clip")  # without a copy in between
            else:
                own[:] = self._part(number)
        return values

    def _part(self, number: int) -> F32:
        part = self.parts[number]
        return _float32(part if self.kept is None or self._is_whole(number) else part[self.kept[number]])

    def _is_whole(self, number: int) -> bool:
        """Whether all rows of a part are taken: then no copy is needed."""
        return self.kept is None or len(self.kept[number]) == len(self.parts[number])


@dataclass(frozen=True)
class HeldRows:
    """What `PartedRows.held` makes: one array, read in the blocks of the parts that it was copied from."""

    values: F32
    starts: NDArray[np.int64]  # (parts + 1,)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.values.shape[0], self.values.shape[1]

    def blocks(self, n_rows: int) -> Iterator[tuple[int, F32]]:
        """(first row, rows) from the first row to the last, at most about `n_rows` at a time."""
        for first, last in _spans(self.starts, n_rows):
            begin, end = int(self.starts[first]), int(self.starts[last])
            for start in range(begin, end, n_rows):
                yield start, self.values[start : min(start + n_rows, end)]

    def take(self, indices: NDArray[np.int64]) -> F32:
        """The rows with these indices, which are increasing."""
        return self.values[indices]


@dataclass(frozen=True)
class StreamedRows:
    """What can only be read from its beginning: `open` starts anew and yields arrays, the same ones every time.

    `shape` is (rows, columns) of all of them together.
    """

    open: Callable[[], Iterable[np.ndarray]]
    shape: tuple[int, int]

    def blocks(self, n_rows: int) -> Iterator[tuple[int, F32]]:
        """(first row, rows) from the first row to the last, at most about `n_rows` at a time."""
        first = 0
        for part in self.open():
            for start in range(0, len(part), n_rows):
                yield first + start, _float32(part[start : start + n_rows])
            first += len(part)

    def take(self, indices: NDArray[np.int64]) -> F32:
        """The rows with these indices, which are increasing."""
        taken = np.empty((len(indices), self.shape[1]), dtype=np.float32)
        for first, block in self.blocks(_CHECKED_ROWS):
            low, high = np.searchsorted(indices, [first, first + len(block)])
            taken[low:high] = block[indices[low:high] - first]
        return taken


@dataclass(frozen=True)
class RowFacts:
    """What one look at all rows tells."""

    squares: F32  # (n,) squared lengths
    is_constant: bool  # all rows are the same
    digest: str  # of the content, "" where it was not asked for


def as_rows(values: Any, name: str) -> Rows:
    """`values` as `Rows`, without a copy where it is an array.

    Parameters
    ----------
    values : an (n, d) array of any real dtype, a list, or something that is `Rows` already.
    name : what an error calls them.
    """
    if isinstance(values, Rows):
        return values
    return ArrayRows(_table(values, name))


def held_in_memory(rows: Rows) -> F32 | None:
    """The table itself where it is one array of float32 in memory."""
    if isinstance(rows, HeldRows):
        return rows.values
    if isinstance(rows, ArrayRows) and rows.values.dtype == np.float32 and not isinstance(rows.values, np.memmap):
        return _float32(rows.values) if rows.values.flags.c_contiguous else None
    return None


def as_float32(values: Any, name: str) -> F32:
    """`values` as a float32 table whose rows have been checked; no copy where it is one already.

    Parameters
    ----------
    values : (n, d) array of any real dtype, or a list.
    name : what an error calls them.
    """
    rows = ArrayRows(_table(values, name))
    look_at_rows(rows, name)
    return _float32(rows.values)


def look_at_rows(rows: Rows, name: str, with_digest: bool = False) -> RowFacts:
    """Go through all rows once and refuse what cannot be trained on.

    Parameters
    ----------
    rows : to look at.
    name : what an error calls them.
    with_digest : also make a digest of their content.
    """
    n, width = rows.shape
    squares = np.empty(n, dtype=np.float32)
    hasher = hashlib.blake2b(f"{n} {width}".encode(), digest_size=20)
    first: F32 | None = None
    is_constant = True
    for start, block in checked_blocks(rows, _CHECKED_ROWS, name):
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.einsum("nd,nd->n", block, block, out=squares[start : start + len(block)])
        if not np.isfinite(lengths).all():  # NaN and infinity go into the length of their row
            _check_finite(block, start, name)
        first = block[0].copy() if first is None and len(block) else first
        is_constant = is_constant and bool((block == first).all())
        if with_digest:
            hasher.update(np.ascontiguousarray(block).data)
    if n and squares.max() > _MAX_SQUARE:
        row = int(np.argmax(squares))
        raise InputError(f"`{name}` holds numbers too large for float32 products, the longest row is {row}: scale them")
    return RowFacts(squares, is_constant, hasher.hexdigest() if with_digest else "")


def checked_blocks(rows: Rows, n_rows: int, name: str) -> Iterator[tuple[int, F32]]:
    """(first row, rows) of rows that may come from anywhere: float32, in order, and as many rows as were promised.

    Parameters
    ----------
    rows : to read.
    n_rows : rows of a block, at most about.
    name : what an error calls them.
    """
    n, width = rows.shape
    n_seen = 0
    for start, block in rows.blocks(n_rows):
        if block.ndim != 2 or block.shape[1] != width:
            raise InputError(f"`{name}` must give blocks with {width} columns, got shape {block.shape} at row {start}")
        if block.dtype != np.float32:
            raise InputError(f"`{name}` must give blocks of float32, got {block.dtype} at row {start}")
        if start != n_seen:
            raise InputError(f"`{name}` must give its blocks in order, got row {start} after {n_seen} rows")
        n_seen += len(block)
        if n_seen > n:
            raise InputError(f"`{name}` says that it has {n} rows but gives more")
        yield start, block
    if n_seen < n:
        raise InputError(f"`{name}` says that it has {n} rows but gives {n_seen}")


def _spans(starts: NDArray[np.int64], n_rows: int) -> Iterator[tuple[int, int]]:
    """As many whole parts as make a block; at least one, and a large one is then cut into pieces."""
    n_parts, first = len(starts) - 1, 0
    while first < n_parts:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + n_rows, side="right")) - 1)
        last = min(last, n_parts)
        yield first, last
        first = last


def _check_finite(block: F32, start: int, name: str) -> None:
    try:
        check_finite(block, name)
    except InputError:
        row = start + int(np.argmax(~np.isfinite(block).all(axis=1)))
        raise InputError(f"`{name}` holds a value that is NaN, infinite or beyond float32, in row {row}") from None


def _table(values: Any, name: str) -> np.ndarray:
    """A two-dimensional array of real numbers; its dtype stays."""
    if hasattr(values, "toarray"):
        raise InputError(f"`{name}` must be a dense table, got a sparse one: call its `toarray()` first")
    if np.ma.is_masked(values):
        raise InputError(f"`{name}` has masked entries: fill them, or leave their rows out")
    try:
        table = np.asanyarray(values)
    except ValueError as error:
        raise InputError(f"`{name}` must be a table of numbers, got rows of different lengths") from error
    if table.dtype.kind not in "fiu":
        raise InputError(f"`{name}` must hold real numbers, got dtype {table.dtype}")
    if table.ndim != 2:
        raise InputError(f"`{name}` must have two dimensions (rows, descriptor), got shape {table.shape}")
    if table.shape[1] == 0:
        raise InputError(f"`{name}` must have at least one column, got shape {table.shape}")
    return table


def _float32(values: np.ndarray) -> F32:
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
        return np.ascontiguousarray(values, dtype=np.float32)


def _kept_rows(kept: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> list[NDArray[np.int64]]:
    """Masks and indices as indices."""
    if len(kept) != len(parts):
        raise InputError(f"`kept` must have one entry for each of {len(parts)} parts, got {len(kept)}")
    return [
        _indices(np.asarray(mask), len(part), number)
        for number, (mask, part) in enumerate(zip(kept, parts, strict=True))
    ]


def _indices(mask: np.ndarray, n: int, number: int) -> NDArray[np.int64]:
    if mask.dtype == bool:
        if mask.shape != (n,):
            raise InputError(f"`kept[{number}]` must have shape ({n},), got {mask.shape}")
        return np.flatnonzero(mask)
    indices = mask.astype(np.int64)
    if indices.ndim != 1 or (np.diff(indices, prepend=-1, append=n) <= 0).any():
        raise InputError(f"`kept[{number}]` must be a mask or increasing numbers of rows from 0 to {n - 1}")
    return indices
