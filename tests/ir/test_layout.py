"""Layouts against enumeration: inverses, injectivity, runs, and the same thing as expressions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.errors import VerifyError
from tilecore.ir.dtypes import int32, int64
from tilecore.ir.expr import Var
from tilecore.ir.layout import FragmentLayout, FragmentMode, Layout, Mode, Swizzle, split, split_int
from tilecore.reference.evaluate import Frame, evaluate

ON = np.asarray(True)


def value(expr, **values):
    frame = Frame((), {k: np.asarray(v) for k, v in values.items()})
    return int(evaluate(expr, frame, ON))


small_modes = st.builds(Mode, st.integers(1, 5), st.integers(0, 24))
axes = st.lists(st.lists(small_modes, min_size=1, max_size=2).map(tuple), max_size=3).map(tuple)
swizzles = st.integers(0, 3).flatmap(
    lambda bits: st.builds(Swizzle, st.just(bits), st.integers(0, 3), st.integers(bits, 4))
)


@given(st.integers(0, 5000), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_digits(coordinate, extents):
    digits = split_int(coordinate, extents)
    total, weight = 0, 1
    for digit, extent in zip(digits, extents, strict=True):
        total, weight = total + digit * weight, weight * extent
    assert total == coordinate
    exprs = split(Var("c", int32), extents)
    assert [value(expr, c=np.int32(coordinate)) for expr in exprs] == digits


@given(axes, st.none() | swizzles)
def test_injective_means_that_no_offset_repeats(modes, swizzle):
    layout = Layout(modes, swizzle)
    every = itertools.product(*(range(extent) for extent in layout.shape))
    offsets = [layout.offset(coordinates) for coordinates in every]
    assert layout.is_injective() == (len(set(offsets)) == len(offsets))
    assert max(offsets) < layout.span
    assert layout.size == len(offsets)


@given(st.integers(0, 1 << 12), swizzles)
def test_swizzles_are_involutions(offset, swizzle):
    assert swizzle.apply(swizzle.apply(offset)) == offset
    assert value(swizzle.apply_expr(Var("o", int32)), o=np.int32(offset)) == swizzle.apply(offset)


@pytest.mark.parametrize("numbers", [(-1, 0, 3), (2, -1, 3), (3, 0, 2)])
def test_impossible_swizzles_are_refused(numbers):
    with pytest.raises(VerifyError):
        Swizzle(*numbers)


@given(axes, st.none() | swizzles, st.data())
def test_offsets_as_expressions(modes, swizzle, data):
    layout = Layout(modes, swizzle)
    dtypes = [data.draw(st.sampled_from([int32, int64])) for _ in modes]
    names = [Var(f"c{k}", dtype) for k, dtype in enumerate(dtypes)]
    coordinates = tuple(data.draw(st.integers(0, extent - 1)) for extent in layout.shape)
    given_values = {
        var.name: np.asarray(c, var.dtype.name) for var, c in zip(names, coordinates, strict=True)
    }
    expr = layout.offset_expr(tuple(names))
    assert value(expr, **given_values) == layout.offset(coordinates)
    if int64 in dtypes:
        assert expr.dtype == int64


@given(axes.filter(bool), st.none() | swizzles, st.data())
def test_contiguous_runs(modes, swizzle, data):
    layout = Layout(modes, swizzle)
    axis = data.draw(st.integers(0, len(modes) - 1))
    run = layout.contiguous_run(axis)
    at = [data.draw(st.integers(0, extent - 1)) for extent in layout.shape]
    at[axis] -= at[axis] % run
    offsets = []
    for _ in range(run):
        offsets.append(layout.offset(tuple(at)))
        at[axis] += 1
    assert offsets == list(range(offsets[0], offsets[0] + run))


def test_a_swizzle_cuts_runs_that_rows_misalign():
    padded = Layout.strided((8, 32), (33, 1))
    assert padded.contiguous_run(1) == 32
    assert Layout(padded.axes, Swizzle(3, 3, 3)).contiguous_run(1) == 1
    assert Layout(Layout.row_major((8, 64)).axes, Swizzle(3, 3, 3)).contiguous_run(1) == 8


def test_row_major():
    layout = Layout.row_major((3, 4, 5))
    array = np.arange(60).reshape(3, 4, 5)
    for coordinates in np.ndindex(3, 4, 5):
        assert layout.offset(coordinates) == array[coordinates]
    assert layout.contiguous_run(2) == 5
    assert layout.contiguous_run(1) == 1
    assert layout.span == 60


@st.composite
def fragment_layouts(draw):
    """A bijection: the modes of each space tile it, dealt out to axes and replication."""
    modes = []
    for space in ("thread", "register"):
        stride = 1
        for extent in draw(st.lists(st.integers(1, 4), max_size=3)):
            modes.append(FragmentMode(extent, space, stride))
            stride *= extent
    modes = draw(st.permutations(modes))
    spread = [[], [], []]
    for mode in modes:
        place = draw(st.integers(0, 2 if mode.space == "thread" else 1))
        spread[place].append(mode)
    return FragmentLayout((tuple(spread[0]), tuple(spread[1])), tuple(spread[2]))


@given(fragment_layouts())
def test_fragments_are_bijections_with_an_inverse(layout):
    assert layout.is_bijective()
    assert layout.is_injective()
    seen = set()
    for coordinates in np.ndindex(*layout.shape):
        for replica in range(layout.replicas):
            place = layout.place(coordinates, replica)
            assert layout.coordinates(*place) == coordinates
            seen.add(place)
    assert len(seen) == layout.threads * layout.registers
    assert {t for t, _ in seen} == set(range(layout.threads))
    lane, register = Var("t"), Var("r")
    exprs = layout.coordinates_expr(lane, register)
    for thread, index in sorted(seen)[:: max(1, len(seen) // 7)]:
        found = tuple(value(e, t=np.int32(thread), r=np.int32(index)) for e in exprs)
        assert found == layout.coordinates(thread, index)


any_modes = st.builds(
    FragmentMode, st.integers(1, 4), st.sampled_from(["thread", "register"]), st.integers(0, 9)
)


@settings(max_examples=200)
@given(
    st.lists(st.lists(any_modes, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple),
    st.lists(
        st.builds(FragmentMode, st.integers(1, 3), st.just("thread"), st.integers(0, 9)), max_size=1
    ).map(tuple),
)
def test_injective_and_bijective_fragments(modes, replication):
    layout = FragmentLayout(modes, replication)
    places = [
        layout.place(coordinates, replica)
        for coordinates in np.ndindex(*layout.shape)
        for replica in range(layout.replicas)
    ]
    is_injective = len(set(places)) == len(places)
    assert layout.is_injective() == is_injective
    every = layout.threads * layout.registers
    assert layout.is_bijective() == (is_injective and len(places) == every)


def test_a_fragment_mode_names_its_space():
    with pytest.raises(VerifyError):
        FragmentMode(2, "warp", 1)


def test_text():
    swizzled = Layout(((Mode(8, 64),), (Mode(4, 1), Mode(16, 256))), Swizzle(3, 3, 3))
    assert str(swizzled) == "[8:64, (4:1 16:256)] ^ (3, 3, 3)"
    fragment = FragmentLayout(((FragmentMode(2, "register", 1),),), (FragmentMode(4, "thread", 1),))
    assert str(fragment) == "<2:r1; 4:t1>"
