"""The device header and the generated wgmma functions pass the real assembler silently."""

from __future__ import annotations

from pathlib import Path

import pytest

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed: not run")

PACKAGE = Path(__file__).resolve().parents[1] / "tilecore_backend_cuda_hopper"
HEADERS = {path.name: path.read_text() for path in (PACKAGE / "headers").glob("*.cuh")}

from tilecore_backend_cuda_hopper.wgmma_source import (  # noqa: E402
    WGMMA_KINDS,
    WgmmaInstruction,
    legal_n,
    wgmma_function,
    wgmma_source,
)


def compile_cubin(source: str, headers: dict[str, str]) -> tuple[bytes, str]:
    """Cubin for sm_90a and the log; fails the test on a compiler error."""
    names, texts = [k.encode() for k in headers], [v.encode() for v in headers.values()]
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"t.cu", len(names), texts, names)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    options = [b"--gpu-architecture=sm_90a", b"--std=c++17", b"--ptxas-options=-v"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.decode(errors="replace")
    if "libnvptxcompiler" in text or "cannot open" in text:
        pytest.skip(f"NVRTC is incomplete here: not run ({text.strip()[:80]})")
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, text
    cubin = b" " * nvrtc.nvrtcGetCUBINSize(program)[1]
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return cubin, text


def call_text(instruction: WgmmaInstruction) -> str:
    """A kernel that runs one instruction between a fence and a wait and stores the accumulators."""
    kind = WGMMA_KINDS[instruction.kind]
    count = instruction.n // 2 // kind.accumulators_per_register
    ctype = {"f32": "float", "s32": "int", "f16": "u32"}[kind.accumulator]
    a = "a" if instruction.a_in_registers else "matrix_descriptor(address, 16, 1024)"
    return f"""
extern "C" __global__ void __launch_bounds__(128, 1)
    k_{instruction.function_name}({ctype}* out, u32 address) {{
  {ctype} d[{count}];
  u32 a[4] = {{address, address + 1, address + 2, address + 3}};
  pin_fragment(d);
  pin_fragment(a);
  wgmma_fence();
  {instruction.function_name}(d, {a}, matrix_descriptor(address + 4096, 16, 1024), 0);
  {instruction.function_name}(d, {a}, matrix_descriptor(address + 8192, 16, 1024), 1);
  wgmma_commit();
  wgmma_wait<0>();
  pin_fragment(d);
  for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = d[i];
}}
"""


def check_instructions(instructions: list[WgmmaInstruction]) -> None:
    source = '#include "hopper.cuh"\n#include "wgmma.cuh"\nusing namespace tc;\n'
    source += "".join(call_text(one) for one in instructions)
    cubin, log = compile_cubin(source, {**HEADERS, "wgmma.cuh": wgmma_source(instructions)})
    assert len(cubin) > 1000
    assert "serialized" not in log, log
    assert "is injected" not in log, log


@pytest.mark.parametrize("a_in_registers", [False, True], ids=["ss", "rs"])
@pytest.mark.parametrize("kind", sorted(WGMMA_KINDS))
def test_wgmma_assembles(kind: str, a_in_registers: bool) -> None:
    chosen = sorted(legal_n(WGMMA_KINDS[kind]) & {8, 24, 80, 256})
    check_instructions([WgmmaInstruction(kind, n, a_in_registers) for n in chosen])


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(WGMMA_KINDS))
def test_every_wgmma_shape_assembles(kind: str) -> None:
    shapes = sorted(legal_n(WGMMA_KINDS[kind]))
    check_instructions([WgmmaInstruction(kind, n, rs) for n in shapes for rs in (False, True)])


@pytest.mark.parametrize("n", [0, 4, 12, 264])
def test_illegal_columns_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match="wgmma n for f32_f16"):
        WgmmaInstruction("f32_f16", n)


def test_integer_columns_are_coarser() -> None:
    with pytest.raises(ValueError, match="wgmma n for s32_s8_s8"):
        WgmmaInstruction("s32_s8_s8", 40)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="wgmma kind"):
        WgmmaInstruction("f32_f8", 64)


def test_text_is_stable_and_has_each_function_once() -> None:
    two = [WgmmaInstruction("f32_bf16", 64, True), WgmmaInstruction("f32_f16", 128)]
    text = wgmma_source([*two, two[0]])
    assert text == wgmma_source(reversed(two))
    for one in two:
        assert text.count(f"void {one.function_name}(") == 1
        assert wgmma_function(one) in text


VOCABULARY = """
#include "hopper.cuh"
using namespace tc;
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1)
    vocabulary(const __grid_constant__ TensorMap map, float* out, const void* in) {
  extern __shared__ __align__(1024) unsigned char shared[];
  u32 base = shared_address(shared), barrier = base + 65536, lane = lane_index();
  if (warp_index() == 0 && elect_one()) {
    tensor_map_prefetch(map);
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
  }
  cluster_arrive();
  cluster_wait();
  if (warpgroup_index() == 0) {
    register_decrease<40>();
    if (warp_index() == 0 && elect_one()) {
      mbarrier_arrive_expect_bytes(barrier, 4096);
      tma_load(base, map, barrier, kEvictFirst, 0, 1);
      tma_load(base, map, barrier, kEvictLast, 0, 1, 2);
      tma_load(base, map, barrier, kEvictNormal, 0, 1, 2, 3);
      tma_load(base, map, barrier, kEvictNormal, 0, 1, 2, 3, 4);
      tma_load_multicast(base, map, barrier, kEvictNormal, 3, 0, 1);
      tma_load_multicast(base, map, barrier, kEvictNormal, 3, 0, 1, 2);
      tma_load_multicast(base, map, barrier, kEvictNormal, 3, 0, 1, 2, 3);
      tma_load_multicast(base, map, barrier, kEvictNormal, 3, 0, 1, 2, 3, 4);
      bulk_load(base, in, 256, barrier);
      mbarrier_wait(barrier, 0);
      tma_store(map, base, 0, 1);
      tma_store(map, base, 0, 1, 2);
      tma_store(map, base, 0, 1, 2, 3);
      tma_store(map, base, 0, 1, 2, 3, 4);
      tma_store_add(map, base, 0, 1);
      tma_store_add(map, base, 0, 1, 2);
      tma_store_add(map, base, 0, 1, 2, 3);
      bulk_store(out, base, 256);
      bulk_store_add_f32(out, base, 256);
      tma_store_commit();
      tma_store_wait_read<1>();
      tma_store_wait<0>();
    }
  } else {
    register_increase<232>();
    u32 r[4];
    load_matrix_x4(r, base + 16 * lane);
    store_matrix_x4(base + 16 * lane, r[0], r[1], r[2], r[3]);
    load_matrix_x4_transposed(r, base + 16 * lane);
    store_matrix_x4_transposed(base + swizzle_128b(16 * lane), r[0], r[1], r[2], r[3]);
    store_matrix_x2(base + 16 * lane, r[0], r[1]);
    fence_async_proxy();
    named_barrier_arrive(1, 256);
    named_barrier_sync(2, 128);
    if (!mbarrier_try_wait(barrier, 0)) mbarrier_arrive(barrier);
    if (lane < 2) mbarrier_arrive_remote(barrier, lane);
    float x = __uint_as_float(shared_load(base + 4 * lane));
    x = quad_sum(quad_max(exp2_approx(x))) + log2_approx(x) * reciprocal_approx(x);
    shared_store(base, pack_16bit<Float16>(x, x) ^ pack_16bit<BFloat16>(x, -x) ^ round_tf32(x));
    shared_store(base + 4, pack_e4m3(x, x) | pack_e5m2(x, x) << 16);
    out[threadIdx.x] = x == kInfinity ? cluster_rank() : x + clock_cycles() - global_nanoseconds();
  }
}
"""


def test_whole_vocabulary_assembles() -> None:
    cubin, log = compile_cubin(VOCABULARY, HEADERS)
    assert len(cubin) > 1000
    assert "ignored" not in log, log
