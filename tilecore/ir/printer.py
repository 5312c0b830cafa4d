"""The text form of programs, statement by statement. `parser.py` reads all of it back.

    program scale[n: int32 multiple_of 8](x: float16[n], s: float32) outputs (0) level tile {
      workspace w: float32[n]
      kernel main(bx in (n + 127) // 128) threads 128 {
        layout x_s = [128:1] ^ (3, 3, 3)
        shared x_s: float16[128]
        copy x[bx * 128:+128] -> x_s[:]
        parallel (i) in (128) {
          x_s[i] = x_s[i] * cast(s, float16)
        }
      }
    }

A kernel of the lane level sees global buffers flat; then a line ``use w: float32[n * 4]`` at its
head says how. Two programs print alike exactly if they are equal (promises of variables are
printed too); the text of expressions is described in ``expr_text.py``. With `locs` every
statement that knows its line of the user's source says so in a comment, which the parser skips.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tilecore.errors import Loc, VerifyError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import FALSE, Var, const, dtype_of_expr
from tilecore.ir.expr_text import (
    SPECIAL_FUNCTIONS,
    format_buffer,
    format_expr,
    format_operand,
    format_region,
    format_var,
    literal_text,
    name_text,
    promises_text,
    title_text,
)
from tilecore.ir.program import Kernel, Param, Program
from tilecore.ir.visit import buffers_in

INDENT = "  "


def format_program(program: Program, *, locs: bool = False) -> str:
    """The whole text of a program, ending in a line break.

    Args:
        program: any program, legal or not, as long as its names have a text form.
        locs: add ``# file:line`` comments.

    Raises:
        VerifyError: a node or a name that has no text form.
    """
    symbols = ", ".join(
        f"{name_text(v.name)}: {v.dtype}{promises_text(v)}" for v in program.symbols
    )
    head = f"program {title_text(program.name)}"
    head += f"[{symbols}]" if symbols else ""
    head += f"({', '.join(_param(param) for param in program.params)})"
    if program.outputs:
        head += f" outputs ({', '.join(str(index) for index in program.outputs)})"
    lines = [_with_loc(f"{head} level {program.level} {{", program.loc, locs)]
    lines += [f"{INDENT}workspace {_scoped(w, Scope.GLOBAL)}" for w in program.workspaces]
    declared = {item.name: item for item in (*program.params, *program.workspaces)}
    for kernel in program.kernels:
        lines += [INDENT + line for line in _kernel_lines(kernel, locs, declared)]
    return "\n".join([*lines, "}"]) + "\n"


def format_kernel(kernel: Kernel, *, locs: bool = False) -> str:
    """The text of one kernel, ending in a line break."""
    return "\n".join(_kernel_lines(kernel, locs)) + "\n"


def format_block(block: S.Block, *, locs: bool = False) -> str:
    """The text of a block of statements: one line or more each, ending in a line break."""
    return "".join(line + "\n" for stmt in block for line in _stmt_lines(stmt, locs))


def format_stmt(stmt: S.Stmt, *, locs: bool = False) -> str:
    """The text of one statement without a line break at the end."""
    return "\n".join(_stmt_lines(stmt, locs))


def _param(param: Param) -> str:
    if isinstance(param, Var):
        return f"{name_text(param.name)}: {param.dtype}{promises_text(param)}"
    return _scoped(param, Scope.GLOBAL)


def _scoped(buffer: Buffer, default: Scope) -> str:
    prefix = "" if buffer.scope is default else f"{buffer.scope} "
    return prefix + format_buffer(buffer)


def _with_loc(text: str, loc: Loc | None, locs: bool) -> str:
    return f"{text}  # {loc}" if locs and loc is not None else text


def _kernel_lines(
    kernel: Kernel, locs: bool, declared: Mapping[str, Param] | None = None
) -> list[str]:
    axes = ", ".join(
        f"{format_var(var)} in {format_expr(extent)}"
        for var, extent in zip(kernel.grid_vars, kernel.grid, strict=True)
    )
    head = f"kernel {title_text(kernel.name)}({axes}) threads {kernel.threads}"
    if kernel.block_order is not None:
        head += f" order {name_text(kernel.block_order.order)} {kernel.block_order.panel}"
    if kernel.cluster != (1, 1, 1):
        head += f" cluster ({', '.join(str(extent) for extent in kernel.cluster)})"
    lines = [_with_loc(f"{head}{_hints(kernel.hints)} {{", kernel.loc, locs)]
    lines += [f"{INDENT}layout {name_text(name)} = {layout}" for name, layout in kernel.layouts]
    if declared is not None:
        lines += [f"{INDENT}use {_scoped(b, Scope.GLOBAL)}" for b in _flat(kernel, declared)]
    return [*lines, *_nested(kernel.body, locs), "}"]


def _flat(kernel: Kernel, declared: Mapping[str, Param]) -> list[Buffer]:
    """Global buffers that the kernel sees otherwise than they are declared (flat, per lane)."""
    used = (b for b in buffers_in(kernel.body) if b.scope is Scope.GLOBAL)
    return [b for b in used if b.name in declared and declared[b.name] != b]


def _nested(block: S.Block, locs: bool) -> Iterator[str]:
    for stmt in block:
        for line in _stmt_lines(stmt, locs):
            yield INDENT + line


def _stmt_lines(stmt: S.Stmt, locs: bool) -> list[str]:
    loc: Loc | None = getattr(stmt, "loc", None)
    if isinstance(stmt, S.If):
        return _if_lines(stmt, locs)
    if isinstance(stmt, S.For | S.While | S.Parallel | S.WarpScope):
        head = _with_loc(f"{_head(stmt)} {{", loc, locs)
        return [head, *_nested(stmt.body, locs), "}"]
    return [_with_loc(_simple(stmt), loc, locs)]


def _if_lines(stmt: S.If, locs: bool) -> list[str]:
    head = _with_loc(f"if {format_expr(stmt.condition)} {{", stmt.loc, locs)
    lines = [head, *_nested(stmt.then, locs)]
    if not stmt.otherwise:
        return [*lines, "}"]
    if len(stmt.otherwise) == 1 and isinstance(stmt.otherwise[0], S.If):
        first, *rest = _if_lines(stmt.otherwise[0], locs)
        return [*lines, f"}} else {first}", *rest]
    return [*lines, "} else {", *_nested(stmt.otherwise, locs), "}"]


def _head(stmt: S.For | S.While | S.Parallel | S.WarpScope) -> str:
    match stmt:
        case S.For():
            return _for_head(stmt)
        case S.While():
            return f"while {format_expr(stmt.condition)}"
        case S.Parallel():
            names = ", ".join(format_var(var) for var in stmt.vars)
            extents = ", ".join(format_expr(extent) for extent in stmt.extents)
            return f"parallel ({names}) in ({extents}){_hints(stmt.hints)}"
        case S.WarpScope():
            role = f" role {_string(stmt.role)}" if stmt.role else ""
            return f"warps {stmt.first}, {stmt.last}{role}"


def _for_head(stmt: S.For) -> str:
    args = [format_expr(stmt.start), format_expr(stmt.extent)]
    if stmt.step != const(1, stmt.var.dtype):
        args.append(f"step={format_expr(stmt.step)}")
    if stmt.pipeline is not None:
        plan = stmt.pipeline
        args.append(f"stages={plan.num_stages}")
        for key, value in (("order", plan.order), ("stage", plan.stage), ("group", plan.group)):
            if value:
                args.append(f"{key}={_value(value)}")
    return f"for {format_var(stmt.var)} in {stmt.kind}({', '.join(args)}){_hints(stmt.hints)}"


def _simple(stmt: S.Stmt) -> str:
    match stmt:
        case S.Break():
            return "break"
        case S.Continue():
            return "continue"
        case S.Let(var=var, value=value):
            return f"let {format_var(var, dtype_of_expr(value))} = {format_expr(value)}"
        case S.Allocate(buffer=buffer, init=init):
            suffix = "" if init is None else f" = {format_expr(init)}"
            return f"{buffer.scope} {format_buffer(buffer)}{suffix}"
        case S.Alias(buffer=buffer, source=source):
            return f"alias {buffer.scope} {format_buffer(buffer)} of {name_text(source.name)}"
        case S.Store(buffer=buffer, indices=indices, value=value):
            places = ", ".join(format_expr(index) for index in indices)
            return f"{name_text(buffer.name)}[{places}] = {format_expr(value)}"
        case S.Print(message=message, value=value):
            suffix = "" if value is None else f", {format_operand(value)}"
            return f"print {_string(message)}{suffix}"
        case S.Assert(condition=condition, message=message):
            return f"assert {format_expr(condition)}, {_string(message)}"
        case S.Intrinsic(op=op, args=args):
            name = f"`{op}`" if op in SPECIAL_FUNCTIONS else name_text(op)
            return f"{name}({', '.join(format_operand(a) for a in args)}){_hints(stmt.hints)}"
        case _:
            return _tile_statement(stmt)


def _tile_statement(stmt: S.Stmt) -> str:
    match stmt:
        case S.Atomic():
            return _atomic(stmt)
        case S.Copy(src=src, dst=dst):
            return f"copy {format_region(src)} -> {format_region(dst)}{_hints(stmt.hints)}"
        case S.Fill(dst=dst, value=value):
            return f"fill {format_region(dst)} = {format_expr(value)}"
        case S.Gemm():
            return _gemm(stmt)
        case S.Reduce():
            flags = "" if stmt.clear else " accumulate"
            flags += " nan_propagate" if stmt.nan_propagate else ""
            sides = f"{format_region(stmt.src)} -> {format_region(stmt.dst)}"
            return f"reduce {stmt.op} {sides} axis {stmt.axis}{flags}"
        case S.Scan():
            sides = f"{format_region(stmt.src)} -> {format_region(stmt.dst)}"
            return f"scan {stmt.op} {sides} axis {stmt.axis}{' reverse' if stmt.reverse else ''}"
        case _:
            raise VerifyError("a statement without a text form", got=type(stmt).__name__)


def _atomic(stmt: S.Atomic) -> str:
    prefix = ""
    if stmt.previous is not None:
        prefix = f"let {format_var(stmt.previous, stmt.dst.dtype)} = "
    order = "" if stmt.memory_order == "relaxed" else f" order {stmt.memory_order}"
    sides = f"{format_operand(stmt.value)} -> {format_region(stmt.dst)}"
    return f"{prefix}atomic {stmt.op} {sides}{order}"


def _gemm(stmt: S.Gemm) -> str:
    text = f"gemm {format_region(stmt.a)}, {format_region(stmt.b)} -> {format_region(stmt.c)}"
    text += " transpose_a" if stmt.transpose_a else ""
    text += " transpose_b" if stmt.transpose_b else ""
    if stmt.clear_accum != FALSE:
        text += f" clear {format_expr(stmt.clear_accum)}"
    if stmt.policy is not S.WarpPolicy.SQUARE:
        text += f" policy {stmt.policy}"
    return text + _hints(stmt.hints)


def _hints(hints: S.Hints) -> str:
    if not hints:
        return ""
    return f" hints({', '.join(f'{name_text(name)}={_value(value)}' for name, value in hints)})"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return literal_text(value)
    if value is None:
        return "none"
    raise VerifyError("a hint without a text form", got=repr(value))


def _string(text: str) -> str:
    return json.dumps(text)


__all__ = [
    "format_block",
    "format_expr",
    "format_kernel",
    "format_program",
    "format_region",
    "format_stmt",
]
