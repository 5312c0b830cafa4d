"""The text form read back: `parse_program`, `parse_block`, `parse_expr`.

``parse_program(format_program(p)) == p`` for every program whose names are unique and in scope.
Nothing is folded and little is checked: the result is what the text says, and `verifier.py` says
whether it is legal. Nodes carry the line of the text as their `loc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.expr import Expr, Var
from tilecore.ir.layout import (
    REGISTER,
    THREAD,
    FragmentLayout,
    FragmentMode,
    Layout,
    Mode,
    Swizzle,
)
from tilecore.ir.program import BlockOrder, Kernel, Level, Param, Program
from tilecore.ir.stmt_parser import StmtParser

_AnyMode = TypeVar("_AnyMode", Mode, FragmentMode)


def parse_program(text: str, filename: str = "<text>") -> Program:
    """Read one program.

    Args:
        text: as `format_program` writes it; comments run from ``#`` to the end of the line.
        filename: what locations and errors call the text.

    Raises:
        ParseError: with line, column, what was expected and what came.
    """
    parser = _ProgramParser(text, filename, {})
    parser.skip_newlines()
    program = parser.program()
    _expect_end(parser)
    return program


def parse_block(text: str, names: Iterable[Var | Buffer] = (), filename: str = "<text>") -> S.Block:
    """Read statements that may use `names`.

    Raises:
        ParseError: as `parse_program`.
    """
    parser = StmtParser(text, filename, {item.name: item for item in names})
    return parser.statements("")


def parse_expr(text: str, names: Iterable[Var | Buffer] = (), filename: str = "<text>") -> Expr:
    """Read one expression that may use `names`.

    Raises:
        ParseError: as `parse_program`.
    """
    parser = StmtParser(text, filename, {item.name: item for item in names})
    parser.skip_newlines()
    expr = parser.expr()
    _expect_end(parser)
    return expr


def _expect_end(parser: StmtParser) -> None:
    parser.skip_newlines()
    if parser.token.kind != "end":
        raise parser.error("unexpected text", "the end of the text")


class _ProgramParser(StmtParser):
    def program(self) -> Program:
        loc = self.loc
        self.expect("program")
        name = self.expect_kind("name", "quoted").text
        symbols = self.sequence(self._scalar, "[", "]") if self.at("[") else ()
        self._declare_scalar_params()
        params = self.sequence(self._param, "(", ")")
        outputs = self.sequence(self.integer, "(", ")") if self.accept("outputs") else ()
        self.expect("level")
        level = self.member(Level)
        self.expect("{")
        self.skip_newlines()
        workspaces: list[Buffer] = []
        while self.accept("workspace"):
            workspaces.append(self._global_buffer())
            self.end_statement()
        kernels: list[Kernel] = []
        while self.at("kernel"):
            kernels.append(self.kernel())
            self.end_statement()
        if not self.at("}"):
            raise self.error("unexpected text", "'workspace', 'kernel' or '}'")
        self.expect("}")
        buffers = tuple(workspaces)
        return Program(name, params, tuple(kernels), symbols, buffers, outputs, level, loc)

    def _scalar(self) -> Var:
        name = self.name()
        self.expect(":")
        var = self.promises(name, self.dtype())
        self.declare(var)
        return var

    def _declare_scalar_params(self) -> None:
        """Bring scalar parameters into scope first: shapes may use ones that come later."""
        start = self.position
        self.expect("(")
        depth = 1
        while depth and self.token.kind != "end":
            begins_param = depth == 1 and self.tokens[self.position - 1].text in ("(", ",")
            if begins_param and self._at_scalar():
                self._scalar()
                continue
            if self.token.kind == "sign":
                depth += (self.token.text in "([") - (self.token.text in ")]")
            self.next()
        self.position = start

    def _at_scalar(self) -> bool:
        """True before ``name: dtype`` without a shape behind it."""
        if self.token.kind not in ("name", "quoted") or self.position + 3 >= len(self.tokens):
            return False
        _, colon, _, after = self.tokens[self.position : self.position + 4]
        return colon.text == ":" and not (after.kind == "sign" and after.text == "[")

    def _param(self) -> Param:
        return self._scalar() if self._at_scalar() else self._global_buffer()

    def _global_buffer(self) -> Buffer:
        scope = Scope.GLOBAL
        if self.token.kind == "name" and self.token.text in {item.value for item in Scope}:
            scope = self.member(Scope)
        name = self.name()
        self.expect(":")
        return self.buffer_type(name, self.dtype(), scope)

    def kernel(self) -> Kernel:
        loc = self.loc
        outside = dict(self.names)
        self.expect("kernel")
        name = self.expect_kind("name", "quoted").text
        axes = self.sequence(self._grid_axis, "(", ")")
        self.expect("threads")
        threads = self.integer()
        order = None
        if self.accept("order"):
            kind = self.name()
            order = BlockOrder(self.integer(), kind)
        cluster = (1, 1, 1)
        if self.accept("cluster"):
            token = self.token
            given = self.sequence(self.integer, "(", ")")
            if len(given) != 3:
                raise self.error("a cluster needs three extents", "(x, y, z)", token)
            cluster = (given[0], given[1], given[2])
        hints = self.hints()
        for var, _ in axes:
            self.declare(var)
        self.expect("{")
        layouts = self._layouts()
        while self.accept("use"):
            self._global_buffer()
            self.end_statement()
        body = self.statements("}")
        self.expect("}")
        self.names = outside
        variables, extents = tuple(axis[0] for axis in axes), tuple(axis[1] for axis in axes)
        return Kernel(name, variables, extents, threads, body, layouts, order, cluster, hints, loc)

    def _grid_axis(self) -> tuple[Var, Expr]:
        var = self.bound_var()
        self.expect("in")
        return var, self.expr()

    def _layouts(self) -> tuple[tuple[str, Layout | FragmentLayout], ...]:
        layouts: list[tuple[str, Layout | FragmentLayout]] = []
        self.skip_newlines()
        while self.accept("layout"):
            name = self.name()
            self.expect("=")
            layouts.append((name, self.layout()))
            self.end_statement()
        return tuple(layouts)

    def layout(self) -> Layout | FragmentLayout:
        if self.at("["):
            axes = self.sequence(lambda: self._axis_modes(self._mode), "[", "]")
            swizzle = None
            if self.accept("^"):
                token = self.token
                numbers = self.sequence(self.integer, "(", ")")
                if len(numbers) != 3:
                    raise self.error("a swizzle needs three numbers", "(bits, base, shift)", token)
                swizzle = Swizzle(*numbers)
            return Layout(axes, swizzle)
        self.expect("<")
        fragment_axes: list[tuple[FragmentMode, ...]] = []
        while not self.at(">") and not self.at(";"):
            fragment_axes.append(self._axis_modes(self._fragment_mode))
            if not self.accept(","):
                break
        replication: list[FragmentMode] = []
        if self.accept(";"):
            while not self.at(">"):
                replication.append(self._fragment_mode())
        self.expect(">")
        return FragmentLayout(tuple(fragment_axes), tuple(replication))

    def _axis_modes(self, mode: Callable[[], _AnyMode]) -> tuple[_AnyMode, ...]:
        if not self.accept("("):
            return (mode(),)
        modes: list[_AnyMode] = []
        while not self.at(")"):
            modes.append(mode())
        self.expect(")")
        return tuple(modes)

    def _mode(self) -> Mode:
        extent = self.integer()
        self.expect(":")
        return Mode(extent, self.integer())

    def _fragment_mode(self) -> FragmentMode:
        extent = self.integer()
        self.expect(":")
        token = self.token
        match = re.fullmatch(r"([tr])(\d+)", self.word())
        if match is None:
            raise self.error("unexpected text", "a thread (t4) or register (r4) stride", token)
        return FragmentMode(extent, THREAD if match[1] == "t" else REGISTER, int(match[2]))
