"""Buffers while a program is interpreted: arrays with bounds, poison and a record of writes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tilecore.errors import EmulatorFault, UnsupportedError
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import numpy_dtype
from tilecore.reference.values import Array, encode, poison, round_float, value_dtype, wrap


@dataclass(frozen=True, slots=True)
class Window:
    """A region cut to its buffer's shape.

    Attributes:
        index: of the inside part in the buffer; integers drop their axis.
        place: of the inside part in the region.
        shape: the region's, points dropped.
        is_empty: a point is outside, so nothing is inside.
    """

    index: tuple[int | slice, ...]
    place: tuple[slice, ...]
    shape: tuple[int, ...]
    is_empty: bool


@dataclass(slots=True)
class Storage:
    """One buffer's elements.

    Attributes:
        buffer: what it stores.
        array: elements, shape ``prefix + shape``; values, or host storage when `is_raw`.
        prefix: the lanes or iterations that have a copy each (local buffers); () for one copy.
        written: which elements were ever written, or None when nobody asks.
        is_raw: elements are kept in the dtype's own bits, since another view reads them.
        rounds: floats are rounded to the buffer's dtype when they are stored.
        dirty: names of what was written in this memory; views share it.
    """

    buffer: Buffer
    array: Array
    prefix: tuple[int, ...] = ()
    written: Array | None = None
    is_raw: bool = False
    rounds: bool = False
    dirty: set[str] = field(default_factory=set)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of one copy."""
        return self.array.shape[len(self.prefix) :]

    @property
    def safe_value(self) -> Array:
        """What a guarded read outside the shape gives."""
        return np.asarray(self.buffer.safe_value, value_dtype(self.buffer.dtype))

    def decode(self, elements: Array) -> Array:
        """Stored elements as values."""
        return np.asarray(elements).astype(value_dtype(self.buffer.dtype), copy=False)

    def encode(self, values: Array) -> Array:
        """Values as elements to store."""
        dtype = self.buffer.dtype
        if self.is_raw:
            return encode(values, dtype)
        if dtype.is_float:
            wide = np.asarray(values, np.float64)
            return round_float(wide, dtype) if self.rounds else wide
        return np.asarray(values).astype(bool) if dtype.is_bool else wrap(values, dtype)

    def lane(self, index: int) -> Storage:
        """One lane's copy, sharing its memory."""
        written = None if self.written is None else self.written[index]
        return replace(self, array=self.array[index], written=written, prefix=self.prefix[1:])

    def spread(self, domain: tuple[int, ...]) -> Storage:
        """Private copies for all iterations of `domain`."""
        shape = domain + self.shape
        written = None if self.written is None else np.broadcast_to(self.written, shape).copy()
        array = np.broadcast_to(self.array, shape).copy()
        return replace(self, array=array, prefix=domain, written=written)

    def forget(self) -> None:
        """Make the contents undefined."""
        self.array[...] = self.encode(np.asarray(poison(self.buffer.dtype)))
        if self.written is not None:
            self.written[...] = False

    # --- single elements, for all iterations of a domain at once -------------------------------

    def in_bounds(self, indices: list[Array]) -> Array:
        """Where all indices are inside the shape."""
        valid: Array = np.asarray(True)
        for index, extent in zip(indices, self.shape, strict=True):
            valid = valid & (index >= 0) & (index < extent)
        return valid

    def read(self, indices: list[Array], domain: tuple[int, ...], mask: Array) -> Array:
        """Values at `indices`; where `mask` is false or they are outside, the safe value."""
        valid = np.asarray(self.in_bounds(indices) & mask)
        if not valid.any():
            return np.broadcast_to(self.safe_value, valid.shape)
        place = self._place([np.where(valid, index, 0) for index in indices], domain)
        if self.written is not None and not np.all(self.written[place] | ~valid):
            raise EmulatorFault(f"reads elements of {self.buffer.name} that were never written")
        values = self.decode(self.array[place])
        return values if valid.all() else np.where(valid, values, self.safe_value)

    def write(
        self, indices: list[Array], value: Array, domain: tuple[int, ...], mask: Array
    ) -> None:
        """Store `value` at `indices` where `mask` holds and they are inside the shape."""
        valid = np.asarray(self.in_bounds(indices) & mask)
        if not valid.any():
            return
        place = self._place([np.asarray(index) for index in indices], domain)
        shape = np.broadcast_shapes(domain, valid.shape)
        chosen = np.broadcast_to(valid, shape)
        place = tuple(np.broadcast_to(index, shape)[chosen] for index in place)
        stored = self.encode(np.broadcast_to(value, shape)[chosen])
        self.array[place] = stored if place else stored[-1]  # without an index, the last one stays
        self.dirty.add(self.buffer.name)
        if self.written is not None:
            self.written[place] = True

    def _place(self, indices: list[Array], domain: tuple[int, ...]) -> tuple[Array, ...]:
        plain = tuple(np.asarray(index).astype(np.intp) for index in indices)
        if not self.prefix:
            return plain
        own = np.ogrid[tuple(slice(extent) for extent in domain)]
        return (*own, *plain)

    # --- rectangular pieces of a storage without a prefix --------------------------------------

    def window(self, starts: list[int], extents: list[int | None]) -> Window:
        """The part of a region that is inside the shape."""
        index: list[int | slice] = []
        place: list[slice] = []
        shape: list[int] = []
        is_empty = False
        for start, extent, size in zip(starts, extents, self.shape, strict=True):
            if extent is None:
                is_empty |= not 0 <= start < size
                index.append(start)
            else:
                first = max(0, start)
                stop = max(first, min(start + extent, size))
                index.append(slice(first, stop))
                place.append(slice(first - start, stop - start))
                shape.append(max(0, extent))
        return Window(tuple(index), tuple(place), tuple(shape), is_empty)

    def read_window(self, window: Window) -> tuple[Array, Array]:
        """The region's values, and which of its elements are defined (outside ones are)."""
        values = np.full(window.shape, self.safe_value)
        known = np.ones(window.shape, bool)
        if not window.is_empty:
            values[window.place] = self.decode(self.array[window.index])
            if self.written is not None:
                known[window.place] = self.written[window.index]
        return values, known

    def write_window(self, window: Window, values: Array, known: Array | None = None) -> None:
        """Store a region's values; those outside the shape are dropped."""
        if window.is_empty:
            return
        self.array[window.index] = self.encode(np.broadcast_to(values, window.shape)[window.place])
        self.dirty.add(self.buffer.name)
        if self.written is not None:
            flags = True if known is None else np.broadcast_to(known, window.shape)[window.place]
            self.written[window.index] = flags


def make_storage(
    buffer: Buffer,
    shape: tuple[int, ...],
    *,
    prefix: tuple[int, ...] = (),
    is_raw: bool = False,
    rounds: bool = False,
    tracks_writes: bool = False,
) -> Storage:
    """Fresh storage with undefined (poisoned) contents."""
    dtype = numpy_dtype(buffer.dtype) if is_raw else value_dtype(buffer.dtype)
    written = np.zeros(prefix + shape, bool) if tracks_writes and not is_raw else None
    storage = Storage(buffer, np.empty(prefix + shape, dtype), prefix, written, is_raw, rounds)
    storage.forget()
    return storage


def alias_storage(source: Storage, buffer: Buffer, shape: tuple[int, ...]) -> Storage:
    """Another view of all of `source`'s elements, sharing its memory.

    Raises:
        UnsupportedError: the dtypes differ and one is narrower than a byte.
    """
    array = source.array
    written = source.written
    if buffer.dtype != source.buffer.dtype:
        if min(buffer.dtype.bits, source.buffer.dtype.bits) < 8:
            raise UnsupportedError("the reference has no views of sub-byte dtypes", got=buffer.name)
        array = array.reshape(*source.prefix, -1).view(numpy_dtype(buffer.dtype))
    elif written is not None:
        written = written.reshape(source.prefix + shape)
    array = array.reshape(source.prefix + shape)
    return replace(source, buffer=buffer, array=array, written=written)
