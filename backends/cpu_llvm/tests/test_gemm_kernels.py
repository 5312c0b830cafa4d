"""Micro-kernels against NumPy, on operands packed here in plain loops."""

from __future__ import annotations

import ctypes
import dataclasses
import time

import numpy as np
import pytest

from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore_backend_cpu.builder import ModuleWriter
from tilecore_backend_cpu.gemm_kernels import (
    GemmEmitter,
    GemmPlan,
    GemmShape,
    emit_tile_config,
    emit_tile_release,
    plan_gemm,
)
from tilecore_backend_cpu.host import HostCpu, describe_cpu, detect_host
from tilecore_backend_cpu.jit import compile_assembly, compile_object, load_object


def pack_b(b: np.ndarray, plan: GemmPlan) -> np.ndarray:
    k, n = b.shape
    depth = plan.group if plan.kind != "tile" else plan.k_block
    groups = -(-k // depth) * depth // plan.group
    panels = -(-n // plan.n_block)
    padded = np.zeros((groups * plan.group, panels * plan.n_block), b.dtype)
    padded[:k, :n] = b
    shaped = padded.reshape(groups, plan.group, panels, plan.n_block)
    return np.ascontiguousarray(shaped.transpose(2, 0, 3, 1))


def build(cpu: HostCpu, shape: GemmShape, plan: GemmPlan, clear: bool) -> str:
    module = ModuleWriter()
    module.set_target(cpu.name, cpu.feature_string, cpu.vector_bits)
    name = GemmEmitter(module, cpu).function(shape, plan, clear)
    w = module.function("run", "void", [("ptr", "A"), ("ptr", "B"), ("ptr", "C")])
    if plan.kind == "tile":
        emit_tile_config(w)
    w.call(name, "void", w.parameters)
    if plan.kind == "tile":
        emit_tile_release(w)
    w.ret()
    return str(module)


def aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    raw = np.zeros(shape[0] * shape[1] * dtype.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + shape[0] * shape[1] * dtype.itemsize].view(dtype).reshape(shape)


def random_values(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    if dtype.kind in "iu":
        low = -9 if dtype.kind == "i" else 0
        return generator.integers(low, 9, shape).astype(dtype)
    return generator.uniform(-1, 1, shape).astype(dtype)


CPUS = {
    "host": detect_host(),
    "avx512_bf16": dataclasses.replace(detect_host(), has_tile_permission=False),
    "avx2": describe_cpu(
        "haswell",
        detect_host().arch,
        frozenset(n for n in detect_host().features if not n.startswith(("avx512", "amx"))),
        False,
    ),
}
TYPES = [
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float16", "float32"),
    ("int8", "int8", "int32"),
    ("uint8", "int8", "int32"),
    ("float8_e4m3fn", "float8_e5m2", "float32"),
]


@pytest.mark.parametrize("cpu", CPUS, ids=str)
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize(
    "size", [(1, 1, 1), (7, 33, 5), (31, 65, 64), (16, 32, 127), (130, 48, 700)]
)
def test_matches_numpy(cpu: str, types: tuple[str, str, str], size: tuple[int, int, int]) -> None:
    host = CPUS[cpu]
    a_dtype, b_dtype, c_dtype = (dtype_of(name) for name in types)
    plan = plan_gemm(a_dtype, b_dtype, c_dtype, host)
    m, n, k = size
    generator = np.random.default_rng(m * n + k)
    k_pitch = -(-k // plan.k_block) * plan.k_block
    rows = -(-m // 16) * 16
    a = aligned_zeros((rows, k_pitch), numpy_dtype(plan.a_dtype))
    a[:m, :k] = random_values(generator, (m, k), numpy_dtype(a_dtype)).astype(a.dtype)
    b = random_values(generator, (k, n), numpy_dtype(b_dtype))
    c = aligned_zeros((rows, -(-n // 32) * 32), numpy_dtype(c_dtype))
    start = random_values(generator, c.shape, c.dtype)
    want = a[:m, :k].astype(np.float64) @ b.astype(np.float64)
    for clear in (False, True):
        c[:] = start
        shape = GemmShape(m, n, k, a_dtype, b_dtype, c_dtype, a.shape[1], c.shape[1])
        code = load_object(compile_object(build(host, shape, plan, clear), host), ["run"])
        packed = pack_b(b, plan)
        run = code.function("run", None, *[ctypes.c_void_p] * 3)
        run(a.ctypes.data, packed.ctypes.data, c.ctypes.data)
        expected = want + (0 if clear else start[:m, :n])
        tolerance = 1e-12 if c_dtype.bits == 64 else 3e-6 * k
        np.testing.assert_allclose(c[:m, :n], expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "triple", "features", "arch"),
    [
        (
            "znver4",
            "x86_64-unknown-linux-gnu",
            "avx512f avx512bw avx512dq avx512vl avx512bf16 avx2 fma",
            "x86_64",
        ),
        ("haswell", "x86_64-unknown-linux-gnu", "avx2 fma f16c", "x86_64"),
        ("neoverse-n1", "aarch64-unknown-linux-gnu", "neon", "aarch64"),
    ],
)
@pytest.mark.parametrize("types", TYPES[:3], ids="-".join)
def test_other_cpus_keep_accumulators_in_registers(
    name: str, triple: str, features: str, arch: str, types: tuple[str, str, str]
) -> None:
    cpu = describe_cpu(name, arch, frozenset(features.split()), False)
    a_dtype, b_dtype, c_dtype = (dtype_of(one) for one in types)
    plan = plan_gemm(a_dtype, b_dtype, c_dtype, cpu)
    shape = GemmShape(plan.m_block, plan.n_block, 64, a_dtype, b_dtype, c_dtype, 64, plan.n_block)
    text = compile_assembly(build(cpu, shape, plan, True), cpu, triple)
    assert "Spill" not in text
    wanted = {"dot": "vdpbf16ps", "fma": "fmla" if arch == "aarch64" else "vfmadd"}[plan.kind]
    assert wanted in text


def measure(types: tuple[str, str, str], m: int, n: int, k: int) -> float:
    host = detect_host()
    a_dtype, b_dtype, c_dtype = (dtype_of(name) for name in types)
    plan = plan_gemm(a_dtype, b_dtype, c_dtype, host)
    a = aligned_zeros((m, k + 64 // a_dtype.bytes), numpy_dtype(plan.a_dtype))
    packed = pack_b(np.zeros((k, n), numpy_dtype(b_dtype)), plan)
    c = aligned_zeros((m, n), numpy_dtype(c_dtype))
    shape = GemmShape(m, n, k, a_dtype, b_dtype, c_dtype, a.shape[1], c.shape[1])
    started = time.perf_counter()
    code = load_object(compile_object(build(host, shape, plan, False), host), ["run"])
    compile_s = time.perf_counter() - started
    run = code.function("run", None, *[ctypes.c_void_p] * 3)
    best = 1e9
    for _ in range(20):
        started = time.perf_counter()
        run(a.ctypes.data, packed.ctypes.data, c.ctypes.data)
        best = min(best, time.perf_counter() - started)
    print(
        types,
        m,
        n,
        k,
        f"{2 * m * n * k / best * 1e-9:.1f} GFLOP/s, compile {compile_s * 1e3:.0f} ms",
    )
    return 2 * m * n * k / best


if __name__ == "__main__":
    for sizes in ((128, 128, 128), (256, 256, 256), (512, 256, 256), (512, 512, 512), (64, 64, 64)):
        measure(TYPES[0], *sizes)
        measure(TYPES[2], *sizes)
    measure(TYPES[1], 256, 256, 256)
    measure(TYPES[3], 256, 256, 256)
    measure(TYPES[4], 256, 256, 256)
