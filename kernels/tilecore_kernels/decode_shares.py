"""How the keys of a batch are divided among blocks: in equal numbers of splits, or even shares.

Where every sequence is divided in as many splits, blocks are as unequal as lengths are. Even shares
are made on the device, by a first kernel that reads the lengths: all key tiles of a head, sequence
behind sequence, are cut in `num_shares` runs of the same size. A block walks one run. It consists
of pieces: it ends one sequence and begins the next.

    tiles of sequences a to d: 40, 7, 0, 19; num_shares 4, so 17 tiles each
    share      0      1            2            3
    pieces   a 0-17  a 17-34   a 34-40, b,    d 4-19
                               d 0-4

Lengths may differ from call to call, and between replays of a captured graph: how many pieces there
may be follows from the batch alone. Every piece leaves its part at its own place, but for one that
is a whole sequence, which is the result.
"""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import tilecore.language as T

PIECE_WORDS = 5
"""int32 numbers of a piece: the sequence, its first tile, the one behind its last, the sequence's
keys, and how many pieces the sequence has."""
SHARE_WORDS = 2
"""int32 numbers of a share: the place of its first piece, and the one behind its last."""
PART_WORDS = 2
"""int32 numbers of a sequence: the place of its first part, and how many it has."""
LANES = 128
"""Threads of the listing kernel, sequences that they count at once."""


def places_of(problem: Any, config: Any) -> int:
    """Places of parts, and of the list where there is one; 0 where no sequence is divided.

    The piece of share r in the n-th sequence that has keys is at place ``n + r``.
    """
    if config.num_shares:
        return int(config.num_shares + problem.batch - 1)
    return int(problem.batch * config.num_splits) if config.num_splits > 1 else 0


@T.macro
def list_shares(p, Lengths, Pieces, Shares, PartsOf, tile_k):
    """A kernel that fills ``Pieces (places, PIECE_WORDS)``, ``Shares (num_shares, SHARE_WORDS)``
    and ``PartsOf (batch, PART_WORDS)``.

    A block lists the pieces of one sequence. It counts the tiles of all sequences before it, so
    that every place has one writer and the list is always the same. Shares behind the last tile
    have no pieces; places between the pieces of two shares are neither written nor read.
    """
    batch, num_shares = p.batch, int(Shares.shape[0])
    with T.Kernel(batch, threads=LANES) as own:
        every, ahead, ranks = (T.alloc_fragment((LANES,), "int32") for _ in range(3))
        total, start, rank = (T.alloc_fragment((1,), "int32") for _ in range(3))
        T.clear(every)
        T.clear(ahead)
        T.clear(ranks)
        for some in T.serial(T.ceildiv(batch, LANES)):
            for t in T.Parallel(LANES):
                other = some * LANES + t
                if other < batch:
                    tiles = tiles_of(p, Lengths[other], tile_k)
                    every[t] = every[t] + tiles
                    ahead[t] = ahead[t] + T.if_then_else(other < own, tiles, 0)
                    counts = other < own and tiles > 0
                    ranks[t] = ranks[t] + T.if_then_else(counts, 1, 0)
        T.reduce_sum(every, total, dim=0)
        T.reduce_sum(ahead, start, dim=0)
        T.reduce_sum(ranks, rank, dim=0)
        limit = T.max(0, T.min(Lengths[own], p.kv_len))
        tiles = T.ceildiv(limit, tile_k)
        most = T.max(1, T.ceildiv(total[0], num_shares))
        first_share = start[0] // most
        parts = T.if_then_else(tiles > 0, (start[0] + tiles - 1) // most + 1 - first_share, 0)
        first_place = rank[0] + first_share
        for some in T.serial(T.ceildiv(parts, LANES)):
            for t in T.Parallel(LANES):
                part = some * LANES + t
                share, place = first_share + part, first_place + part
                begin = T.max(0, share * most - start[0])
                end = T.min(tiles, (share + 1) * most - start[0])
                if part < parts and share < num_shares:
                    for word, value in enumerate((own, begin, end, limit, parts)):
                        Pieces[place, word] = value
                    if start[0] + begin == share * most:
                        Shares[share, 0] = place
                    if start[0] + end == T.min((share + 1) * most, total[0]):
                        Shares[share, 1] = place + 1
        used = T.ceildiv(total[0], most)
        for some in T.serial(T.ceildiv(num_shares - used, batch * LANES)):
            for t in T.Parallel(LANES):
                share = used + (some * batch + own) * LANES + t
                if share < num_shares:
                    for word in tuple(range(SHARE_WORDS)):
                        Shares[share, word] = 0
        for t in T.Parallel(PART_WORDS):
            PartsOf[own, t] = T.if_then_else(t == 0, first_place, parts)


def tiles_of(p, length, tile_k):
    """Key tiles of a sequence: none of a negative number, nor beyond the cache's capacity."""
    return T.ceildiv(T.max(0, T.min(length, p.kv_len)), tile_k)
