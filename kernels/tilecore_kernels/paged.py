"""A tile of consecutive keys out of a cache that is contiguous or lies in pages."""

# Annotations are values of the tile language here, so they are not postponed.

import math

import tilecore.language as T


@T.macro
def load_keys(problem, Cache, Table, tile, batch, head, first_k, limit):
    """Fill `tile` with the keys (or values) of one head from `first_k` on.

    Args:
        problem: a `DecodeProblem`.
        Cache: the cache's tensor.
        Table: pages of each sequence; unused for a contiguous cache.
        tile: shared, (keys, columns).
        batch: which sequence.
        head: which head of keys.
        first_k: the first key, a multiple of the tile's keys.
        limit: keys of the sequence; later ones come from any page, and are to be masked.
    """
    count, columns = (int(extent) for extent in tile.shape)
    if problem.page_size == 0:
        T.copy(problem.rows_of(Cache, batch, head, first_k, count, columns), tile)
    else:
        size = problem.page_size
        piece = math.gcd(size, count)  # tiles and pages may straddle one another
        for part in range(count // piece):
            at = first_k + part * piece
            page = Table[batch, T.min(at, limit - 1) // size]
            rows = problem.rows_of(Cache, page, head, at % size, piece, columns)
            T.copy(rows, tile[part * piece : (part + 1) * piece, 0:columns])
