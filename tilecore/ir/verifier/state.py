"""The verifier's state: where it is, what is in scope, and how it complains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from tilecore.errors import LanguageError, Loc, VerifyError
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Expr, Var
from tilecore.ir.program import Level


@dataclass(slots=True)
class State:
    """Where the verifier is.

    Attributes:
        level: the level whose rules hold.
        loc: the line of the statement at hand.
        scope: variables and buffers that may be used here, by name.
        declared: everything ever declared, by name.
        loops: kinds of the loops around this place that a `Break` may leave, innermost last.
        in_parallel: inside a `Parallel`.
        checked: expressions already found legal in this block, by identity.
    """

    level: Level
    loc: Loc | None = None
    scope: dict[str, Var | Buffer] = field(default_factory=dict)
    declared: dict[str, Var | Buffer] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)
    in_parallel: bool = False
    checked: dict[int, Expr] = field(default_factory=dict)

    @property
    def is_lane(self) -> bool:
        """At the lane level, where buffers are flat."""
        return self.level is Level.LANE

    def fail(self, reason: str, expected: object = None, got: object = None) -> NoReturn:
        """Raise: at the tile level the author is at fault, below it a pass.

        Raises:
            LanguageError: at the tile level.
            VerifyError: at the levels below.
        """
        kind = LanguageError if self.level is Level.TILE else VerifyError
        raise kind(reason, expected=expected, got=got, loc=self.loc)

    def require(
        self, holds: bool, reason: str, expected: object = None, got: object = None
    ) -> None:
        """`fail` unless it holds."""
        if not holds:
            self.fail(reason, expected, got)

    def declare(self, item: Var | Buffer) -> None:
        """Bring a name into scope.

        At the tile level every name is declared once. Below it, a pass may have copied statements:
        then the copies' names are the same thing in scopes that do not meet.
        """
        name = item.name
        self.require(bool(name), "a name is empty")
        if name in self.scope:
            self.fail("a name is declared twice", got=name)
        before = self.declared.get(name)
        if before is not None and (self.level is Level.TILE or type(before) is not type(item)):
            self.fail("a name is declared twice", got=name)
        self.declared[name] = self.scope[name] = item

    def use_var(self, var: Var) -> None:
        """Check the use of a variable."""
        found = self.scope.get(var.name)
        if found is None:
            self.fail("a variable is used outside its scope", got=var.name)
        if not isinstance(found, Var):
            self.fail("a buffer is used as a variable", got=var.name)
        if found.dtype != var.dtype:
            self.fail(f"variable {var.name} is used with another dtype", found.dtype, var.dtype)

    def use_buffer(self, buffer: Buffer) -> None:
        """Check the use of a buffer: it is in scope, and the same one that was declared."""
        found = self.scope.get(buffer.name)
        if found is buffer:
            return
        if found is None:
            self.fail("a buffer is used outside its scope", got=buffer.name)
        if not isinstance(found, Buffer):
            self.fail("a variable is used as a buffer", got=buffer.name)
        is_same = found == buffer
        if self.is_lane:  # global and shared buffers are seen flat
            is_same = found.dtype == buffer.dtype and found.scope is buffer.scope
        if not is_same:
            self.fail(f"two different buffers are called {buffer.name}", found, buffer)
