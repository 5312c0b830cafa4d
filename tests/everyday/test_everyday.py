"""What everybody writes first works as it is written, everywhere, at sizes that nothing divides."""

from __future__ import annotations

from typing import Any

import everyday_cases
import everyday_products as products
import everyday_served_cases
import everyday_written_cases
import numpy as np
import pytest
from compiling import BACKENDS, kernel_on
from devices import in_any_order

ALSO = (everyday_served_cases, everyday_written_cases)  # importing them adds their cases
HOSTS = ("reference", "cpu_llvm")
EMULATED = [backend for backend in BACKENDS if backend not in HOSTS]


def _everywhere() -> list[Any]:
    """Each case on the host always and on one emulated target; the other targets are slow."""
    result: list[Any] = []
    for place, name in enumerate(everyday_cases.CASES):
        quick = (*HOSTS, EMULATED[place % len(EMULATED)])
        for backend in (*HOSTS, *EMULATED):
            marks = () if backend in quick else pytest.mark.slow
            result.append(pytest.param(name, backend, marks=marks))
    return result


@pytest.mark.parametrize(("name", "backend"), _everywhere())
def test_results_are_those_of_numpy(name: str, backend: str) -> None:
    program, arguments, results = everyday_cases.CASES[name]()
    kernel = kernel_on(backend, program)
    if name == "moe_routing":  # slots are taken in any order
        kernel = in_any_order(kernel)
    kernel(*arguments)
    for place, (expected, tolerance) in results.items():
        got = arguments[place].astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)


def test_slots_of_an_expert_are_a_permutation() -> None:
    program, arguments, _ = everyday_cases.CASES["moe_routing"]()
    kernel_on("cpu_llvm", program)(*arguments)
    _, _, experts, counts, slots = arguments
    for expert, count in enumerate(counts):
        assert sorted(slots[experts == expert]) == list(range(count))


def test_slots_of_experts_hold_their_pairs() -> None:
    program, arguments, _ = everyday_cases.CASES["expert_slots"]()
    kernel_on("cpu_llvm", program)(*arguments)
    experts, order, of, _ = arguments
    assert sorted(order[order < experts.size]) == list(range(experts.size))
    for expert, pairs in zip(of, order.reshape(-1, 16), strict=True):
        assert (experts.ravel()[pairs[pairs < experts.size]] == expert).all()


def test_a_linear_layer_in_the_eager_style() -> None:
    x, w, b = (everyday_cases.normal(*s, dtype="float16") for s in ((40, 50), (45, 50), (45,)))
    sums = everyday_cases.wide(x) @ everyday_cases.wide(w).T + b
    # gelu by the error function, whose values a table of its integral gives
    steps = np.linspace(-12, 12, 200_001)
    density = np.exp(-steps * steps / 2) / np.sqrt(2 * np.pi)
    below = np.cumsum(density) * (steps[1] - steps[0])
    expected = sums * np.interp(sums, steps, below, left=0, right=1)
    np.testing.assert_allclose(products.gelu_linear(x, w, b), expected, atol=2e-2)
