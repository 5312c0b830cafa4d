"""Flash attention, backward, over packed sequences: the five products of `attention_backward`.

Two kernels say where everything is: one lists tiles of keys, those that most queries see first, one
numbers tiles of queries (`varlen_tiles`). The next one computes L and D of all rows and zeros the
sums of dQ. A block of the fourth owns a tile of keys, walks the queries of its sequence that see it
(`backward_one_pass.walk_queries`) and adds what it gives to their sums; the last one rounds these.

L, D and the sums have room of their own for the tiles of each sequence, so that steps are whole:
rows behind a sequence's end have ``L = inf``, which makes all their weights 0.
"""

# Annotations are values of the tile language here, so they are not postponed.

from dataclasses import dataclass
from typing import Any

import tilecore.language as T
from tilecore.errors import UnsupportedError
from tilecore_kernels.backward_kernels import ROWS
from tilecore_kernels.backward_one_pass import columns_kept, walk_queries
from tilecore_kernels.backward_problem import PANEL, BackwardConfig
from tilecore_kernels.family import Family
from tilecore_kernels.online_softmax import LOG2_E
from tilecore_kernels.varlen_backward_problem import (
    PROBLEMS,
    bytes_moved,
    configs,
    flops,
    inputs,
    outputs,
    reference,
)
from tilecore_kernels.varlen_problem import VarlenProblem
from tilecore_kernels.varlen_tiles import (
    WORDS,
    first_number,
    list_tiles,
    most_numbers,
    most_tiles,
    number_tiles,
    tile_of_list,
)

HEADS_TOGETHER = 8
"""Heads of keys whose tiles are walked together, at most."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Where the rows of one of the packed sequences are; what `backward_one_pass.Whole` answers.

    Attributes:
        start_q: row of the first query.
        start_k: row of the first key.
        number: of the first tile of queries (`varlen_tiles.number_tiles`).
        last: the last number that there is.
    """

    start_q: Any
    start_k: Any
    number: Any
    last: Any

    def queries(self, tensor: Any, head: Any, first: Any, count: int, columns: int) -> Any:
        """`count` rows of a tensor of queries."""
        at = self.start_q + first
        return tensor[at : at + count, head, 0:columns]

    def keys(self, tensor: Any, head: Any, first: Any, count: int, columns: int) -> Any:
        """`count` rows of a tensor of keys."""
        at = self.start_k + first
        return tensor[at : at + count, head, 0:columns]

    def rows(self, tensor: Any, head: Any, tile: Any, count: int) -> Any:
        """L and D of a tile of `count` queries, (2, count)."""
        return tensor[self._in_range(tile), head, 0:2, 0:count]

    def sums(self, tensor: Any, head: Any, tile: Any, count: int) -> Any:
        """The sums of a tile of queries, `count` of them."""
        return tensor[self._in_range(tile), head, 0:count]

    def sum_at(self, head: Any, tile: Any, count: int, place: Any) -> tuple[Any, ...]:
        """Where one of them is."""
        return self._in_range(tile), head, place

    def _in_range(self, tile: Any) -> Any:
        """The number of a tile; the bound is always kept; stated, it spares guards."""
        return T.max(0, T.min(self.number + tile, self.last))


@T.macro
def prepare_packed(p, Out, dOut, LSE, Tiles, Rows, Sums):
    """A kernel: ``Rows (tiles, heads, 2, queries)``, ``L log2(e)``, infinity for queries that see
    nothing and rows that no sequence has, and D; zeros for the sums of dQ."""
    tile_q, each = int(Rows.shape[3]), int(Sums.shape[2])
    parts = tile_q // ROWS
    with T.Kernel(Tiles.shape[0] * parts, p.heads, threads=128) as (block, head):
        products = T.alloc_fragment((ROWS, p.dim_v), "float32")
        delta = T.alloc_fragment((ROWS,), "float32")
        zeros = T.alloc_fragment((each // parts,), "float32")
        number, row = block // parts, block % parts * ROWS
        tile = tile_of_list(Tiles, number)
        first, start, length = tile.first + row, tile.start, tile.length
        for i, d in T.Parallel(ROWS, p.dim_v):
            products[i, d] = 0.0
            if first + i >= 0 and first + i < length:
                grad = T.cast(dOut[start + first + i, head, d], "float32")
                products[i, d] = grad * T.cast(Out[start + first + i, head, d], "float32")
        T.reduce_sum(products, delta, dim=1)
        for i in T.Parallel(ROWS):
            Rows[number, head, 0, row + i] = T.infinity("float32")
            Rows[number, head, 1, row + i] = delta[i]
            if first + i >= 0 and first + i < length:
                log_sum = LSE[head, start + first + i]
                if log_sum > -T.infinity("float32"):
                    Rows[number, head, 0, row + i] = log_sum * LOG2_E
        T.clear(zeros)
        begin = block % parts * (each // parts)
        T.copy(zeros, Sums[number, head, begin : begin + each // parts])


@T.macro
def packed_gradients(p, config, Q, K, V, dOut, Tiles, Rows, Sums, dK, dV):
    """A kernel: dK and dV of a listed tile of keys, and what it adds to the sums of dQ."""
    with T.Kernel(Tiles.shape[0], p.kv_heads, threads=config.threads) as (place, kv_head):
        # Heads side by side: what comes last is the end of the list, not of a head's.
        T.use_swizzle(max(d for d in range(1, HEADS_TOGETHER + 1) if p.kv_heads % d == 0))
        tile = tile_of_list(Tiles, place)
        first_k, k_len, q_len = tile.first, tile.length, tile.other_length
        number = first_number(tile.other_start, tile.sequence, config.step_q)
        where = Packed(tile.other_start, tile.start, number, Rows.shape[0] - 1)
        span = (first_k, k_len, k_len - q_len, q_len)
        dk, dv = walk_queries(p, config, where, kv_head, *span, Q, K, V, dOut, Rows, Sums)
        for j, d in T.Parallel(*dk.shape):
            dk[j, d] = dk[j, d] * p.scale
        store_keys(dv, dV, tile, kv_head)
        store_keys(dk, dK, tile, kv_head)


@T.macro
def store_keys(sums, Tensor, tile, kv_head):
    """Write the rows of a tile of keys that belong to its sequence: those behind are another's."""
    count, columns = (int(extent) for extent in sums.shape)
    start, first, length = tile.start, tile.first, tile.length
    if first + count <= length:
        T.copy(sums, Tensor[start + first : start + first + count, kv_head, 0:columns])
    else:
        for j, d in T.Parallel(count, columns):
            if first + j < length:
                Tensor[start + first + j, kv_head, d] = sums[j, d]


@T.macro
def round_packed(p, Tiles, Sums, tile_q, dQ):
    """A kernel: dQ, scaled and rounded from its sums (`backward_one_pass.place`)."""
    half, panels, pairs = ROWS // 2, columns_kept(p) // PANEL, PANEL // 2
    parts = tile_q // ROWS
    with T.Kernel(Tiles.shape[0] * parts, p.heads, threads=128) as (block, head):
        sums = T.alloc_fragment((half, panels, pairs, 4), "float32")
        number, part = block // parts, block % parts
        tile = tile_of_list(Tiles, number)
        begin = part * ROWS * columns_kept(p)
        first, start, length = tile.first + part * ROWS, tile.start, tile.length
        for i, n, d, e in T.Parallel(half, panels, pairs, 4):
            sums[i, n, d, e] = Sums[number, head, begin + ((n * half + i) * pairs + d) * 4 + e]
        for row, i, n, d, e in T.Parallel(2, half, panels, pairs, 2):
            query = first + row * half + i
            if query >= 0 and query < length:
                dQ[start + query, head, n * PANEL + d * 2 + e] = T.cast(
                    sums[i, n, d, row * 2 + e] * p.scale, p.dtype
                )


def varlen_backward(problem: VarlenProblem, config: BackwardConfig) -> Any:
    """Tile program: Q, K, V, starts of queries, of keys, O, log-sum-exp, dO, then dQ, dK, dV.

    Gradients of rows that belong to no sequence are left as they are.

    Raises:
        UnsupportedError: keys in pages; a configuration that does not add to dQ.
    """
    p, dtype, tile_q = problem, problem.dtype, config.step_q
    if p.page_size or not config.adds:
        raise UnsupportedError(
            "varlen_backward adds to dQ, over packed keys",
            expected="adds=True, page_size=0", got=f"adds={config.adds}, page_size={p.page_size}",
        )  # fmt: skip
    if config.staged and p.dim % PANEL:
        raise UnsupportedError(
            "staged additions to dQ are whole panels", expected=f"a multiple of {PANEL}", got=p.dim
        )
    batch, total_q, total_k = T.dynamic("batch, total_q, total_k")
    wide, narrow = T.Tensor((total_q, p.heads, p.dim), dtype), (total_k, p.kv_heads)
    out_type = T.Tensor((total_q, p.heads, p.dim_v), dtype)
    k_type, v_type = T.Tensor((*narrow, p.dim), dtype), T.Tensor((*narrow, p.dim_v), dtype)

    @T.prim_func
    def varlen_backward(
        Q: wide, K: k_type, V: v_type,
        StartsQ: T.Tensor((batch + 1,), "int32"), StartsK: T.Tensor((batch + 1,), "int32"),
        Out: out_type, LSE: T.Tensor((p.heads, total_q), "float32"), dOut: out_type,
        dQ: wide, dK: k_type, dV: v_type,
    ):  # fmt: skip
        numbers = most_numbers(total_q, batch, tile_q)
        Queries = T.alloc_global((numbers, WORDS), "int32")
        Keys = T.alloc_global((most_tiles(total_k, batch, config.block_k), WORDS), "int32")
        Rows = T.alloc_global((numbers, p.heads, 2, tile_q), "float32")
        Sums = T.alloc_global((numbers, p.heads, tile_q * columns_kept(p)), "float32")
        number_tiles(StartsQ, StartsK, Queries, tile_q)
        list_tiles(StartsK, StartsQ, Keys, config.block_k)
        prepare_packed(p, Out, dOut, LSE, Queries, Rows, Sums)
        packed_gradients(p, config, Q, K, V, dOut, Keys, Rows, Sums, dK, dV)
        round_packed(p, Queries, Sums, tile_q, dQ)

    return varlen_backward


VARLEN_BACKWARD = Family(
    name="varlen_backward",
    program=varlen_backward,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    configs=configs,
    problems=PROBLEMS,
    flops=flops,
    bytes_moved=bytes_moved,
)
