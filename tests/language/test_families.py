"""``tilecore.language.FAMILY``: the common names, extras of one family, and where they may run."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from compiling import kernel_on

import tilecore
import tilecore.language as T
from tilecore.errors import UnsupportedError
from tilecore.hooks.families import families
from tilecore.hooks.manager import hooks_of, installed_backends, targets_of

CASES = [(family, backend) for family, (_, backends) in families().items() for backend in backends]
NUMBERS = np.random.default_rng(5).integers(0, 2**32, (3, 64)).astype(np.uint32)


def bytes_of(words: np.ndarray) -> np.ndarray:
    return words.astype("<u4").view(np.uint8).reshape(-1, 4)


def chosen(low: np.ndarray, high: np.ndarray, places: list[int]) -> np.ndarray:
    eight = np.concatenate([bytes_of(low), bytes_of(high)], axis=1)
    return np.ascontiguousarray(eight[:, places]).view("<u4").reshape(-1)


def program(L: Any, value: Any) -> Any:
    @L.prim_func
    def main(x: L.Tensor((3, 64), "uint32"), y: L.Tensor((64,), "uint32")):
        with L.Kernel(1, threads=64):
            for i in L.Parallel(64):
                y[i] = value(L, x[0, i], x[1, i], x[2, i])

    return main


a, b, c = NUMBERS
EXTRAS = {
    "cuda": [
        (lambda L, x, y, z: L.prmt(x, y, 0x5410), chosen(a, b, [0, 1, 4, 5])),
        (lambda L, x, y, z: L.prmt(x, y, 0x0624), chosen(a, b, [4, 2, 6, 0])),
        (lambda L, x, y, z: L.lop3(x, y, z, 0xEA), (a & b) | c),
        (lambda L, x, y, z: L.lop3(x, y, z, 0x96), a ^ b ^ c),
    ],
    "rocm": [
        (lambda L, x, y, z: L.perm(x, y, 0x05040100), chosen(b, a, [0, 1, 4, 5])),
        (lambda L, x, y, z: L.perm(x, y, 0x00060204), chosen(b, a, [4, 2, 6, 0])),
        (lambda L, x, y, z: L.perm(x, y, 0x0C0C0C07), chosen(b, a, [7, 7, 7, 7]) & 0xFF),
    ],
}


@pytest.mark.parametrize(("family", "backend"), CASES)
def test_extras_compute_what_they_say(family: str, backend: str) -> None:
    language = importlib.import_module(f"tilecore.language.{family}")
    for value, expected in EXTRAS[family]:
        y = np.zeros(64, np.uint32)
        tilecore.compile(program(language, value), backend, device="emulator")(NUMBERS, y)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(("family", "backend"), CASES)
def test_extras_become_device_code(family: str, backend: str) -> None:
    info = hooks_of(backend).call("tilecore_probe_toolchain", target=targets_of(backend)[0])
    if info is None or info.missing:
        pytest.skip(f"no toolchain of {backend}")
    language = importlib.import_module(f"tilecore.language.{family}")
    for value, _ in EXTRAS[family]:
        (resources,) = tilecore.compile(program(language, value), backend).resources
        assert resources.spill_bytes == 0


ELSEWHERE = {"cuda": {"l2_prefetch"}}
"""Extras that are no values; backends/cuda_ampere/tests/test_l2_prefetch.py."""


@pytest.mark.parametrize("family", sorted(families()))
def test_every_extra_has_a_case(family: str) -> None:
    module = importlib.import_module(families()[family][0])
    used = {name for value, _ in EXTRAS[family] for name in value.__code__.co_names}
    assert used | ELSEWHERE.get(family, set()) == set(module.__all__)


@pytest.mark.parametrize("family", sorted(families()))
def test_a_familys_module_has_the_common_names_and_its_own(family: str) -> None:
    language = importlib.import_module(f"tilecore.language.{family}")
    assert all(getattr(language, name) is getattr(T, name) for name in T.__all__)
    extras = set(language.__all__) - set(T.__all__)
    assert extras and not any(hasattr(T, name) for name in extras - {"ptr"})
    assert language.float16 is T.float16
    with pytest.raises(UnsupportedError, match="is not supported"):
        getattr(language, "call_extern")  # noqa: B009


@pytest.mark.parametrize("family", sorted(families()))
def test_extras_are_refused_elsewhere_with_the_line(family: str) -> None:
    language = importlib.import_module(f"tilecore.language.{family}")
    value, _ = EXTRAS[family][0]
    for backend in set(installed_backends()) - set(families()[family][1]) - {"toy"}:
        with pytest.raises(UnsupportedError, match=f"belongs to tilecore.language.{family}") as e:
            kernel_on(backend, program(language, value))
        assert e.value.loc is not None and e.value.loc.file == __file__
        assert families()[family][1][0] in str(e.value.expected)


def test_a_family_that_nobody_has_is_no_module() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tilecore.language.nobody")
