"""Elements narrower than a byte: packed bytes in global memory, a wider dtype on the chip.

    A: int4[m, n]                    ->  A: uint8[m, ceil(n / 2)], first element in the low bits
    copy A[i:+16, k:+32] -> s        ->  parallel (r, c) in (16, 32) { s[r, c] = half of a byte }
    parallel (j) in (64) {           ->  parallel (p) in (32) {
      A[i, j] = x                          for h in 2 { half h of A[i, p] = x }
    }                                    }

What computes on such values is said in `packed_values`. Two elements share a byte, so a store
reads and writes the byte that its neighbour is in. That is right where one lane writes both: the
axis along which neighbours lie is cut into pairs, or walked by one lane where a start may be odd.
Where another block or lane would write the neighbour, the program is refused. Every later pass
and every backend sees bytes only.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tilecore.errors import Loc, UnsupportedError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import int32, uint8
from tilecore.ir.expr import (
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    binary,
    const,
    dtype_of_expr,
    walk,
)
from tilecore.ir.program import Kernel, Program
from tilecore.ir.ranges import Ranges
from tilecore.ir.visit import (
    BODY_FIELDS,
    buffers_in,
    exprs_of,
    map_regions,
    map_whole_exprs,
    walk_stmts,
)
from tilecore.passes.elementwise import with_own_vars
from tilecore.passes.packed_values import (
    Values,
    code_of,
    halved,
    is_narrow,
    is_packed,
    less,
    shift_of,
    value_of,
    wide,
)
from tilecore.passes.scopes import Names, ceil_div

if TYPE_CHECKING:
    from tilecore.hooks.context import Context

_EXACT_REDUCTIONS = frozenset({"max", "min", "bitand", "bitor", "bitxor", "any", "all"})
_ADVICE = "convert to a dtype of 8 bits or more first"


def pack_narrow(program: Program, context: Context | None = None) -> Program:
    """The same program without elements narrower than a byte; `context` is not asked.

    Raises:
        UnsupportedError: a store whose neighbour in the byte another lane or block may write, an
            atomic, or a statement that has no meaning on packed memory.
    """
    if not _mentions_narrow(program):
        return program
    packer = _Packer(program)
    return dataclasses.replace(
        program,
        params=tuple(packer.buffer(p) if isinstance(p, Buffer) else p for p in program.params),
        workspaces=tuple(packer.buffer(buffer) for buffer in program.workspaces),
        kernels=tuple(packer.kernel(kernel) for kernel in program.kernels),
    )


def _mentions_narrow(program: Program) -> bool:
    given = (*program.params, *program.workspaces)
    if any(is_narrow(one.dtype) for one in given):
        return True
    return any(
        any(is_narrow(buffer.dtype) for buffer in buffers_in(kernel.body))
        or any(
            is_narrow(dtype_of_expr(node))
            for stmt in walk_stmts(kernel.body)
            for top in exprs_of(stmt)
            for node in walk(top)
        )
        for kernel in program.kernels
    )


class _Packer:
    """Rewrites one program; statements are visited in order, with what is known of variables."""

    def __init__(self, program: Program) -> None:
        self.names = Names(program)
        self.program = program
        self.loc: Loc | None = None
        self.ranges = Ranges()
        self.uniform: set[str] = set()
        """Variables that are the same in all lanes and blocks, or that one lane walks through."""
        self.values = Values(self.load)
        for param in program.params:
            if isinstance(param, Var):
                self.uniform.add(param.name)
                if is_narrow(param.dtype):
                    raise UnsupportedError(
                        f"a scalar parameter of dtype {param.dtype}", got=param.name, hint=_ADVICE
                    )
        self.uniform |= {symbol.name for symbol in program.symbols}

    def kernel(self, kernel: Kernel) -> Kernel:
        self.ranges = Ranges().with_sizes(self.program.symbols)
        for var, extent in zip(kernel.grid_vars, kernel.grid, strict=True):
            self.ranges = self.ranges.with_index(var, extent)
        return dataclasses.replace(kernel, body=self.block(kernel.body, False))

    # --- buffers -------------------------------------------------------------------------------

    def buffer(self, buffer: Buffer) -> Buffer:
        """What holds a buffer's elements; itself unless they are narrow."""
        if not is_narrow(buffer.dtype):
            return buffer
        if buffer.scope is not Scope.GLOBAL:
            return dataclasses.replace(buffer, dtype=wide(buffer.dtype))
        shape, strides = buffer.shape, buffer.strides
        if not shape:
            self.refuse(f"{buffer.name} has no axis along which {buffer.dtype} could be packed")
        if strides is not None:
            if strides[-1] != const(1, dtype_of_expr(strides[-1])):
                self.refuse(f"the last axis of {buffer.name} is not contiguous")
            if any(isinstance(s, Const) and int(s.value) % 2 for s in strides[:-1]):
                self.refuse(f"rows of {buffer.name} begin inside a byte")
            strides = (*(halved(stride) for stride in strides[:-1]), strides[-1])
        return dataclasses.replace(
            buffer, shape=(*shape[:-1], ceil_div(shape[-1], 2)), strides=strides, dtype=uint8,
            safe_value=0,
        )  # fmt: skip

    def region(self, region: Region, what: str) -> Region:
        """A region on the chip; packed memory is refused, since `what` has no way to read it."""
        if is_packed(region.buffer):
            self.refuse(
                f"{what} of {region.buffer.name}: {region.dtype} is packed in global memory"
            )
        starts = tuple(self.values(start) for start in region.starts)
        return Region(self.buffer(region.buffer), starts, region.extents)

    def refuse(self, reason: str, expected: str | None = None, hint: str | None = None) -> None:
        raise UnsupportedError(reason, expected=expected, loc=self.loc, hint=hint)

    # --- elements ------------------------------------------------------------------------------

    def load(self, node: Load) -> Expr:
        """The wide value of an element."""
        buffer = self.buffer(node.buffer)
        if not is_packed(node.buffer):
            return Load(buffer, node.indices)
        *outer, last = node.indices
        byte = Cast(Load(buffer, (*outer, halved(last))), int32)
        code = binary("bitand", binary("shr", byte, shift_of(last)), const(15))
        value = value_of(code, node.dtype)
        inside = self._inside(node.buffer, node.indices)
        if inside == all_of(()):
            return value
        safe = const(node.buffer.safe_value, wide(node.dtype))
        return Select(inside, value, safe, wide(node.dtype))

    def _inside(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """What has to be asked beyond the guard of the bytes: False where the safe value counts."""
        conditions: list[Expr] = []
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            is_last = axis == buffer.rank - 1
            if is_last and self.ranges.multiple(extent) % 2 and not self._is_below(index, extent):
                conditions.append(less(index, extent))
            elif buffer.safe_value and not self._is_below(index, extent):
                conditions += [less(index, extent), less(const(-1), index)]
        return all_of(conditions)

    def _is_below(self, index: Expr, extent: Expr) -> bool:
        return self.ranges.proves(less(index, extent))

    def store(self, stmt: S.Store, inside: bool) -> S.Block:
        """A store; of a packed element, to its half of the byte."""
        indices = tuple(self.values(index) for index in stmt.indices)
        value = self.values(stmt.value)
        buffer = self.buffer(stmt.buffer)
        if not is_packed(stmt.buffer):
            return (S.Store(buffer, indices, value, stmt.loc),)
        *outer, last = indices
        self._check_alone(stmt.buffer, last)
        place = (*outer, halved(last))
        old, code = Cast(Load(buffer, place), int32), code_of(value, stmt.buffer.dtype)
        low = binary("bitor", binary("bitand", old, const(0xF0)), code)
        high = binary("bitor", binary("bitand", old, const(0x0F)), binary("shl", code, const(4)))
        is_low = binary("eq", shift_of(last), const(0))
        byte = Cast(Select(is_low, low, high, int32), uint8)
        one = S.Store(buffer, place, byte, stmt.loc)
        extent = stmt.buffer.shape[-1]
        if inside and self.ranges.multiple(extent) % 2 and not self._is_below(last, extent):
            return (S.If(less(last, extent), (one,), (), stmt.loc),)
        return (one,)

    def _odd_terms(self, index: Expr) -> tuple[list[Expr], bool]:
        """Terms that may change an index by an odd number, and whether its constant is odd.

        Whether a number is odd survives wrapping, so sums are taken apart as they are written.
        """
        form = self.ranges.regrouped(index)
        odd: list[Expr] = []
        is_odd = form.constant % 2 == 1
        for term, coefficient in form.terms:
            if coefficient % 2 == 0 or self.ranges.multiple(term) % 2 == 0:
                continue
            inner = self.ranges.values.get(term.name) if isinstance(term, Var) else None
            if isinstance(term, Cast) and dtype_of_expr(term.a).is_int:
                inner = term.a
            if inner is None:
                odd.append(term)
                continue
            more, shifted = self._odd_terms(inner)
            odd += more
            is_odd ^= shifted
        return odd, is_odd

    def _is_uniform(self, term: Expr) -> bool:
        return isinstance(term, Var) and term.name in self.uniform

    def _check_alone(self, buffer: Buffer, last: Expr) -> None:
        """That whoever writes this element also writes its neighbour in the byte."""
        for term in self._odd_terms(last)[0]:
            if not self._is_uniform(term):
                what = term.name if isinstance(term, Var) else "a value read while it runs"
                self.refuse(
                    f"a store to {buffer.name}, whose elements share bytes, is not known to keep"
                    f" out of the bytes that other lanes and blocks write: {what} may be odd",
                    expected=f"tiles of {buffer.dtype} that begin at even places",
                    hint="an even tile extent, or T.dynamic(..., multiple_of=2)",
                )

    # --- statements ----------------------------------------------------------------------------

    def block(self, block: S.Block, inside: bool) -> S.Block:
        """`inside` a Parallel or not."""
        result: list[S.Stmt] = []
        for stmt in block:
            self.loc = getattr(stmt, "loc", None) or self.loc
            result += self.stmt(stmt, inside)
        return tuple(result)

    def learn(self, stmt: S.Stmt) -> None:
        """Keep what is known of the variable that a statement binds."""
        if isinstance(stmt, S.Let):
            self.ranges = self.ranges.with_value(stmt.var, stmt.value)
        elif isinstance(stmt, S.For):
            self.ranges = self.ranges.with_loop(stmt.var, stmt.start, stmt.extent, stmt.step)
            self.uniform.add(stmt.var.name)

    def stmt(self, stmt: S.Stmt, inside: bool) -> S.Block:
        self.learn(stmt)
        match stmt:
            case S.Let(var=var, value=value):
                new = dataclasses.replace(var, dtype=wide(var.dtype))
                return (dataclasses.replace(stmt, var=new, value=self.values(value)),)
            case S.Allocate(buffer=buffer, init=init):
                start = None if init is None else self.values(init)
                return (dataclasses.replace(stmt, buffer=self.buffer(buffer), init=start),)
            case S.Alias():
                return (self.alias(stmt),)
            case S.Store():
                return self.store(stmt, inside)
            case S.Parallel():
                return (self.nest(stmt),)
            case S.Copy() | S.Fill():
                return self.move(stmt)
            case S.Atomic(dst=dst, value=value) if is_narrow(dst.dtype) or (
                isinstance(value, Region) and is_narrow(value.dtype)
            ):
                self.refuse(
                    f"an atomic on {dst.buffer.name}: elements of {dst.dtype} have no address of"
                    " their own",
                    hint=_ADVICE,
                )
            case _:
                pass
        new = map_whole_exprs(self.regions(stmt), self.values)
        changes = {
            name: self.block(getattr(stmt, name), inside)
            for name in BODY_FIELDS
            if getattr(stmt, name, ())
        }
        return (dataclasses.replace(new, **changes) if changes else new,)  # type: ignore[arg-type]

    def regions(self, stmt: S.Stmt) -> S.Stmt:
        """A tile statement over what holds its tiles."""
        what = type(stmt).__name__.lower()
        is_exact = not isinstance(stmt, S.Gemm | S.Reduce | S.Scan) or (
            getattr(stmt, "op", "") in _EXACT_REDUCTIONS
        )
        result = getattr(stmt, "c", None) or getattr(stmt, "dst", None)
        if not is_exact and isinstance(result, Region) and is_narrow(result.dtype):
            self.refuse(
                f"{what} into {result.buffer.name}: sums of {result.dtype}",
                expected="a result of 8 bits or more",
            )
        return map_regions(
            stmt, lambda one: self.region(one, what) if is_narrow(one.dtype) else one
        )

    def alias(self, stmt: S.Alias) -> S.Stmt:
        """A view; packed memory has those that keep its rows whole."""
        view, source = stmt.buffer, stmt.source
        if not is_narrow(view.dtype) and not is_narrow(source.dtype):
            return stmt
        if view.dtype != source.dtype:
            self.refuse(f"{view.name} views {source.name} as {view.dtype}", hint=_ADVICE)
        if is_packed(source):
            last = (view.shape[-1], source.shape[-1])
            if source.strides is not None or any(self.ranges.multiple(e) % 2 for e in last):
                self.refuse(f"{view.name} views {source.name}, whose rows end inside a byte")
        return dataclasses.replace(stmt, buffer=self.buffer(view), source=self.buffer(source))

    def move(self, stmt: S.Copy | S.Fill) -> S.Block:
        """A copy or a fill: as it is on the chip, element by element in packed memory."""
        dst = stmt.dst
        src = stmt.src if isinstance(stmt, S.Copy) else None
        packed = is_packed(dst.buffer) or (src is not None and is_packed(src.buffer))
        rounds = src is not None and is_narrow(dst.dtype) and src.dtype != dst.dtype
        if not packed and not rounds:
            return (map_whole_exprs(self.regions(stmt), self.values),)
        nest = with_own_vars(stmt, self.names.fresh)
        if not nest.vars:  # one element
            return self.block(nest.body, False)
        hints = tuple(item for item in nest.hints if item[0] == "coalesced_width")
        return (self.nest(dataclasses.replace(nest, hints=hints)),)

    def nest(self, nest: S.Parallel) -> S.Stmt:
        """An elementwise nest whose lanes write whole bytes of packed memory."""
        for var, extent in zip(nest.vars, nest.extents, strict=True):
            self.ranges = self.ranges.with_index(var, extent)
        apart = self._axes_to_cut(nest)
        variables, extents, body = list(nest.vars), list(nest.extents), nest.body
        for axis, whole in apart.items():
            var, extent = variables[axis], extents[axis]
            step = dataclasses.replace(var, name=self.names.fresh(f"{var.name}_half"))
            pair = dataclasses.replace(var, name=self.names.fresh(f"{var.name}_pair"))
            zero, one, two = (const(n, var.dtype) for n in range(3))
            place: Expr = step if whole else binary("add", binary("mul", pair, two), step)
            if not whole and self.ranges.multiple(extent) % 2:
                body = (S.If(less(var, extent), body, (), nest.loc),)
            rounds = extent if whole else two
            inner: S.Block = (S.Let(var, place, nest.loc), *body)
            body = (S.For(step, zero, rounds, one, inner, loc=nest.loc),)
            variables[axis] = pair
            extents[axis] = one if whole else ceil_div(extent, 2)
            self.ranges = self.ranges.with_index(pair, extents[axis])
        exprs = tuple(self.values(extent) for extent in extents)
        return S.Parallel(tuple(variables), exprs, self.block(body, True), nest.hints, nest.loc)

    def _axes_to_cut(self, nest: S.Parallel) -> dict[int, bool]:
        """Axes along which neighbours share a byte; True where one lane walks all of the axis."""
        found: dict[int, bool] = {}
        before = self.ranges
        for stmt in walk_stmts(nest.body):
            self.learn(stmt)
            if not (isinstance(stmt, S.Store) and is_packed(stmt.buffer)):
                continue
            odd, starts_odd = self._odd_terms(stmt.indices[-1])
            axes = [nest.vars.index(t) for t in odd if t in nest.vars]
            shifted = starts_odd or any(self._is_uniform(t) for t in odd)
            if len(axes) == 1:
                found[axes[0]] = found.get(axes[0], False) or shifted
        self.ranges = before
        return found
