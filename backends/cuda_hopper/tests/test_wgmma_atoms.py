"""wgmma as atoms: layouts proven bijective, and equal to what the emulated instruction computes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilecore.emulator import LaunchShape, RunOptions, build_kernel, launch
from tilecore.emulator.report import KernelFaults
from tilecore.ir.dtypes import DType, numpy_dtype
from tilecore_backend_cuda_hopper.emulation import SUPPORT
from tilecore_backend_cuda_hopper.layout import descriptor_facts, panels
from tilecore_backend_cuda_hopper.mma import instruction_of, wgmma_atom
from tilecore_backend_cuda_hopper.wgmma_source import WGMMA_KINDS, legal_n

KINDS = [
    name for name, kind in WGMMA_KINDS.items() if kind.a != "tf32" and kind.accumulator != "f16"
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_atom_is_a_bijection(kind: str) -> None:
    for n in sorted(legal_n(WGMMA_KINDS[kind])):
        for in_registers in (False, True):
            atom = wgmma_atom(kind, n, in_registers)
            assert atom.c.is_bijective() and (atom.a is None or atom.a.is_bijective())
            instruction = instruction_of(atom.name)
            assert (instruction.kind, instruction.n) == (kind, n)
            assert instruction.a_in_registers == in_registers


KERNEL = """
TC_KERNEL(128, 0) wgmma(const uint8_t* A, const uint8_t* B, const {a_type}* A_fragment, {d}* D,
                        {d}* D_fragment) {{
  TC_SHARED_MEMORY(smem);
  auto a = tc::shared_buffer<uint8_t>(smem, 0, {a_bytes});
  auto b = tc::shared_buffer<uint8_t>(smem, {b_at}, {b_bytes});
  const int lane = tc::lane_in_block();
  for (int i = lane; i < {a_bytes}; i += 128) tc::store_shared(a + i, tc::load_global(A + i));
  for (int i = lane; i < {b_bytes}; i += 128) tc::store_shared(b + i, tc::load_global(B + i));
  {publish}
  tc::barrier();
  TC_FRAGMENT({d}, c, {count});
  TC_FRAGMENT({a_type}, operand, {a_count});
  for (int i = 0; i < {a_count}; ++i) operand[i] = A_fragment[lane * {a_count} + i];
  for (int i = 0; i < {count}; ++i) c[i] = D[lane * {count} + i];
  {fence}
  {call}
  hopper::wgmma_commit();
  {disturb}
  {wait}
  for (int i = 0; i < {count}; ++i) D_fragment[lane * {count} + i] = c[i];
}}
"""
WHOLE = {
    "publish": "hopper::publish();", "fence": "hopper::wgmma_begin();", "disturb": "",
    "wait": "hopper::wgmma_wait<0>();",
}  # fmt: skip


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    if dtype.is_int:
        return rng.integers(0, 100, shape).astype(numpy_dtype(dtype))
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def image(values: np.ndarray, element_bytes: int) -> tuple[np.ndarray, Any]:
    """Bytes of a stored operand in its shared layout, and the layout."""
    layout = panels(values.shape, element_bytes)
    assert layout is not None
    flat = np.zeros(layout.span, values.dtype)
    for at in np.ndindex(values.shape):
        flat[layout.offset(at)] = values[at]
    return flat.view(np.uint8), layout


def run(
    kind_name: str, n: int, depth: int, a_mn: bool, b_mn: bool, in_registers: bool = False,
    **changes: str,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(what the instruction left, what it should), for an operand of `depth` along k."""
    kind = WGMMA_KINDS[kind_name]
    atom = wgmma_atom(kind_name, n, in_registers)
    rng = np.random.default_rng(n + depth)
    a = random_values(rng, (64, depth), atom.a_dtype)
    b = random_values(rng, (depth, n), atom.b_dtype)
    width = atom.a_dtype.bytes
    a_image, a_layout = image(np.ascontiguousarray(a.T) if a_mn else a, width)
    b_image, b_layout = image(b if b_mn else np.ascontiguousarray(b.T), width)
    b_at = -(-a_image.size // 1024) * 1024
    step = depth - kind.k  # the last k step: descriptors are advanced into the panel

    def descriptor(name: str, layout: Any, dtype: DType, mn: bool) -> str:
        leading, stride, code = descriptor_facts(layout, dtype, mn)
        at = layout.offset((step, 0)) if mn else layout.offset((0, step))
        plain = at if layout.swizzle is None else layout.swizzle.apply(at)
        text = f"hopper::descriptor({name}, {leading}, {stride}, {code})"
        return f"hopper::advance({text}, {plain * width})"

    transposes = [str(int(flag)) for flag in ((b_mn,) if in_registers else (a_mn, b_mn))]
    template = f"<{', '.join(transposes)}>" if kind.has_transpose else ""
    a_text = (
        "hopper::words(operand)" if in_registers else descriptor("a", a_layout, atom.a_dtype, a_mn)
    )
    b_text = descriptor("b", b_layout, atom.b_dtype, b_mn)
    source = "rs" if in_registers else "ss"
    a_count = atom.a.registers if atom.a is not None else 4
    text = KERNEL.format(
        a_type={1: "uint8_t", 2: "uint16_t"}[width],
        d="int32_t" if kind.accumulator == "s32" else "float",
        a_bytes=a_image.size, b_bytes=b_image.size, b_at=b_at, count=n // 2, a_count=a_count,
        call=f"TC_WGMMA({kind_name}, {n}, {source}){template}(c, {a_text}, {b_text}, 1);",
        **{**WHOLE, **changes},
    )  # fmt: skip
    accumulator = np.int32 if kind.accumulator == "s32" else np.float32
    start = rng.integers(-5, 5, (64, n)).astype(accumulator)
    held = np.zeros((128, n // 2), accumulator)
    for at in np.ndindex(64, n):
        held[atom.c.place(at)] = start[at]
    fragment = np.zeros((128, a_count), {1: np.uint8, 2: np.uint16}[width])
    if atom.a is not None:
        part = np.ascontiguousarray(a[:, step:]).view(fragment.dtype)
        for at in np.ndindex(part.shape):
            fragment[atom.a.place(at)] = part[at]
    left = np.zeros_like(held)
    kernel = build_kernel(text, "wgmma", SUPPORT)
    shape = LaunchShape((1, 1, 1), (128, 1, 1), b_at + b_image.size)
    launch(kernel, [a_image, b_image, fragment, held, left], shape, RunOptions())
    got = np.zeros((64, n), accumulator)
    for at in np.ndindex(64, n):
        got[at] = left[atom.c.place(at)]
    want = start + a[:, step:].astype(np.float64) @ b[step:].astype(np.float64)
    return got, want


@pytest.mark.parametrize("depth", [16, 32, 64, 128])  # 32-, 64- and 128-byte swizzles, two panels
@pytest.mark.parametrize("majors", [(False, False), (False, True), (True, False), (True, True)])
def test_descriptors_of_the_layouts(depth: int, majors: tuple[bool, bool]) -> None:
    got, want = run("f32_f16", 48, depth, *majors)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("in_registers", [False, True], ids=["ss", "rs"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_computes(kind: str, in_registers: bool) -> None:
    got, want = run(kind, 32, 2 * WGMMA_KINDS[kind].k, False, False, in_registers)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


FAULTS = {
    "unpublished operands": ({"publish": ""}, "has not made its writes visible"),
    "no fence": ({"fence": ""}, "no wgmma.fence"),
    "accumulator written": ({"disturb": "c[0] = 0;"}, "written while a wgmma was under way"),
    "operand written": (
        {"disturb": "tc::store_shared(a + lane, uint8_t(1));"}, "may still be reading",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_misuse_is_reported(name: str) -> None:
    changes, message = FAULTS[name]
    with pytest.raises(KernelFaults, match=message):
        run("f32_f16", 16, 16, False, False, **changes)


ONE_WARP = "if (tc::uniform(lane / 32) == 1) hopper::wgmma_wait<0>();"


def test_a_warp_waits_for_itself() -> None:
    """One may wait where others do not; all have what is theirs after a wait of their own."""
    got, want = run("f32_f16", 16, 16, False, False, disturb=ONE_WARP)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    got, want = run("f32_f16", 16, 16, False, False, wait=ONE_WARP)
    np.testing.assert_allclose(got[16:32], want[16:32], rtol=1e-5, atol=1e-5)
    assert np.isnan(got[:16]).all() and np.isnan(got[32:]).all()


def test_operands_stay_until_all_warps_have_waited() -> None:
    overwritten = f"{ONE_WARP} if (lane / 32 == 1) tc::store_shared(a + lane, uint8_t(1));"
    with pytest.raises(KernelFaults, match="may still be reading"):
        run("f32_f16", 16, 16, False, False, disturb=overwritten)


def test_register_operand_must_stay() -> None:
    with pytest.raises(KernelFaults, match="register operand of wgmma was written"):
        run("f32_f16", 16, 16, False, False, True, disturb="operand[0] = uint16_t(operand[0] + 1);")


def test_accumulators_are_undefined_without_a_wait() -> None:
    got, _ = run("f32_bf16", 16, 16, False, False, wait="")
    assert np.isnan(got).all()


@pytest.mark.parametrize("left_behind", [{"wait": ""}, {"disturb": "c[0] = 0;"}])
def test_what_a_launch_left_under_way_is_not_seen_by_the_next(left_behind: dict[str, str]) -> None:
    """Lanes' memory is reused from launch to launch; state that is kept beside it must not be."""
    for _ in range(4):
        try:
            run("f32_f16", 16, 16, False, False, **left_behind)
        except KernelFaults as error:
            assert "written while a wgmma was under way" in str(error)
        got, want = run("f32_f16", 16, 16, False, False)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


assert ml_dtypes  # numpy knows bfloat16 and the 8-bit floats through it
