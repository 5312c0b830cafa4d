"""Text to statements; the form is what `printer.py` writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilecore.ir import stmts as S
from tilecore.ir.buffers import Scope
from tilecore.ir.dtypes import boolean
from tilecore.ir.expr import FALSE, Expr, Var, const, dtype_of_expr
from tilecore.ir.expr_parser import ExprParser

_HintValue = int | float | str | bool


class StmtParser(ExprParser):
    """An expression parser that reads statements and blocks."""

    def block(self) -> S.Block:
        """Take ``{ ... }``; what it declares goes out of scope at its end."""
        outside = dict(self.names)
        self.expect("{")
        stmts = self.statements("}")
        self.expect("}")
        self.names = outside
        return stmts

    def statements(self, closing: str) -> S.Block:
        """Take statements until `closing`, or until the end of the text if that is empty."""
        stmts: list[S.Stmt] = []
        self.skip_newlines()
        while not (self.at(closing) if closing else self.token.kind == "end"):
            stmts.append(self.statement())
            self.end_statement()
        return tuple(stmts)

    def statement(self) -> S.Stmt:
        """Take one statement.

        Raises:
            ParseError: the text is no statement.
        """
        token = self.token
        parse = _STATEMENTS.get(token.text) if token.kind == "name" else None
        if parse is not None:
            return parse(self)
        if token.kind in ("name", "quoted"):
            following = self.tokens[self.position + 1]
            if following.kind == "sign" and following.text == "[":
                return self._store()
            if following.kind == "sign" and following.text == "(":
                return self._intrinsic()
        raise self.error("unexpected text", "a statement")

    def string(self) -> str:
        """Take a string literal."""
        return self.expect_kind("string").text

    def hints(self) -> S.Hints:
        """Take ``hints(name=value, ...)`` if it is there."""
        return self.sequence(self._hint, "(", ")") if self.accept("hints") else ()

    def _hint(self) -> tuple[str, _HintValue]:
        name = self.name()
        self.expect("=")
        return name, self._hint_value()

    def _hint_value(self) -> _HintValue:
        if self.token.kind == "string":
            return self.string()
        if self.at("true") or self.at("false"):
            return self.next().text == "true"
        if self.accept("none"):
            return None  # type: ignore[return-value]  # passes may keep it in a hint of their own
        if self.at("["):
            return self.sequence(self._hint_value, "[", "]")  # type: ignore[return-value]
        return self.number()

    # --- statements of every level -------------------------------------------------------------

    def _for(self) -> S.For:
        loc = self.loc
        self.expect("for")
        var = self.bound_var()
        self.expect("in")
        kind = self.member(S.LoopKind)
        self.expect("(")
        start = self.expr()
        self.expect(",")
        extent = self.expr()
        step: Expr = const(1, var.dtype)
        plan: dict[str, tuple[int, ...]] = {}
        while self.accept(","):
            key = self.word()
            self.expect("=")
            if key == "step":
                step = self.expr()
            else:
                plan[key] = self._plan_entry(key)
        self.expect(")")
        hints = self.hints()
        body = self._body_with((var,))
        pipeline = None
        if plan:
            stages = plan.pop("stages", (0,))[0]
            pipeline = S.PipelineSpec(stages, **plan)  # type: ignore[arg-type]  # group is nested
        return S.For(var, start, extent, step, body, kind, pipeline, hints, loc)

    def _plan_entry(self, key: str) -> tuple[int, ...]:
        if key == "stages":
            return (self.integer(),)
        if key in ("order", "stage"):
            return self.sequence(self.integer, "[", "]")
        if key == "group":
            return self.sequence(
                lambda: self.sequence(self.integer, "[", "]"),  # type: ignore[return-value]
                "[",
                "]",
            )
        raise self.error("unknown loop argument", "step, stages, order, stage or group")

    def _body_with(self, variables: tuple[Var, ...]) -> S.Block:
        outside = dict(self.names)
        for var in variables:
            self.declare(var)
        body = self.block()
        self.names = outside
        return body

    def _while(self) -> S.While:
        loc = self.loc
        self.expect("while")
        return S.While(self.expr(), self.block(), loc)

    def _if(self) -> S.If:
        loc = self.loc
        self.expect("if")
        condition = self.expr()
        then = self.block()
        otherwise: S.Block = ()
        if self.accept("else"):
            otherwise = (self._if(),) if self.at("if") else self.block()
        return S.If(condition, then, otherwise, loc)

    def _break(self) -> S.Break:
        loc = self.loc
        self.expect("break")
        return S.Break(loc)

    def _continue(self) -> S.Continue:
        loc = self.loc
        self.expect("continue")
        return S.Continue(loc)

    def _let(self) -> S.Let | S.Atomic:
        loc = self.loc
        self.expect("let")
        name = self.name()
        dtype = self.dtype() if self.accept(":") else None
        var = self.promises(name, dtype or boolean)
        self.expect("=")
        if self.at("atomic"):
            stmt = self._atomic()
            previous = dataclasses.replace(var, dtype=dtype or stmt.dst.dtype)
            self.declare(previous)
            return dataclasses.replace(stmt, previous=previous)
        value = self.expr()
        var = dataclasses.replace(var, dtype=dtype or dtype_of_expr(value))
        self.declare(var)
        return S.Let(var, value, loc)

    def allocate(self) -> S.Allocate:
        """Take a declaration of a buffer, which begins with its scope."""
        loc = self.loc
        scope = self.member(Scope)
        name = self.name()
        self.expect(":")
        buffer = self.buffer_type(name, self.dtype(), scope)
        return S.Allocate(buffer, self.expr() if self.accept("=") else None, loc)

    def _alias(self) -> S.Alias:
        loc = self.loc
        self.expect("alias")
        scope = self.member(Scope)
        name = self.name()
        self.expect(":")
        buffer = self.buffer_type(name, self.dtype(), scope)
        self.expect("of")
        return S.Alias(buffer, self.buffer(), loc)

    def _store(self) -> S.Store:
        loc = self.loc
        buffer = self.buffer()
        indices = self.sequence(self.expr, "[", "]")
        self.expect("=")
        return S.Store(buffer, indices, self.expr(), loc)

    def _atomic(self) -> S.Atomic:
        loc = self.loc
        self.expect("atomic")
        op = self.word()
        value = self.operand()
        self.expect("->")
        dst = self.region()
        order = self.word() if self.accept("order") else "relaxed"
        return S.Atomic(op, dst, value, order, None, loc)

    def _print(self) -> S.Print:
        loc = self.loc
        self.expect("print")
        return S.Print(self.string(), self.operand() if self.accept(",") else None, loc)

    def _assert(self) -> S.Assert:
        loc = self.loc
        self.expect("assert")
        condition = self.expr()
        self.expect(",")
        return S.Assert(condition, self.string(), loc)

    def _intrinsic(self) -> S.Intrinsic:
        loc = self.loc
        op = self.name()
        args = self.sequence(self.operand, "(", ")")
        return S.Intrinsic(op, args, self.hints(), loc)

    # --- statements of the tile level ----------------------------------------------------------

    def _parallel(self) -> S.Parallel:
        loc = self.loc
        self.expect("parallel")
        variables = self.sequence(self.bound_var, "(", ")")
        self.expect("in")
        extents = self.sequence(self.expr, "(", ")")
        hints = self.hints()
        return S.Parallel(variables, extents, self._body_with(variables), hints, loc)

    def _copy(self) -> S.Copy:
        loc = self.loc
        self.expect("copy")
        src = self.region()
        self.expect("->")
        return S.Copy(src, self.region(), self.hints(), loc)

    def _fill(self) -> S.Fill:
        loc = self.loc
        self.expect("fill")
        dst = self.region()
        self.expect("=")
        return S.Fill(dst, self.expr(), loc)

    def _gemm(self) -> S.Gemm:
        loc = self.loc
        self.expect("gemm")
        a = self.region()
        self.expect(",")
        b = self.region()
        self.expect("->")
        c = self.region()
        transpose_a, transpose_b = self.accept("transpose_a"), self.accept("transpose_b")
        clear = self.expr() if self.accept("clear") else FALSE
        policy = S.WarpPolicy.SQUARE
        if self.accept("policy"):
            policy = self.member(S.WarpPolicy)
        return S.Gemm(a, b, c, transpose_a, transpose_b, clear, policy, self.hints(), loc)

    def _reduce(self) -> S.Reduce:
        loc = self.loc
        self.expect("reduce")
        op = self.word()
        src = self.region()
        self.expect("->")
        dst = self.region()
        self.expect("axis")
        axis = self.integer()
        clear = not self.accept("accumulate")
        return S.Reduce(op, src, dst, axis, clear, self.accept("nan_propagate"), loc)

    def _scan(self) -> S.Scan:
        loc = self.loc
        self.expect("scan")
        op = self.word()
        src = self.region()
        self.expect("->")
        dst = self.region()
        self.expect("axis")
        return S.Scan(op, src, dst, self.integer(), self.accept("reverse"), loc)

    def _warps(self) -> S.WarpScope:
        loc = self.loc
        self.expect("warps")
        first = self.integer()
        self.expect(",")
        last = self.integer()
        role = self.string() if self.accept("role") else ""
        return S.WarpScope(first, last, self.block(), role, loc)


_STATEMENTS: dict[str, Callable[[StmtParser], S.Stmt]] = {
    word: getattr(StmtParser, f"_{word}")
    for word in (
        "for", "while", "if", "break", "continue", "let", "alias", "atomic", "print", "assert",
        "parallel", "copy", "fill", "gemm", "reduce", "scan", "warps",
    )
}  # fmt: skip
_STATEMENTS.update({scope.value: StmtParser.allocate for scope in Scope})
