"""Flash attention, backward: gradients of Q, K and V without the score matrix.

Weights are computed again from the forward's log-sum-exp L: ``P = exp(scale Q K^T - L)``. With
``D_i = sum_d O_id dO_id``

    dV = P^T dO        dS = P * (dO V^T - D)        dK = scale dS^T Q        dQ = scale dS K

Two variants of three kernels that run one after the other. In both the first computes D, and a
block of the second owns a tile of keys and walks the queries that see it, of all heads that share
the keys; products with keys as rows are computed transposed: P^T and dS^T stay in registers.

    adding (`backward_one_pass`)   the second kernel adds dS K of its keys to float32 sums of dQ,
                                   which the third one rounds: five products
    not (`backward_kernels`)       the third one computes dQ, a block owns a tile of queries and
                                   walks the keys: seven products, but the same bits each time
"""

# Annotations are values of the tile language here, so they are not postponed.

from typing import Any

import tilecore.language as T
from tilecore.errors import UnsupportedError
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.backward_kernels import compute_deltas, keys_and_values, queries
from tilecore_kernels.backward_one_pass import gradients, prepare_rows, round_sums, sums_shape
from tilecore_kernels.backward_problem import (
    PANEL,
    BackwardConfig,
    bytes_moved,
    configs,
    flops,
    inputs,
    outputs,
    reference,
)
from tilecore_kernels.family import Family
from tilecore_kernels.flash_attention import tensor_types


def attention_backward(problem: AttentionProblem, config: BackwardConfig) -> Any:
    """Tile program: Q, K, V, O, log-sum-exp, dO, [lengths], then dQ, dK, dV.

    Raises:
        UnsupportedError: a score function or sinks, whose gradients are not derived; additions in
            any order where the same bits are wanted each time; staged additions where columns do
            not fill panels.
    """
    p = problem
    if p.score_mod is not None or p.has_sinks:
        raise UnsupportedError("attention_backward has no score functions and no sinks")
    if p.deterministic and config.adds:
        raise UnsupportedError(
            "additions to dQ come in any order", expected="adds=False", got="deterministic=True"
        )
    if config.adds and config.staged and p.dim % PANEL:
        raise UnsupportedError(
            "staged additions to dQ are whole panels", expected=f"a multiple of {PANEL}", got=p.dim
        )
    types = tensor_types(p)
    rows = (p.batch, p.heads, p.q_len)

    @T.prim_func
    def attention_backward(
        Q: types["Q"], K: types["K"], V: types["V"], Out: types["Out"],
        LSE: T.Tensor(rows, "float32"), dOut: types["Out"], Lengths: types["Lengths"],
        dQ: types["Q"], dK: types["K"], dV: types["V"],
    ):  # fmt: skip
        if config.adds:
            Rows = T.alloc_global((2, *rows), "float32")
            Sums = T.alloc_global(sums_shape(p, config.step_q), "float32")
            prepare_rows(p, Out, dOut, LSE, Rows, Sums)
            gradients(p, config, Q, K, V, dOut, Lengths, Rows, Sums, dK, dV)
            round_sums(p, Sums, dQ)
        else:
            Delta = T.alloc_global(rows, "float32")
            compute_deltas(p, Out, dOut, Delta)
            keys_and_values(p, config, Q, K, V, LSE, dOut, Lengths, Delta, dK, dV)
            queries(p, config, Q, K, V, LSE, dOut, Lengths, Delta, dQ)

    return attention_backward


ATTENTION_BACKWARD = Family(
    name="attention_backward",
    program=attention_backward,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    configs=configs,
    problems=(
        AttentionProblem(1, 8, 2048, 64, "float16", has_lse=True),
        AttentionProblem(1, 8, 1999, 64, kv_heads=2, right=0, has_lse=True),
        AttentionProblem(8, 32, 4096, 128, "float16", has_lse=True),
        AttentionProblem(8, 32, 4096, 128, "float16", right=0, has_lse=True),
    ),
    flops=flops,
    bytes_moved=bytes_moved,
)
