"""Register-blocked matrix multiplication: C[m, n] += A[m, k] * B[k, n] on packed operands.

Operand formats (all sizes static, element strides):
  A   row-major (m, k) with pitch `a_pitch`, or, for `a_is_transposed`, (k, m) with that pitch.
  B   panels of `n_block` columns: [n / n_block][k / group][n_block][group], zero beyond n and k.
      `group` elements of k lie together where the instruction takes them together.
  C   row-major (m, n) in the accumulator's type, pitch `c_pitch`, a multiple of the vector.

Blocking follows "Anatomy of High-Performance Matrix Multiplication" (Goto, van de Geijn, 2008):
a panel of B stays in the first-level cache while rows of A pass by; the accumulators of a
rows x columns block stay in registers over all of k.
"""

from __future__ import annotations

from .builder import FunctionWriter, ModuleWriter, Value
from .gemm_plan import GemmPlan, GemmShape, plan_gemm, split_rows
from .host import HostCpu
from .lookahead import Stream
from .register_blocks import BLOCK_PARAMETERS, MicroKernel, Sums
from .tile_blocks import TileRows, emit_tile_block, emit_tile_config, emit_tile_release


class GemmEmitter:
    """Writes multiplication functions into a module; equal ones are written once."""

    def __init__(self, module: ModuleWriter, cpu: HostCpu) -> None:
        self.module = module
        self.cpu = cpu
        self._names: dict[object, str] = {}

    def function(self, shape: GemmShape, plan: GemmPlan, clear: bool) -> str:
        """Name of ``void f(ptr A, ptr B, ptr C)`` for `shape`; `clear` overwrites C."""
        key = (shape, plan, clear)
        if key not in self._names:
            name = f"gemm{len(self._names)}_{shape.m}x{shape.n}x{shape.k}"
            self._names[key] = name
            w = self.module.function(
                name,
                "void",
                [("ptr noalias", "A"), ("ptr noalias", "B"), ("ptr noalias", "C")],
                "internal",
            )
            if plan.kind == "tile":
                self._tile_gemm(w, shape, plan, clear)
            else:
                self._vector_gemm(w, shape, plan, clear)
            w.ret()
        return self._names[key]

    def is_new(self, name: str) -> bool:
        """True the first time that a function of this name is asked for: write it then."""
        is_first = name not in self._names
        self._names[name] = name
        return is_first

    def k_per_turn(self, plan: GemmPlan) -> int:
        """How much of k one turn of a block function takes."""
        if plan.kind == "tile":
            return plan.k_block
        return plan.group * MicroKernel.UNROLL

    def block_function(
        self,
        shape: GemmShape,
        plan: GemmPlan,
        size: tuple[int, int],
        streams: tuple[Stream, ...],
    ) -> str:
        """Name of ``void f(BLOCK_PARAMETERS)`` for one register block of `size` (rows, columns).

        B is one panel; `shape.k` is its depth. Whole turns are taken: pad k with zeros. For tile
        instructions A lies in whole tiles (`TileRows.in_tiles`).
        """
        rows, columns = size
        lanes = self.cpu.lanes(max(32, shape.c_dtype.bits))
        units = -(-columns // (16 if plan.kind == "tile" else lanes))
        key = ("block", shape, plan, rows, units, streams)
        if key not in self._names:
            name = f"block{len(self._names)}_{rows}x{columns}"
            self._names[key] = name
            w = self.module.function(name, "void", BLOCK_PARAMETERS, "internal")
            w.attributes = "noinline"
            a, b, source, place, turns, record = w.parameters
            is_clear = w.icmp("eq", source, Value("ptr", "null"))
            sums = Sums(w.select(is_clear, place, source), place, is_clear)
            if plan.kind == "tile":
                k_tiles = shape.k // plan.k_block
                operands = (a, b, TileRows.in_tiles(k_tiles))
                tiles = (-(-rows // 16), units, k_tiles)
                emit_tile_block(w, shape, tiles, operands, turns, sums)
                w.ret()
            else:
                kernel = MicroKernel(w, shape, plan, lanes)
                kernel.emit((rows, units), (turns, 0), sums, streams, record)
        return self._names[key]

    # -- vector instructions --------------------------------------------------------------------

    def _vector_gemm(
        self, w: FunctionWriter, shape: GemmShape, plan: GemmPlan, clear: bool
    ) -> None:
        a, b, c = w.parameters
        chunk = self._k_chunk(shape, plan)
        panel_bytes = -(-shape.k // plan.group) * plan.group * plan.n_block * shape.b_dtype.bytes
        for start in range(0, shape.k, chunk) if shape.k else [0]:
            length = min(chunk, shape.k - start)
            is_clear = clear and start == 0
            b_at = w.offset_bytes(b, start * plan.n_block * shape.b_dtype.bytes)
            a_at = w.offset_bytes(
                a, start * plan.a_dtype.bytes * (shape.a_pitch if shape.a_is_transposed else 1)
            )
            full, rest = divmod(shape.n, plan.n_block)
            with w.loop(w.i64(0), w.i64(full)) as panels:
                b_panel = w.offset_bytes(b_at, w.mul(panels.index, w.i64(panel_bytes)))
                column = w.mul(panels.index, w.i64(plan.n_block * shape.c_dtype.bytes))
                self._rows(
                    w,
                    (shape, plan, length, is_clear, plan.n_block),
                    a_at,
                    b_panel,
                    w.offset_bytes(c, column),
                )
            if rest:
                b_panel = w.offset_bytes(b_at, full * panel_bytes)
                c_panel = w.offset_bytes(c, full * plan.n_block * shape.c_dtype.bytes)
                self._rows(w, (shape, plan, length, is_clear, rest), a_at, b_panel, c_panel)

    def _k_chunk(self, shape: GemmShape, plan: GemmPlan) -> int:
        """Depth of k whose panel of B fills at most two thirds of the first-level cache."""
        depth = self.cpu.l1_bytes * 2 // 3 // (plan.n_block * shape.b_dtype.bytes)
        pieces = max(1, -(-shape.k // max(depth, 32)))
        share = -(-shape.k // pieces)
        return max(8, -(-share // 8) * 8)

    def _rows(
        self,
        w: FunctionWriter,
        key: tuple[GemmShape, GemmPlan, int, bool, int],
        a: Value,
        b: Value,
        c: Value,
    ) -> None:
        """Pass the rows of A by one panel of B."""
        shape, plan, length, is_clear, columns = key
        row = 0
        a_row = plan.a_dtype.bytes * (1 if shape.a_is_transposed else shape.a_pitch)
        c_row = shape.c_pitch * shape.c_dtype.bytes
        for rows, count in split_rows(shape.m, plan.m_block):
            micro = self._micro(shape, plan, rows, columns, length, is_clear)
            with w.loop(w.i64(0), w.i64(count)) as blocks:
                first = w.add(w.mul(blocks.index, w.i64(rows)), w.i64(row))
                a_at = w.offset_bytes(a, w.mul(first, w.i64(a_row)))
                c_at = w.offset_bytes(c, w.mul(first, w.i64(c_row)))
                w.call(micro, "void", [a_at, b, c_at])
            row += rows * count

    def _micro(
        self, shape: GemmShape, plan: GemmPlan, rows: int, columns: int, length: int, clear: bool
    ) -> str:
        """A function for one register block over `length` of k."""
        lanes = self.cpu.lanes(max(32, shape.c_dtype.bits))
        vectors = -(-columns // lanes)
        operands = (shape.a_pitch, shape.c_pitch, shape.a_is_transposed)
        types = (shape.a_dtype, shape.b_dtype, shape.c_dtype)
        key = ("micro", operands, types, plan, rows, vectors, length, clear)
        if key not in self._names:
            name = f"micro{len(self._names)}_{rows}x{vectors * lanes}x{length}"
            self._names[key] = name
            w = self.module.function(
                name,
                "void",
                [("ptr noalias", "A"), ("ptr noalias", "B"), ("ptr noalias", "C")],
                "internal",
            )
            w.attributes = "noinline"
            turns = divmod(-(-length // plan.group), MicroKernel.UNROLL)
            kernel = MicroKernel(w, shape, plan, lanes)
            c = w.parameters[2]
            kernel.emit((rows, vectors), (w.i64(turns[0]), turns[1]), Sums(c, c, clear))
        return self._names[key]

    # -- tile instructions ----------------------------------------------------------------------

    def _tile_gemm(self, w: FunctionWriter, shape: GemmShape, plan: GemmPlan, clear: bool) -> None:
        """Blocks of 32 x 32 in four accumulator tiles; A and C are padded to 16 rows."""
        a, b, c = w.parameters
        k_tiles, a_pitch = -(-shape.k // plan.k_block), shape.a_pitch * shape.a_dtype.bytes
        half_panel = k_tiles * plan.k_block * 16 * shape.b_dtype.bytes
        m_pairs, m_rest = divmod(-(-shape.m // 16), 2)
        n_pairs, n_rest = divmod(-(-shape.n // 16), 2)
        for n_tiles, n_count, n_first in ((2, n_pairs, 0), (1, n_rest, n_pairs * 2)):
            if not n_count:
                continue
            with w.loop(w.i64(0), w.i64(n_count)) as columns:
                n_tile = w.add(w.mul(columns.index, w.i64(n_tiles)), w.i64(n_first))
                b_at = w.offset_bytes(b, w.mul(n_tile, w.i64(half_panel)))
                c_column = w.offset_bytes(c, w.mul(n_tile, w.i64(64)))
                for m_tiles, m_count, m_first in ((2, m_pairs, 0), (1, m_rest, m_pairs * 2)):
                    if not m_count:
                        continue
                    with w.loop(w.i64(0), w.i64(m_count)) as rows:
                        m_tile = w.add(w.mul(rows.index, w.i64(m_tiles)), w.i64(m_first))
                        a_at = w.offset_bytes(a, w.mul(m_tile, w.i64(16 * a_pitch)))
                        c_at = w.offset_bytes(
                            c_column, w.mul(m_tile, w.i64(16 * shape.c_pitch * 4))
                        )
                        tiles = (m_tiles, n_tiles, k_tiles)
                        operands = (a_at, b_at, TileRows.in_rows(a_pitch))
                        sums = Sums(c_at, c_at, clear)
                        emit_tile_block(w, shape, tiles, operands, w.i64(k_tiles), sums)


__all__ = [
    "GemmEmitter", "GemmPlan", "GemmShape", "emit_tile_config", "emit_tile_release", "plan_gemm",
]  # fmt: skip
