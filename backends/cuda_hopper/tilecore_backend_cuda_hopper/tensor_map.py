"""Tensor maps: the 128 bytes that tell the TMA unit where a tensor is and how a tile of it looks.

The driver encodes them from a buffer's address and extents, once per address and set of sizes; the
launch passes them as grid constants (`tilecore_backend_cuda_ampere.packing.Descriptor`).

Limits are those of ``cuTensorMapEncodeTiled`` in the CUDA driver API's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilecore.errors import LaunchError, ToolchainError, UnsupportedError
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Expr, Var, free_vars
from tilecore.runtime.sizes import compile_sizes

MAX_RANK = 5
MAX_BOX_EXTENT = 256
ALIGNMENT_BYTES = 16  # of the tensor's address, of every stride, and of the box's inner extent
SWIZZLE_BYTES = (0, 32, 64, 128)
LINE_BYTES = 128
"""A line of the second-level cache. Fetches of two lines for rows that straddle them cost 15 % of
a product's time (4000x4104x4072, docs/performance-log.md)."""

_DTYPES = {
    "uint8": "UINT8", "int8": "UINT8", "uint16": "UINT16", "int16": "UINT16", "uint32": "UINT32",
    "int32": "INT32", "uint64": "UINT64", "int64": "INT64", "float16": "FLOAT16",
    "bfloat16": "BFLOAT16", "float32": "FLOAT32", "tfloat32": "FLOAT32", "float64": "FLOAT64",
    "float8_e4m3fn": "UINT8", "float8_e5m2": "UINT8", "bool": "UINT8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How tiles of one global buffer are copied.

    All tuples are outermost axis first, as in `Buffer`; the innermost axis has stride 1.

    Attributes:
        buffer: the buffer's name.
        dtype: its element type.
        shape: extents in elements; reads outside of them give zero, writes are dropped.
        strides: in elements.
        box: extents of one copy.
        swizzle_bytes: period of the pattern in shared memory: 0 (none), 32, 64 or 128.
        l2_bytes: bytes that a miss fetches into the second-level cache, 0, 64, 128 or 256, where
            rows begin at multiples of them; else it fetches `LINE_BYTES`.

    Raises:
        UnsupportedError: a static fact is over a limit, with that limit.
    """

    buffer: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 128
    l2_bytes: int = 256

    def __post_init__(self) -> None:
        rank = len(self.shape)
        inner_bytes = self.box[-1] * self.dtype.bits // 8 if self.box else 0
        if not 1 <= rank <= MAX_RANK or len(self.strides) != rank or len(self.box) != rank:
            raise self._unsupported("rank", f"1 to {MAX_RANK}, the same for all", rank)
        if self.dtype.name not in _DTYPES:
            raise self._unsupported("dtype", f"one of {', '.join(_DTYPES)}", self.dtype)
        if not all(1 <= extent <= MAX_BOX_EXTENT for extent in self.box):
            raise self._unsupported("box", f"1 to {MAX_BOX_EXTENT} along each axis", self.box)
        if inner_bytes % ALIGNMENT_BYTES:
            raise self._unsupported(
                "row of the box", f"a multiple of {ALIGNMENT_BYTES} bytes", inner_bytes
            )
        if self.swizzle_bytes not in SWIZZLE_BYTES:
            raise self._unsupported("swizzle", f"one of {SWIZZLE_BYTES}", self.swizzle_bytes)
        if self.swizzle_bytes and inner_bytes > self.swizzle_bytes:
            raise self._unsupported(
                "row of the box", f"at most the swizzle's {self.swizzle_bytes} bytes", inner_bytes
            )

    def encode(self, address: int, sizes: dict[str, int]) -> bytes:
        """The 128 bytes for a buffer at `address`, given the dynamic sizes by name.

        An empty tensor has no map, and no copy of it is ever issued: it gets zeros.

        Raises:
            LaunchError: the address or a stride is misaligned, or an extent is over 2^32.
            ToolchainError: there is no driver to encode with.
        """
        facts = self.checked(address, sizes)
        return bytes(128) if facts is None else self._encode(address, *facts)

    def checked(
        self, address: int, sizes: dict[str, int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Extents, and strides in bytes of all axes but the last; None for an empty tensor.

        Raises:
            LaunchError: as `encode`.
        """
        rank = len(self.shape)
        values = self._evaluate(sizes)
        shape, strides = values[:rank], values[rank:]
        if 0 in shape:
            return None
        byte_strides = tuple(stride * self.dtype.bits // 8 for stride in strides[:-1])
        self._check(address, shape, byte_strides)
        return shape, byte_strides

    def _evaluate(self, sizes: dict[str, int]) -> tuple[int, ...]:
        used = {v for expr in (*self.shape, *self.strides) for v in free_vars(expr)}
        symbols = sorted(used, key=lambda symbol: symbol.name)
        values = tuple(sizes[symbol.name] for symbol in symbols)
        return compile_sizes((*self.shape, *self.strides), tuple[Var, ...](symbols))(values)

    def _check(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        if address % ALIGNMENT_BYTES:
            raise LaunchError(
                f"{self.buffer} is misaligned for bulk copies",
                expected=f"a multiple of {ALIGNMENT_BYTES} bytes",
                got=f"{address:#x}",
            )
        if any(stride % ALIGNMENT_BYTES or not 0 < stride < 2**40 for stride in strides):
            raise LaunchError(
                f"rows of {self.buffer} are misaligned for bulk copies",
                expected=f"strides that are multiples of {ALIGNMENT_BYTES} bytes, below 2^40",
                got=f"{strides} bytes",
            )
        if any(extent > 2**32 for extent in shape):
            raise LaunchError(
                f"{self.buffer} is too large for bulk copies",
                expected="at most 2^32 elements along each axis",
                got=shape,
            )

    def _encode(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
        api = driver_api()
        answer = api.cuTensorMapEncodeTiled(
            self.driver_dtype(api),
            len(shape),
            address,
            [api.cuuint64_t(extent) for extent in reversed(shape)],
            [api.cuuint64_t(stride) for stride in reversed(strides)],
            [api.cuuint32_t(extent) for extent in reversed(self.box)],
            [api.cuuint32_t(1) for _ in shape],
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            self.driver_swizzle(api),
            promotion_of(api, self.l2_bytes, (address, *strides)),
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        return encoded(answer, self.buffer)

    def driver_dtype(self, api: Any) -> Any:
        """The driver's name of the element type."""
        name = f"CU_TENSOR_MAP_DATA_TYPE_{_DTYPES[self.dtype.name]}"
        return getattr(api.CUtensorMapDataType, name)

    def driver_swizzle(self, api: Any) -> Any:
        """The driver's name of the pattern in shared memory."""
        swizzle = f"{self.swizzle_bytes}B" if self.swizzle_bytes else "NONE"
        return getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}")

    def _unsupported(self, what: str, expected: str, got: object) -> UnsupportedError:
        return UnsupportedError(
            f"no tensor map of {self.buffer} has this {what}", expected=expected, got=got
        )


def promotion_of(api: Any, fetched: int, places: tuple[int, ...]) -> Any:
    """The driver's name for fetching so many bytes on a miss, where rows begin at multiples of
    them (`places`: the address and the strides); else one line of the cache."""
    if fetched and any(at % fetched for at in places):
        fetched = min(fetched, LINE_BYTES)
    promotion = f"L2_{fetched}B" if fetched else "NONE"
    return getattr(api.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{promotion}")


def encoded(answer: tuple[Any, Any], what: str) -> bytes:
    """The 128 bytes of a map of `what`, from the driver's (status, map).

    Raises:
        LaunchError: the driver refuses it.
    """
    import ctypes

    status, made = answer
    if int(status) != 0:
        raise LaunchError(f"the driver refuses a tensor map of {what}", got=status.name)
    return ctypes.string_at(made.getPtr(), 128)


def driver_api() -> Any:
    """The binding of a loaded driver."""
    from cuda.bindings import driver

    from tilecore_backend_cuda_ampere.driver import get_driver

    try:
        get_driver()
    except LaunchError as error:
        raise ToolchainError(f"tensor maps need a driver: {error.reason}") from error
    return driver
