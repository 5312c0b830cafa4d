"""Whether the assembler ran out of places for the barriers where lanes of a warp meet again.

A warp has few convergence barriers (ptxas 13.0 hands out `B0` to `B11`: BSSY sets one, BSYNC waits
at it). Where nested conditions need more, it parks one in a general register (BMOV) and uses its
name again, also while lanes wait there: they are released in the wrong place, the warp stays
divergent at the next block barrier, and lanes read shared memory that others have not written yet.
No option of the optimiser but `-O0` avoids it and nothing is said in the log, hence this look at
the instructions.

Encoding, as `nvdisasm -hex` shows it for sm_80 to sm_90a: 16 bytes an instruction, the operation in
the low 12 bits, a general register in bits 16 to 23 (255 is none) of a move out of a barrier.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

_MOVE_OUT, _MOVE_BACK = 0x355, 0x356  # BMOV.32.CLEAR R, B and BMOV.32 B, R
_NO_REGISTER = 255
_EXECUTABLE = 0x4  # SHF_EXECINSTR of the ELF specification


def parked_barriers(cubin: bytes) -> int:
    """How many instructions of a cubin move a convergence barrier to or from a register.

    Args:
        cubin: a 64-bit ELF file for sm_70 or later.
    """
    count = 0
    for code in _code_sections(cubin):
        words = np.frombuffer(code, "<u8")[::2]
        operation, register = words & 0xFFF, words >> np.uint64(16) & 0xFF
        kept = (operation == _MOVE_OUT) & (register != _NO_REGISTER)
        count += int((kept | (operation == _MOVE_BACK)).sum())
    return count


def _code_sections(cubin: bytes) -> Iterator[bytes]:
    """The instructions of each function: the sections of the file that can be executed."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, sections = struct.unpack_from("<HH", cubin, 0x3A)
    for header in range(table, table + size * sections, size):
        flags, _, offset, length = struct.unpack_from("<4Q", cubin, header + 8)
        if flags & _EXECUTABLE:
            yield cubin[offset : offset + length // 16 * 16]
