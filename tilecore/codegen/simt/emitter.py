"""Lane-level kernels as readable C++ over the kernel vocabulary.

The text keeps the author's buffer names, and says above each statement which of the author's lines
it comes from. Backends add their own operations by emit rules: a rule for a `Call` gets the
expression printer and the call and gives an expression, a rule for an `Intrinsic` gets the kernel
printer and the statement and gives one statement.
"""

from __future__ import annotations

import functools
import linecache
import os
from collections.abc import Mapping
from typing import Any

from tilecore.codegen.simt.block_order import CHUNK, GROUPS, grid_lines
from tilecore.codegen.simt.dialect import Dialect
from tilecore.codegen.simt.expressions import ExpressionPrinter
from tilecore.codegen.simt.memory_use import read_by, stored_in_bulk, written_by
from tilecore.codegen.simt.statements import atomic_text, print_text
from tilecore.codegen.simt.writer import Writer
from tilecore.errors import Loc, UnsupportedError
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.expr import Const, Expr, const, reads_memory
from tilecore.ir.program import OVERLAPPED, Kernel, Program
from tilecore.ir.signature import kernel_arguments
from tilecore.ir.stmts import (
    Allocate,
    Assert,
    Atomic,
    Block,
    Break,
    Continue,
    For,
    If,
    Intrinsic,
    Let,
    LoopKind,
    Print,
    Stmt,
    Store,
    WarpScope,
    While,
)
from tilecore.ir.visit import walk_stmts
from tilecore.target import Target


class KernelPrinter:
    """Prints one kernel."""

    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        target: Target,
        dialect: Dialect,
        rules: Mapping[str, Any],
        fast_math: bool,
        line_info: bool,
    ) -> None:
        self.program = program
        self.kernel = kernel
        self.target = target
        self.dialect = dialect
        self.rules = rules
        self.line_info = line_info
        self.out = Writer()
        self.expressions = ExpressionPrinter(dialect, rules, fast_math)
        self.hints = dict(kernel.hints)
        self.line: Loc | None = None

    def text(self, more_parameters: tuple[str, ...] = ()) -> str:
        """The whole definition; `more_parameters` follow the program's own."""
        out = self.out
        blocks = int(self.hints.get("min_blocks_per_sm", 0) or 0)
        own = (self.parameter(a) for a in kernel_arguments(self.program, self.kernel))
        parameters = ", ".join((*own, *more_parameters))
        head = f"TC_KERNEL({self.kernel.threads}, {blocks}) {self.kernel.name}({parameters}) {{"
        with out.braces(head):
            if int(self.hints.get("smem_bytes", 0) or 0):
                out.line("TC_SHARED_MEMORY(smem);")
            self.grid()
            self.block(self.kernel.body)
        return out.text()

    def parameter(self, argument: object) -> str:
        """One parameter of the entry point."""
        if isinstance(argument, Buffer):
            if argument.name in self.changed_by_others | self.written & self.read:
                return f"{self.type_of(argument)}* {argument.name}"
            constant = "" if argument.name in self.written else "const "
            return f"{constant}{self.type_of(argument)}* TC_RESTRICT {argument.name}"
        return f"{self.dialect.type_of(argument.dtype)} {argument.name}"  # type: ignore[attr-defined]

    def type_of(self, buffer: Buffer) -> str:
        """The C++ type of a buffer's elements."""
        return self.dialect.type_of(buffer.dtype)

    @functools.cached_property
    def written(self) -> set[str]:
        """Names of the global buffers that the kernel's lanes write."""
        return written_by(self.kernel)

    @functools.cached_property
    def read(self) -> set[str]:
        """Names of the global buffers that the kernel's lanes read. Those that they write, too, may
        be how lanes tell one another something: compilers take memory that only one restricted
        pointer reaches for a lane's own, and read what it wrote itself across a barrier."""
        return read_by(self.kernel)

    @functools.cached_property
    def changed_by_others(self) -> set[str]:
        """Names of the global buffers that change while the kernel waits for the one before: not
        known to be constant, nor its own. Parameters may be what was enqueued before the program
        writes."""
        if not self.hints.get(OVERLAPPED):
            return set()
        found = {p.name for p in self.program.params if isinstance(p, Buffer)} - self.written
        for kernel in self.program.kernels:
            if kernel is not self.kernel:
                found |= written_by(kernel) | stored_in_bulk(kernel)
        return found

    def grid(self) -> None:
        """Bind the grid variables, in the order in which blocks shall walk the grid."""
        names = [var.name for var in self.kernel.grid_vars]
        groups, chunk = (int(self.hints.get(hint, 0) or 0) for hint in (GROUPS, CHUNK))
        for line in grid_lines(names, self.kernel.block_order, groups, chunk):
            self.out.line(line)

    # --- statements ----------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Print statements in order."""
        for stmt in block:
            self.source_line(stmt)
            self.stmt(stmt)

    def source_line(self, stmt: Stmt) -> None:
        """Say which of the author's lines follows, when it is another one."""
        loc: Loc | None = getattr(stmt, "loc", None)
        if loc is None or loc == self.line or not self.line_info:
            return
        self.line = loc
        source = linecache.getline(loc.file, loc.line).strip()
        name = os.path.basename(loc.file)
        self.out.line(f"// {name}:{loc.line}{': ' if source else ''}{source}".replace("\\", "/"))
        self.out.line(f"TC_LINE({loc.line});")

    def stmt(self, stmt: Stmt) -> None:
        """Print one statement."""
        text = self.expressions.text
        out = self.out
        match stmt:
            case Let(var=var, value=value):
                out.line(f"const {self.dialect.type_of(var.dtype)} {var.name} = {text(value)};")
            case Store(buffer=buffer, indices=indices, value=value):
                out.line(self.store(buffer, indices, text(value)))
            case Allocate():
                self.allocate(stmt)
            case For():
                self.loop(stmt)
            case While(condition=condition, body=body):
                self.nested(f"while ({text(condition)}) {{", body)
            case If():
                self.branch(stmt)
            case Break():
                out.line("break;")
            case Continue():
                out.line("continue;")
            case Atomic():
                out.line(atomic_text(stmt, self.expressions))
            case Print():
                self.print(stmt)
            case Assert(condition=condition, message=message):
                quoted = message.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
                out.line(f'TC_ASSERT({text(condition)}, "{quoted}");')
            case WarpScope(first=first, last=last, body=body, role=role):
                note = f"  // {role}" if role else ""
                self.nested(f"if ({self.warp_test(first, last)}) {{{note}", body)
            case Intrinsic():
                out.line(self.intrinsic(stmt))
            case _:
                raise UnsupportedError(f"{type(stmt).__name__} is not legal at the lane level")

    def warp_test(self, first: int, last: int) -> str:
        """The condition that this lane's warp is in a range; the same for all lanes of the warp."""
        warp = "tc::uniform(tc::warp_in_block())"
        if first == 0:
            return f"{warp} < {last}"
        if last >= -(-self.kernel.threads // max(1, self.target.lanes_per_warp)):
            return f"{warp} >= {first}"
        return f"{warp} == {first}" if last == first + 1 else f"{warp} - {first} < {last - first}u"

    def nested(self, head: str, body: Block) -> None:
        """A block in braces after `head`."""
        with self.out.braces(head):
            self.block(body)

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: str) -> str:
        """A store of one element."""
        if buffer.scope is Scope.LOCAL:
            at = f"[{self.expressions.text(indices[0])}]" if indices else ""
            return f"{buffer.name}{at} = {value};"
        space = "global" if buffer.scope is Scope.GLOBAL else "shared"
        return f"tc::store_{space}({self.expressions.address(buffer, indices[0])}, {value});"

    def allocate(self, stmt: Allocate) -> None:
        """The declaration of a buffer."""
        buffer = stmt.buffer
        kind = self.type_of(buffer)
        if buffer.scope is Scope.SHARED:
            offset = int(self.hints[f"smem.{buffer.name}"])
            (size,) = buffer.static_shape or (0,)
            self.out.line(
                f"auto {buffer.name} = tc::shared_buffer<{kind}>(smem, {offset}, {size});"
            )
        elif not buffer.shape:
            start = "" if stmt.init is None else f" = {self.expressions.text(stmt.init)}"
            self.out.line(f"{kind} {buffer.name}{start};")
        else:
            (size,) = buffer.static_shape or (0,)
            self.out.line(f"TC_FRAGMENT({kind}, {buffer.name}, {size});")

    def loop(self, stmt: For) -> None:
        """A counted loop."""
        if stmt.kind is LoopKind.UNROLL and stmt.extent == const(1):
            self.nested("{", (Let(stmt.var, stmt.start), *stmt.body))
            return
        if stmt.kind is LoopKind.UNROLL:
            factor = dict(stmt.hints).get("unroll_factor")
            self.out.line(f"TC_UNROLL_BY({factor})" if factor else "TC_UNROLL")
        elif stmt.kind is LoopKind.SERIAL and _stays_rolled(stmt):
            self.out.line("TC_NO_UNROLL")
        self.nested(self.loop_head(stmt), stmt.body)

    def loop_head(self, stmt: For) -> str:
        """The head of a counted loop, up to its brace."""
        text = self.expressions.text
        var, kind = stmt.var.name, self.dialect.type_of(stmt.var.dtype)
        start, step = stmt.start, stmt.step
        simple = not (reads_memory(start) or reads_memory(stmt.extent))
        if simple and step == const(1, stmt.var.dtype):
            end = text(stmt.extent, 9)
            if start != const(0, stmt.var.dtype):
                end = f"{text(start, 9)} + {text(stmt.extent, 10)}"
            return f"for ({kind} {var} = {text(start)}; {var} < {end}; ++{var}) {{"
        count = f"{var}__left"  # no author's name has two underscores in a row: `spelling`
        return (
            f"for ({kind} {var} = {text(start)}, {count} = {text(stmt.extent)}; {count} > 0; "
            f"{var} += {text(step)}, --{count}) {{"
        )

    def branch(self, stmt: If) -> None:
        """An if, with its else."""
        self.nested(f"if ({self.expressions.text(stmt.condition)}) {{", stmt.then)
        if stmt.otherwise:
            self.nested("else {", stmt.otherwise)

    def print(self, stmt: Print) -> None:
        """A print: once a block for uniform values, else by whoever runs it."""
        value = stmt.value if isinstance(stmt.value, Expr) else None
        line = print_text(stmt.message, value, self.expressions)
        at_block_scope = value is None or not reads_memory(value)
        self.out.line(f"if (lane == 0) {line}" if at_block_scope else line)

    def intrinsic(self, stmt: Intrinsic) -> str:
        """One operation: the backend's rule first, then the vocabulary's own."""
        if stmt.op in self.rules:
            return str(self.rules[stmt.op](self, stmt))
        text = self.expressions.text
        match stmt.op:
            case "sync_block":
                return "tc::barrier();"
            case "sync_warp":
                return "tc::warp_barrier();"
            case "async.commit":
                return "tc::copy_async_commit();"
            case "async.wait" if isinstance(stmt.args[0], Const):
                return f"tc::copy_async_wait<{int(stmt.args[0].value)}>();"
            case "named_barrier.sync":
                return f"tc::named_barrier({text(stmt.args[0])}, {text(stmt.args[1])});"  # type: ignore[arg-type]
            case "named_barrier.arrive":
                return f"tc::named_barrier_arrive({text(stmt.args[0])}, {text(stmt.args[1])});"  # type: ignore[arg-type]
            case "memory.attach":
                place, address, size = stmt.args
                assert isinstance(place, Region)
                name, kind = place.buffer.name, self.type_of(place.buffer)
                return f"{name} = tc::memory_at<{kind}>({text(address)}, {text(size)});"  # type: ignore[arg-type]
            case "lane.move":
                return self.move(stmt)
            case "lane.move_bounded":
                return self.move_bounded(stmt)
            case "lane.add":
                source, target = stmt.args
                assert isinstance(source, Region) and isinstance(target, Region)
                (count,) = source.static_shape or (1,)
                place = self.region(target)
                return f"tc::atomic_add_global<{count}>({place}, {self.region(source)});"
            case "lane.pack":
                target, low, high = stmt.args
                assert isinstance(target, Region)
                return f"store_pair({self.region(target)}, {text(low)}, {text(high)});"  # type: ignore[arg-type]
            case "async.copy":
                return self.async_copy(stmt)
            case _:
                raise UnsupportedError(
                    f"target {self.target} has no way to emit {stmt.op}", loc=stmt.loc
                )

    def region(self, region: Region) -> str:
        """Pointer to a flat region's first element."""
        return self.expressions.address(region.buffer, region.starts[0])

    def move(self, stmt: Intrinsic) -> str:
        """A vector access between registers and memory."""
        source, target = stmt.args
        assert isinstance(source, Region) and isinstance(target, Region)
        (count,) = source.static_shape or (1,)
        if target.buffer.scope is Scope.LOCAL:
            space = "global" if source.buffer.scope is Scope.GLOBAL else "shared"
            return f"tc::load_{space}<{count}>({self.region(target)}, {self.region(source)});"
        space = "global" if target.buffer.scope is Scope.GLOBAL else "shared"
        return f"tc::store_{space}<{count}>({self.region(target)}, {self.region(source)});"

    def move_bounded(self, stmt: Intrinsic) -> str:
        """A vector access whose bounds the hardware checks."""
        source, target, *valid = stmt.args
        assert isinstance(source, Region) and isinstance(target, Region)
        (count,) = source.static_shape or (1,)
        loads = source.buffer.scope is Scope.GLOBAL
        memory, registers = (source, target) if loads else (target, source)
        text = self.expressions.text
        arguments = [
            self.region(registers), memory.buffer.name, text(memory.starts[0]),
            str(dict(stmt.hints)["elements"]), *(text(v) for v in valid),  # type: ignore[arg-type]
        ]  # fmt: skip
        return f"tc::{'load' if loads else 'store'}_bounded<{count}>({', '.join(arguments)});"

    def async_copy(self, stmt: Intrinsic) -> str:
        """An asynchronous copy of one piece."""
        source, target, *valid = stmt.args
        assert isinstance(source, Region) and isinstance(target, Region)
        (count,) = source.static_shape or (1,)
        extra = "".join(f", {self.expressions.text(v)}" for v in valid)  # type: ignore[arg-type]
        return f"tc::copy_async<{count}>({self.region(target)}, {self.region(source)}{extra});"


def _stays_rolled(stmt: For) -> bool:
    """Loops around unrolled ones, and those that wait: neither gains from being unrolled."""
    return any(
        (isinstance(s, For) and s.kind is LoopKind.UNROLL)
        or (isinstance(s, Intrinsic) and s.op == "barrier.wait")
        for s in walk_stmts(stmt.body)
    )
