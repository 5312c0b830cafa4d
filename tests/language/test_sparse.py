"""T.gemm_sp against the dense product."""

import language_support as support
import numpy as np
import pytest

import tilecore.language as T
from tilecore.errors import LanguageError

RNG = np.random.default_rng(11)


def compressed(dense, bits, wide):
    """Kept elements and metadata of a 2:4 (or 1:2) sparse matrix, packed into `bits`-bit words."""
    rows, k = dense.shape
    group = 2 if wide else 4
    kept, entries = [], []
    for row in dense:
        row_entries = []
        for at in range(0, k, group):
            places = [p for p in range(group) if row[at + p] != 0]
            if wide:
                place = places[0] if places else 0
                kept.append(row[at + place])
                row_entries.append(0b1110 if place else 0b0100)
                continue
            places = sorted((places + [p for p in range(group) if p not in places])[:2])
            kept += [row[at + p] for p in places]
            row_entries.append(places[0] | places[1] << 2)
        per_word = bits // 4
        for at in range(0, len(row_entries), per_word):
            word = sum(e << 4 * n for n, e in enumerate(row_entries[at : at + per_word]))
            entries.append(word)
    words = np.array(entries, np.uint64).astype(f"uint{bits}").view(f"int{bits}")
    return np.array(kept, dense.dtype).reshape(rows, k // 2), words.reshape(rows, -1)


def sparse_matrix(rows, k, group, kind):
    dense = RNG.standard_normal((rows, k // group, group))
    drop = np.argsort(RNG.random(dense.shape), -1)[..., : group // 2]
    np.put_along_axis(dense, drop, 0, -1)
    dense[0, 0] = 0
    return dense.reshape(rows, k).astype(kind)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("kind", "bits"), [("float16", 16), ("float16", 8), ("float32", 16)])
def test_sparse_products_equal_dense_ones(kind, bits, transposed):
    m, n, k = 16, 8, 32
    wide = kind == "float32"
    dense = sparse_matrix(m, k, 2 if wide else 4, kind)
    kept, meta = compressed(dense, bits, wide)
    flip = (lambda shape: shape[::-1]) if transposed else (lambda shape: shape)

    @T.prim_func
    def main(
        A: T.Tensor(flip(kept.shape), kind),
        E: T.Tensor(flip(meta.shape), f"int{bits}"),
        B: T.Tensor((k, n), kind),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1):
            a = T.alloc_shared(A.shape, kind)
            e = T.alloc_shared(E.shape, f"int{bits}")
            b = T.alloc_shared((k, n), kind)
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(E, e)
            T.copy(B, b)
            T.gemm_sp(a, e, b, c, transposed, transposed, clear_accum=True)
            T.copy(c, C)

    b = RNG.standard_normal((k, n)).astype(kind)
    arrays = [np.ascontiguousarray(x.T if transposed else x) for x in (kept, meta)]
    out = support.result(main, "C", A=arrays[0], E=arrays[1], B=b, C=np.zeros((m, n), np.float32))
    np.testing.assert_allclose(out, dense.astype(float) @ b.astype(float), rtol=1e-6, atol=1e-6)


def test_metadata_must_fit():
    with pytest.raises(LanguageError, match="metadata of T.gemm_sp does not fit A"):

        @T.prim_func
        def main(B: T.Tensor((32, 8), "float16")):
            with T.Kernel(1):
                a = T.alloc_shared((16, 16), "float16")
                e = T.alloc_shared((16, 1), "int16")
                c = T.alloc_fragment((16, 8), "float32")
                T.gemm_sp(a, e, B, c)
