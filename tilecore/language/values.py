"""What the author holds: scalars, cells (alloc_var), buffers and pieces of buffers.

These wrap IR nodes and carry Python's operators, so that the nodes themselves stay structural.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tilecore.ir.buffers import Buffer, Region
from tilecore.ir.expr import Call, Const, Expr, Load
from tilecore.ir.expr_text import format_expr
from tilecore.language import foreign
from tilecore.language import operators as ops
from tilecore.language.dtypes import dtype
from tilecore.language.locate import fail


class Operators:
    """Python's operators for anything that stands for one scalar of the program."""

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy scalars leave operators to us; its functions have no meaning for the program."""
        return foreign.numpy_function(self, ufunc.__name__, inputs)

    def to_expr(self) -> Expr:
        """The IR expression."""
        raise NotImplementedError

    @property
    def dtype(self) -> dtype:
        """The element type."""
        return dtype(ops.dtype_of(self.to_expr()))

    @property
    def description(self) -> str:
        """A short name for messages."""
        return f"a {ops.dtype_of(self.to_expr())} scalar"

    def astype(self, to: Any) -> Scalar:
        """The value converted to another dtype."""
        return Scalar(ops.cast_expr(self.to_expr(), dtype(to).ir))

    def _static(self, what: str) -> int | float | bool:
        expr = self.to_expr()
        if not isinstance(expr, Const):
            fail(f"{what} of a runtime value", got=self.description, hint=foreign.trace_hint(what))
        return expr.value

    def __bool__(self) -> bool:
        return bool(self._static("truth"))

    def __int__(self) -> int:
        return int(self._static("int()"))

    def __float__(self) -> float:
        return float(self._static("float()"))

    def __index__(self) -> int:
        value = self._static("use as a Python index")
        if not isinstance(value, int):
            fail("use as a Python index", expected="an integer", got=self.description)
        return int(value)

    def __iter__(self) -> Iterator[Any]:
        fail("a scalar cannot be iterated or unpacked", got=self.description)

    def __neg__(self) -> Scalar:
        return Scalar(ops.negate(self.to_expr()))

    def __pos__(self) -> Scalar:
        return Scalar(self.to_expr())

    def __invert__(self) -> Scalar:
        return Scalar(ops.invert(self.to_expr()))

    def __abs__(self) -> Scalar:
        from tilecore.language.math_ops import absolute

        return absolute(self)

    def __divmod__(self, other: Any) -> tuple[Scalar, Scalar]:
        return self // other, self % other

    # The binary operators are set below, from one table.
    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Scalar: ...
        def __radd__(self, other: Any) -> Scalar: ...
        def __sub__(self, other: Any) -> Scalar: ...
        def __rsub__(self, other: Any) -> Scalar: ...
        def __mul__(self, other: Any) -> Scalar: ...
        def __rmul__(self, other: Any) -> Scalar: ...
        def __truediv__(self, other: Any) -> Scalar: ...
        def __rtruediv__(self, other: Any) -> Scalar: ...
        def __floordiv__(self, other: Any) -> Scalar: ...
        def __rfloordiv__(self, other: Any) -> Scalar: ...
        def __mod__(self, other: Any) -> Scalar: ...
        def __rmod__(self, other: Any) -> Scalar: ...
        def __and__(self, other: Any) -> Scalar: ...
        def __or__(self, other: Any) -> Scalar: ...
        def __xor__(self, other: Any) -> Scalar: ...
        def __lshift__(self, other: Any) -> Scalar: ...
        def __rshift__(self, other: Any) -> Scalar: ...
        def __lt__(self, other: Any) -> Scalar: ...
        def __le__(self, other: Any) -> Scalar: ...
        def __gt__(self, other: Any) -> Scalar: ...
        def __ge__(self, other: Any) -> Scalar: ...


_BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floordiv",
    "mod": "floormod",
    "pow": "pow",
    "and": "bitand",
    "or": "bitor",
    "xor": "bitxor",
    "lshift": "shl",
    "rshift": "shr",
}
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")


def _method(op: str, swapped: bool) -> Callable[[Any, Any], Scalar]:
    def apply(self: Any, other: Any) -> Scalar:
        a, b = (other, self) if swapped else (self, other)
        return Scalar(ops.arithmetic(op, a, b))

    return apply


for _name, _op in _BINARY.items():
    setattr(Operators, f"__{_name}__", _method(_op, swapped=False))
    setattr(Operators, f"__r{_name}__", _method(_op, swapped=True))
for _name in _COMPARE:
    setattr(Operators, f"__{_name}__", _method(_name, swapped=False))


class Scalar(Operators):
    """A value of the program: an IR expression with Python's operators.

    A `Scalar` that is one element of a buffer (``A[i, j]``) also serves tile operations as the
    place where a tile begins.
    """

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def to_expr(self) -> Expr:
        """The IR expression."""
        return self.expr

    def __repr__(self) -> str:
        kind = ops.dtype_of(self.expr)
        return f"<{kind} scalar {format_expr(self.expr)}; T.print shows it when the program runs>"


class Cell(Operators):
    """A mutable scalar: T.alloc_var, or an element that a macro takes as `T.Ref`.

    Assigning to the author's name (``x = e``, ``x += 1``) stores. `fresh` is True until the cell
    is bound to its first name.
    """

    __slots__ = ("buffer", "fresh", "indices")

    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...] = (), *, fresh: bool) -> None:
        self.buffer = buffer
        self.indices = indices
        self.fresh = fresh

    def to_expr(self) -> Expr:
        """The load of the cell's present value."""
        return Load(self.buffer, self.indices)

    def store(self, value: Any) -> None:
        """Write a new value, converted to the cell's dtype."""
        from tilecore.language.builder import current

        current().store(self.buffer, self.indices, value)

    def __getitem__(self, index: Any) -> Scalar:
        self._check_zero(index)
        return Scalar(self.to_expr())

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check_zero(index)
        self.store(value)

    def _check_zero(self, index: Any) -> None:
        if not (isinstance(index, int) and index == 0):
            fail("a variable has one element", expected="[0] or no index", got=index)

    @property
    def shape(self) -> tuple[int, ...]:
        """Always ``(1,)``, as a variable holds one element."""
        return (1,)


def extent_value(extent: Expr) -> int | Scalar:
    """An extent for the author: an int where it is known."""
    return int(extent.value) if isinstance(extent, Const) else Scalar(extent)


class _NoArithmetic:
    """Turns arithmetic on whole tiles into an error that says what to do."""

    __array_ufunc__ = None
    __hash__ = object.__hash__

    @property
    def description(self) -> str:
        """A short name for messages."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        fail("len() of a buffer", got=self.description)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.__slots__:
            raise AttributeError(name)
        raise AttributeError(foreign.no_attribute(self, name))


def _refuse_arithmetic(symbol: str) -> Callable[..., Any]:
    def refuse(self: _NoArithmetic, *_: Any) -> Any:
        fail(
            f"{symbol} on a whole buffer",
            expected="a scalar element, e.g. A[i, j]",
            got=self.description,
            hint="write elementwise work as a T.Parallel loop",
        )

    return refuse


for _name in (*_BINARY, *(f"r{n}" for n in _BINARY), "lt", "le", "gt", "ge", "neg", "invert"):
    setattr(_NoArithmetic, f"__{_name}__", _refuse_arithmetic(_name.removeprefix("r")))


class RegionValue(_NoArithmetic):
    """A rectangular piece of a buffer: ``A[a:b, k]``."""

    __slots__ = ("region",)

    def __init__(self, region: Region) -> None:
        self.region = region

    @property
    def shape(self) -> tuple[int | Scalar, ...]:
        """Extents of the axes that were sliced."""
        return tuple(extent_value(extent) for extent in self.region.shape)

    @property
    def dtype(self) -> dtype:
        """Element type."""
        return dtype(self.region.dtype)

    @property
    def description(self) -> str:
        """A short name for messages."""
        return f"a slice of {self.region.buffer.name}, {shape_text(self.region.shape)}"

    def __getitem__(self, index: Any) -> Any:
        fail("a slice cannot be indexed again", got=self.description, hint="index the buffer")


class BufferValue(_NoArithmetic):
    """A buffer of the program. Index it with scalars and slices; assign to its elements."""

    __slots__ = ("barrier", "buffer")

    def __init__(self, buffer: Buffer, *, barrier: bool = False) -> None:
        self.buffer = buffer
        self.barrier = barrier

    @property
    def name(self) -> str:
        """The buffer's name in the program."""
        return self.buffer.name

    @property
    def shape(self) -> tuple[int | Scalar, ...]:
        """Extents: ints where known, scalars where dynamic."""
        return tuple(extent_value(extent) for extent in self.buffer.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.buffer.rank

    @property
    def dtype(self) -> dtype:
        """Element type."""
        return dtype(self.buffer.dtype)

    @property
    def strides(self) -> tuple[int | Scalar, ...] | None:
        """Element strides of a strided tensor, or None for row-major."""
        if self.buffer.strides is None:
            return None
        return tuple(extent_value(stride) for stride in self.buffer.strides)

    @property
    def data(self) -> Storage:
        """The buffer's storage, for ``T.Tensor(shape, dtype, A.data)``: another view of it."""
        return Storage(self)

    def scope(self) -> str:
        """``"global"``, ``"shared"``, ``"fragment"`` or ``"local"``."""
        return self.buffer.scope.value

    @property
    def description(self) -> str:
        """A short name for messages."""
        return f"{self.buffer.scope} buffer {self.name} {shape_text(self.buffer.shape)}"

    def __getitem__(self, key: Any) -> Any:
        from tilecore.language.indexing import make_region
        from tilecore.language.vectors import has_vector, load_lanes

        if has_vector(key):
            return load_lanes(self, key)
        region = make_region(self.buffer, key)
        if region.axes:
            return RegionValue(region)
        return Scalar(Load(self.buffer, region.starts))

    def __setitem__(self, key: Any, value: Any) -> None:
        from tilecore.language.indexing import assign_region, make_region
        from tilecore.language.vectors import has_vector, store_lanes

        if has_vector(key):
            store_lanes(self, key, value)
            return
        assign_region(make_region(self.buffer, key), value)

    def __iter__(self) -> Iterator[Any]:
        fail("a buffer cannot be iterated", got=self.description, hint="loop over its indices")

    def __repr__(self) -> str:
        return f"<{self.description}>"


class Storage:
    """The storage of a buffer, as `BufferValue.data` gives it."""

    __slots__ = ("owner",)

    def __init__(self, owner: BufferValue) -> None:
        self.owner = owner


def shape_text(shape: tuple[Expr, ...]) -> str:
    """``(64, m)`` for messages."""
    return "(" + ", ".join(expr_text(extent) for extent in shape) + ")"


def expr_text(expr: Expr) -> str:
    """A compact rendering of an index expression for messages."""
    match expr:
        case Const(value=value):
            return str(value)
        case Load(buffer=buffer, indices=indices):
            return f"{buffer.name}[{', '.join(map(expr_text, indices))}]"
        case Call(op=op, args=args):
            return f"{op}({', '.join(map(expr_text, args))})"
        case _:
            name = getattr(expr, "name", None)
            if name is not None:
                return name
            op = getattr(expr, "op", type(expr).__name__.lower())
            return f"{op}({', '.join(map(expr_text, expr.children))})"
