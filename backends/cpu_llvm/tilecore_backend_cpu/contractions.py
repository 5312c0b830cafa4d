"""Gemm statements: operands brought to the form a kernel reads, then one call."""

from __future__ import annotations

from dataclasses import replace

from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Const, const
from tilecore.ir.layout import Layout
from tilecore.ir.stmts import Gemm

from .builder import Value
from .elementwise import emit_parallel
from .expressions import evaluate
from .gemm_kernels import GemmPlan, GemmShape
from .memory import linear_offset
from .packing import emit_pack, source_matrix
from .regions import emit_copy_nest, emit_fill_nest
from .scheduling import gemm_plan, is_whole_matrix, packing_for, round_up
from .state import BlockState
from .storage import Storage, plain_strides


def emit_gemm(s: BlockState, stmt: Gemm) -> None:
    """``c (+)= op(a) @ op(b)``."""
    _Contraction(s, stmt).emit()


Operands = tuple[tuple[Value, Value, Value], GemmShape]
"""Addresses of A, B and C, and the multiplication."""


def is_in_place(s: BlockState, stmt: Gemm) -> bool:
    """Whether a product's kernel uses A (not transposed), a packed B and C where they lie."""
    return _Contraction(s, stmt).is_in_place()


def operands_in_place(s: BlockState, stmt: Gemm) -> Operands:
    """The operands of such a product."""
    return _Contraction(s, stmt).operands(False)[0]


class _Contraction:
    def __init__(self, s: BlockState, stmt: Gemm) -> None:
        self.s, self.stmt = s, stmt
        self.plan: GemmPlan = gemm_plan(stmt, s.cpu)
        shapes = [region.static_shape for region in (stmt.a, stmt.b, stmt.c)]
        if any(shape is None or len(shape) != 2 for shape in shapes):
            raise UnsupportedError("gemm operands need two constant extents", loc=stmt.loc)
        a_shape, b_shape = shapes[0], shapes[1]
        assert a_shape is not None and b_shape is not None
        self.m, self.k = (a_shape[1], a_shape[0]) if stmt.transpose_a else a_shape
        self.n = b_shape[0] if stmt.transpose_b else b_shape[1]

    def emit(self) -> None:
        s, stmt = self.s, self.stmt
        clear = stmt.clear_accum
        if self.m == 0 or self.n == 0:
            return
        zero = const(0, stmt.c.dtype)
        if self.k == 0 or not isinstance(clear, Const):
            condition = (
                s.w.const(clear.value, "i1") if isinstance(clear, Const) else evaluate(s, clear)
            )
            with s.w.when(condition):
                emit_fill_nest(s, stmt.c, zero)
            if self.k == 0:
                return
        is_clear = isinstance(clear, Const) and bool(clear.value)
        top = s.arena.top
        (addresses, shape), scratch = self.operands(is_clear)
        assert s.gemm is not None
        s.w.call(s.gemm.function(shape, self.plan, is_clear), "void", list(addresses))
        if scratch is not None:
            emit_copy_nest(s, scratch, stmt.c)
        s.arena.top = top

    def operands(self, is_clear: bool) -> tuple[Operands, Region | None]:
        """What the kernel takes, and where C is if that is a copy."""
        a, a_pitch, is_transposed = self._left()
        b = self._right()
        c, c_pitch, scratch = self._result(is_clear)
        types = (self.plan.a_dtype, self.stmt.b.dtype, self.stmt.c.dtype)
        shape = GemmShape(self.m, self.n, self.k, *types, a_pitch, c_pitch, is_transposed)
        return ((a, b, c), shape), scratch

    def is_in_place(self) -> bool:
        """See `is_in_place`."""
        s, stmt = self.s, self.stmt
        if any(region.buffer.name not in s.storage for region in (stmt.a, stmt.b, stmt.c)):
            return False
        return (
            0 not in (self.m, self.n, self.k)
            and not stmt.transpose_a
            and self._left_pitch() is not None
            and self._result_pitch() is not None
            and self._is_packed()
        )

    # -- operands -------------------------------------------------------------------------------

    def _pointer(self, region: Region) -> Value:
        w = self.s.w
        storage = self.s.storage_of(region.buffer)
        offset = linear_offset(self.s, storage, region.starts)
        return w.offset_bytes(storage.pointer, w.mul(offset, w.i64(region.dtype.bytes)))

    def _pitch(self, region: Region) -> int | None:
        """Constant row pitch of a region with contiguous rows, else None."""
        storage = self.s.storage[region.buffer.name]
        if (
            storage.strides is None
            or region.axes[-1] != region.buffer.rank - 1
            or storage.strides[-1] != 1
        ):
            return None
        pitch = storage.strides[region.axes[0]]
        return pitch if isinstance(pitch, int) else None

    def _has_room(self, region: Region, rows: int, columns: int) -> bool:
        """Whether rows x columns from the region's start stay inside its padding."""
        layout = self.s.storage[region.buffer.name].layout
        if layout is None:
            return False
        shape = region.static_shape
        assert shape is not None
        if (rows, columns) == shape:
            return True
        return is_whole_matrix(region) and layout.shape[-2] >= rows and layout.shape[-1] >= columns

    def _left_pitch(self) -> int | None:
        """The row pitch of A if the kernel reads it where it lies."""
        stmt, plan = self.stmt, self.plan
        if plan.a_dtype != stmt.a.dtype:
            return None
        if stmt.transpose_a:
            return self._pitch(stmt.a) if plan.kind == "fma" else None
        rows = round_up(self.m, 16) if plan.kind == "tile" else self.m
        has_room = self._has_room(stmt.a, rows, round_up(self.k, plan.k_block))
        return self._pitch(stmt.a) if has_room else None

    def _left(self) -> tuple[Value, int, bool]:
        pitch = self._left_pitch()
        if pitch is None:
            return self._left_scratch()
        return self._pointer(self.stmt.a), pitch, self.stmt.transpose_a

    def _left_scratch(self) -> tuple[Value, int, bool]:
        """A copy of A in the kernel's type, rows and k padded, the padding zero."""
        s, stmt, plan = self.s, self.stmt, self.plan
        rows, columns = round_up(self.m, 16), round_up(self.k, plan.k_block)
        region = self._scratch_region(
            plan.a_dtype, (self.m, self.k), (rows, columns), self.k % plan.k_block != 0
        )
        if stmt.transpose_a:
            self._transposed_copy(stmt.a, region)
        else:
            emit_copy_nest(s, stmt.a, region)
        return s.storage_of(region.buffer).pointer, columns, False

    def _transposed_copy(self, src: Region, dst: Region) -> None:
        """dst[i, j] = src[j, i]."""
        from tilecore.ir.expr import Cast, Load, Var
        from tilecore.ir.stmts import Parallel, Store

        i, j = Var(self.s.w.fresh("row.")), Var(self.s.w.fresh("column."))
        load = Load(src.buffer, src.indices((j, i)))
        value = load if src.dtype == dst.dtype else Cast(load, dst.dtype)
        store = Store(dst.buffer, dst.indices((i, j)), value)
        emit_parallel(self.s, Parallel((i, j), tuple(dst.shape), (store,)))

    def _scratch_region(
        self, dtype: DType, shape: tuple[int, int], padded: tuple[int, int], is_zeroed: bool
    ) -> Region:
        s = self.s
        buffer = Buffer(
            s.w.fresh("scratch."), (const(shape[0]), const(shape[1])), dtype, Scope.FRAGMENT
        )
        layout = Layout.row_major(padded)
        place = s.scratch(layout.span * dtype.bytes)
        s.storage[buffer.name] = Storage(buffer, place, plain_strides(layout), layout)
        if is_zeroed:
            zero_bytes(s, place, layout.span * dtype.bytes)
        return Region(buffer, (const(0), const(0)), tuple(buffer.shape))

    def _is_packed(self) -> bool:
        """Whether B lies as the kernel reads it."""
        return self.s.packings.get(self.stmt.b.buffer.name) == packing_for(self.stmt, self.s.cpu)

    def _right(self) -> Value:
        s, stmt = self.s, self.stmt
        if self._is_packed():
            return self._packed_pointer(s.storage_of(stmt.b.buffer))
        packing = packing_for(stmt, s.cpu)
        place = s.scratch(packing.elements * stmt.b.dtype.bytes)
        if packing.k_padded > packing.k:
            zero_bytes(s, place, packing.elements * stmt.b.dtype.bytes)
        matrix = source_matrix(s, stmt.b)
        if matrix is not None:
            emit_pack(s.w, matrix, packing, place, stmt.b.dtype.bytes)
            return place
        shape = stmt.b.static_shape
        assert shape is not None
        buffer = Buffer(
            s.w.fresh("packed."), tuple(const(e) for e in shape), stmt.b.dtype, Scope.SHARED
        )
        s.storage[buffer.name] = Storage(buffer, place, None, Layout(packing.axes()))
        emit_copy_nest(s, stmt.b, Region(buffer, (const(0), const(0)), tuple(buffer.shape)))
        return place

    def _packed_pointer(self, storage: Storage) -> Value:
        from .expressions import index

        w = self.s.w
        assert storage.layout is not None
        lead = w.i64(0)
        for start, axis in zip(self.stmt.b.starts[:-2], storage.layout.axes[:-2], strict=True):
            lead = w.add(lead, w.mul(index(self.s, start), w.i64(axis[0].stride)))
        return w.offset_bytes(storage.pointer, w.mul(lead, w.i64(self.stmt.b.dtype.bytes)))

    def _padded_result(self) -> tuple[int, int]:
        """Rows and columns that the kernel writes: whole tiles, or whole vectors."""
        if self.plan.kind == "tile":
            return round_up(self.m, 16), round_up(self.n, 16)
        return self.m, round_up(self.n, self.s.cpu.lanes(max(32, self.stmt.c.dtype.bits)))

    def _result_pitch(self) -> int | None:
        """The row pitch of C if the kernel writes it where it lies."""
        has_room = self._has_room(self.stmt.c, *self._padded_result())
        return self._pitch(self.stmt.c) if has_room else None

    def _result(self, is_clear: bool) -> tuple[Value, int, Region | None]:
        """Where the kernel writes; a scratch tile when C has no room for whole vectors."""
        s, stmt = self.s, self.stmt
        pitch = self._result_pitch()
        if pitch is not None:
            return self._pointer(stmt.c), pitch, None
        rows, columns = self._padded_result()
        region = self._scratch_region(stmt.c.dtype, (self.m, self.n), (rows, columns), False)
        if not is_clear:
            emit_copy_nest(s, stmt.c, region)
        return s.storage_of(region.buffer).pointer, columns, region


def zero_bytes(s: BlockState, place: Value, size: int) -> None:
    """Set memory to zero."""
    w = s.w
    w.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    w.line(f"call void @llvm.memset.p0.i64(ptr align 64 {place.ref}, i8 0, i64 {size}, i1 false)")


__all__ = ["emit_gemm", "replace", "zero_bytes"]
