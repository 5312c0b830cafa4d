"""Programs with new imports: both styles, searches, profilers, tests; the rest is refused."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

import tilecore.compat as tilelang
import tilecore.language as T
from tilecore.compat import settings as compat_settings
from tilecore.compat.pass_configs import (
    PassConfigKey,
    compile_options,
    known_configs,
    printed_stages,
)
from tilecore.errors import ArgumentError, BackendError, UnsupportedError
from tilecore.hooks.records import CompileOptions

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def on_reference() -> Any:
    before = compat_settings.settings
    kept = (before.backend, before.device, before.quick)
    tilelang.use(device="reference")
    yield
    before.backend, before.device, before.quick = kept


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: False})
def matmul(M, N, K, block=16, dtype=T.float32):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            a = T.alloc_shared((block, block), dtype)
            b = T.alloc_shared((block, block), dtype)
            c = T.alloc_fragment((block, block), T.float32)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(K, block), num_stages=2):
                T.copy(A[by * block, ko * block], a)
                T.copy(B[ko * block, bx * block], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block, bx * block])

    return main


@tilelang.jit
def double(A):
    n = T.const("n")
    A: T.Tensor[[n], T.float32]
    B = T.empty((n,), T.float32)
    with T.Kernel(1) as _:
        for i in T.Parallel(n):
            B[i] = A[i] * 2
    return B


def test_factory_style_profiler_and_source() -> None:
    kernel = matmul(32, 32, 16)
    assert isinstance(kernel, tilelang.JITKernel) and matmul(32, 32, 16) is kernel
    assert "T.gemm" in kernel.get_kernel_source() or kernel.get_kernel_source()
    profiler = kernel.get_profiler(tensor_supply_type=tilelang.TensorSupplyType.Integer)
    profiler.assert_allclose(lambda a, b: a @ b, rtol=1e-3, atol=1e-3)
    with pytest.raises(AssertionError, match=r"elements differ.*first at \(\d+, \d+\)"):
        profiler.assert_allclose(lambda a, b: a @ b + 1, rtol=1e-3, atol=1e-3)
    tilelang.use(device="reference", quick=True)
    assert profiler.do_bench() > 0
    assert [param.shape for param in kernel.params] == [(32, 16), (16, 32), (32, 32)]


def test_eager_style_gives_torch_tensors() -> None:
    a = torch.arange(5, dtype=torch.float32)
    assert torch.equal(double(a), a * 2)
    assert torch.equal(double.compile(a)(a), a * 2)


def test_types_stand_for_tensors_where_nothing_runs() -> None:
    program = double.get_tir(T.Tensor((7,), "float32"))
    assert [param.name for param in program.params] == ["A", "B"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "int8", "bool"])
def test_results_without_tensor_inputs_are_torch_tensors(dtype: str) -> None:
    @T.prim_func
    def ones(C: T.Tensor((4,), dtype)):
        with T.Kernel(1) as _:
            T.fill(C, 1)

    result = tilelang.compile(ones, out_idx=0)()
    assert result.dtype == getattr(torch, dtype) and result.float().tolist() == [1] * 4


def test_in_place_results_are_compared() -> None:
    program = matmul.get_tir(16, 16, 16)
    kernel = tilelang.compile(program)

    def reference(a: Any, b: Any, c: Any) -> None:
        c.copy_(a @ b)

    kernel.get_profiler().assert_allclose(reference, rtol=1e-3, atol=1e-3)
    with pytest.raises(AssertionError, match="elements differ"):
        kernel.get_profiler().assert_allclose(lambda a, b, c: None)
    with pytest.raises(ArgumentError, match="whether they return something"):
        kernel.get_profiler().assert_allclose(lambda a, b, c: a @ b)


def test_search_tries_all_configurations_and_keeps_the_best() -> None:
    tried: list[int] = []

    @tilelang.autotune(configs=[{"block": 8}, {"block": 16}])
    @tilelang.jit(out_idx=[-1])
    def tuned(n, block=4):
        tried.append(block)
        return matmul.function(n, n, n, block)

    kernel = tuned(16)
    assert tried == [8, 16] and kernel.config in ({"block": 8}, {"block": 16})
    assert kernel.latency is not None and kernel.latency > 0
    assert tuned(16) is kernel and tried == [8, 16]


def test_what_is_not_offered_is_refused_with_the_reason() -> None:
    with pytest.raises(
        UnsupportedError, match=r"tvm\.IRModule is not offered: the intermediate form"
    ):
        tilelang.tvm.IRModule()
    with pytest.raises(UnsupportedError, match="toolchains of another compiler"):
        from tilecore.compat.contrib import nvcc

        nvcc.compile("")
    with pytest.raises(UnsupportedError, match=r"tl\.enable_dump_ir.*TILECORE_DUMP"):
        tilelang.compile(matmul.get_tir(16, 16, 16), pass_configs={"tl.enable_dump_ir": True})
    with pytest.raises(UnsupportedError, match="'tl.unheard' is not known"):
        tilelang.compile(matmul.get_tir(16, 16, 16), pass_configs={"tl.unheard": 1})
    with pytest.raises(UnsupportedError, match="flags of one toolchain"):
        tilelang.compile(matmul.get_tir(16, 16, 16), compile_flags=["-O1"])
    with pytest.raises(UnsupportedError, match="no host source"):
        matmul(16, 16, 16).get_host_source()
    with pytest.raises(AttributeError, match="no 'nothing'"):
        _ = tilelang.nothing


def test_metadata_of_sparse_operands_is_described_as_gemm_sp_reads_it() -> None:
    """Integers of E a row: a group of 4 (32-bit elements: of 2) has one entry of 4 bits."""
    from tilecore.compat import sparse_layout

    assert tilelang.MODULES["cuda.intrinsics.sparse_layout"] == "tilecore.compat.sparse_layout"
    assert sparse_layout.get_e_factor(T.float16, T.int16) == 16
    assert sparse_layout.get_e_factor("float32", "int8") == 4
    assert sparse_layout.get_e_factor(T.int8, T.int32) == 32
    with pytest.raises(ArgumentError, match="no sparse operand has this dtype.*got float64"):
        sparse_layout.get_e_factor("float64", "int16")


def test_what_stands_in_for_a_device_has_its_tensors_on_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a backend of the device that is here gets tensors there."""
    from tilecore.compat.settings import is_on_accelerator
    from tilecore.compat.supply import default_device

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    places = {
        (None, "native"): True,
        ("cuda_hopper", "native"): True,
        ("cuda_hopper", "emulator"): False,
        ("cpu_llvm", "native"): False,
        (None, "reference"): False,
    }
    for (backend, device), expected in places.items():
        tilelang.use(backend, device)
        assert is_on_accelerator() is expected
        assert default_device() == ("cuda" if expected else "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    tilelang.use("cuda_hopper", "native")
    assert not is_on_accelerator()


def test_element_types_and_constants_of_the_other_compiler() -> None:
    from tilecore.compat.tvm import DataType, tirx

    assert DataType("float16").bits == 16 and tilelang.DataType("int8") == T.int8
    value = tirx.reinterpret("float32", tirx.Cast("uint32", tirx.const(5, "int64")))
    assert isinstance(value, tirx.PrimExpr) and value.dtype == "float32"
    with pytest.raises(UnsupportedError, match=r"tvm\.tirx\.stmt_functor is not offered"):
        tirx.stmt_functor.substitute(value)


def test_targets_name_backends() -> None:
    tilelang.use()
    assert compat_settings.backend_for("auto") is None
    assert compat_settings.backend_for({"kind": "llvm"}) == "cpu_llvm"
    with pytest.raises(BackendError, match="no backend serves target 'metal'"):
        compat_settings.backend_for("metal")
    tilelang.use(backend="cpu_llvm")
    assert compat_settings.backend_for("cuda -arch=x") == "cpu_llvm"


def test_requirements_mark_tests() -> None:
    tilelang.use(backend="cpu_llvm")

    def test() -> None: ...

    def skipped(function: Any) -> bool:
        return function.pytestmark[-1].args[0]

    assert not skipped(tilelang.testing.requires_cuda(test))
    assert not skipped(tilelang.testing.requires_cuda_compute_version_ge(8, 0)(test))
    assert skipped(tilelang.testing.requires_cuda_compute_version_ge(10, 0)(test))
    assert skipped(tilelang.testing.requires_metal(test))


def test_close_allows_a_ratio() -> None:
    a = torch.zeros(1000)
    b = a.clone()
    b[3] = 1
    assert tilelang.utils.tensor.torch_assert_close(a, b, max_mismatched_ratio=0.001)
    with pytest.raises(AssertionError, match="1 of 1000"):
        tilelang.utils.tensor.torch_assert_close(a, b, max_mismatched_ratio=0.0005)


def test_tensors_that_a_program_never_touches_may_be_none() -> None:
    n = T.dynamic("n")

    @T.prim_func
    def doubled(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1) as _:
            for i in T.Parallel(4):
                A[i] = A[i] * 2

    kernel = tilelang.compile(doubled)
    a = torch.ones(4)
    kernel(a, None)
    assert a.tolist() == [2.0] * 4
    with pytest.raises(ArgumentError, match="A is of the wrong kind"):
        kernel(None, a)


def test_a_search_gives_its_kernel_and_options_of_configurations_reach_the_compiler() -> None:
    configs = [{"block": 8, "pass_configs": {"tl.enable_fast_math": True}}, {"block": 16}]

    @tilelang.autotune(configs=configs)
    @tilelang.jit
    def tuned(A, block=None):
        n = T.const("n")
        A: T.Tensor[[n], T.float32]
        B = T.empty((n,), T.float32)
        with T.Kernel(T.ceildiv(n, block)) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2
        return B

    kernel = tuned.compile(n=16)
    assert kernel.config["block"] in (8, 16)
    assert tuned(torch.ones(16)).tolist() == [2.0] * 16


def test_a_target_s_block_chooses_the_backend() -> None:
    from tilecore.compat.tvm.target import Target

    assert Target({"kind": "c"}).kind.name == "c"
    with Target("llvm") as target:
        kernel = tilelang.compile(matmul.get_tir(16, 16, 16))
    assert target == "llvm" and kernel.kernel.target.backend in ("reference", "cpu_llvm")
    with pytest.raises(ArgumentError, match="a target needs a kind"):
        Target("")


def test_every_option_of_another_compiler_has_a_typed_equivalent_or_a_reason() -> None:
    """``pass_configs`` by name and by key: an option, advice, a stage to print, or refused."""
    fields = {field.name for field in dataclasses.fields(CompileOptions)}
    kinds = {one.kind for one in known_configs()}
    assert kinds == {"option", "advice", "print", "refused"}
    for one in known_configs():
        assert getattr(PassConfigKey, one.name) == one.key
        for key in (one.name, one.key):
            if one.kind == "refused":
                with pytest.raises(UnsupportedError, match=re.escape(one.reason)):
                    compile_options({key: True})
                continue
            chosen = compile_options({key: True})
            if one.kind == "option":
                assert one.reason in fields
                assert getattr(chosen, one.reason) is True
                assert compile_options({key: False}) == CompileOptions()
            else:
                assert chosen == CompileOptions(), f"{one.key} is {one.kind}, not an option"
            assert printed_stages({key: True}) == ((one.reason,) if one.kind == "print" else ())
    with pytest.raises(UnsupportedError, match="is not known"):
        compile_options({"tl.nobody_has_this": True})
