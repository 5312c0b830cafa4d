"""Index functions fitted to the layout algebra."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecore.language as T
from tilecore.errors import LanguageError, UnsupportedError
from tilecore.ir.layout import FragmentLayout, FragmentMode, Layout, Mode, Swizzle


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


def test_xor_swizzles_are_found():
    fitted = T.Layout((8, 64), lambda i, j: i * 64 + (j // 8 ^ i) * 8 + j % 8)
    assert fitted.swizzle is not None and fitted.is_injective()
    assert fitted.offset((3, 17)) == 3 * 64 + (2 ^ 3) * 8 + 1


def test_other_functions_are_refused():
    with pytest.raises(UnsupportedError, match="T.Layout"):
        T.Layout((4, 4), lambda i, j: i * i * 4 + j)
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
    with pytest.raises(UnsupportedError, match="T.Fragment"):
        T.Fragment((4,), lambda i: (i, i))
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
