"""Each hook's answer is legal: what core relies on, asked directly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import tilecore
from tilecore.hooks.manager import hooks_of, installed_backends, targets_of
from tilecore.hooks.records import LayoutRequest, MmaRequest, PipelineRequest
from tilecore.ir.buffers import Scope
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Allocate, For, Gemm, LoopKind
from tilecore.ir.visit import walk_stmts
from tilecore.target import Target
from tilecore_conformance.cases import all_cases
from tilecore_conformance.programs import build
from tilecore_conformance.subjects import REFERENCE, Subject

SAMPLES = [case for case in all_cases() if case.area in ("gemm", "pipeline", "attention", "copy")][
    ::7
]


def _target(subject: Subject) -> Target:
    if subject.target is None:
        pytest.skip("the interpreter has no hooks")
    return subject.target


def _kernels() -> list[Kernel]:
    return [kernel for case in SAMPLES for kernel in build(case).function.program.kernels]


def test_targets_are_described(subject: Subject) -> None:
    targets = targets_of(_target(subject).backend)
    names = [target.arch for target in targets]
    assert len(set(names)) == len(names), "two architectures share a name"
    for target in targets:
        assert target.backend == subject.backend
        assert target.lanes_per_warp >= 1
        assert target.max_threads % target.lanes_per_warp == 0
        assert min(target.smem_bytes, target.registers_per_thread) >= 0
        assert min(target.grid_limits) >= 1


def test_probing_a_device_does_not_raise(subject: Subject) -> None:
    hooks = hooks_of(_target(subject).backend)
    for target in targets_of(subject.backend):
        found = hooks.call("tilecore_probe_device", target=target)
        assert found is None or (found.name and found.processors >= 1)


def test_probing_the_toolchain_does_not_raise(subject: Subject) -> None:
    hooks = hooks_of(_target(subject).backend)
    found = hooks.call("tilecore_probe_toolchain", target=subject.target)
    assert found is None or found.name


def test_mma_atoms_fit_their_gemm(subject: Subject) -> None:
    """An atom divides the tile, and its fragment layouts are bijections of (lane, register)."""
    target, asked = _target(subject), 0
    for kernel in _kernels():
        for stmt in walk_stmts(kernel.body):
            if not isinstance(stmt, Gemm):
                continue
            request = MmaRequest(stmt, kernel.threads)
            atom = hooks_of(target.backend).call(
                "tilecore_select_mma", request=request, target=target
            )
            asked += 1
            if atom is None:
                continue
            m, n = stmt.c.static_shape or (0, 0)
            assert m % atom.m == 0 and n % atom.n == 0, f"{atom.name} does not divide {m}x{n}"
            assert kernel.threads % atom.lanes == 0
            assert (atom.a_dtype, atom.c_dtype) == (stmt.a.dtype, stmt.c.dtype)
            for layout in (atom.a, atom.b, atom.c):
                if layout is not None:
                    assert layout.registers * layout.threads == (
                        math.prod(layout.shape) * layout.replicas
                    )
    assert asked, "no sample has a gemm"


def test_shared_layouts_are_injective(subject: Subject) -> None:
    """Checked by the caller of the hook: an answer that is not raises."""
    target, asked = _target(subject), 0
    for kernel in _kernels():
        stmts = tuple(walk_stmts(kernel.body))
        for stmt in stmts:
            if isinstance(stmt, Allocate) and stmt.buffer.scope is Scope.SHARED:
                request = LayoutRequest(stmt.buffer, stmts, kernel)
                layout = hooks_of(target.backend).call(
                    "tilecore_choose_layout", request=request, target=target
                )
                assert layout is not None
                asked += 1
    assert asked, "no sample has a shared buffer"


def test_pipeline_plans_are_legal(subject: Subject) -> None:
    """A plan is a permutation of the loop's statements and fits what is free."""
    target, asked = _target(subject), 0
    for kernel in _kernels():
        for stmt in walk_stmts(kernel.body):
            if isinstance(stmt, For) and stmt.kind is LoopKind.PIPELINED:
                request = PipelineRequest(stmt, kernel, target.smem_bytes or 1 << 20)
                plan = hooks_of(target.backend).call(
                    "tilecore_plan_pipeline", request=request, target=target
                )
                assert plan.num_stages >= 1
                asked += 1
    assert asked, "no sample has a pipelined loop"


def test_fingerprint_is_stable(subject: Subject) -> None:
    target = _target(subject)
    hooks = hooks_of(target.backend)
    toolchain = hooks.call("tilecore_probe_toolchain", target=target)
    if toolchain is not None and toolchain.missing:
        pytest.skip(f"not run: {toolchain.missing}")
    first, second = (hooks.call("tilecore_toolchain_fingerprint", target=target) for _ in range(2))
    assert first == second
    assert first.strip()


def test_emulator_headers_exist(subject: Subject) -> None:
    target = _target(subject)
    support = hooks_of(target.backend).call(
        "tilecore_emulator_support", target=replace(target, device="emulator")
    )
    if support is None:
        pytest.skip("the backend ships no emulator support")
    folders = support.include_directories
    assert all(folder.is_dir() for folder in folders)
    assert any((folder / support.header).is_file() for folder in folders)
    assert all(source.is_file() for source in support.sources)
    assert support.lanes_per_warp == target.lanes_per_warp


def test_source_names_every_kernel(subject: Subject) -> None:
    """The source lists each entry point, and its text mentions it."""
    target = _target(subject)
    for case in SAMPLES[:6]:
        function = build(case).function
        source = tilecore.lower(function, target=target).source
        assert len(source.kernels) == len(function.program.kernels)
        for kernel in source.kernels:
            assert kernel.name in source.text
            assert kernel.threads >= 1


def test_the_backend_is_installed_by_its_name(subject: Subject) -> None:
    if subject.backend == REFERENCE:
        pytest.skip("core's own interpreter")
    assert subject.backend in installed_backends()
