"""Which keys a tile of queries sees, and hiding the others: shared by all attention kernels."""

# Annotations are values of the tile language here, so they are not postponed.

import tilecore.language as T


@T.macro
def first_query(problem, block, q_len, tile_q):
    """A block's first query. Causal tiles at the bottom see the most keys: they start first."""
    last_tile = T.ceildiv(q_len, tile_q) - 1
    return (last_tile - block if problem.right is not None else block) * tile_q


@T.macro
def first_query_from_end(problem, block, q_len, tile_q):
    """The same where the last causal tile, which sees the most keys, shall be a whole one.

    Tiles then count from the last query back, and the first one, which sees the fewest keys, begins
    before query 0 where no tile divides the length: copies leave such rows out.
    """
    if problem.right is not None and q_len % tile_q:
        return q_len - (block + 1) * tile_q
    return first_query(problem, block, q_len, tile_q)


@T.macro
def key_tiles(problem, first_q, rows, shift, limit, tile_k):
    """(first, one past the last) tile of keys that queries ``first_q ... first_q + rows`` see.

    Query i sees the keys ``i + shift - left <= j <= i + shift + right`` with ``j < limit``.
    """
    begin = 0
    if problem.left is not None:
        begin = T.max(0, first_q + shift - problem.left) // tile_k
    end = limit
    if problem.right is not None:
        end = T.max(0, T.min(limit, first_q + rows + shift + problem.right))
    return begin, T.ceildiv(end, tile_k)


@T.macro
def query_tiles(problem, first_k, keys, shift, q_len, tile_q):
    """(first, one past the last) tile of queries that see keys ``first_k ... first_k + keys``.

    Key j is seen by the queries ``j - shift - right <= i <= j - shift + left``.
    """
    begin, end = 0, T.ceildiv(q_len, tile_q)
    if problem.right is not None:
        begin = T.min(T.max(0, first_k - shift - problem.right) // tile_q, end)
    if problem.left is not None:
        last = T.max(0, T.min(q_len, first_k + keys - shift + problem.left))
        end = T.max(begin, T.ceildiv(last, tile_q))
    return begin, end


def has_limit(problem):
    """Whether the number of keys must be asked for: a causal mask ends at the last by itself."""
    return problem.padded or problem.right is None or problem.right > 0


@T.macro
def is_visible(problem, query, key, shift, limit):
    """Whether a query sees a key."""
    visible = key < limit if has_limit(problem) else True
    if problem.right is not None:
        visible = visible and key <= query + shift + problem.right
    if problem.left is not None:
        visible = visible and key >= query + shift - problem.left
    return visible


@T.macro
def is_whole(problem, first_q, count_q, first_k, count_k, shift, limit):
    """Whether all queries of a tile see all its keys: only other tiles pay for a mask."""
    whole = first_k + count_k <= limit if has_limit(problem) else True
    if problem.right is not None:
        whole = whole and first_k + count_k - 1 <= first_q + shift + problem.right
    if problem.left is not None:
        whole = whole and first_k >= first_q + count_q - 1 + shift - problem.left
    return whole


@T.macro
def hide_invisible(problem, scores, first_q, first_k, shift, limit):
    """Set the scores of pairs that see nothing of each other to -inf."""
    tile_q, tile_k = (int(extent) for extent in scores.shape)
    if not is_whole(problem, first_q, tile_q, first_k, tile_k, shift, limit):
        for i, j in T.Parallel(tile_q, tile_k):
            visible = is_visible(problem, first_q + i, first_k + j, shift, limit)
            scores[i, j] = T.if_then_else(visible, scores[i, j], -T.infinity("float32"))


@T.macro
def hide_weights(problem, weights, first_q, first_k, shift, limit, keys_first=True, hidden=0.0):
    """Set the weights (or scores) of pairs that see nothing of each other to `hidden`: a tile of
    (keys, queries), or of (queries, keys) where `keys_first` is False."""
    count_k, count_q = (int(x) for x in (weights.shape if keys_first else weights.shape[::-1]))
    if not is_whole(problem, first_q, count_q, first_k, count_k, shift, limit):
        for a, b in T.Parallel(*weights.shape):
            key, query = (a, b) if keys_first else (b, a)
            seen = is_visible(problem, first_q + query, first_k + key, shift, limit)
            weights[a, b] = T.if_then_else(seen, weights[a, b], hidden)


@T.macro
def hide_beyond(scores, first_k, limit):
    """Set the scores of keys at and behind `limit` to -inf, in tiles that reach so far."""
    rows, tile_k = (int(extent) for extent in scores.shape)
    if first_k + tile_k > limit:
        for i, j in T.Parallel(rows, tile_k):
            visible = first_k + j < limit
            scores[i, j] = T.if_then_else(visible, scores[i, j], -T.infinity("float32"))


@T.macro
def modify_scores(problem, scores, head, first_q, first_k):
    """Apply the scale and the user's function to a tile of scores."""
    tile_q, tile_k = (int(extent) for extent in scores.shape)
    for i, j in T.Parallel(tile_q, tile_k):
        scores[i, j] = problem.score_mod(
            scores[i, j] * problem.scale, head, first_q + i, first_k + j
        )
