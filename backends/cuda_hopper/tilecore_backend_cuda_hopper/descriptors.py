"""Matrix descriptors of operands in shared memory as text, and where their words are kept.

A descriptor of a slot is that of the whole buffer, advanced. The assembler makes the buffer's own
one again in every step, a chain of four instructions in front of the first product. Where a kernel
`HOLDS` them, consumers make them once, as values of the warp, and each step only adds the slot.
"""

from __future__ import annotations

import dataclasses
import weakref

from tilecore.codegen.simt.emitter import KernelPrinter
from tilecore.hooks.records import CompileOptions
from tilecore.ir.buffers import Region, Scope
from tilecore.ir.expr import Const, Expr, binary, const
from tilecore.ir.layout import Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import For, Intrinsic, LoopKind
from tilecore.ir.visit import walk_stmts
from tilecore.passes.lowering.count_slots import COUNTED
from tilecore.passes.scopes import with_hint
from tilecore.passes.turns.teams import teams_of
from tilecore_backend_cuda_hopper.layout import descriptor_facts

HOLDS = "holds_descriptors"
"""Option of `CompileOptions.extra`: consumers keep the descriptors of shared buffers in registers,
or do not; hint of a kernel whose consumers do."""
MANY = 5
"""Products of a step from which descriptors are held (attention's gradients, 1 % of their cycles:
docs/performance-log.md); kernels of fewer keep the registers."""
_names: weakref.WeakKeyDictionary[KernelPrinter, dict[str, str]] = weakref.WeakKeyDictionary()


def descriptor_text(
    printer: KernelPrinter, region: Region, step: Expr | Region, mn_major: bool
) -> str:
    """The descriptor of an operand's tile, `step` elements further on."""
    assert isinstance(step, Expr)
    # The descriptor of the buffer itself is the same everywhere: it is made once, before all loops.
    text = _whole(printer.kernel, region, mn_major)
    text = _held(printer).get(text, text)
    for elements in (region.starts[0], step):
        if isinstance(elements, Const) and elements.value == 0:
            continue
        bytes_on = printer.expressions.text(binary("mul", elements, const(region.dtype.bytes)))
        text = f"hopper::advance({text}, {bytes_on})"
    return text


def held_declarations(printer: KernelPrinter) -> str:
    """What stands at the begin of the consumers' role: one declaration for each held descriptor."""
    return "".join(
        f"const auto {name} = hopper::hold({text}); " for text, name in _held(printer).items()
    )


def holding(kernel: Kernel, options: CompileOptions) -> Kernel:
    """A lane-level kernel with the hint, where options or its loops ask for it.

    Unless the options say otherwise these are kernels with loops that have their rings counted:
    what is left between two steps is as short as it can be; and those with steps of many products,
    each of which begins with that chain.
    """
    is_asked = dict(options.extra).get(HOLDS)
    if is_asked is None:
        loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For)]
        is_asked = any(dict(s.hints).get(COUNTED) or _products(s) >= MANY for s in loops)
    if not is_asked:
        return kernel
    return dataclasses.replace(kernel, hints=with_hint(kernel.hints, HOLDS, True))


def _products(loop: For) -> int:
    """Products of one step of a loop, without those of loops in it that are not unrolled."""
    own = [s for s in walk_stmts(loop.body) if _is_product(s)]
    loops = [s for s in walk_stmts(loop.body) if isinstance(s, For) and s.kind is LoopKind.SERIAL]
    return len(own) - len({id(s) for one in loops for s in walk_stmts(one.body) if _is_product(s)})


def _is_product(stmt: object) -> bool:
    return isinstance(stmt, Intrinsic) and stmt.op.startswith("mma.wgmma_")


def _whole(kernel: Kernel, region: Region, mn_major: bool) -> str:
    """The descriptor of the buffer that a region lies in."""
    buffer = region.buffer
    layout = kernel.layout_of(buffer)
    assert isinstance(layout, Layout)
    facts = descriptor_facts(layout, region.dtype, mn_major, buffer.name, buffer.loc)
    return f"hopper::descriptor({buffer.name}, {', '.join(map(str, facts))})"


def _held(printer: KernelPrinter) -> dict[str, str]:
    """Names of the held descriptors, by their text."""
    if not printer.hints.get(HOLDS):
        return {}
    if printer not in _names:
        _names[printer] = _found(printer.kernel)
    return _names[printer]


def _found(kernel: Kernel) -> dict[str, str]:
    """Names for all descriptors of whole buffers; none where warps have no single role for all
    products."""
    roles = [s for s in walk_stmts(kernel.body) if _is(s, "registers.more")]
    if len(roles) != 1 or teams_of(kernel) > 1:
        return {}
    texts: dict[str, str] = {}
    for stmt in walk_stmts(kernel.body):
        if not _is_product(stmt):
            continue
        assert isinstance(stmt, Intrinsic)
        hints = dict(stmt.hints)
        shared = [a for a in stmt.args[1:] if isinstance(a, Region)]
        for side, region in zip(("a", "b"), shared, strict=False):
            if region.buffer.scope is Scope.SHARED:
                text = _whole(kernel, region, bool(hints[f"{side}_mn_major"]))
                texts.setdefault(text, f"{region.buffer.name}__words_{len(texts)}")
    return texts


def _is(stmt: object, op: str) -> bool:
    return isinstance(stmt, Intrinsic) and stmt.op == op
