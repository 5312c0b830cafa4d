"""Index functions fitted to the layout algebra."""

import itertools

import language_support as support
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecore.language as T
from tilecore.errors import LanguageError, UnsupportedError
from tilecore.ir.layout import FragmentLayout, FragmentMode, Layout, Mode, Swizzle
from tilecore.language.layouts import CompilersChoice
from tilecore.language.separable import separate


@st.composite
def layouts(draw):
    """A compact layout of two axes: modes of both, interleaved in memory, maybe swizzled."""
    extents = draw(st.lists(st.sampled_from([2, 3, 4, 8]), min_size=2, max_size=4))
    order = draw(st.permutations(range(len(extents))))
    strides = [0] * len(extents)
    stride = 1
    for k in order:
        strides[k] = stride
        stride *= extents[k]
    cut = draw(st.integers(1, len(extents) - 1))
    modes = [Mode(e, s) for e, s in zip(extents, strides, strict=True)]
    layout = Layout((tuple(modes[:cut]), tuple(modes[cut:])))
    if draw(st.booleans()) and not stride & (stride - 1) and stride >= 16:
        return Layout(layout.axes, Swizzle(1, 1, 2))
    return layout


@settings(max_examples=40, deadline=None)
@given(layouts())
def test_a_layouts_own_function_fits_it(layout):
    fitted = T.Layout(layout.shape, lambda i, j: layout.offset((i, j)))
    for point in itertools.product(*map(range, layout.shape)):
        assert fitted.offset(point) == layout.offset(point)


def test_layouts_from_several_indices():
    fitted = T.Layout((8, 6), lambda i, j: (j, i))
    assert fitted.offset((3, 2)) == 2 * 8 + 3
    blocked = T.Layout((8, 8), lambda i, j: (i // 4, j // 2, i % 4, j % 2))
    assert blocked.offset((5, 3)) == ((1 * 4 + 1) * 4 + 1) * 2 + 1


@settings(max_examples=60, deadline=None)
@given(layouts(), st.integers(0, 3), st.data())
def test_sums_over_coordinates_are_those_of_the_function(layout, more, data):
    divisors = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=2))

    def function(i, j):
        first, second = divisors
        tiles = [-(i // first) + i * 3 + more, (j % second) * 2, j // second - 1, j << 1 & 6]
        return [*tiles, more - j + (i >> 1) * (i % 4)]

    found = separate(layout.shape, function)
    indices = np.array([function(*p) for p in itertools.product(*map(range, layout.shape))])
    expected = 0
    for column in indices.T:
        expected = expected * (column.max() + 1) + column
    along = [found.along(k, extent) for k, extent in enumerate(layout.shape)]
    assert (found.constant + along[0][:, None] + along[1] == expected.reshape(layout.shape)).all()


def test_layouts_of_more_elements_than_are_looked_at():
    shape = (8, 4096, 32, 192)
    fitted = T.Layout(
        shape,
        lambda b, s, h, d: [b, s // 8, h, d // 8, d % 2, 4 * (s % 8) + d % 8 // 2],
    )
    assert fitted.shape == shape and fitted.span == fitted.size and fitted.is_injective()
    assert fitted.offset((1, 9, 2, 11)) == (((512 + 1) * 32 + 2) * 24 + 1) * 64 + 32 + 4 + 1
    with pytest.raises(UnsupportedError, match="more than 33554432 coordinates"):
        T.Layout(shape, lambda b, s, h, d: [b, s * h, h, d])
    with pytest.raises(UnsupportedError, match="more than 33554432 coordinates"):
        T.Layout((1 << 40,), lambda i: i)
    assert separate(shape, lambda b, s, h, d: b * h) is None
    assert separate(shape, lambda b, s, h, d: (b + h) // 2) is None
    assert separate(shape, lambda b, s, h, d: s if s < 9 else h) is None


def test_xor_swizzles_are_found():
    fitted = T.Layout((8, 64), lambda i, j: i * 64 + (j // 8 ^ i) * 8 + j % 8)
    assert fitted.swizzle is not None and fitted.is_injective()
    assert fitted.offset((3, 17)) == 3 * 64 + (2 ^ 3) * 8 + 1


def test_other_functions_are_left_to_the_compiler():
    with pytest.warns(UserWarning, match="T.Layout: its function is no sum of .* the compiler"):
        other = T.Layout((4, 4), lambda i, j: i * i * 4 + j)
    assert isinstance(other, CompilersChoice)
    with pytest.raises(LanguageError, match="puts two elements in one place"):
        T.Layout((4, 4), lambda i, j: i * i * j)
    with pytest.raises(UnsupportedError, match="the layout of A is not supported: T.Layout"):

        @T.prim_func
        def main(A: T.Tensor((4, 4), "float32")):
            with T.Kernel(1):
                T.annotate_layout({A: other})

    with pytest.raises(LanguageError, match="must return integers"):
        T.Layout((4,), lambda i: i / 2)
    with pytest.raises(LanguageError, match="positive constant extents"):
        T.Layout((0,), lambda i: i)


def test_fragments():
    fitted = T.Fragment((16, 8), lambda i, j: (i % 8 * 4 + j // 2, i // 8 * 2 + j % 2))
    assert fitted.is_bijective()
    assert fitted.place((9, 5)) == (1 * 4 + 2, 2 + 1)
    apart = T.Fragment(
        (16, 8),
        forward_thread_fn=lambda i, j: i % 8 * 4 + j // 2,
        forward_index_fn=lambda i, j: i // 8 * 2 + j % 2,
    )
    assert apart == fitted
    copies = T.Fragment((8,), lambda i, r: (i * 4 + r, 0), replicate=4)
    assert copies.replicas == 4 and copies.is_bijective()
    with pytest.warns(UserWarning, match="T.Fragment: its functions are no sums"):
        assert isinstance(T.Fragment((4,), lambda i: (i, i)), CompilersChoice)
    with pytest.raises(LanguageError, match="needs forward_fn"):
        T.Fragment((4,))


@settings(max_examples=25, deadline=None)
@given(st.permutations([("t", 4), ("t", 2), ("r", 2), ("r", 3)]), st.integers(1, 3))
def test_a_fragments_own_function_fits_it(modes, cut):
    at = {"t": 1, "r": 1}
    made = []
    for space, extent in modes:
        made.append(FragmentMode(extent, "thread" if space == "t" else "register", at[space]))
        at[space] *= extent
    layout = FragmentLayout((tuple(made[:cut]), tuple(made[cut:])))
    fitted = T.Fragment(layout.shape, lambda i, j: layout.place((i, j)))
    for point in itertools.product(*map(range, layout.shape)):
        assert fitted.place(point) == layout.place(point)


def test_annotated_layouts_are_checked():
    def program(make):
        @T.prim_func
        def main(A: T.Tensor((8, 16), "float16")):
            with T.Kernel(1):
                s = T.alloc_shared((8, 16), "float16")
                f = T.alloc_fragment((8, 16), "float16")
                make(s, f)
                T.copy(A, s)
                T.copy(s, f)

        return main

    main = program(lambda s, f: T.annotate_layout({s: lambda i, j: j * 8 + i}))
    ((name, layout),) = main.program.kernels[0].layouts
    assert name == "s" and layout.offset((3, 2)) == 19
    plain = T.make_linear_layout
    for make, message in (
        (lambda s, f: T.annotate_layout({f: plain(f)}), "expected T.Fragment"),
        (lambda s, f: T.annotate_layout({s: plain((8, 8))}), "too small"),
        (lambda s, f: T.annotate_layout({s: plain((128,))}), "another rank"),
        (lambda s, f: T.annotate_layout({s: lambda i, j: j}), "two elements in one place"),
        (lambda s, f: T.annotate_layout({3: plain((8,))}), "takes buffers"),
    ):
        with pytest.raises(LanguageError, match=message):
            program(make)


def test_ready_made_layouts():
    assert T.make_linear_layout((4, 6)).offset((2, 3)) == 15
    with pytest.raises(LanguageError, match="positive constant extents"):
        T.make_swizzled_layout((4, -1))


def fragment_order(m, n):
    return T.Layout((m, n), lambda i, j: [i // 8, j // 8, j % 2, 4 * (i % 8) + (j % 8) // 2])


@pytest.mark.parametrize(("m", "n"), [(16, 16), (24, 8)])
def test_layout_of_a_tensor_permutes_its_storage(m, n):
    @T.prim_func
    def write(x: T.Tensor((m, n), "float32"), y: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(m, 16), threads=32) as by:
            T.annotate_layout({y: fragment_order(m, n)})
            tile = T.alloc_shared((16, n), "float32")
            T.copy(x[by * 16, 0], tile)
            T.copy(tile, y[by * 16 : (by + 1) * 16, :])
            for i, j in T.Parallel(16, n):
                T.atomic_add(y[by * 16 + i, j], 1)

    @T.prim_func
    def read(y: T.Tensor((m, n), "float32"), z: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(m, 16), threads=32) as by:
            T.annotate_layout({y: fragment_order(m, n)})
            T.copy(y[by * 16 : (by + 1) * 16, :], z[by * 16 : (by + 1) * 16, :])

    x = np.arange(m * n, dtype=np.float32).reshape(m, n)
    stored = support.result(write, "y", x=x, y=np.zeros((m, n), np.float32))
    expected = np.zeros(m * n, np.float32)
    for i in range(m):
        for j in range(n):
            expected[fragment_order(m, n).offset((i, j))] = x[i, j] + 1
    np.testing.assert_array_equal(stored.reshape(-1), expected)
    z = support.result(read, "z", y=stored.astype(np.float32), z=np.zeros((m, n), np.float32))
    np.testing.assert_array_equal(z, x + 1)


def test_layout_of_a_tensor_must_fit_and_operations_are_limited():
    with pytest.raises(LanguageError, match="layout of y leaves its storage"):

        @T.prim_func
        def leaves(y: T.Tensor((4, 4), "float32")):
            with T.Kernel(1, threads=32):
                T.annotate_layout({y: T.Layout((4, 4), lambda i, j: i * 8 + j)})
                y[0, 0] = 1

    with pytest.raises(UnsupportedError, match="Reduce of a tensor with a layout of its own"):

        @T.prim_func
        def reduced(y: T.Tensor((4, 4), "float32")):
            with T.Kernel(1, threads=32):
                T.annotate_layout({y: T.Layout((4, 4), lambda i, j: j * 4 + i)})
                sums = T.alloc_fragment((4,), "float32")
                T.reduce_sum(y, sums, dim=1)
