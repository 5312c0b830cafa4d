"""The binding writes into bytes objects; none of them may be one that the interpreter shares."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from tilecore_backend_cuda_ampere.toolchain import _read

SHARED = bytes([32])


@pytest.mark.parametrize("size", [0, 1, 2, 17])
def test_no_shared_bytes_object_is_written(size: int) -> None:
    def read(program: object, buffer: bytes) -> tuple[SimpleNamespace]:
        assert len(buffer) >= size
        assert len(buffer) > 1 or size == 0, "bytes of length 1 are shared by the interpreter"
        if size:
            address = ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value
            assert address is not None
            ctypes.memmove(address, b"x" * size, size)
        return (Status(),)

    class Status(SimpleNamespace):
        def __int__(self) -> int:
            return 0

    got = _read(lambda program: (Status(), size), read, None)
    assert got == b"x" * size
    assert SHARED == b" " and chr(32).encode() == b"\x20"
    assert b"x"[0:1] == bytes([120])
