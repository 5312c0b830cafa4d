"""Sequences of unequal lengths in pieces, a block each, the largest first.

For kernels whose loop must stay as it is from its first step to its last (teams of warps that take
turns, say), so that no block can walk from one sequence to the next as `decode_shares` has it. No
piece has more key tiles than all tiles of a head divided by `num_shares`, and a sequence has as
many pieces as it needs. Large ones begin first, so that what runs last is short:

    tiles of sequences a to d: 40, 7, 0, 19; num_shares 4, so at most 17 tiles each
    place     0     1     2     3     4     5     6
    piece     a     a     a     d     d     b     -
    tiles    0-13 13-26 26-40  0-9  9-19   0-7

Places, and where parts are left, are as many as in `decode_shares`.
"""

# Annotations are values of the tile language here, so they are not postponed.

import tilecore.language as T
from tilecore_kernels.decode_shares import LANES, PART_WORDS, PIECE_WORDS, tiles_of


@T.macro
def list_pieces(p, Lengths, Pieces, PartsOf, tile_k, num_shares):
    """A kernel that fills ``Pieces (places, PIECE_WORDS)`` and ``PartsOf (batch, PART_WORDS)``.

    A block lists the pieces of one sequence. Sequences of large pieces come first, of equal ones
    that with the lower number; pieces of all sequences before it are counted, so that every place
    has one writer and the list is always the same. Left over places hold zeros: no tiles.
    """
    batch, places = p.batch, int(Pieces.shape[0])
    with T.Kernel(batch, threads=LANES) as own:
        ahead, every, counts = (T.alloc_fragment((LANES,), "int32") for _ in range(3))
        begin, total, tiles = (T.alloc_fragment((1,), "int32") for _ in range(3))
        T.clear(counts)
        for some in T.serial(T.ceildiv(batch, LANES)):
            for t in T.Parallel(LANES):
                other = some * LANES + t
                if other < batch:
                    counts[t] = counts[t] + tiles_of(p, Lengths[other], tile_k)
        T.reduce_sum(counts, tiles, dim=0)
        most = T.max(1, T.ceildiv(tiles[0], num_shares))
        limit = T.max(0, T.min(Lengths[own], p.kv_len))
        own_tiles = T.ceildiv(limit, tile_k)
        own_parts = T.ceildiv(own_tiles, most)
        divisor = T.max(own_parts, 1)
        own_size = T.ceildiv(own_tiles, divisor)
        T.clear(ahead)
        T.clear(every)
        for some in T.serial(T.ceildiv(batch, LANES)):
            for t in T.Parallel(LANES):
                other = some * LANES + t
                if other < batch:
                    theirs = tiles_of(p, Lengths[other], tile_k)
                    parts = T.ceildiv(theirs, most)
                    size = T.ceildiv(theirs, T.max(parts, 1))
                    is_ahead = size > own_size or (size == own_size and other < own)
                    every[t] = every[t] + parts
                    ahead[t] = ahead[t] + T.if_then_else(is_ahead, parts, 0)
        T.reduce_sum(ahead, begin, dim=0)
        T.reduce_sum(every, total, dim=0)
        for some in T.serial(T.ceildiv(own_parts, LANES)):
            for t in T.Parallel(LANES):
                part = some * LANES + t
                first, end = part * own_tiles // divisor, (part + 1) * own_tiles // divisor
                if part < own_parts and begin[0] + part < places:
                    for word, value in enumerate((own, first, end, limit, own_parts)):
                        Pieces[begin[0] + part, word] = value
        for some in T.serial(T.ceildiv(places - total[0], batch * LANES)):
            for t in T.Parallel(LANES):
                place = total[0] + (some * batch + own) * LANES + t
                if place < places:
                    for word in tuple(range(PIECE_WORDS)):
                        Pieces[place, word] = 0
        for t in T.Parallel(PART_WORDS):
            PartsOf[own, t] = T.if_then_else(t == 0, begin[0], own_parts)
