"""Attention with gradients, and decoding, beside torch's own."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilecore.errors import BackendError, UnsupportedError  # noqa: E402
from tilecore_kernels import torch_ops  # noqa: E402

sdpa = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _needs_host_backend() -> None:
    try:
        torch_ops.backend_for("cpu")
    except BackendError:
        pytest.skip("no backend for host tensors is installed")


def _normal(*shape: int, seed: int = 0, dtype: Any = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def _leaves(*tensors: Any, dtype: Any = None) -> list[Any]:
    return [x.detach().to(dtype or x.dtype).requires_grad_() for x in tensors]


def _results(call: Any, leaves: list[Any], grad: Any) -> list[Any]:
    out = call(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(out.dtype))]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_gradients(causal: bool, kv_heads: int) -> None:
    q, grad = _normal(2, 4, 33, 32), _normal(2, 4, 33, 32, seed=1)
    k, v = (_normal(2, kv_heads, 33, 32, seed=n) for n in (2, 3))
    ours = _results(lambda *x: torch_ops.attention(*x, causal=causal), _leaves(q, k, v), grad)
    theirs = _results(
        lambda *x: sdpa(*x, is_causal=causal, enable_gqa=True), _leaves(q, k, v), grad
    )
    for got, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_gradients_of_a_fused_projection_come_in_its_strides() -> None:
    fused = _normal(2, 33, 3, 2, 16).requires_grad_()
    q, k, v = (fused[:, :, n].transpose(1, 2) for n in range(3))
    (ours,) = torch.autograd.grad(torch_ops.attention(q, k, v, causal=True).sum(), fused)
    (theirs,) = torch.autograd.grad(sdpa(q, k, v, is_causal=True).sum(), fused)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_deterministic_gradients_have_the_same_bits() -> None:
    leaves = _leaves(*(_normal(2, 4, 200, 32, seed=n) for n in range(3)))
    grad = _normal(2, 4, 200, 32, seed=3)
    first, *others = (
        _results(lambda *x: torch_ops.attention(*x, deterministic=True), leaves, grad)
        for _ in range(4)
    )
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_gradients_against_differences() -> None:
    q, k, v = (_normal(1, 1, 5, 4, seed=n) for n in range(3))
    _, dq, _, _ = _results(
        lambda *x: torch_ops.attention(*x, causal=True), _leaves(q, k, v), torch.ones(1, 1, 5, 4)
    )
    step = torch.zeros_like(q)
    step[0, 0, 3, 1] = 1e-2
    difference = torch_ops.flash_attention(q + step, k, v, True).sum()
    difference = (difference - torch_ops.flash_attention(q - step, k, v, True).sum()) / 2e-2
    torch.testing.assert_close(dq[0, 0, 3, 1], difference, rtol=1e-2, atol=1e-3)


def _hard(kind: str, seed: int) -> Any:
    x = _normal(1, 2, 97, 64, seed=seed)
    if kind == "large":
        return x * (8.0 if seed < 2 else 1.0)
    if kind == "outliers":
        x[..., ::31, seed] *= 50.0
    return x


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["half", "bfloat16"])
@pytest.mark.parametrize("kind", ["normal", "large", "outliers"])
def test_errors_are_no_larger_than_of_torch(kind: str, dtype: Any) -> None:
    """Root mean square errors against float64 of O and the gradients, beside torch's own."""
    q, k, v, grad = (_hard(kind, n).to(dtype) for n in range(4))
    exact = _results(
        lambda *x: sdpa(*x, is_causal=True), _leaves(q, k, v, dtype=torch.float64), grad
    )
    ours = _results(lambda *x: torch_ops.attention(*x, causal=True), _leaves(q, k, v), grad)
    theirs = _results(lambda *x: sdpa(*x, is_causal=True), _leaves(q, k, v), grad)
    for name, a, b, wanted in zip(("O", "dQ", "dK", "dV"), ours, theirs, exact, strict=True):
        got, other = ((x.double() - wanted).square().mean().sqrt() for x in (a, b))
        assert got <= 1.05 * other, f"{name}: {got:.3g}, torch {other:.3g}"


@pytest.mark.parametrize("page", [0, 16])
@pytest.mark.parametrize("heads_inside", [False, True])
def test_flash_decode(page: int, heads_inside: bool) -> None:
    q = _normal(3, 4, 32)
    k, v = _normal(3, 2, 48, 32, seed=1), _normal(3, 2, 48, 32, seed=2)
    lengths = torch.tensor([48, 7, 33], dtype=torch.int32)
    mask = (torch.arange(48) < lengths[:, None])[:, None, None]
    wanted = sdpa(q[:, :, None], k, v, attn_mask=mask, enable_gqa=True)[:, :, 0]
    table = None
    if page:
        order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
        table = order.to(torch.int32).view(3, 3)
        pages = [x.view(3, 2, 3, page, 32).transpose(1, 2).reshape(9, 2, page, 32) for x in (k, v)]
        k, v = (torch.empty_like(x).index_copy(0, order, x) for x in pages)
    if heads_inside:
        k, v = (x.transpose(1, 2).contiguous() for x in (k, v))
    out, lse = torch_ops.flash_decode(q, k, v, lengths, table, heads_inside)
    torch.testing.assert_close(out, wanted)
    assert lse.shape == (3, 4)


@pytest.mark.parametrize("page", [0, 16])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_varlen(causal: bool, page: int) -> None:
    lengths = [33, 0, 17, 40]
    starts = torch.tensor([0, 33, 33, 50, 90], dtype=torch.int32)
    q, k, v = _normal(90, 4, 32), _normal(90, 2, 32, seed=1), _normal(90, 2, 32, seed=2)
    keys, values, table = k, v, None
    if page:
        table = torch.arange(12, dtype=torch.int32).flip(0).reshape(4, 3)
        keys, values = torch.zeros(12, page, 2, 32), torch.zeros(12, page, 2, 32)
        for b, length in enumerate(lengths):
            for n in range(length):
                at = table[b, n // page], n % page
                keys[at], values[at] = k[starts[b] + n], v[starts[b] + n]
    out, lse = torch_ops.flash_varlen(q, keys, values, starts, starts, 40, table, causal)
    assert lse.shape == (4, 90)
    for b, length in enumerate(lengths):
        rows = slice(int(starts[b]), int(starts[b]) + length)
        one = [x[rows].transpose(0, 1)[None] for x in (q, k, v)]
        wanted = sdpa(*one, is_causal=causal, enable_gqa=True)
        torch.testing.assert_close(out[rows].transpose(0, 1)[None], wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_flash_varlen_has_gradients(causal: bool) -> None:
    """Those of torch's own attention of each sequence; none outside of all."""
    lengths, starts = [33, 0, 17, 40], torch.tensor([2, 35, 35, 52, 92], dtype=torch.int32)
    leaves = [_normal(95, heads, 32, seed=n).requires_grad_() for n, heads in enumerate((4, 2, 2))]
    grad = _normal(95, 4, 32, seed=3)
    out, _ = torch_ops.flash_varlen(*leaves, starts, starts, 40, None, causal)
    found = torch.autograd.grad(out, leaves, grad)
    rows = [slice(int(b), int(b) + n) for b, n in zip(starts, lengths, strict=False)]
    parts = [
        sdpa(*(x[at].transpose(0, 1)[None] for x in leaves), is_causal=causal, enable_gqa=True)
        for at in rows
    ]
    ours = torch.cat([part[0].transpose(0, 1) for part in parts])
    wanted = torch.autograd.grad(ours, leaves, grad[2:92])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_that_flash_varlen_has_not() -> None:
    q, starts = _normal(32, 2, 16).requires_grad_(), torch.tensor([0, 32], dtype=torch.int32)
    pages, table = _normal(2, 16, 2, 16), torch.tensor([[0, 1]], dtype=torch.int32)
    out, _ = torch_ops.flash_varlen(q, pages, pages, starts, starts, 32, table)
    with pytest.raises(UnsupportedError, match="pages"):
        out.sum().backward()
    out, _ = torch_ops.flash_varlen(q, q, q, starts, starts, 32)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(UnsupportedError, match="any order"):
            out.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_mla_decode() -> None:
    q, cache = _normal(2, 8, 48), _normal(2, 40, 48, seed=1)
    lengths = torch.tensor([40, 9], dtype=torch.int32)
    mask = (torch.arange(40) < lengths[:, None])[:, None]
    scores = (q @ cache.mT * 0.1).masked_fill(~mask, float("-inf"))
    out, lse = torch_ops.mla_decode(q, cache, lengths, 32, scale=0.1)
    torch.testing.assert_close(out, scores.softmax(-1) @ cache[..., :32])
    torch.testing.assert_close(lse, scores.logsumexp(-1))


def test_operators_obey_torch_library() -> None:
    """Schema, fake tensors and gradients, by torch's own checker."""
    q = _normal(1, 2, 17, 16)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    leaf = q.clone().requires_grad_()
    op = torch.ops.tilecore.attention_lse.default
    torch.library.opcheck(op, (leaf, q, q, True, -1, 0.0), test_utils=checks)
    lengths = torch.tensor([17], dtype=torch.int32)
    torch.library.opcheck(torch_ops.flash_decode, (q[:, :, 0].contiguous(), q, q, lengths))
    packed, starts = q[0].transpose(0, 1).contiguous(), torch.tensor([0, 17], dtype=torch.int32)
    leaf = packed.clone().requires_grad_()
    arguments = (leaf, packed, packed, starts, starts, 17)
    torch.library.opcheck(torch_ops.flash_varlen, arguments, test_utils=checks)
    cache = q[:, 0].contiguous()
    torch.library.opcheck(torch_ops.mla_decode, (q[:, :, 0].contiguous(), cache, lengths, 8))
