"""Digests: one stable hash for everything that decides what a compiled kernel is.

A cache key that is too small gives stale kernels, one that is too big compiles twice. So the key
covers the final IR text, the target, the toolchain and the options, and also the code of the
compiler itself, because the same IR emitted by another version is another kernel.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilecore.target import Target

# Files of a package that can change what it generates.
_CODE_SUFFIXES = frozenset({".py", ".h", ".hpp", ".cuh", ".cpp", ".c", ".toml", ".json"})


def digest_of(*values: object) -> str:
    """Hex SHA-256 of plain data: None, bool, int, float, str, bytes, enums, paths, frozen
    dataclasses, and sequences, sets and mappings of them.

    Equal values have equal digests in every process (sets and mappings are ordered first), and
    values of different types never collide (``1``, ``True``, ``1.0`` and ``"1"`` are four values).

    Raises:
        TypeError: a value has no stable form, such as a function or an open file.
    """
    state = hashlib.sha256()
    for value in values:
        state.update(_encode(value))
    return state.hexdigest()


def cache_key(
    ir_text: str,
    target: Target,
    toolchain: str,
    options: Mapping[str, Any],
    code: str = "",
) -> str:
    """The name of a compiled kernel in the cache: 64 hex digits.

    Args:
        ir_text: the final IR as text.
        target: what it is compiled for.
        toolchain: the backend's answer to ``tilecore_toolchain_fingerprint``.
        options: everything else that changes the binary.
        code: `package_fingerprint` of the packages that turn this IR into a binary.
    """
    return digest_of("tilecore-kernel", 1, ir_text, target, toolchain, options, code)


@lru_cache(maxsize=64)
def package_fingerprint(*packages: str) -> str:
    """Digest of the code and headers of installed packages, read once per process.

    Raises:
        ModuleNotFoundError: a package is not installed.
    """
    state = hashlib.sha256()
    for package in packages:
        for root in _package_roots(package):
            for path in sorted(root.rglob("*")):
                if path.suffix in _CODE_SUFFIXES and path.is_file():
                    state.update(_encode(f"{package}/{path.relative_to(root).as_posix()}"))
                    state.update(_encode(path.read_bytes()))
    return state.hexdigest()


def _package_roots(package: str) -> Iterable[Path]:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"package {package!r} is not installed")
    if spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"{package!r} is a module, not a package")
    return sorted(Path(location) for location in spec.submodule_search_locations)


def _encode(value: object) -> bytes:
    """Type tag, length, content: no two different values share an encoding."""
    tag, content = _content(value)
    return b"%s%d:%s" % (tag, len(content), content)


def _content(value: object) -> tuple[bytes, bytes]:
    match value:
        case None:
            return b"n", b""
        case enum.Enum():
            return b"e", _encode(type(value).__qualname__) + _encode(value.name)
        case bool():
            return b"b", b"1" if value else b"0"
        case int():
            return b"i", str(value).encode()
        case float():
            return b"f", value.hex().encode()
        case str():
            return b"s", value.encode()
        case bytes():
            return b"y", value
        case Path():
            return b"p", str(value).encode()
        case list() | tuple():
            return b"l", b"".join(_encode(item) for item in value)
        case set() | frozenset():
            return b"u", b"".join(sorted(_encode(item) for item in value))
        case Mapping():
            pairs = sorted((_encode(k), _encode(v)) for k, v in value.items())
            return b"m", b"".join(key + item for key, item in pairs)
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts = [_encode(type(value).__qualname__)]
            parts += [
                _encode(f.name) + _encode(getattr(value, f.name))
                for f in fields(value)
                if f.compare
            ]
            return b"d", b"".join(parts)
        case _:
            raise TypeError(f"no stable digest for a value of type {type(value).__qualname__}")
