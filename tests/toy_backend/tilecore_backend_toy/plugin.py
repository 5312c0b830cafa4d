"""A whole backend in one file: tile programs to plain Python loops. Slow, and complete enough.

It shows the least that a backend must answer: which targets, how a program is scheduled (here:
not at all, Python runs the tile level as it stands), its source, its binary, its launch.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np

from tilecore.errors import UnsupportedError
from tilecore.hooks.records import Artifact, DeviceInfo, KernelSource, Source
from tilecore.hooks.specs import hookimpl
from tilecore.ir import expr as E
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.dtypes import dtype_of, numpy_dtype
from tilecore.ir.program import Kernel, Program
from tilecore.ir.signature import kernel_arguments, program_arguments
from tilecore.target import Target

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "eq": "==",
    "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip


@hookimpl
def tilecore_describe_targets() -> list[Target]:
    return [Target("toy_py", "python")]


@hookimpl
def tilecore_probe_device() -> DeviceInfo:
    return DeviceInfo("this interpreter", "python", processors=1)


@hookimpl
def tilecore_schedule(program: Program) -> Program:
    return program


@hookimpl
def tilecore_emit(program: Program) -> Source:
    kernels = tuple(
        KernelSource(kernel.name, kernel_arguments(program, kernel), kernel.grid, threads=1)
        for kernel in program.kernels
    )
    return Source("".join(define(program, k) for k in program.kernels), "python", kernels)


@hookimpl
def tilecore_toolchain_fingerprint() -> str:
    return "python"


@hookimpl
def tilecore_compile(source: Source) -> Artifact:
    return Artifact(source.text.encode(), "python")


@hookimpl
def tilecore_create_launcher(program: Program, source: Source, artifact: Artifact) -> Callable:
    names = {"np": np, "math": math, "cast": lambda x, name: numpy_dtype(dtype_of(name)).type(x)}
    exec(artifact.data.decode(), names)
    order = program_arguments(program)

    def launch(arguments: tuple[int | float, ...], stream: int = 0) -> None:
        values = {one.name: value for one, value in zip(order, arguments, strict=True)}
        for one in order:
            if isinstance(one, Buffer):
                shape = eval(f"({''.join(show(extent) + ',' for extent in one.shape)})", {}, values)
                kind = numpy_dtype(one.dtype)
                flat = (ctypes.c_char * (math.prod(shape) * kind.itemsize)).from_address(
                    values[one.name]
                )
                values[one.name] = np.frombuffer(flat, kind).reshape(shape)
        for kernel in source.kernels:
            names[kernel.name](*(values[argument.name] for argument in kernel.arguments))

    return launch


def define(program: Program, kernel: Kernel) -> str:
    parameters = ", ".join(argument.name for argument in kernel_arguments(program, kernel))
    return f"def {kernel.name}({parameters}):\n" + indent(
        loops(kernel.grid_vars, kernel.grid, block(kernel.body))
    )


def indent(text: str) -> str:
    return "".join(f" {line}\n" for line in text.splitlines()) or " pass\n"


def loops(variables: tuple[E.Var, ...], extents: tuple[E.Expr, ...], body: str) -> str:
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        body = f"for {var.name} in range({show(extent)}):\n{indent(body)}"
    return body


def block(stmts: S.Block) -> str:
    return "".join(statement(stmt) for stmt in stmts)


def statement(stmt: S.Stmt) -> str:
    match stmt:
        case S.Allocate(buffer=b):
            shape = "".join(f"{show(extent)}," for extent in b.shape)
            return f"{b.name} = np.zeros(({shape}), cast(0, '{b.dtype}').dtype)\n"
        case S.Let(var=var, value=value):
            return f"{var.name} = {show(value)}\n"
        case S.Store(buffer=b, indices=indices, value=value):
            return f"if {inside(b, indices)}: {element(b, indices)} = {show(value)}\n"
        case S.For():
            stop = E.binary("add", stmt.start, E.binary("mul", stmt.extent, stmt.step))
            head = f"{show(stmt.start)}, {show(stop)}, {show(stmt.step)}"
            return f"for {stmt.var.name} in range({head}):\n{indent(block(stmt.body))}"
        case S.Parallel():
            return loops(stmt.vars, stmt.extents, block(stmt.body))
        case S.Fill(dst=dst, value=value):
            return over(dst, lambda axes: S.Store(dst.buffer, dst.indices(axes), value))
        case S.Copy(src=src, dst=dst):
            return over(dst, lambda axes: copied(src, dst, axes))
    raise UnsupportedError(f"toy_py does not know {type(stmt).__name__}")


def over(region: Region, store: Callable[[tuple[E.Expr, ...]], S.Stmt]) -> str:
    axes = tuple(E.Var(f"axis{k}") for k in range(len(region.shape)))
    return loops(axes, region.shape, statement(store(axes)))


def copied(src: Region, dst: Region, axes: tuple[E.Expr, ...]) -> S.Stmt:
    value = E.Cast(E.Load(src.buffer, src.indices(axes)), dst.dtype)
    return S.Store(dst.buffer, dst.indices(axes), value)


def inside(buffer: Buffer, indices: tuple[E.Expr, ...]) -> str:
    tests = [f"{show(i)} < {show(e)}" for i, e in zip(indices, buffer.shape, strict=True)]
    return " and ".join(tests) or "True"


def element(buffer: Buffer, indices: tuple[E.Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(show(index) for index in indices) or '()'}]"


def show(node: E.Expr) -> str:
    match node:
        case E.Const(value=value):
            return f"float('{value}')" if isinstance(value, float) else repr(value)
        case E.Var(name=name):
            return name
        case E.Load(buffer=b, indices=indices):
            return f"({element(b, indices)} if {inside(b, indices)} else {b.safe_value})"
        case E.Cast(a=a, dtype=dtype):
            return f"cast({show(a)}, '{dtype}')"
        case E.Select(condition=condition, a=a, b=b):
            return f"({show(a)} if {show(condition)} else {show(b)})"
        case E.Binary(op=op, a=a, b=b) if op in INFIX:
            return f"({show(a)} {INFIX[op]} {show(b)})"
        case E.Binary(op="min" | "max" as op, a=a, b=b):
            return f"np.f{op}({show(a)}, {show(b)})"
        case E.Call(op=op, args=args):
            return f"np.{op}({', '.join(show(arg) for arg in args)})"
    raise UnsupportedError(f"toy_py does not know {type(node).__name__}")
