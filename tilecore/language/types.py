"""Annotations of parameters: T.Tensor and its relatives, dynamic sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import DType, int64
from tilecore.ir.expr import Const, Expr, Var
from tilecore.language.dtypes import dtype
from tilecore.language.locate import caller_loc, fail, refuse
from tilecore.language.operators import as_index
from tilecore.language.values import Scalar, Storage


@dataclass(frozen=True, slots=True)
class TensorType:
    """A global tensor: shape, element type, strides (None is row-major and compact)."""

    shape: tuple[Expr, ...]
    dtype: DType
    strides: tuple[Expr, ...] | None = None

    def buffer(self, name: str, loc: Loc | None) -> Buffer:
        """The parameter of that type."""
        return Buffer(name, self.shape, self.dtype, Scope.GLOBAL, self.strides, loc=loc)


def shape_exprs(shape: Any, what: str) -> tuple[Expr, ...]:
    """A shape as expressions; an int means one axis.

    Raises:
        LanguageError: an extent that is no integer, or negative.
    """
    extents = (
        tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
    )
    result = tuple(as_index(extent, f"extent {k} of {what}") for k, extent in enumerate(extents))
    for axis, extent in enumerate(result):
        if isinstance(extent, Const) and extent.value < 0:
            fail(f"extent {axis} of {what} is negative", expected="0 or more", got=extent.value)
    return result


class _TensorFactory:
    """``T.Tensor((M, N), dtype)`` or ``T.Tensor[[M, N], dtype]``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(
        self, shape: Any, dtype: Any = "float32", data: Any = None, scope: str | None = None
    ) -> Any:
        """A row-major tensor of `shape`; with ``data=A.data`` another view of `A`."""
        if isinstance(data, Storage):
            from tilecore.language.tile_ops import view

            return view(data.owner, shape, dtype)
        if data is not None:
            refuse(f"{self._name}(data=...)", "a tensor's memory comes with the call")
        if scope not in (None, "global"):
            fail(f"{self._name} lives in global memory", expected="global", got=scope)
        return TensorType(shape_exprs(shape, "the tensor"), _dtype(dtype))

    def __getitem__(self, key: Any) -> Any:
        """``T.Tensor[[M, N], dtype]``; without dtype it is float32."""
        if isinstance(key, tuple) and len(key) == 2 and _is_dtype(key[1]):
            return self(key[0], key[1])
        if isinstance(key, tuple) and key and _is_dtype(key[-1]):
            return self(key[:-1], key[-1])
        return self(key)

    def __repr__(self) -> str:
        return self._name


def _is_dtype(value: Any) -> bool:
    if isinstance(value, int | list | tuple | Scalar):
        return False
    if value is ptr:
        return True
    try:
        dtype(value)
    except Exception:
        return False
    return True


def _dtype(value: Any) -> DType:
    return int64 if value is ptr else dtype(value).ir


Tensor = _TensorFactory("T.Tensor")


class _StridedFactory:
    """``T.StridedTensor(shape, strides, dtype)``, also with brackets."""

    def __call__(
        self, shape: Any, strides: Any, dtype: Any = "float32", scope: str | None = None
    ) -> TensorType:
        """A tensor whose element strides are given (constants or dynamic)."""
        if scope not in (None, "global"):
            fail("T.StridedTensor lives in global memory", expected="global", got=scope)
        extents = shape_exprs(shape, "the tensor")
        steps = tuple(as_index(stride, "stride") for stride in strides)
        if len(steps) != len(extents):
            fail("T.StridedTensor needs a stride per axis", expected=len(extents), got=len(steps))
        return TensorType(extents, _dtype(dtype), steps)

    def __getitem__(self, key: Any) -> TensorType:
        return self(*key)


StridedTensor = _StridedFactory()


def BufferType(
    shape: Any, dtype: Any = "float32", data: Any = None, strides: Any = None, **other: Any
) -> TensorType:
    """``T.Buffer``: a tensor parameter, with strides where they are given."""
    if data is not None or other:
        refuse(f"T.Buffer({', '.join(other) or 'data'}=...)", "use T.Tensor or T.StridedTensor")
    return Tensor(shape, dtype) if strides is None else StridedTensor(shape, strides, dtype)


class _Pointer:
    """``T.ptr``: an address, as a parameter's type or the element type of a table of them.

    `T.make_tensor` makes tensors of addresses. In memory an address is an int64.
    """

    def __call__(self, *_: Any, **__: Any) -> _Pointer:
        return self

    def __repr__(self) -> str:
        return "T.ptr"


ptr = _Pointer()


class Dimension(Scalar):
    """A dynamic size by one name: ``T.Var("n", "int32")``, which `dynamic` makes as well."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        dtype: Any = "int32",
        *,
        multiple_of: int = 1,
        lower: int = 0,
        upper: int | None = None,
    ) -> None:
        kind = _dtype(dtype)
        if kind.name not in ("int32", "int64"):
            fail("a dynamic size must be an index", expected="int32 or int64", got=kind)
        if multiple_of < 1:
            fail("multiple_of must be positive", got=multiple_of)
        super().__init__(Var(split_names(name)[0], kind, multiple_of, lower, upper))


def dynamic(
    name: str,
    dtype: Any = "int32",
    *,
    multiple_of: int = 1,
    min: int | None = None,
    max: int | None = None,
) -> Any:
    """A size known only at the call; one compiled kernel serves all values.

    Args:
        name: one name, or several separated by commas or blanks (then a tuple is returned).
        dtype: int32 or int64.
        multiple_of: a promise: the size is a multiple of this.
        min: a promise: the size is at least this.
        max: a promise: the size is at most this.
    """
    lower = 0 if min is None else min
    scalars = tuple(
        Dimension(one, dtype, multiple_of=multiple_of, lower=lower, upper=max)
        for one in split_names(name)
    )
    return scalars[0] if len(scalars) == 1 else scalars


def symbolic(name: str, dtype: Any = "int32") -> Any:
    """The older name of `dynamic`."""
    return dynamic(name, dtype)


def split_names(text: str) -> list[str]:
    """``"m, n"`` and ``"m n"`` as names.

    Raises:
        LanguageError: something that is no identifier.
    """
    names = [part for part in re.split(r"[,\s]+", text) if part]
    for name in names:
        if not name.isidentifier():
            fail("a size needs a plain name", expected="letters, digits and _", got=name)
    if not names:
        fail("a size needs a name", got=repr(text))
    return names


class Ref:
    """Annotation of a macro's parameter that is assigned through: ``def f(x: T.Ref)``."""


class _TileFactory:
    """Annotation of a macro's tile argument; it documents, and binds nothing."""

    def __call__(self, *_: Any, **__: Any) -> _TileFactory:
        return self

    def __getitem__(self, _: Any) -> _TileFactory:
        return self


SharedBuffer = _TileFactory()
FragmentBuffer = _TileFactory()
LocalBuffer = _TileFactory()


def scalar_dtype(annotation: Any) -> DType | None:
    """The dtype of a scalar parameter's annotation, or None when it is no dtype."""
    plain = any(annotation is one for one in (int, float, bool))
    if plain or isinstance(annotation, str | DType):
        return _dtype(annotation) if _is_dtype(annotation) else None
    return None


def declare_param(name: str, annotation: Any, loc: Loc | None = None) -> Buffer | Var:
    """The IR parameter that an annotation asks for.

    Raises:
        LanguageError: the annotation is none of the language.
    """
    place = loc if loc is not None else caller_loc()
    if isinstance(annotation, TensorType):
        return annotation.buffer(name, place)
    if annotation is Tensor or annotation is StridedTensor:
        fail(f"parameter {name} has no shape", expected="T.Tensor((M, N), dtype)", loc=place)
    if annotation is ptr:
        return Var(name, int64)
    found = scalar_dtype(annotation)
    if found is None:
        fail(
            f"parameter {name} has an annotation that is no type of the language",
            expected="T.Tensor(shape, dtype), T.StridedTensor(...) or a dtype such as T.int32",
            got=annotation,
            loc=place,
        )
    return Var(name, found)
