"""The launch path: the fast function and the careful way give the same launches."""

from __future__ import annotations

import gc
import threading
import timeit
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.programs import (
    MATMUL,
    M,
    N,
    RecordingLauncher,
    floats_at,
    program,
    tensor,
)
from tilecore.errors import ArgumentError
from tilecore.ir.dtypes import int32
from tilecore.ir.expr import Var, binary, const
from tilecore.runtime import guards
from tilecore.runtime.caller import KernelCaller

torch = pytest.importorskip("torch")


def address(value: Any) -> int:
    return value.ctypes.data if isinstance(value, np.ndarray) else value.data_ptr()


def make(library: str, *shape: int) -> Any:
    return np.ones(shape, np.float32) if library == "numpy" else torch.ones(shape)


libraries = st.sampled_from(["numpy", "torch"])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.tuples(libraries, libraries, libraries),
            st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 2)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_sequence_of_calls_launches_what_was_passed(calls: list[Any]) -> None:
    """Whatever was remembered from earlier calls, each launch has this call's facts."""
    launcher = RecordingLauncher()
    call = KernelCaller(MATMUL, launcher)
    for (a_lib, b_lib, c_lib), (m, k, n) in calls * 2:
        a, b, c = make(a_lib, m, k), make(b_lib, k, n), make(c_lib, m, n)
        assert call(a, b, c) is None
        assert launcher.launches[-1] == (address(a), address(b), address(c), k, m, n)
    assert len(launcher.launches) == 2 * len(calls)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_keywords_and_positions_mix(library: str) -> None:
    launcher = RecordingLauncher()
    call = KernelCaller(MATMUL, launcher)
    a, b, c = make(library, 2, 3), make(library, 3, 4), make(library, 2, 4)
    for _ in range(3):
        call(a, b, c)
        call(a, C=c, B=b)
        call(C=c, B=b, A=a)
    assert set(launcher.launches) == {(address(a), address(b), address(c), 3, 2, 4)}


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_outputs_are_allocated_returned_and_fresh(library: str) -> None:
    def copy(a: int, double: int, c: int, m: int) -> None:
        for i in range(m):
            floats_at(c, m)[i] = floats_at(a, m)[i]
            floats_at(double, 2 * m)[i] = floats_at(double, 2 * m)[m + i] = floats_at(a, m)[i]

    prog = program(
        tensor("A", M), tensor("D", binary("mul", M, const(2))), tensor("C", M),
        symbols=(M,), outputs=(1, 2),
    )  # fmt: skip
    call = KernelCaller(prog, RecordingLauncher(copy))
    results = []
    for value in range(1, 6):
        a = make(library, 3) * value
        double, same = call(a)
        assert type(double) is type(a)
        assert double.tolist() == [value] * 6
        assert same.tolist() == [value] * 3
        results.append(same)
    assert len({address(result) for result in results}) == 5
    mine = make(library, 6), make(library, 3)
    returned = call(make(library, 3) * 9, *mine)
    assert returned[0] is mine[0]
    assert returned[1] is mine[1]
    assert mine[0].tolist() == [9] * 6
    assert call(make(library, 3), C=mine[1], D=mine[0])[1] is mine[1]
    with pytest.raises(ArgumentError, match="missing argument D"):
        call(make(library, 3), C=mine[1])


def test_one_output_is_returned_bare() -> None:
    prog = program(tensor("A", M), tensor("C", M), symbols=(M,), outputs=(1,))
    call = KernelCaller(prog, RecordingLauncher())
    assert [call(torch.ones(5)).shape for _ in range(3)] == [(5,)] * 3
    assert call(np.ones(5, np.float32)).shape == (5,)


def test_outputs_without_tensor_inputs_come_from_numpy() -> None:
    prog = program(Var("n", int32), tensor("C", 4), outputs=(1,))
    call = KernelCaller(prog, RecordingLauncher())
    assert [type(call(3)) for _ in range(3)] == [np.ndarray] * 3


def test_outputs_without_tensor_inputs_on_a_device_come_from_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def empty(shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        asked.append(str(device))
        return torch.zeros(shape, dtype=dtype)

    monkeypatch.setattr(torch, "empty", empty)
    prog = program(Var("n", int32), tensor("C", 4), outputs=(1,))
    call = KernelCaller(prog, RecordingLauncher(device_kind="cuda"))
    assert [call(3).shape for _ in range(3)] == [(4,)] * 3
    assert asked == ["cuda:0"] * 3


def test_workspaces_are_passed_and_separate() -> None:
    prog = program(tensor("C", M), symbols=(M,), workspaces=(tensor("W", M, 7), tensor("V", 2)))
    launcher = RecordingLauncher()
    call = KernelCaller(prog, launcher)
    c = torch.ones(3)
    for _ in range(3):
        call(c)
        _, w, v, m = launcher.launches[-1]
        assert m == 3
        assert len({address(c), w, v}) == 3


def test_facts_that_change_in_place_are_noticed() -> None:
    launcher = RecordingLauncher()
    call = KernelCaller(program(tensor("C", M, N), symbols=(M, N)), launcher)
    c = torch.ones(4, 6)
    for _ in range(3):
        call(c)
    c.t_()
    with pytest.raises(ArgumentError, match="not contiguous"):
        call(c)
    c.t_()
    c.resize_(6, 4)
    call(c)
    assert launcher.launches[-1] == (address(c), 6, 4)
    n = np.ones((4, 6), np.float32)
    for _ in range(3):
        call(n)
    n.shape = (2, 12)
    call(n)
    assert launcher.launches[-1] == (address(n), 2, 12)
    n.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        call(n)


def test_subclasses_and_gradients_take_the_careful_way() -> None:
    launcher = RecordingLauncher()
    call = KernelCaller(program(tensor("C", M), symbols=(M,)), launcher)
    values = [
        torch.ones(4), torch.nn.Parameter(torch.ones(4)), torch.ones(4, requires_grad=True),
        np.ones(4, np.float32), np.ones(4, np.float32).view(np.recarray),
    ]  # fmt: skip
    with torch.no_grad():  # while it records gradients, none of these may be written
        for value in values * 3:
            call(value)
            assert launcher.launches[-1] == (address(value), 4)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_tensor_given_twice_without_gradients_is_refused_with_them(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(guards, "_compiled_guard_works", lambda: False)
    launcher = RecordingLauncher()
    call = KernelCaller(program(tensor("A", M), tensor("C", M), symbols=(M,)), launcher)
    for _ in range(3):
        call(torch.ones(4), torch.ones(4))
    recorded = torch.ones(4, requires_grad=True)
    for _ in range(3):
        with torch.no_grad():
            call(recorded, recorded)
        assert launcher.launches[-1] == (address(recorded), address(recorded), 4)
        with pytest.raises(ArgumentError, match="requires a gradient"):
            call(recorded, recorded)


def test_parameters_named_like_the_generated_code() -> None:
    names = ["_recent", "_missing", "_miss", "_launch", "_extra", "_named", "_result", "call", "x0"]
    launcher = RecordingLauncher()
    call = KernelCaller(program(*(tensor(name, 2) for name in names)), launcher)
    tensors = {name: torch.ones(2) for name in names}
    for _ in range(3):
        call(**tensors)
        call(*tensors.values())
        assert launcher.launches[-1] == tuple(address(tensors[name]) for name in names)


def test_parameter_that_is_a_python_keyword_goes_by_position() -> None:
    launcher = RecordingLauncher()
    call = KernelCaller(program(tensor("in", 2), tensor("C", 2)), launcher)
    call(torch.ones(2), torch.ones(2))
    assert len(launcher.launches) == 1


def test_arguments_are_not_kept_alive() -> None:
    call = KernelCaller(MATMUL, RecordingLauncher())
    tensors = [torch.ones(2, 3), torch.ones(3, 4), torch.ones(2, 4)]
    references = [weakref.ref(t) for t in tensors]
    for _ in range(3):
        call(*tensors)
    del tensors
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_explicit_stream_goes_to_the_launcher() -> None:
    launcher = RecordingLauncher()
    caller = KernelCaller(program(tensor("C", M), symbols=(M,)), launcher)
    c = torch.ones(4)
    for stream in (77, 78):
        caller.launch((c,), {}, stream=stream)
        assert launcher.launches[-1] == (address(c), 4)
        assert launcher.streams[-1] == stream


def test_launcher_with_nothing_but_a_call() -> None:
    launches: list[Any] = []

    def launcher(arguments: tuple[int | float, ...], stream: int = 0) -> None:
        launches.append(arguments)

    a, b, c = torch.ones(2, 3), torch.ones(3, 4), torch.ones(2, 4)
    call = KernelCaller(MATMUL, launcher)
    for _ in range(3):
        call(a, b, c)
    assert launches == [(address(a), address(b), address(c), 3, 2, 4)] * 3


def test_many_sizes_and_threads() -> None:
    launcher = RecordingLauncher()
    call = KernelCaller(program(tensor("C", M), symbols=(M,)), launcher)
    expected: list[tuple[int, int]] = []

    def work(first: int) -> None:
        for size in range(first, first + 300):
            c = torch.ones(size)
            for _ in range(3):
                call(c)
                expected.append((address(c), size))

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(launcher.launches) == sorted(expected)
    assert len(expected) == 3600


@pytest.mark.parametrize("compiled", [True, False])
def test_guards_tell_apart_what_differs(compiled: bool) -> None:
    if compiled:
        assert guards._compiled_guard_works(), "this torch has another checker: see guards.py"
    make_guard = guards._compiled_guard if compiled else guards._python_guard
    base = torch.ones(4, 6)
    guard = make_guard([base, base])
    assert guard(torch.zeros(4, 6), base)
    for other in [
        torch.ones(4, 7), torch.ones(6, 4).t(), torch.ones(4, 6, dtype=torch.int32),
        torch.ones(4, 6, device="meta"), torch.ones(4, 12)[:, ::2], base.numpy(), None, 1,
        torch.ones(4, 6, dtype=torch.complex64).conj().imag,
    ]:  # fmt: skip
        assert not guard(base, other)
        assert not guard(other, base)


@pytest.mark.parametrize("compiled", [True, False])
def test_one_tensor_in_several_places(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's checker turns repetitions down; they are fast, too, and no less checked."""
    if not compiled:
        monkeypatch.setattr(guards, "_compiled_guard_works", lambda: False)
    a, b = torch.ones(4, 6), torch.zeros(4, 6)
    for made_from in ([a, a, b], [a, b, torch.ones(4, 6)]):
        guard = guards.repeating_guard(made_from)
        for _ in range(2):
            assert guard(a, a, b) and guard(a, b, b) and guard(b, a, b) and guard(a, a, a)
            other = torch.ones(4, 7)
            assert not guard(a, a, other) and not guard(other, other, a) and not guard(a, b, 1)


def test_a_repeated_tensor_takes_the_fast_path() -> None:
    careful: list[int] = []

    class Counting(KernelCaller):
        def launch(self, *given: Any) -> Any:
            careful.append(1)
            return super().launch(*given)

    square, out = torch.ones(3, 3), torch.ones(3, 3)
    launcher = RecordingLauncher()
    call = Counting(MATMUL, launcher)
    for _ in range(6):
        call(square, square, out)
    assert launcher.launches == [(address(square), address(square), address(out), 3, 3, 3)] * 6
    assert len(careful) == 2  # seen, seen again; then the fast way


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_python_guard_takes_over_where_torch_has_none(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_compiled_guard_works", lambda: False)
    launcher = RecordingLauncher()
    call = KernelCaller(MATMUL, launcher)
    a, b, c = make(library, 2, 3), make(library, 3, 4), make(library, 2, 4)
    for _ in range(4):
        call(a, b, c)
    with pytest.raises(ArgumentError, match="two values"):
        call(a, b, make(library, 3, 4))
    assert launcher.launches == [(address(a), address(b), address(c), 3, 2, 4)] * 4


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_overhead_of_a_cached_call(library: str) -> None:
    """Everything but the launch itself; the project's own bound for the CPU is 5 microseconds.

    The best of many short runs, so that a busy machine does not decide; the limit is twice the
    bound for slow ones.
    """

    class Nothing(RecordingLauncher):
        def bind(self, sizes: tuple[int, ...], device: int) -> Any:
            return lambda a, b, c: None

    call = KernelCaller(MATMUL, Nothing())
    a, b, c = make(library, 2, 3), make(library, 3, 4), make(library, 2, 4)
    call(a, b, c)
    call(a, b, c)
    best = min(timeit.repeat(lambda: call(a, b, c), number=1000, repeat=20)) / 1000
    assert best < 10e-6, f"{best * 1e6:.2f} us"
