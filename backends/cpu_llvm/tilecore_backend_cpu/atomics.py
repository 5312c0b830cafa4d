"""Atomic read-modify-write: hardware operations where they exist, compare-and-swap elsewhere."""

from __future__ import annotations

from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Region
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, Load
from tilecore.ir.stmts import Atomic

from .builder import Value
from .conversions import compute_type, convert, narrow, storage_type, widen
from .expressions import evaluate
from .memory import resolve
from .reductions import Combiner, fresh_vars, loop_nest
from .state import BlockState

_ORDERS = {
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
    "seq_cst": "seq_cst",
}
_INTEGER_OPS = {
    "add": "add",
    "sub": "sub",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exchange": "xchg",
}


def emit_atomic(s: BlockState, stmt: Atomic) -> None:
    """One element, or a tile element by element; elements outside the destination are dropped."""
    outer = (s.is_elementwise, s.is_guarded, s.axis)
    axis = s.axis
    s.is_elementwise, s.is_guarded = True, True
    if isinstance(stmt.value, Region):
        s.axis = None
        variables = fresh_vars(s, stmt.dst.shape)
        value: Expr = Load(stmt.value.buffer, stmt.value.indices(tuple(variables)))
        indices = stmt.dst.indices(tuple(variables))
        loop_nest(s, variables, stmt.dst.shape, lambda: _emit_one(s, stmt, indices, value))
    else:
        if axis is not None and axis.lanes > 1:
            raise UnsupportedError("an atomic runs one lane at a time", loc=stmt.loc)
        _emit_one(s, stmt, stmt.dst.starts, stmt.value)
    s.is_elementwise, s.is_guarded, s.axis = outer


def _emit_one(s: BlockState, stmt: Atomic, indices: tuple[Expr, ...], value: Expr) -> None:
    w = s.w
    dtype = stmt.dst.dtype
    access = resolve(s, stmt.dst.buffer, indices)
    operand = convert(w, evaluate(s, value), value.dtype, dtype)  # type: ignore[attr-defined]
    old = w.alloca(compute_type(dtype), 1, 8)
    w.store(w.const(0, compute_type(dtype)), old)
    if access.mask is None:
        w.store(_perform(s, stmt, access.pointer, operand, dtype), old)
    else:
        with w.when(access.mask):
            w.store(_perform(s, stmt, access.pointer, operand, dtype), old)
    if stmt.previous is not None:
        s.values[stmt.previous.name] = w.load(old, compute_type(dtype))


def _perform(s: BlockState, stmt: Atomic, place: Value, operand: Value, dtype: DType) -> Value:
    """The operation itself; returns the old value in compute form."""
    w = s.w
    kind = storage_type(dtype)
    order = _ORDERS[stmt.memory_order]
    align = dtype.bytes
    if stmt.op == "load":
        read = "acquire" if order in ("release", "acq_rel") else order
        raw = w.emit(f"i{dtype.bits}", f"load atomic i{dtype.bits}, {place} {read}, align {align}")
        return widen(w, w.bitcast(raw, kind), dtype)
    stored = narrow(w, operand, dtype)
    if stmt.op == "store":
        written = "release" if order in ("acquire", "acq_rel") else order
        raw = w.bitcast(stored, f"i{dtype.bits}")
        w.line(f"store atomic {raw}, {place} {written}, align {align}")
        return operand
    op = _hardware_op(stmt.op, dtype)
    if op is not None:
        result = w.emit(kind, f"atomicrmw {op} {place}, {stored} {order}, align {align}")
        return widen(w, result, dtype)
    return _swap_loop(s, stmt.op, place, operand, dtype, order)


def _hardware_op(op: str, dtype: DType) -> str | None:
    if dtype.is_int:
        if op in ("max", "min"):
            return op if dtype.kind == "int" else "u" + op
        return _INTEGER_OPS.get(op)
    if dtype.bits >= 32 and dtype.is_float:
        return {"add": "fadd", "sub": "fsub", "exchange": "xchg"}.get(op)
    return None


def _swap_loop(
    s: BlockState, op: str, place: Value, operand: Value, dtype: DType, order: str
) -> Value:
    """Compare-and-swap until no other thread came between."""
    w = s.w
    raw_kind = f"i{dtype.bits}"
    first = w.emit(raw_kind, f"load atomic {raw_kind}, {place} monotonic, align {dtype.bytes}")
    label = w.fresh("swap")
    before = w.block
    w.begin_block(label)
    seen = Value(raw_kind, f"%{label}.seen")
    phi_at = w.mark()
    old = widen(w, w.bitcast(seen, storage_type(dtype)), dtype)
    new = _apply(s, op, old, operand, dtype)
    raw = w.bitcast(narrow(w, new, dtype), raw_kind)
    pair = f"{{ {raw_kind}, i1 }}"
    failure = "monotonic" if order in ("monotonic", "release") else "acquire"
    swapped = w.emit(pair, f"cmpxchg {place}, {seen}, {raw} {order} {failure}, align {dtype.bytes}")
    current = w.emit(raw_kind, f"extractvalue {swapped}, 0")
    is_done = w.emit("i1", f"extractvalue {swapped}, 1")
    w.insert_phi(phi_at, seen, [(first, before), (current, w.block)])
    w.terminate(f"br {is_done}, label %{label}.done, label %{label}")
    w.begin_block(f"{label}.done")
    return old


def _apply(s: BlockState, op: str, old: Value, operand: Value, dtype: DType) -> Value:
    if op in ("max", "min"):
        return Combiner(s, op, dtype).combine(old, operand)
    if op == "exchange":
        return operand
    if op == "sub":
        return s.w.sub(old, operand)
    if op == "add":
        return s.w.add(old, operand)
    if dtype.is_bool and op in ("and", "or", "xor"):
        return s.w.binary(op, old, operand)
    raise UnsupportedError(f"atomic {op} on {dtype} does not exist")
