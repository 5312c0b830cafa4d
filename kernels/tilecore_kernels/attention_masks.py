"""Which keys a tile of queries sees, and hiding the others: shared by all attention kernels."""

# Annotations are values of the tile language here, so they are not postponed.

import tilecore.language as T


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
def hide_invisible(problem, scores, first_q, first_k, shift, limit):
    """Set the scores of pairs that see nothing of each other to -inf.

    Only tiles on an edge of what is visible pay for it.
    """
    tile_q, tile_k = (int(extent) for extent in scores.shape)
    # A causal mask ends at the last key by itself.
    has_limit = problem.padded or problem.right is None or problem.right > 0
    whole = first_k + tile_k <= limit if has_limit else True
    if problem.right is not None:
        whole = whole and first_k + tile_k - 1 <= first_q + shift + problem.right
    if problem.left is not None:
        whole = whole and first_k >= first_q + tile_q - 1 + shift - problem.left
    if not whole:
        for i, j in T.Parallel(tile_q, tile_k):
            visible = first_k + j < limit if has_limit else True
            if problem.right is not None:
                visible = visible and first_k + j <= first_q + i + shift + problem.right
            if problem.left is not None:
                visible = visible and first_k + j >= first_q + i + shift - problem.left
            scores[i, j] = T.if_then_else(visible, scores[i, j], -T.infinity("float32"))


@T.macro
def modify_scores(problem, scores, head, first_q, first_k):
    """Apply the scale and the user's function to a tile of scores."""
    tile_q, tile_k = (int(extent) for extent in scores.shape)
    for i, j in T.Parallel(tile_q, tile_k):
        scores[i, j] = problem.score_mod(
            scores[i, j] * problem.scale, head, first_q + i, first_k + j
        )
