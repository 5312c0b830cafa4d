"""Programs that several tests use. No future import here: annotations are objects."""

import tilecore.language as T


def matmul(M, N, K, block_M=32, block_N=32, block_K=16, dtype="float16", threads=128, stages=3):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.use_swizzle(panel_size=10)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def attention(batch, heads, length, dim, causal, block_M=32, block_N=32):
    scale = (1.0 / dim) ** 0.5 * 1.44269504
    shape = [batch, length, heads, dim]
    dtype, accum = T.float16, T.float32

    @T.macro
    def scores(K: T.Tensor(shape, dtype), Q_shared, K_shared, acc_s, k, bx, by, bz):
        T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_shared)
        for i, j in T.Parallel(block_M, block_N):
            visible = k * block_N + j < length
            if causal:
                visible = visible and k * block_N + j <= bx * block_M + i
            acc_s[i, j] = T.if_then_else(visible, 0, -T.infinity(acc_s.dtype))
        T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(length, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim], accum)
            m, m_prev = T.alloc_fragment([block_M], accum), T.alloc_fragment([block_M], accum)
            s_scale = T.alloc_fragment([block_M], accum)
            s_sum = T.alloc_fragment([block_M], accum)
            total = T.alloc_fragment([block_M], accum)
            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.fill(acc_o, 0)
            T.fill(total, 0)
            T.fill(m, -T.infinity(accum))
            rounds = (
                T.min(T.ceildiv(length, block_N), T.ceildiv((bx + 1) * block_M, block_N))
                if causal
                else T.ceildiv(length, block_N)
            )
            for k in T.Pipelined(rounds, num_stages=2):
                scores(K, Q_shared, K_shared, acc_s, k, bx, by, bz)
                T.copy(m, m_prev)
                T.reduce_max(acc_s, m, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    s_scale[i] = T.exp2(m_prev[i] * scale - m[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - m[i] * scale)
                T.reduce_sum(acc_s, s_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * s_scale[i] + s_sum[i]
                T.copy(acc_s, acc_s_cast)
                for i, j in T.Parallel(block_M, dim):
                    acc_o[i, j] *= s_scale[i]
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] /= total[i]
            T.copy(acc_o, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main
