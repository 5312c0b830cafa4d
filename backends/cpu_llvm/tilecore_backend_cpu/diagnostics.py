"""T.print and T.device_assert: calls back into Python, which holds the words."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from tilecore.errors import UnsupportedError
from tilecore.forking import FreshLock
from tilecore.ir.buffers import Region
from tilecore.ir.dtypes import DType, dtype_of, numpy_dtype
from tilecore.ir.expr import Load
from tilecore.ir.stmts import Assert, Print

from .builder import Value
from .conversions import narrow, storage_type
from .expressions import evaluate
from .memory import load_element, store_element
from .reductions import fresh_vars, loop_nest
from .state import BlockState

PRINT_SYMBOL = "tilecore_cpu_print"
ASSERT_SYMBOL = "tilecore_cpu_assert"
_BLOCK_BITS = 48  # of a block's number among those of all kernels of a program

_PRINT_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
)
_ASSERT_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64)
_failures: dict[int, tuple[int, str]] = {}  # call -> (block, message)
_lock = FreshLock()


def _print(message: bytes, dtype_name: bytes, data: int, rank: int, shape: int) -> None:
    text = message.decode()
    if data:
        dtype = numpy_dtype(dtype_of(dtype_name.decode()))
        extents = np.ctypeslib.as_array((ctypes.c_int64 * rank).from_address(shape)) if rank else ()
        size = int(np.prod(extents, dtype=np.int64)) * dtype.itemsize
        values = np.frombuffer(ctypes.string_at(data, size), dtype).reshape(tuple(extents))
        shown = values.item() if not rank else values
        text = f"{text} {shown}" if text else f"{shown}"
    with _lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _assert(message: bytes, call: int, block: int) -> None:
    """Keep the failure of a call's first block: the others depend on which thread was faster."""
    with _lock:
        if call not in _failures or block < _failures[call][0]:
            _failures[call] = block, message.decode()


_print_callback = _PRINT_TYPE(_print)
_assert_callback = _ASSERT_TYPE(_assert)


def callback_symbols() -> dict[str, int]:
    """Addresses of what generated code may call back."""
    return {
        PRINT_SYMBOL: ctypes.cast(_print_callback, ctypes.c_void_p).value or 0,
        ASSERT_SYMBOL: ctypes.cast(_assert_callback, ctypes.c_void_p).value or 0,
    }


def take_failure(call: int) -> str | None:
    """The failed assertion of a call, named by its scratch memory: that of its first block."""
    with _lock:
        return _failures.pop(call, (0, None))[1]


def _text(s: BlockState, text: str) -> Value:
    name = f"text.{s.w.name}.{s.w.fresh('')}"
    return s.w.module.constant_bytes(name, text.encode() + b"\0")


def emit_assert(s: BlockState, stmt: Assert) -> None:
    """Report and stop this thread's work when the condition is false."""
    w = s.w
    fails = w.binary("xor", evaluate(s, stmt.condition), w.const(True, "i1"))
    message = stmt.message if stmt.loc is None else f"{stmt.loc}: {stmt.message}"
    with w.when(fails):
        block = w.add(s.block, w.i64(s.kernel_number << _BLOCK_BITS))
        w.call(ASSERT_SYMBOL, "void", [_text(s, message), s.call, block])
        w.terminate("br label %blocks.end")


def emit_print(s: BlockState, stmt: Print) -> None:
    """Gather the value row-major and hand it over."""
    w = s.w
    if stmt.value is None:
        _call_print(s, stmt.message, None, Value("ptr", "null"), ())
        return
    if not isinstance(stmt.value, Region):
        dtype: DType = stmt.value.dtype  # type: ignore[attr-defined]
        slot = w.alloca("i64", 1, 8)
        w.store(narrow(w, evaluate(s, stmt.value), dtype), slot)
        _call_print(s, stmt.message, dtype, slot, ())
        return
    region = stmt.value
    if region.static_shape is None:
        raise UnsupportedError(
            "only regions of constant shape can be printed", got=region.buffer.name, loc=stmt.loc
        )
    extents = region.static_shape
    count = int(np.prod(extents, dtype=np.int64))
    top = s.arena.top
    place = s.scratch(count * region.dtype.bytes)
    variables = fresh_vars(s, region.shape)

    def one() -> None:
        offset = w.i64(0)
        for var, extent in zip(variables, extents, strict=True):
            offset = w.add(w.mul(offset, w.i64(extent)), s.wide[var.name])
        stored = load_element(s, region.buffer, region.indices(tuple(variables)))
        w.store(stored, w.offset(place, storage_type(region.dtype), offset))

    loop_nest(s, variables, region.shape, one)
    _call_print(s, stmt.message, region.dtype, place, extents)
    s.arena.top = top


def _call_print(
    s: BlockState, message: str, dtype: DType | None, data: Value, extents: tuple[int, ...]
) -> None:
    w = s.w
    shape = w.alloca("i64", max(1, len(extents)), 8)
    for n, extent in enumerate(extents):
        w.store(w.i64(extent), w.offset(shape, "i64", n))
    name = _text(s, dtype.name if dtype is not None else "")
    w.call(PRINT_SYMBOL, "void", [_text(s, message), name, data, w.i64(len(extents)), shape])


__all__ = ["Load", "callback_symbols", "emit_assert", "emit_print", "store_element", "take_failure"]
