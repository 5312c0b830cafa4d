"""The tiles of packed sequences: a list that a kernel of its own writes in every launch.

A grid of (tiles of the longest sequence, heads, sequences) leaves most blocks without work when
lengths are unequal. The list holds the tiles that there are, those of long sequences first, so that
what runs last is short. A sequence's last tile ends with it, its first one may begin before it:

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
    """Where the queries of a block are; expressions of the tile language.

    Attributes:
        sequence: its number.
        first_q: the first row, counted in the sequence: negative where the tile begins before it.
        start_q: row of the sequence's first query.
        q_len: queries of the sequence.
        start_k: row of the sequence's first key.
        k_len: keys of the sequence.
    """

    sequence: Any
    first_q: Any
    start_q: Any
    q_len: Any
    start_k: Any
    k_len: Any


@T.macro
def tile_of_list(Tiles, place):
    """The tile at `place` of what `list_tiles` wrote."""
    sequence, first_q, start_q = Tiles[place, 0], Tiles[place, 1], Tiles[place, 2]
    q_len, start_k, k_len = Tiles[place, 3], Tiles[place, 4], Tiles[place, 5]
    return Tile(sequence, first_q, start_q, q_len, start_k, k_len)


def most_tiles(p, total_q, batch, tile_q):
    """Places of a list: no fewer than all sequences have tiles, 0 without a query."""
    by_lengths = T.min(total_q // tile_q + batch, T.ceildiv(p.max_q, tile_q) * batch)
    return T.min(by_lengths, total_q)


@T.macro
def list_tiles(p, StartsQ, StartsK, Tiles, tile_q):
    """A kernel that fills ``Tiles (most_tiles, WORDS)``; a block lists the tiles of one sequence.

    Sequences of many keys come first, of equal ones that with the lower number; of each the last
    tile, which under a causal mask sees the most keys. The tiles of all sequences before an own one
    are counted, so that every place has one writer and the list is always the same. Left over
    places hold zeros: no queries.
    """
    places, batch = Tiles.shape[0], StartsQ.shape[0] - 1
    with T.Kernel(batch, threads=LANES) as own:
        ahead, every = (T.alloc_fragment((LANES,), "int32") for _ in range(2))
        begin, total = (T.alloc_fragment((1,), "int32") for _ in range(2))
        start_q, start_k = StartsQ[own], StartsK[own]
        q_len, k_len = StartsQ[own + 1] - start_q, StartsK[own + 1] - start_k
        T.clear(ahead)
        T.clear(every)
        for some in T.serial(T.ceildiv(batch, LANES)):
            for t in T.Parallel(LANES):
                other = some * LANES + t
                if other < batch:
                    keys = StartsK[other + 1] - StartsK[other]
                    count = tiles_of(p, StartsQ[other + 1] - StartsQ[other], tile_q)
                    is_ahead = keys > k_len or (keys == k_len and other < own)
                    every[t] = every[t] + count
                    ahead[t] = ahead[t] + T.if_then_else(is_ahead, count, 0)
        T.reduce_sum(ahead, begin, dim=0)
        T.reduce_sum(every, total, dim=0)
        count = tiles_of(p, q_len, tile_q)
        for some in T.serial(T.ceildiv(count, LANES)):
            for t in T.Parallel(LANES):
                tile = some * LANES + t
                values = (own, q_len - (tile + 1) * tile_q, start_q, q_len, start_k, k_len)
                if tile < count and begin[0] + tile < places:
                    for word, value in enumerate(values):
                        Tiles[begin[0] + tile, word] = value
        for some in T.serial(T.ceildiv(places - total[0], batch * LANES)):
            for t in T.Parallel(LANES):
                place = total[0] + (some * batch + own) * LANES + t
                if place < places:
                    for word in tuple(range(WORDS)):
                        Tiles[place, word] = 0


def tiles_of(p, q_len, tile_q):
    """Tiles of so many queries: none of a negative number, nor beyond the longest sequence."""
    return T.max(0, T.ceildiv(T.min(q_len, p.max_q), tile_q))
