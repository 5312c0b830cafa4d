"""The file format of one cache entry: named binary parts and a record of plain data.

    magic (8 bytes) | SHA-256 of all that follows (32) | bytes of the index (8, little endian)
    | index (JSON: the record, and name and length of each part) | parts

No pickle: reading an entry never runs code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAGIC = b"TILECOR1"
_HEADER_BYTES = len(MAGIC) + 32 + 8


class CorruptEntry(ValueError):
    """Bytes that are not a whole, undamaged entry."""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One compiled kernel, as it is stored.

    Attributes:
        parts: named bytes, such as ``{"binary": ..., "source": ...}``.
        record: plain data that JSON holds (str keys; str, int, float, bool, None, list, dict).
    """

    parts: Mapping[str, bytes]
    record: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_bytes(self) -> bytes:
        """The file's content.

        Raises:
            TypeError: the record holds what JSON does not.
        """
        lengths = [[name, len(part)] for name, part in self.parts.items()]
        index = json.dumps({"record": dict(self.record), "parts": lengths}).encode()
        body = b"".join((len(index).to_bytes(8, "little"), index, *self.parts.values()))
        return MAGIC + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, content: bytes) -> CacheEntry:
        """Read back what `to_bytes` wrote.

        Raises:
            CorruptEntry: wrong magic, wrong length or wrong checksum.
        """
        if len(content) < _HEADER_BYTES:
            raise CorruptEntry(f"{len(content)} bytes is too short")
        if content[: len(MAGIC)] != MAGIC:
            raise CorruptEntry("it does not begin as an entry does")
        checksum = content[len(MAGIC) : len(MAGIC) + 32]
        body = memoryview(content)[len(MAGIC) + 32 :]
        if hashlib.sha256(body).digest() != checksum:
            raise CorruptEntry("its checksum does not match")
        index_bytes = int.from_bytes(body[:8], "little")
        index = json.loads(bytes(body[8 : 8 + index_bytes]))
        offset = 8 + index_bytes
        parts: dict[str, bytes] = {}
        for name, length in index["parts"]:
            parts[name] = bytes(body[offset : offset + length])
            offset += length
        return cls(parts, index["record"])
