"""The torch operators agree with torch's own, also through torch.library's checks."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilecore.errors import ArgumentError, BackendError  # noqa: E402
from tilecore_kernels import torch_ops  # noqa: E402


@pytest.fixture(autouse=True)
def _needs_host_backend() -> None:
    try:
        torch_ops.backend_for("cpu")
    except BackendError:
        pytest.skip("no backend for host tensors is installed")


def _normal(*shape: int, dtype: Any = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(causal: bool) -> None:
    q, k, v = _normal(2, 4, 33, 32), _normal(2, 2, 33, 32), _normal(2, 2, 33, 32)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=True
    )
    torch.testing.assert_close(torch_ops.flash_attention(q, k, v, causal), wanted)


@pytest.mark.parametrize("activation", ["identity", "gelu"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear(has_bias: bool, activation: str) -> None:
    x, weight = _normal(3, 5, 33), _normal(17, 33)
    bias = _normal(17) if has_bias else None
    wanted = torch.nn.functional.linear(x, weight, bias)
    if activation == "gelu":
        wanted = torch.nn.functional.gelu(wanted)
    got = torch_ops.linear(x, weight, bias, activation)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_rows() -> None:
    x, weight, bias = _normal(3, 5, 65), _normal(65), _normal(65)
    functional = torch.nn.functional
    torch.testing.assert_close(torch_ops.softmax(x), functional.softmax(x, -1))
    wanted = functional.rms_norm(x, (65,), weight, 1e-5)
    torch.testing.assert_close(torch_ops.rms_norm(x, weight), wanted)
    wanted = functional.layer_norm(x, (65,), weight, bias)
    torch.testing.assert_close(torch_ops.layer_norm(x, weight, bias), wanted)


def test_operators_obey_torch_library() -> None:
    """Schema, fake tensors and tracing, by torch's own checker."""
    checks = ("test_schema", "test_faketensor")
    q = _normal(1, 2, 17, 16)
    torch.library.opcheck(torch_ops.flash_attention, (q, q, q, True), test_utils=checks)
    torch.library.opcheck(torch_ops.softmax, (_normal(5, 33),), test_utils=checks)
    arguments = (_normal(5, 33), _normal(7, 33), _normal(7), "gelu")
    torch.library.opcheck(torch_ops.linear, arguments, test_utils=checks)


def test_strided_input_is_read_where_it_lies() -> None:
    fused = _normal(1, 17, 3, 2, 16)
    q, k, v = (fused[:, :, n].transpose(1, 2) for n in range(3))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(torch_ops.flash_attention(q, k, v), wanted)
    with pytest.raises(ArgumentError, match="last axis"):
        torch_ops.flash_attention(q.transpose(2, 3), k, v)


def test_wrong_rank_is_refused() -> None:
    with pytest.raises(ArgumentError, match="axes"):
        torch_ops.flash_attention(_normal(17, 16), _normal(17, 16), _normal(17, 16))
