"""What a kernel author imports as T: the vocabulary of tile programs.

Files: `rewriter`, `scopes`, `source` read the author's function; `control`, `bindings`, `loops`
give its statements their meaning; `builder`, `values`, `operators` make the IR; the rest is the
vocabulary by topic.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from tilecore.language.advice import (
    annotate_consumer_reg_alloc,
    annotate_l2_hit_ratio,
    annotate_layout,
    annotate_min_blocks_per_sm,
    annotate_producer_reg_dealloc,
    annotate_restrict_buffers,
    annotate_safe_value,
    dec_max_nreg,
    disable_warp_group_reg_alloc,
    inc_max_nreg,
    no_set_max_nreg,
    set_max_nreg,
    use_swizzle,
)
from tilecore.language.allocate import (
    alloc_barrier,
    alloc_buffer,
    alloc_fragment,
    alloc_global,
    alloc_local,
    alloc_shared,
    alloc_var,
    empty,
    let,
)
from tilecore.language.atomic_ops import (
    atomic_add,
    atomic_addx2,
    atomic_addx4,
    atomic_and,
    atomic_exchange,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
    atomic_sub,
    atomic_xor,
)
from tilecore.language.block_votes import (
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
)
from tilecore.language.convolution import c2d_im2col, im2col
from tilecore.language.debug_ops import device_assert
from tilecore.language.debug_ops import print_ as print
from tilecore.language.dtypes import NAMES as _DTYPES
from tilecore.language.dtypes import dtype
from tilecore.language.eager import const
from tilecore.language.families import install as _install_families
from tilecore.language.functions import Macro, PrimFunc, macro, prim_func
from tilecore.language.grid_sync import sync_grid
from tilecore.language.kernel import (
    ClusterKernel,
    get_block_binding,
    get_block_bindings,
    get_thread_binding,
    get_thread_bindings,
    get_thread_extent,
    thread_binding,
)
from tilecore.language.kernel import Kernel_ as Kernel
from tilecore.language.lane_exchange import (
    all_sync,
    any_sync,
    ballot,
    ballot_sync,
    get_lane_idx,
    get_warp_group_idx,
    get_warp_idx,
    get_warp_idx_sync,
    shfl_down,
    shfl_sync,
    shfl_up,
    shfl_xor,
    shuffle_elect,
    warp_reduce_bitand,
    warp_reduce_bitor,
    warp_reduce_max,
    warp_reduce_min,
    warp_reduce_sum,
)
from tilecore.language.lane_reduce import attr, comm_reducer, tvm_thread_allreduce
from tilecore.language.layouts import Fragment, Layout, make_linear_layout, make_swizzled_layout
from tilecore.language.locate import check_method, checked
from tilecore.language.loops import (
    Parallel,
    Persistent,
    Pipelined,
    Serial,
    Unroll,
    Vectorized,
    grid,
    parallel,
    serial,
    unroll,
    vectorized,
)
from tilecore.language.math_ops import FUNCTIONS as _MATH
from tilecore.language.math_ops import (
    Cast,
    Select,
    align_up,
    assume,
    atan,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cast,
    ceildiv,
    clamp,
    cosh,
    evaluate,
    floordiv,
    floormod,
    if_then_else,
    index_to_coordinates,
    infinity,
    max_value,
    min_value,
    reinterpret,
    shift_left,
    shift_right,
    sinh,
    truncdiv,
    truncmod,
)
from tilecore.language.math_ops import absolute as abs
from tilecore.language.math_ops import maximum as max
from tilecore.language.math_ops import minimum as min
from tilecore.language.math_ops import power as pow
from tilecore.language.math_ops import unary_not as Not
from tilecore.language.pointers import make_tensor
from tilecore.language.reduce_ops import (
    all_of,
    any_of,
    cummax,
    cumsum,
    reduce,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reduce_max,
    reduce_min,
    reduce_sum,
)
from tilecore.language.reducers import (
    alloc_reducer,
    finalize_reducer,
    reducer_init,
    reducer_update,
)
from tilecore.language.refused import refuse_name
from tilecore.language.rounding import FUNCTIONS as _ROUNDING
from tilecore.language.sparse import gemm_sp
from tilecore.language.sync_ops import (
    async_commit,
    async_copy,
    async_wait,
    barrier_arrive,
    barrier_wait,
    mbarrier_arrive,
    mbarrier_arrive_expect_tx,
    mbarrier_expect_tx,
    mbarrier_wait_parity,
    named_barrier_arrive,
    named_barrier_sync,
    ptx_commit_group,
    ptx_wait_group,
    sync_threads,
    sync_warp,
    warps,
    ws,
)
from tilecore.language.tile_ops import (
    GemmWarpPolicy,
    clear,
    copy,
    dp4a,
    fill,
    gemm,
    reshape,
    transpose,
    view,
)
from tilecore.language.tile_scheduler import PersistentTileScheduler
from tilecore.language.types import BufferType as Buffer
from tilecore.language.types import Dimension as Var
from tilecore.language.types import (
    FragmentBuffer,
    LocalBuffer,
    Ref,
    SharedBuffer,
    StridedTensor,
    Tensor,
    dynamic,
    ptr,
    symbolic,
)
from tilecore.language.vectors import (
    Broadcast,
    Ramp,
    abs2,
    add2,
    extract_lane,
    fma2,
    max2,
    min2,
    mul2,
    sub2,
)
from tilecore.language.while_loops import WhileBlock as While


def _check_calls() -> None:
    """Calls with wrong arguments become errors of the language, at the author's line."""
    for name in __all__:
        value = globals()[name]
        if isinstance(value, FunctionType) and name != "prim_func":  # it looks at its caller
            globals()[name] = checked(name, value)
        elif isinstance(value, type) and name not in ("Macro", "PrimFunc", "dtype"):
            check_method(name, value, "__init__")
    check_method("Tensor", type(Tensor), "__call__")
    check_method("StridedTensor", type(StridedTensor), "__call__")
    for table in (_MATH, _ROUNDING):
        table.update((name, checked(name, function)) for name, function in list(table.items()))


def __getattr__(name: str) -> Any:
    """Dtypes, math functions, and a reasoned refusal of what is not supported."""
    found = _DTYPES.get(name) or _ROUNDING.get(name) or _MATH.get(name)
    if found is not None:
        return found
    return refuse_name(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_DTYPES, *_MATH, *_ROUNDING})


__all__ = [
    "Broadcast", "Buffer", "Cast", "ClusterKernel", "Fragment", "FragmentBuffer", "GemmWarpPolicy",
    "Kernel", "Layout", "LocalBuffer", "Macro", "Not", "Parallel", "Persistent",
    "PersistentTileScheduler", "Pipelined", "PrimFunc", "Ramp", "Ref", "Select", "Serial",
    "SharedBuffer", "StridedTensor", "Tensor", "Unroll", "Var", "Vectorized", "While", "abs",
    "abs2", "add2", "align_up", "all_of", "all_sync", "alloc_barrier", "alloc_buffer",
    "alloc_fragment", "alloc_global", "alloc_local", "alloc_reducer", "alloc_shared", "alloc_var",
    "annotate_consumer_reg_alloc", "annotate_l2_hit_ratio", "annotate_layout",
    "annotate_min_blocks_per_sm", "annotate_producer_reg_dealloc", "annotate_restrict_buffers",
    "annotate_safe_value", "any_of", "any_sync", "assume", "async_commit",
    "async_copy", "async_wait", "atan", "atomic_add", "atomic_addx2", "atomic_addx4", "atomic_and",
    "atomic_exchange", "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_store",
    "atomic_sub", "atomic_xor", "attr", "ballot", "ballot_sync", "barrier_arrive", "barrier_wait",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "c2d_im2col", "cast", "ceildiv",
    "clamp", "clear", "comm_reducer", "const", "copy", "cosh", "cummax", "cumsum", "dec_max_nreg",
    "device_assert", "disable_warp_group_reg_alloc", "dp4a", "dtype", "dynamic", "empty",
    "evaluate", "extract_lane", "fill", "finalize_reducer", "floordiv", "floormod", "fma2", "gemm",
    "gemm_sp", "get_block_binding", "get_block_bindings", "get_lane_idx", "get_thread_binding",
    "get_thread_bindings", "get_thread_extent", "get_warp_group_idx", "get_warp_idx",
    "get_warp_idx_sync", "grid", "if_then_else", "im2col", "inc_max_nreg", "index_to_coordinates",
    "infinity", "let", "macro", "make_linear_layout", "make_swizzled_layout", "make_tensor", "max",
    "max2", "max_value", "mbarrier_arrive", "mbarrier_arrive_expect_tx", "mbarrier_expect_tx",
    "mbarrier_wait_parity", "min", "min2", "min_value", "mul2", "named_barrier_arrive",
    "named_barrier_sync", "no_set_max_nreg", "parallel", "pow", "prim_func", "print", "ptr",
    "ptx_commit_group", "ptx_wait_group", "reduce", "reduce_absmax", "reduce_abssum",
    "reduce_bitand", "reduce_bitor", "reduce_bitxor", "reduce_max", "reduce_min", "reduce_sum",
    "reducer_init", "reducer_update", "reinterpret", "reshape", "serial", "set_max_nreg",
    "shfl_down", "shfl_sync", "shfl_up", "shfl_xor", "shift_left", "shift_right", "shuffle_elect",
    "sinh", "sub2", "symbolic", "sync_grid", "sync_threads", "sync_warp", "syncthreads_and",
    "syncthreads_count", "syncthreads_or", "thread_binding", "transpose", "truncdiv", "truncmod",
    "tvm_thread_allreduce", "unroll", "use_swizzle", "vectorized", "view", "warp_reduce_bitand",
    "warp_reduce_bitor", "warp_reduce_max", "warp_reduce_min", "warp_reduce_sum", "warps", "ws",
]  # fmt: skip

_check_calls()
_install_families()
