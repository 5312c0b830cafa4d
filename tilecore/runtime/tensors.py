"""One view of everything that can be passed as a tensor.

torch tensors and NumPy arrays are read through their own attributes; any other object through
``__cuda_array_interface__`` (device arrays of array libraries) or DLPack. No array library but
NumPy is ever imported here: what was passed is already imported.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilecore.errors import ArgumentError
from tilecore.ir.dtypes import DType, numpy_dtype, tfloat32
from tilecore.ir.packing import storage_shape

# DLDeviceType of the DLPack standard (dlpack.h); pinned host memory counts as host memory.
_DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 10: "rocm", 11: "cpu", 13: "cuda"}


# Named tuples, not dataclasses: these are made, compared and hashed for each argument of a call.
class Device(NamedTuple):
    """Where a tensor lives: ``"cpu"``, ``"cuda"`` or ``"rocm"``, and which of them."""

    kind: str
    ordinal: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"


CPU = Device("cpu")


class TensorView(NamedTuple):
    """What a launch needs to know of one tensor.

    Attributes:
        address: of the first element, in bytes.
        shape: extents.
        strides: in elements, one per axis.
        dtype: name of the element type, as in `ir.dtypes`.
        device: where the memory is.
        writeable: False for read-only host arrays, and for tensors whose gradient torch records.
        library: ``"torch"``, ``"numpy"`` or ``"other"``: who can allocate an output beside it.
        owner: keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: Device
    writeable: bool
    library: str
    owner: Any

    @property
    def facts(self) -> tuple[object, ...]:
        """All that decides whether the tensor fits, hashable; the address is not among it."""
        return self[1:7]


def is_compact(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """True when the strides (in elements) are those of a row-major array without gaps.

    Axes of extent 1 may have any stride, and empty tensors are compact.
    """
    if 0 in shape:
        return True
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a compact row-major array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def library_of(value: object) -> str:
    """``"torch"``, ``"numpy"``, ``"other"`` (device interface or DLPack), or ``""``: no tensor."""
    if isinstance(value, np.ndarray):
        return "numpy"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__"):
        return "other"
    return ""


def view_of(value: Any) -> TensorView:
    """The view of a tensor.

    Raises:
        ArgumentError: the value is no tensor, or one whose memory cannot be addressed.
    """
    library = library_of(value)
    if library == "torch":
        return _view_torch(value)
    if library == "numpy":
        return _view_numpy(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _view_device_interface(value)
    if library == "other":
        return _view_dlpack(value)
    raise ArgumentError("not a tensor", got=f"a value of type {type(value).__name__}")


def _view_torch(tensor: Any) -> TensorView:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise ArgumentError("tensor is not strided", expected="torch.strided", got=tensor.layout)
    if tensor.is_neg() or tensor.is_conj():
        raise ArgumentError("tensor is a lazy negation", hint="call resolve_conj().resolve_neg()")
    try:
        address = tensor.data_ptr()
    except RuntimeError as error:  # a tensor of a transformation stands for others
        raise ArgumentError(
            "tensor has no memory of its own", got=type(tensor).__name__,
            hint="call the kernel on plain tensors, or wrap it as a torch operator",
        ) from error  # fmt: skip
    return TensorView(
        address,
        tuple(tensor.shape),
        tensor.stride(),
        _torch_dtype_name(tensor.dtype),
        _torch_device(tensor.device),
        not (tensor.requires_grad and torch.is_grad_enabled()),
        "torch",
        tensor,
    )


@functools.cache
def _torch_dtype_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


@functools.cache
def _torch_device(device: Any) -> Device:
    """torch calls AMD devices ``cuda`` too; its build says which they are."""
    is_hip = device.type == "cuda" and sys.modules["torch"].version.hip is not None
    return Device("rocm" if is_hip else device.type, device.index or 0)


def _view_numpy(array: np.ndarray[Any, Any], library: str = "numpy") -> TensorView:
    itemsize = array.itemsize or 1
    if any(stride % itemsize for stride in array.strides):
        raise ArgumentError(
            "array strides are no multiple of its element size",
            expected=f"a multiple of {itemsize} bytes",
            got=array.strides,
        )
    if not array.dtype.isnative:
        raise ArgumentError("array is not in this machine's byte order", got=array.dtype.str)
    return TensorView(
        numpy_address(array),
        array.shape,
        tuple(stride // itemsize for stride in array.strides),
        _numpy_dtype_name(array.dtype),
        CPU,
        array.flags.writeable,
        library,
        array,
    )


@functools.cache
def _numpy_dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def _view_device_interface(value: Any) -> TensorView:
    """Version 3 of the interface, as numba and CuPy document it."""
    record = value.__cuda_array_interface__
    address, read_only = record["data"]
    dtype = np.dtype(record["typestr"])
    shape = tuple(record["shape"])
    strides = record.get("strides")
    if strides is None:
        element_strides = row_major_strides(shape)
    elif any(stride % dtype.itemsize for stride in strides):
        raise ArgumentError("strides are no multiple of the element size", got=tuple(strides))
    else:
        element_strides = tuple(stride // dtype.itemsize for stride in strides)
    device = Device("cuda", _device_index(value))
    return TensorView(
        address or 0, shape, element_strides, dtype.name, device, not read_only, "other", value
    )


def _device_index(value: Any) -> int:
    """The interface does not say which device: DLPack does, and so do the libraries' attributes."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[1])
    device = getattr(value, "device", None)
    return int(getattr(device, "id", 0))


def _view_dlpack(value: Any) -> TensorView:
    code, _ = value.__dlpack_device__()
    kind = _DLPACK_DEVICES.get(int(code))
    if kind is None:
        raise ArgumentError("tensor lives on a device that tilecore does not know", got=int(code))
    torch = sys.modules.get("torch")
    if torch is not None:  # it knows more dtypes and devices than NumPy's importer
        view = _view_torch(torch.from_dlpack(value))
    elif kind == "cpu":
        view = _view_numpy(np.from_dlpack(value))
    else:
        raise ArgumentError(
            "a device tensor of this library can only be read through torch",
            got=type(value).__name__,
            hint="import torch, or pass torch.from_dlpack(tensor)",
        )
    return TensorView(
        view.address, view.shape, view.strides, view.dtype, view.device, view.writeable, "other",
        (view.owner, value),
    )  # fmt: skip


def address_of(value: Any, name: str, device_kind: str) -> Any:
    """The address of a compact tensor that a call gives for a T.ptr parameter; a number is one.

    Raises:
        ArgumentError: a tensor of another device, or one that is not compact.
    """
    if isinstance(value, int):
        return value
    view = view_of(value)
    if view.device.kind != device_kind or view.device.ordinal != 0:
        raise ArgumentError(
            f"{name} is on the wrong device",
            expected=f"a tensor in the memory of the first {device_kind} device",
            got=f"one on {view.device}",
        )
    if not is_compact(view.shape, view.strides):
        raise ArgumentError(
            f"{name} is an address, and its tensor is not compact",
            expected="row-major strides",
            got=f"shape {view.shape} with strides {view.strides}",
        )
    return view.address


def storage_names(dtype: DType) -> tuple[str, ...]:
    """Element types of tensors that hold `dtype`, the usual one first.

    tfloat32 is a way to multiply, its memory is float32. Sub-byte types come packed in bytes.
    """
    if dtype is tfloat32:
        return ("float32",)
    if dtype.bits < 8:
        return ("uint8", "int8", f"{dtype.name}_x{8 // dtype.bits}")
    return (dtype.name,)


def allocator(
    shape: tuple[int, ...], dtype: DType, device: Device, library: str
) -> Callable[[], Any]:
    """A function that makes an uninitialised compact tensor on `device`, by `library`.

    Raises:
        ArgumentError: the library is unknown here, so the caller must pass the output.
    """
    shape = storage_shape(dtype, shape)
    torch = sys.modules.get("torch")
    if library == "torch" or (library == "other" and torch is not None):
        assert torch is not None
        place = "cpu" if device.kind == "cpu" else f"cuda:{device.ordinal}"
        torch_dtype = getattr(torch, storage_names(dtype)[0])
        return functools.partial(torch.empty, shape, dtype=torch_dtype, device=torch.device(place))
    if device.kind == "cpu":
        return functools.partial(
            np.empty, shape, np.dtype(np.uint8) if dtype.bits < 8 else numpy_dtype(dtype)
        )
    raise ArgumentError(
        "cannot allocate the output beside tensors of this library",
        hint="import torch, or pass the output tensor as an argument",
    )


def numpy_address(array: np.ndarray[Any, Any]) -> int:
    """Address of an array's first element."""
    if NUMPY_DATA_OFFSET is None:
        return array.ctypes.data
    return ctypes.c_size_t.from_address(id(array) + NUMPY_DATA_OFFSET).value


def _address_is_readable_from_object() -> bool:
    """Whether ``PyArrayObject.data`` follows the object header, as NumPy's C API fixes it."""
    arrays = [np.zeros(3), np.zeros((2, 5), np.int8)[1:, 1:], np.zeros((), np.float16)]
    return all(
        ctypes.c_size_t.from_address(id(array) + object.__basicsize__).value == array.ctypes.data
        for array in arrays
    )


# ndarray.ctypes.data takes over a microsecond, reading the field of the C struct a tenth of it.
NUMPY_DATA_OFFSET: int | None = object.__basicsize__ if _address_is_readable_from_object() else None
"""Bytes from an array object's address to its data pointer; None where that does not hold."""
