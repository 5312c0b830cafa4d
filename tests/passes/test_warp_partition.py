"""Any number of warps divides any tile of a gemm, by each policy: each element has one place."""

from __future__ import annotations

import pytest

from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import float16, float32
from tilecore.ir.expr import const
from tilecore.ir.stmts import Gemm, WarpPolicy
from tilecore.passes.contraction import tile_mma

mma = pytest.importorskip("tilecore_backend_cuda_ampere.mma")


def whole(name: str, rows: int, columns: int, dtype: object, scope: Scope) -> Region:
    extents = (const(rows), const(columns))
    buffer = Buffer(name, extents, dtype, scope)  # type: ignore[arg-type]
    return Region(buffer, (const(0), const(0)), extents)


@pytest.mark.parametrize("policy", list(WarpPolicy))
@pytest.mark.parametrize("warps", range(1, 17))
@pytest.mark.parametrize(("m", "n"), [(32, 24), (16, 40), (7, 9)])
def test_every_element_has_one_place(warps: int, policy: WarpPolicy, m: int, n: int) -> None:
    gemm = Gemm(
        whole("a", m, 16, float16, Scope.SHARED), whole("b", 16, n, float16, Scope.SHARED),
        whole("c", m, n, float32, Scope.FRAGMENT), policy=policy,
    )  # fmt: skip
    atom = next(a for a in mma.ATOMS if (a.a_dtype, a.c_dtype, a.k) == (float16, float32, 16))
    tiled = tile_mma(gemm, atom, 32 * warps)
    assert tiled.groups_m * tiled.groups_n == warps
    places = {tiled.c_layout.place((i, j)) for i in range(m) for j in range(n)}
    assert len(places) == m * n
    assert all(0 <= lane < 32 * warps for lane, _ in places)
    assert all(0 <= register < tiled.c_layout.registers for _, register in places)
