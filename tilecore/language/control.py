"""What rewritten code calls for loops and branches; each decides whether it runs now or later.

A condition or an iterable that has its value at trace time behaves as in plain Python. One that
belongs to the program opens a block, lets the body run once to fill it, and closes it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.expr import TRUE, Expr
from tilecore.ir.stmts import Assert, Break, Continue, If, Stmt
from tilecore.language import bindings
from tilecore.language import operators as ops
from tilecore.language.builder import Frame, current
from tilecore.language.kernel import Bound
from tilecore.language.locate import caller_loc, fail
from tilecore.language.loops import LoopSpec, serial
from tilecore.language.run_loops import run_spec
from tilecore.language.values import BufferValue, Operators, Scalar
from tilecore.language.while_loops import emit_while, is_runtime, may_break

Values = tuple[Any, ...]


def _line(loc: Loc | None) -> int:
    return 0 if loc is None else loc.line


class _Loop:
    """Common state of the two loops.

    Attributes:
        names: the author's names that the body assigns.
        is_runtime: whether the loop belongs to the program.
        depth: how many blocks were open around it.
    """

    breakable = True
    what = "loop"

    def __init__(self, names: tuple[str, ...]) -> None:
        self.builder = current()
        self.names = names
        self.is_runtime = False
        self.loc = caller_loc()
        self.depth = len(self.builder.frames)
        self.before: Values = ()
        self.entered = False

    @property
    def line(self) -> int:
        """The line of the loop statement."""
        return _line(self.loc)

    def mark(self, values: Values) -> Values:
        """Wrap the bindings from before the loop, so that carried values are noticed."""
        self.before = values
        self.entered = True
        return tuple(
            value
            if isinstance(value, bindings.Poison | bindings.Cell)
            else bindings.LoopCarried(value, self)
            for value in values
        )

    def _after(self, values: Values) -> Values:
        if not self.entered:
            return values
        if not self.is_runtime:
            return tuple(
                value.value
                if isinstance(value, bindings.LoopCarried) and value.loop is self
                else value
                for value in values
            )
        result: list[Any] = []
        for name, before, value in zip(self.names, self.before, values, strict=True):
            if isinstance(value, bindings.LoopCarried) and value.loop is self:
                result.append(value.value)
            else:
                result.append(bindings.merge(name, before, [value], f"loop at line {self.line}"))
        return tuple(result)

    def _retire(self) -> None:
        loops = self.builder.loops
        while loops and loops[-1] is not self:
            loops.pop()
        if loops:
            loops.pop()


class Loop(_Loop):
    """A ``for`` statement: a loop of the program, or an iterable unrolled while tracing."""

    def __init__(self, iterable: Any, names: tuple[str, ...], targets: tuple[str, ...]) -> None:
        super().__init__(names)
        self.iterable = iterable
        self.targets = targets
        self.is_runtime = isinstance(iterable, LoopSpec)
        if isinstance(iterable, LoopSpec):
            self.breakable = iterable.kind != "parallel" and len(iterable.axes) == 1
            self.what = iterable.what

    def __iter__(self) -> Iterator[Any]:
        self.builder.loops.append(self)
        if isinstance(self.iterable, LoopSpec):
            yield from run_spec(self.builder, self.iterable, self.targets, self.loc)
        elif isinstance(self.iterable, Bound):
            yield from self.iterable
        elif isinstance(self.iterable, Operators | BufferValue):
            fail(
                "a `for` loop over a value of the program",
                expected="T.serial(n), T.Parallel(...), range(n) or a Python iterable",
                got=self.iterable.description,
            )
        else:
            yield from self.iterable

    def enter(self, *values: Any) -> Values:
        """Called at the top of the body with the names' bindings."""
        return self.mark(values) if self.is_runtime else values

    def leave(self, *values: Any) -> Values:
        """Called after the loop: the names' bindings from here on; loop variables end here."""
        count = len(self.names)
        kept = self._after(values[:count])
        self._retire()
        ended = values[count:]
        if self.is_runtime:
            ended = tuple(
                bindings.Poison(
                    name,
                    f"{name} is the variable of the loop at line {self.line}, which has ended",
                    f"keep it in a variable: last = T.alloc_var('int32'); last = {name}",
                )
                for name in self.targets
            )
        return kept + ended


MAX_UNROLLED = 10_000
"""Rounds of a `while` that is unrolled while tracing; no program is meant to be that long."""


class WhileLoop(_Loop):
    """A ``while`` statement; ``while True`` of a kernel is one of the program, left by a break."""

    what = "while loop"

    def __init__(self, names: tuple[str, ...], endless: bool = False) -> None:
        super().__init__(names)
        self.endless = endless and self.builder.in_kernel
        self.rounds = 0
        self.frame: Frame | None = None
        self.condition: Expr = TRUE
        self.builder.loops.append(self)

    def prepare(self, *values: Any) -> Values:
        """Called before the condition is evaluated."""
        return self.mark(values)

    def again(self) -> bool:
        """False when the body of a runtime loop has been traced."""
        if not self.is_runtime:
            if self.builder.in_kernel and self.frame is None:
                self.frame = self.builder.push("while")
            return True
        assert self.frame is not None
        body = self.builder.pop(self.frame)
        if self.endless and not may_break(body):
            fail("nothing leaves this `while True`", loc=self.loc)
        emit_while(self.builder, self.condition, body, self.loc)
        return False

    def test(self, condition: Any) -> bool:
        """Whether the body is to be traced (again)."""
        frame, self.frame = self.frame, None
        if not is_runtime(condition) and not self.endless:
            self.rounds += 1
            if self.rounds > MAX_UNROLLED:
                fail(
                    f"a `while` loop is unrolled while tracing and does not end in {MAX_UNROLLED} "
                    "rounds",
                    loc=self.loc,
                )
            if frame is not None:
                stmts = self.builder.pop(frame)
                self.builder.frames[-1].stmts.extend(stmts)
                self.builder.frames[-1].names.update(frame.names)
            return bool(condition)
        if frame is None:
            fail("a `while` on a runtime value outside of a kernel")
        self.is_runtime = True
        self.frame = frame
        self.condition = ops.truth(condition)
        if frame.stmts:  # evaluating the condition took statements: they run in each round
            self.builder.emit(If(ops.logical_not(condition), (Break(self.loc),), (), self.loc))
            self.condition = TRUE
        return True

    def leave(self, *values: Any) -> Values:
        """Called after the loop."""
        kept = self._after(values)
        self._retire()
        return kept


class Branch:
    """An ``if`` statement."""

    def __init__(self, condition: Any, names: tuple[str, ...], has_else: bool) -> None:
        self.builder = current()
        self.loc = caller_loc()
        self.names = names
        self.has_else = has_else
        self.is_runtime = is_runtime(condition)
        self.taken = self.is_runtime or bool(condition)
        self.condition: Expr = ops.truth(condition) if self.is_runtime else TRUE
        self.before: Values = ()
        self.after_then: Values = ()
        self.frame: Frame | None = None
        self.then_body: tuple[Stmt, ...] = ()
        if self.is_runtime:
            self.builder.require_kernel("an `if` on a runtime value")

    def then(self) -> bool:
        """Whether the first branch is to be traced."""
        if self.is_runtime:
            self.frame = self.builder.push("then")
        return self.taken

    def enter(self, *values: Any) -> Values:
        """Called at the top of the first branch with the names' bindings."""
        self.before = values
        return values

    def swap(self, *values: Any) -> Values:
        """Called after the first branch: the bindings for the second one."""
        if not self.is_runtime:
            return values
        assert self.frame is not None
        self.then_body = self.builder.pop(self.frame)
        self.after_then = values
        return self.before

    def otherwise(self) -> bool:
        """Whether the second branch is to be traced."""
        if not self.is_runtime:
            return not self.taken
        if self.has_else:
            self.frame = self.builder.push("else")
        return self.has_else

    def leave(self, *values: Any) -> Values:
        """Called after both: the bindings from here on."""
        if not self.is_runtime:
            return values
        else_body = self.builder.pop(self.frame) if self.has_else and self.frame else ()
        self.builder.emit(If(self.condition, self.then_body, else_body, self.loc))
        what = f"branch at line {_line(self.loc)}"
        return tuple(
            bindings.merge(name, before, [first, second], what)
            for name, before, first, second in zip(
                self.names, self.before, self.after_then, values, strict=True
            )
        )


def _innermost(statement: str) -> _Loop:
    loops = current().loops
    if not loops:
        fail(f"`{statement}` outside of a loop")
    loop = loops[-1]
    if not loop.breakable:
        fail(f"`{statement}` inside {loop.what}", expected="a serial loop", hint="use an `if`")
    return loop


def _leave_early(statement: str, stmt: Stmt) -> bool:
    loop = _innermost(statement)
    builder = current()
    if not loop.is_runtime:
        if len(builder.frames) > loop.depth:
            fail(
                f"`{statement}` under a runtime condition leaves a loop that is unrolled while "
                f"tracing (line {loop.line})",
                hint="write the loop with T.serial, or as `while True`",
            )
        return True
    builder.emit(stmt)
    return False


def break_() -> bool:
    """``break``: True when Python itself is to break."""
    return _leave_early("break", Break(caller_loc()))


def continue_() -> bool:
    """``continue``: True when Python itself is to continue."""
    return _leave_early("continue", Continue(caller_loc()))


def range_(function: Any, *args: Any) -> Any:
    """A call of ``range`` in a ``for`` statement: a serial loop inside a kernel."""
    if function is not builtins.range:
        return function(*args)
    if not current().in_kernel:
        if any(is_runtime(arg) for arg in args):
            fail("range() of a runtime value outside of a kernel", got=args)
        return range(*(int(arg) for arg in args))
    return serial(*args)


def and_(first: Any, second: Callable[[], Any]) -> Any:
    """``first and second()``."""
    if not is_runtime(first):
        return second() if first else first
    return Scalar(ops.logical("and", first, second()))


def or_(first: Any, second: Callable[[], Any]) -> Any:
    """``first or second()``."""
    if not is_runtime(first):
        return first if first else second()
    return Scalar(ops.logical("or", first, second()))


def not_(value: Any) -> Any:
    """``not value``."""
    return Scalar(ops.logical_not(value)) if is_runtime(value) else not value


def both(first: Any, second: Any) -> Any:
    """The two halves of a chained comparison, both evaluated."""
    return and_(first, lambda: second)


def ternary(condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """``then() if condition else otherwise()``."""
    if not is_runtime(condition):
        return then() if condition else otherwise()
    return Scalar(ops.select(condition, then(), otherwise()))


def assert_(condition: Any, message: Any = None) -> None:
    """``assert condition, message``: checked now if possible, else by the kernel."""
    text = "assertion failed" if message is None else str(message)
    if not is_runtime(condition):
        if not condition:
            fail(
                text,
                expected="a condition that holds",
                got="one that is false while the program is read",
                hint="change the arguments that the program is made with",
            )
        return
    builder = current()
    stmt = Assert(ops.truth(condition), text, caller_loc())
    if builder.in_kernel:
        builder.emit(stmt)
    else:
        builder.host_asserts.append(stmt)


def with_(manager: Any, targets: tuple[str, ...], as_tuple: bool) -> Any:
    """The manager of a ``with`` statement; kernels learn their axes' names."""
    name_axes = getattr(manager, "name_axes", None)
    if name_axes is not None:
        name_axes(targets, as_tuple)
    return manager
