"""Same program, same text, same result; another program, another kernel."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import tilecore
import tilecore.language as T
from tilecore.compiler import program_of
from tilecore.ir.stmts import Atomic
from tilecore.ir.visit import walk_stmts
from tilecore_conformance.cases import all_cases
from tilecore_conformance.compare import difference
from tilecore_conformance.execute import call, compile_for
from tilecore_conformance.experiment import Expected, Experiment, normal, output
from tilecore_conformance.programs import build
from tilecore_conformance.subjects import Subject

SAMPLES = [case for case in all_cases() if case.smoke]

EMIT = """
import sys
import tilecore
from tilecore.targets import choose_target
from tilecore_conformance.cases import all_cases
from tilecore_conformance.programs import build
target = choose_target(sys.argv[1], sys.argv[2])
for case in all_cases():
    if case.smoke:
        print(tilecore.lower(build(case).function, target=target).source.text)
"""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda case: case.id)
def test_emits_the_same_text_twice(subject: Subject, sample: object) -> None:
    if subject.target is None:
        pytest.skip("the interpreter emits nothing")
    first, second = (
        tilecore.lower(build(sample).function, target=subject.target)  # type: ignore[arg-type]
        for _ in range(2)
    )
    assert first.source == second.source


def test_text_does_not_depend_on_the_process(subject: Subject) -> None:
    """Two processes with different hash seeds emit the same text."""
    if subject.target is None or subject.backend not in _findable():
        pytest.skip("this backend exists in this process only")
    texts = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", EMIT, subject.backend, subject.target.arch],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        texts.append(done.stdout)
    assert texts[0] == texts[1]


def _findable() -> set[str]:
    from importlib.metadata import entry_points

    return {point.name for point in entry_points(group="tilecore.backends")}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda case: case.id)
def test_runs_give_the_same_bits(subject: Subject, sample: object) -> None:
    """Also under load: several calls of one kernel on the same arrays."""
    if not subject.executes:
        pytest.skip("nothing is run at this level")
    experiment = build(sample)  # type: ignore[arg-type]
    kernels = program_of(experiment.function).kernels
    if any(isinstance(stmt, Atomic) for kernel in kernels for stmt in walk_stmts(kernel.body)):
        pytest.skip("the order of atomic additions is not fixed")
    kernel = compile_for(subject, experiment.function)
    first, *others = (
        [array.read().tobytes() for array in call(subject, kernel, experiment)] for _ in range(4)
    )
    assert all(other == first for other in others)


def _scaled(factor: float) -> Experiment:
    x = normal(np.random.default_rng(0), (65,), "float32")

    @T.prim_func
    def scaled(X: T.Tensor((65,), "float32"), Y: T.Tensor((65,), "float32")):
        with T.Kernel(1, threads=64) as _:
            for i in T.Parallel(65):
                Y[i] = X[i] * factor

    value = x.astype(np.float64) * factor  # exact: the factors are powers of two
    return Experiment(scaled, (x,), (output((65,), "float32"),), lambda: (Expected(value, 1e-30),))


def test_a_changed_constant_is_another_kernel(subject: Subject) -> None:
    """Programs that differ in one number share a name, and must not share a kernel."""
    experiments = [_scaled(factor) for factor in (2.0, 4.0, 2.0, -1.0)]
    if not subject.executes:
        texts = [
            tilecore.lower(experiment.function, target=subject.target).source.text
            for experiment in experiments
        ]
        assert texts[0] == texts[2]
        assert len(set(texts)) == 3
        return
    for experiment in experiments:
        kernel = compile_for(subject, experiment.function)
        outputs = call(subject, kernel, experiment)
        wrong = difference(outputs[0].read(), experiment.expected()[0])
        assert not wrong, wrong
