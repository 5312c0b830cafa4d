"""Target-free kernels: each with its float64 reference, its shapes and its tuning space.

``FAMILIES`` is the catalogue; `compile_kernel` compiles one problem of one family.
"""

from __future__ import annotations

from typing import Any

from tilecore_kernels.attention_backward import ATTENTION_BACKWARD
from tilecore_kernels.conv2d import CONV2D
from tilecore_kernels.elementwise import ADD, BIAS_ACTIVATION
from tilecore_kernels.family import Family
from tilecore_kernels.flash_attention import FLASH_ATTENTION
from tilecore_kernels.flash_attention_fp8 import FLASH_ATTENTION_FP8
from tilecore_kernels.flash_decode import FLASH_DECODE
from tilecore_kernels.flash_varlen import FLASH_VARLEN
from tilecore_kernels.gemm import GEMM
from tilecore_kernels.gemm_grouped import GROUPED_GEMM
from tilecore_kernels.gemm_scaled import SCALED_GEMM
from tilecore_kernels.gemm_split import SPLIT_GEMM
from tilecore_kernels.gemv import GEMV
from tilecore_kernels.layer_norm import LAYER_NORM
from tilecore_kernels.mla_decode import MLA_DECODE
from tilecore_kernels.reduce import REDUCE
from tilecore_kernels.rms_norm import RMS_NORM
from tilecore_kernels.softmax import SOFTMAX
from tilecore_kernels.transpose import TRANSPOSE
from tilecore_kernels.varlen_backward import VARLEN_BACKWARD

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        ADD,
        BIAS_ACTIVATION,
        SOFTMAX,
        RMS_NORM,
        LAYER_NORM,
        REDUCE,
        TRANSPOSE,
        GEMM,
        SCALED_GEMM,
        GROUPED_GEMM,
        SPLIT_GEMM,
        GEMV,
        CONV2D,
        FLASH_ATTENTION,
        FLASH_ATTENTION_FP8,
        ATTENTION_BACKWARD,
        FLASH_VARLEN,
        VARLEN_BACKWARD,
        FLASH_DECODE,
        MLA_DECODE,
    )
}
"""All kernels of this package by name."""


def compile_kernel(
    name: str,
    problem: Any,
    backend: str | None = None,
    *,
    arch: str | None = None,
    device: str = "native",
    config: Any | None = None,
) -> Any:
    """Compile one problem of the family called `name`.

    Args:
        name: key of `FAMILIES`.
        problem: the family's problem record.
        backend: which backend; None takes the best one present.
        arch: one of the backend's architectures; None takes the device's.
        device: ``"native"`` or ``"emulator"``.
        config: tiles; None takes the first choice for the target.

    Returns:
        A kernel that takes the inputs, then the outputs.

    Raises:
        TilecoreError: whatever the target cannot do.
    """
    import tilecore
    from tilecore.targets import choose_target

    family = FAMILIES[name]
    target = choose_target(backend, arch, device)
    program = family.build(problem, target, config)
    return tilecore.compile(program, target.backend, arch=target.arch, device=device)


__all__ = ["FAMILIES", "Family", "compile_kernel"]
