"""The tiles of packed sequences: a list that a kernel of its own writes in every launch.

A grid of (tiles of the longest sequence, heads, sequences) leaves most blocks without work when
lengths are unequal. The list holds the tiles that there are, those of long sequences first, so that
what runs last is short. Here sequences end with their last tile, and may begin inside the first:

    lengths 300, 0, 500, tiles of 192     place    0    1    2    3    4    5
                                          tile of  c    c    c    a    a    -
                                          from   308  116  -76  108  -84

How many places there are must be known when a kernel is launched, without reading lengths: places
behind the last tile are left over, at most one a sequence where all rows belong to sequences.
"""

# Annotations are values of the tile language here, so they are not postponed.

from dataclasses import dataclass
from typing import Any

import tilecore.language as T

WORDS = 6
"""int32 numbers of a listed tile: the fields of `Tile`, in their order."""
LANES = 128
"""Threads of the listing kernel, sequences that they count at once."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of one side of a sequence, of its queries or of its keys; the other side is what its
    rows walk. Expressions of the tile language.

    Attributes:
        sequence: its number.
        first: the first row, counted in the sequence: negative where the tile begins before it.
        start: where the side's rows of the sequence start.
        length: how many there are.
        other_start: where the rows of the other side start.
        other_length: how many there are.
    """

    sequence: Any
    first: Any
    start: Any
    length: Any
    other_start: Any
    other_length: Any


@T.macro
def tile_of_list(Tiles, place):
    """The tile at `place` of what `list_tiles` or `number_tiles` wrote."""
    sequence, first, start = Tiles[place, 0], Tiles[place, 1], Tiles[place, 2]
    length, other_start, other_length = Tiles[place, 3], Tiles[place, 4], Tiles[place, 5]
    return Tile(sequence, first, start, length, other_start, other_length)


def most_tiles(total, batch, size, longest=None):
    """Places of a list: no fewer than all sequences have tiles of `size` of `total` rows, 0 without
    a row. `longest`: no sequence has more rows, if that is known."""
    most = T.min(batch, 1) * (total // size + batch)
    if longest is not None:
        most = T.min(most, T.ceildiv(longest, size) * batch)
    return T.min(most, total)


@T.macro
def list_tiles(Starts, Others, Tiles, size, longest=None, from_end=False):
    """A kernel that fills ``Tiles (most_tiles, WORDS)``; a block lists the tiles of one sequence.

    Sequences with many rows of the other side come first, of equal ones that with the lower number;
    of each the first tile, or, `from_end`, the last, which ends with the sequence: those that under
    a causal mask see the most, tiles of keys and of queries. The tiles of all sequences before an
    own one are counted, so that every place has one writer and the list is always the same. Left
    over places hold a tile with no row of a sequence that has none on either side.
    """
    places, batch = Tiles.shape[0], Starts.shape[0] - 1
    with T.Kernel(batch, threads=LANES) as own:
        ahead, every = (T.alloc_fragment((LANES,), "int32") for _ in range(2))
        begin, total = (T.alloc_fragment((1,), "int32") for _ in range(2))
        start, other_start = Starts[own], Others[own]
        length, other_length = Starts[own + 1] - start, Others[own + 1] - other_start
        T.clear(ahead)
        T.clear(every)
        for some in T.serial(T.ceildiv(batch, LANES)):
            for t in T.Parallel(LANES):
                other = some * LANES + t
                if other < batch:
                    weight = Others[other + 1] - Others[other]
                    count = tiles_of(Starts[other + 1] - Starts[other], size, longest)
                    is_ahead = weight > other_length or (weight == other_length and other < own)
                    every[t] = every[t] + count
                    ahead[t] = ahead[t] + T.if_then_else(is_ahead, count, 0)
        T.reduce_sum(ahead, begin, dim=0)
        T.reduce_sum(every, total, dim=0)
        count = tiles_of(length, size, longest)
        for some in T.serial(T.ceildiv(count, LANES)):
            for t in T.Parallel(LANES):
                tile = some * LANES + t
                first = length - (tile + 1) * size if from_end else tile * size
                values = (own, first, start, length, other_start, other_length)
                if tile < count and begin[0] + tile < places:
                    for word, value in enumerate(values):
                        Tiles[begin[0] + tile, word] = value
        for some in T.serial(T.ceildiv(places - total[0], batch * LANES)):
            for t in T.Parallel(LANES):
                place = total[0] + (some * batch + own) * LANES + t
                if place < places:
                    for word in tuple(range(WORDS)):
                        Tiles[place, word] = -size if from_end and word == 1 else 0


def tiles_of(length, size, longest):
    """Tiles of so many rows: none of a negative number, nor beyond the longest sequence."""
    return T.max(0, T.ceildiv(length if longest is None else T.min(length, longest), size))


def most_numbers(total, batch, size):
    """Numbers of tiles that `number_tiles` gives: one at least."""
    return total // size + batch + 1


def first_number(start, sequence, size):
    """The number of a sequence's first tile in `number_tiles`; it has all numbers that it needs
    before those of the next sequence."""
    return start // size + sequence


@T.macro
def number_tiles(Starts, Others, Tiles, size):
    """A kernel that fills ``Tiles (most_numbers, WORDS)``, in the order of the rows: tile n of
    sequence b has the number ``starts[b] // size + b + n``, which whoever knows the sequence
    computes. Numbers between are tiles before the first row of a sequence, or behind its last one;
    those behind the last sequence are of one more, which has no rows.
    """
    places, batch = Tiles.shape[0], Starts.shape[0] - 1
    with T.Kernel(batch + 1, threads=LANES) as own:
        following = T.min(own + 1, batch)
        start, other_start = Starts[own], Others[own]
        length, other_length = Starts[following] - start, Others[following] - other_start
        number = first_number(start, own, size)
        begin = T.if_then_else(own > 0, number, 0)
        next_number = first_number(Starts[following], following, size)
        end = T.if_then_else(own < batch, next_number, places)
        for some in T.serial(T.ceildiv(end - begin, LANES)):
            for t in T.Parallel(LANES):
                place = begin + some * LANES + t
                values = (own, (place - number) * size, start, length, other_start, other_length)
                if place >= 0 and place < end and place < places:
                    for word, value in enumerate(values):
                        Tiles[place, word] = value
