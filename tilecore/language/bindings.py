"""Python names under runtime control flow: what assignment means, and what must not happen.

The author's code is traced once, so a plain name that is rebound under a runtime ``if`` or loop
cannot mean what it means in Python. Such a name is poisoned when the block ends: using it is an
error that names both lines. Reading a name before it is rebound in a runtime loop (a value carried
from round to round) is an error at once. T.alloc_var is the way to say either.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

from tilecore.errors import Loc
from tilecore.ir.buffers import Scope
from tilecore.ir.expr import reads_memory
from tilecore.language.builder import current
from tilecore.language.locate import caller_loc, fail
from tilecore.language.values import BufferValue, Cell, RegionValue, Scalar


class Poison:
    """A name that has no meaning here. Any use raises.

    Attributes:
        name: the author's name.
        reason: why it has none.
    """

    __slots__ = ("hint", "name", "reason")

    def __init__(self, name: str, reason: str, hint: str | None = None) -> None:
        self.name = name
        self.reason = reason
        self.hint = hint

    def refuse(self, *_: Any) -> NoReturn:
        """Raise the error that explains the name."""
        fail(self.reason, hint=self.hint)

    @property
    def description(self) -> str:
        """Raises: describing a poisoned name is using it."""
        self.refuse()

    def to_expr(self) -> NoReturn:
        """Raises: a poisoned name has no value."""
        self.refuse()

    def __getattr__(self, name: str) -> NoReturn:
        self.refuse()

    __bool__ = __iter__ = __len__ = __getitem__ = __call__ = __add__ = __radd__ = refuse
    __sub__ = __rsub__ = __mul__ = __rmul__ = __lt__ = __gt__ = __le__ = __ge__ = refuse
    __setitem__ = __delitem__ = __contains__ = __truediv__ = __or__ = __and__ = refuse
    __index__ = __int__ = __float__ = __neg__ = __truediv__ = __floordiv__ = __mod__ = refuse


class LoopCarried:
    """A name's value from before a loop that assigns it; readable until the assignment.

    Attributes:
        value: what the name held before the loop.
        loop: the loop; only when it turns out to run at run time is a rebinding refused.
        read_at: the first line that read the name inside the loop.
    """

    __slots__ = ("loop", "read_at", "value")

    def __init__(self, value: Any, loop: Any) -> None:
        self.value = value
        self.loop = loop
        self.read_at: Loc | None = None


UNBOUND = Poison("", "a name is read before it is assigned")


def use(name: str, value: Any) -> Any:
    """Read a name: what rewritten code does instead of a plain read."""
    if isinstance(value, LoopCarried):
        if value.read_at is None:
            value.read_at = caller_loc()
        return use(name, value.value)
    if value is UNBOUND:
        fail(f"{name} is read before it is assigned", hint="it may be a variable of an outer scope")
    if isinstance(value, Poison):
        value.refuse()
    return value


def hint(*names: str) -> None:
    """Tell the builder which names the value that is about to be computed will get."""
    current().hints = list(names)


def assign(_: None, name: str, value: Any, old: Any = UNBOUND) -> Any:
    """``name = value``: what the name is bound to from here on.

    A cell is stored to and stays; an expression becomes a `Let` of that name; anything else is
    bound as in Python.
    """
    builder = current()
    builder.hints = []
    builder.assigned_at[name] = caller_loc()
    old = _before_loop(name, old)
    if isinstance(old, Cell) and not (isinstance(value, Cell) and value.fresh):
        if not isinstance(value, Poison):
            old.store(value)
        return old
    _check_tensor_kept(name, old, value)
    return bind(name, value)


def _check_tensor_kept(name: str, old: Any, value: Any) -> None:
    """A tensor's name given to a tile on the chip would write nothing, which nobody means."""
    if not (isinstance(old, BufferValue) and old.buffer.scope is Scope.GLOBAL):
        return
    if isinstance(value, RegionValue):
        value = BufferValue(value.region.buffer)
    if isinstance(value, BufferValue) and value.buffer.scope is not Scope.GLOBAL:
        fail(
            f"{name} is the name of a tensor, and is given to a tile",
            expected="a statement that writes elements of the tensor",
            got=value.description,
            hint=f"T.copy({value.name}, {name})",
        )


def _before_loop(name: str, old: Any) -> Any:
    while isinstance(old, LoopCarried):
        if old.loop.is_runtime and old.read_at is not None:
            fail(
                f"{name} is read at line {old.read_at.line} and rebound here, in a loop that runs "
                f"at run time (line {old.loop.line}): its value would have to be carried from "
                "round to round",
                hint=f"make it a variable before the loop: {name} = T.alloc_var(dtype, init=...)",
            )
        old = old.value
    return old


def bind(name: str, value: Any) -> Any:
    """Bind a value to a name for the first time (see `assign`)."""
    if isinstance(value, Cell):
        if value.fresh:
            value.fresh = False
            return value
        return current().bind(name, value.to_expr())
    if isinstance(value, Scalar):
        return current().bind(name, value.expr)
    if isinstance(value, list | tuple | dict):
        _take_cells(value)
    return settle(value)


def _take_cells(values: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> None:
    """Cells that are kept in a container belong to it: a name bound to one later is a copy."""
    for item in values.values() if isinstance(values, dict) else values:
        if isinstance(item, Cell):
            item.fresh = False


def settle(value: Any) -> Any:
    """Fix the present value of scalars that read memory, also inside tuples and lists."""
    if isinstance(value, Cell) and not value.fresh:
        return current().bind(value.buffer.name, value.to_expr())
    if isinstance(value, Scalar) and reads_memory(value.expr):
        return current().bind("value", value.expr)
    if type(value) is tuple:
        return tuple(settle(item) for item in value)
    return value


def settle_many(_: None, value: Any) -> Any:
    """The right side of ``a, b = ...``: evaluated whole before anything is assigned."""
    if type(value) is tuple:
        return tuple(
            item if isinstance(item, Cell) and item.fresh else settle(item) for item in value
        )
    return value


def inplace(op: str, old: Any, value: Any) -> Any:
    """``old op= value``, for names: the new value (lists and sets change in place)."""
    return getattr(operator, op)(old, value)


def inplace_item(op: str, target: Any, key: Any, value: Any) -> None:
    """``target[key] op= value``; on a reducer the value contributes."""
    setitem(target, key, getattr(operator, op)(target[key], value))


def setitem(target: Any, key: Any, value: Any) -> None:
    """``target[key] = value``; a cell kept in a list or dict is stored to.

    ``acc[i] = T.max(acc[i], v)`` on a reducer contributes v, as ``acc[i] += v`` does.
    """
    from tilecore.language.reducers import is_contribution

    if isinstance(target, list | dict):
        try:
            old = target[key]
        except (KeyError, IndexError, TypeError):
            old = None
        if isinstance(old, Cell) and not (isinstance(value, Cell) and value.fresh):
            old.store(value)
            return
        if isinstance(value, Cell):
            value.fresh = False
        elif not isinstance(value, Cell):
            value = settle(value)
    elif is_contribution(target, key, value):
        return
    target[key] = value


def merge(name: str, before: Any, after: list[Any], what: str) -> Any:
    """The name's binding after a runtime block: unchanged, or poisoned.

    Args:
        name: the author's name.
        before: its binding before the block.
        after: its binding at the end of each branch (one entry: a loop, which may not run).
        what: ``"loop"`` or ``"branch"``, with its line, for the message.
    """
    if all(_same(value, before) for value in after):
        return before
    if len(after) > 1 and _is_plain(after[0]) and all(_same(value, after[0]) for value in after):
        return after[0]
    rebound = current().assigned_at.get(name)
    where = "" if rebound is None else f" (line {rebound.line})"
    return Poison(
        name,
        f"{name} was assigned{where} inside a {what}, which runs at run time, so it has no single "
        "value here",
        f"make it a variable before the block: {name} = T.alloc_var(dtype, init=...)",
    )


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(b, LoopCarried) and not isinstance(a, LoopCarried):
        return _same(a, b.value)
    return _is_plain(a) and type(a) is type(b) and a == b


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | bool | None)
