"""How a pipelined loop is overlapped on CDNA3: its copies wait in registers.

gfx942 moves only 4 bytes a lane from global memory to LDS by itself, so tiles go through registers,
16 bytes a lane: what the next iteration but one needs is loaded while this one computes, and what
the next one needs is stored to LDS. LDS has 64 KiB, so a second slot is taken only where it costs
no wavefronts: two on each SIMD hide one another's waits, and a workgroup of eight has them alone.

With option ``direct_to_lds`` (`direct.py`) copies that the hardware can move to LDS by itself do
not wait in registers but in slots of LDS, two or more as the author's stages and LDS allow.
"""

from __future__ import annotations

from tilecore.hooks.records import PipelinePlan, PipelineRequest
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Copy, For
from tilecore.ir.visit import buffers_in
from tilecore.passes.plan_shared_memory import ALIGNMENT, alignment_of, size_of

from .direct import is_asked_for, is_direct

LANES = 64
LDS_BYTES = 64 * 1024
WAVES_PER_BLOCK = 8
"""Two on each of the four SIMDs."""
STAGGER = "stagger"
"""Option of `CompileOptions.extra`, on by default: phases for workgroups of eight wavefronts."""
MOST_AHEAD_REGISTERS = 64
"""32-bit registers of a lane that may hold what is under way."""


def plan_pipeline(request: PipelineRequest) -> PipelinePlan | None:
    """Through registers when the author asked for overlap; None runs the loop in order."""
    loop, kernel = request.loop, request.kernel
    copies = [k for k, stmt in enumerate(loop.body) if isinstance(stmt, Copy) and stmt.fills_shared]
    asked = loop.pipeline.num_stages if loop.pipeline is not None else 0
    moved = sum(_bytes(loop, k) for k in copies)
    if asked < 1 or not copies or moved > 4 * MOST_AHEAD_REGISTERS * kernel.threads:
        return None
    count = len(loop.body)
    if is_asked_for(request.options) and (plan := _direct(request, copies, asked)):
        return plan
    stage = tuple(0 if k in copies else 1 for k in range(count))
    return PipelinePlan(
        _slots(request, copies, asked), stage, tuple(range(count)),
        through_registers=True, hold_operands=True, staggered=_is_staggered(request, asked),
    )  # fmt: skip


def _is_staggered(request: PipelineRequest, asked: int) -> bool:
    """True where the wavefronts of each SIMD shall be a phase apart: two slots wanted, and two
    wavefronts on each SIMD, four apart in the workgroup."""
    wished = bool(dict(request.options.extra).get(STAGGER, True))
    return wished and asked >= 2 and request.kernel.threads == WAVES_PER_BLOCK * LANES


def _direct(request: PipelineRequest, copies: list[int], asked: int) -> PipelinePlan | None:
    """All copies ahead, straight to LDS; None when one of them cannot or there is but one slot."""
    body = request.loop.body
    slots = max((n for n in range(2, asked + 1) if _slots_fit(request, copies, n)), default=1)
    if slots < 2 or not all(is_direct(body[k], request.kernel) for k in copies):  # type: ignore[arg-type]
        return None
    stage = tuple(0 if k in copies else slots - 1 for k in range(len(body)))
    staying = [k for k in range(len(body)) if k not in copies]
    order = [0] * len(body)
    for place, k in enumerate((*copies, *staying)):
        order[k] = place
    return PipelinePlan(slots, stage, tuple(order))


def _slots(request: PipelineRequest, copies: list[int], asked: int) -> int:
    """Slots of LDS for each copy."""
    used = LDS_BYTES - request.smem_bytes_free
    if asked < 2 or not _slots_fit(request, copies, 2):
        return 1
    waves = request.kernel.threads // LANES
    second_block_fits = 2 * used <= LDS_BYTES and 2 * _fragment_registers(request.kernel) <= 512
    return 1 if waves < WAVES_PER_BLOCK and second_block_fits else 2


def _slots_fit(request: PipelineRequest, copies: list[int], slots: int) -> bool:
    """True when LDS has room for so many slots of what the copies fill, as it is laid out."""
    more = 0
    for position in copies:
        copy = request.loop.body[position]
        assert isinstance(copy, Copy), "only loads are counted"
        buffer = copy.dst.buffer
        size, alignment = _bytes(request.loop, position), ALIGNMENT
        layout = request.kernel.layout_of(buffer)
        if isinstance(layout, Layout):  # without one: element after element
            size, alignment = size_of(buffer, layout), alignment_of(buffer, layout)
        more += -(-slots * size // alignment) * alignment - size
    return more <= request.smem_bytes_free


def _bytes(loop: For, position: int) -> int:
    copy = loop.body[position]
    assert isinstance(copy, Copy), "only loads are counted"
    total = copy.src.dtype.bytes
    for extent in copy.dst.static_shape or (0,):
        total *= extent
    return total


def _fragment_registers(kernel: Kernel) -> int:
    """32-bit registers of a lane that the kernel's fragments take."""
    bits = 0
    for buffer in buffers_in(kernel.body):
        registers = getattr(kernel.layout_of(buffer), "registers", 0)
        bits += registers * buffer.dtype.bits
    return bits // 32
