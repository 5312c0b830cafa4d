"""Fragment layouts that passes build: every element held, by the number of threads promised."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode
from tilecore.passes.lowering.lower_fma import fma_layout
from tilecore.passes.spread import (
    coordinate_arrays,
    default_spread,
    drop_axis,
    holder_offsets,
    place_arrays,
    project,
    tile_atom,
)

SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple)
THREADS = st.sampled_from([32, 64, 96, 128, 160, 256])


def holders(layout: FragmentLayout, shape: tuple[int, ...], threads: int) -> np.ndarray:
    """How many (thread, register) places hold each element of `shape`."""
    coordinates = coordinate_arrays(layout, threads)
    valid = np.ones(coordinates[0].shape, bool)
    for coordinate, extent in zip(coordinates, shape, strict=True):
        valid &= (coordinate >= 0) & (coordinate < extent)
    flat = np.ravel_multi_index(tuple(np.where(valid, c, 0) for c in coordinates), shape)
    return np.bincount(flat[valid], minlength=int(np.prod(shape)))


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.sampled_from([1, 2, 4, 8]), THREADS)
def test_default_spread_holds_every_element(shape, vector, threads):
    layout = default_spread(shape, vector, threads)
    assert layout.is_bijective()
    assert layout.threads <= threads
    assert np.all(holders(layout, shape, threads) == layout.replicas)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 130), st.integers(1, 130), THREADS)
def test_fma_layout_holds_every_element(m, n, threads):
    layout = fma_layout(m, n, threads)
    assert layout.threads <= threads
    assert np.all(holders(layout, (m, n), threads) == layout.replicas)


ATOM = FragmentLayout((
    (FragmentMode(8, THREAD, 4), FragmentMode(2, REGISTER, 2)),
    (FragmentMode(2, REGISTER, 1), FragmentMode(4, THREAD, 1)),
))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_tiled_atoms_are_bijective(tiles_m, tiles_n, groups_m, groups_n):
    layout = tile_atom(ATOM, (tiles_m, tiles_n), (groups_m, groups_n), (1, 0),
                       group_strides=(1, groups_m))  # fmt: skip
    assert layout.shape == (16 * tiles_m * groups_m, 8 * tiles_n * groups_n)
    assert layout.is_bijective()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4))
def test_a_reduction_keeps_elements_where_the_lanes_of_a_row_are(tiles_n, groups_m):
    source = tile_atom(ATOM, (2, tiles_n), (groups_m, 1), (1, 0), group_strides=(1, groups_m))
    result = drop_axis(source, 1, keep=False)
    threads = source.threads
    rows, _ = coordinate_arrays(source, threads)
    place = place_arrays(result, (rows,))
    own = np.broadcast_to(np.arange(threads)[:, None], rows.shape)
    assert np.all(np.isin(own - place.thread, holder_offsets(result)))
    assert result.replicas == 4


def test_projection_orders_axes_as_asked():
    layout = default_spread((16, 64), 4, 128)
    turned = project(layout, (1, 0))
    assert turned.shape == (64, 16)
    assert turned.place((5, 3)) == layout.place((3, 5))
