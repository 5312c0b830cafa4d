"""How this backend's operations become text (namespace ``hopper``), and the kernels' maps."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping

from tilecore.codegen.simt import KernelExtra, emit_program
from tilecore.codegen.simt.dialect import Dialect
from tilecore.codegen.simt.emitter import KernelPrinter
from tilecore.codegen.simt.expressions import ExpressionPrinter, function_rule
from tilecore.codegen.simt.statements import statement_rule
from tilecore.hooks.records import CompileOptions, EmitRule, Source
from tilecore.ir.buffers import Buffer, Region, Scope
from tilecore.ir.dtypes import dtype_of
from tilecore.ir.expr import Call, Const, Expr, Load
from tilecore.ir.layout import FragmentLayout
from tilecore.ir.program import OVERLAPPED, Kernel, Program
from tilecore.ir.stmts import Intrinsic
from tilecore.ir.visit import walk_stmts
from tilecore.ir.windows import Windows, windows_by
from tilecore.passes.roles.window_copies import LOAD_WINDOWS
from tilecore.passes.turns.teams import teams_of
from tilecore.target import Target
from tilecore_backend_cuda_hopper.descriptors import descriptor_text, held_declarations, holding
from tilecore_backend_cuda_hopper.kernel_maps import KernelMap, kernel_map, map_of_windows
from tilecore_backend_cuda_hopper.layout import LINE_BYTES
from tilecore_backend_cuda_hopper.mma import WARPGROUP, instruction_of
from tilecore_backend_cuda_hopper.overlap import register_counts, words_declared
from tilecore_backend_cuda_hopper.store import PANEL_BYTES, SLOTS, accumulator_tile
from tilecore_backend_cuda_hopper.wgmma_source import (
    WGMMA_KINDS,
    WGMMA_M,
    WgmmaInstruction,
    legal_n,
    wgmma_source,
)

STORE_BARRIER = 2
"""First of the named barriers at which a warpgroup's lanes meet while they store a tile."""

WGMMA_HEADER = "wgmma.cuh"

TILE_COUNTER = "tile_counter"
"""Parameter: a word that is zero before and after every launch."""
DIALECT = Dialect(namespaces=frozenset({"ampere", "hopper"}))


def emit(program: Program, target: Target, options: CompileOptions) -> Source:
    """The program's text, with tensor maps as parameters and its wgmma functions as a header."""
    kernels = tuple(holding(kernel, options) for kernel in program.kernels)
    program = dataclasses.replace(program, kernels=kernels)
    source = emit_program(program, target, options, DIALECT, extra=_extra)
    instructions = sorted(
        {
            instruction_of(stmt.op.removeprefix("mma."))
            for kernel in program.kernels
            for stmt in walk_stmts(kernel.body)
            if isinstance(stmt, Intrinsic) and stmt.op.startswith("mma.wgmma_")
        }
    )
    if not instructions:
        return source
    headers = (*source.headers, (WGMMA_HEADER, wgmma_source(instructions)))
    return Source(source.text, source.language, source.kernels, headers)


def _extra(program: Program, kernel: Kernel) -> KernelExtra:
    maps = tensor_maps(program, kernel)
    facts: tuple[tuple[str, object], ...] = ()
    if dict(kernel.hints).get("persistent"):
        facts = (("persistent", True),)
    parameters = tuple(f"const TC_GRID_CONSTANT hopper::TensorMap {m.name}" for m in maps.values())
    if maps:
        facts = (*facts, ("descriptors", tuple(maps.values())))
    if any(isinstance(s, Intrinsic) and s.op == "launch.take" for s in walk_stmts(kernel.body)):
        parameters = (*parameters, f"uint32_t* {TILE_COUNTER}")
        facts = (*facts, ("counter", True))
    if dict(kernel.hints).get(OVERLAPPED):
        facts = (*facts, ("overlap", True))
    return KernelExtra(parameters, facts)


MapKey = tuple[str, str, str, Windows | None]


def tensor_maps(program: Program, kernel: Kernel) -> dict[MapKey, KernelMap]:
    """The maps that a lane-level kernel needs, by (tensor, box, kind, windows), in order of first
    use."""
    found: dict[MapKey, KernelMap] = {}
    for stmt in walk_stmts(kernel.body):
        if not isinstance(stmt, Intrinsic) or not stmt.op.startswith("bulk."):
            continue
        key = _key(stmt, program)
        if key is None or key in found:
            continue
        tensor, box, kind, windows = key
        count = sum(other[0] == tensor for other in found)
        name = f"{tensor}__map" if count == 0 else f"{tensor}__map_{count}"
        extents = tuple(int(extent) for extent in box.split("x"))
        bits = int(kind.removeprefix("swizzle"))
        if windows is not None:
            found[key] = map_of_windows(name, windows, extents, bits, program.symbols)
        else:
            found[key] = kernel_map(name, _buffer(program, tensor), extents, bits, program.symbols)
    return found


def _buffer(program: Program, name: str) -> Buffer:
    """The tensor of that name."""
    tensors = (*program.params, *program.workspaces)
    return next(b for b in tensors if isinstance(b, Buffer) and b.name == name)


def _key(stmt: Intrinsic, program: Program) -> MapKey | None:
    hints = dict(stmt.hints)
    if "tensor" not in hints:
        return None
    tensor = str(hints["tensor"])
    windows = None
    if stmt.op == LOAD_WINDOWS:
        windows = windows_by(_buffer(program, tensor), stmt.hints)
    return tensor, str(hints["box"]), str(hints["kind"]), windows


_maps: weakref.WeakKeyDictionary[KernelPrinter, dict[MapKey, KernelMap]] = (
    weakref.WeakKeyDictionary()
)


def _maps_of(printer: KernelPrinter) -> dict[MapKey, KernelMap]:
    if printer not in _maps:
        _maps[printer] = tensor_maps(printer.program, printer.kernel)
    return _maps[printer]


def _map_name(printer: KernelPrinter, stmt: Intrinsic) -> str:
    key = _key(stmt, printer.program)
    assert key is not None
    return _maps_of(printer)[key].name


def _expr(printer: KernelPrinter, arg: Expr | Region) -> str:
    assert isinstance(arg, Expr)
    return printer.expressions.text(arg)


def _region(printer: KernelPrinter, arg: Expr | Region) -> str:
    assert isinstance(arg, Region)
    return printer.region(arg)


# --- barriers and copies -------------------------------------------------------------------------


def _barrier_test(printer: KernelPrinter, stmt: Intrinsic) -> str:
    there, place, parity = stmt.args
    call = f"hopper::barrier_test({_region(printer, place)}, {_expr(printer, parity)})"
    assert isinstance(there, Region)
    return f"{printer.expressions.text(Load(there.buffer, there.starts))} = {call};"


def _publish_barriers(printer: KernelPrinter, stmt: Intrinsic) -> str:
    """The lane that sets barriers up also has the maps fetched: their first use waits less."""
    fetches = "".join(f"hopper::prefetch({one.name}); " for one in _maps_of(printer).values())
    return f"{fetches}hopper::barrier_publish();"


def _bulk_load(printer: KernelPrinter, stmt: Intrinsic) -> str:
    to, done, *at = stmt.args
    coordinates = ", ".join(_expr(printer, c) for c in reversed(at))
    name = _map_name(printer, stmt)
    parts = int(dict(stmt.hints).get("parts", 1))
    function = f"bulk_load_shared<{parts}>" if parts > 1 else "bulk_load"
    return (
        f"hopper::{function}({_region(printer, to)}, {name}, {_region(printer, done)}, "
        f"hopper::at({coordinates}));"
    )


def _bulk_load_windows(printer: KernelPrinter, stmt: Intrinsic) -> str:
    to, done, n, y, x, c, dy, dx = stmt.args
    pixel = ", ".join(_expr(printer, place) for place in (c, x, y, n))
    distance = ", ".join(_expr(printer, place) for place in (dx, dy))
    return (
        f"hopper::bulk_load_windows({_region(printer, to)}, {_map_name(printer, stmt)}, "
        f"{_region(printer, done)}, hopper::at({pixel}), hopper::at({distance}));"
    )


def _bulk_store_fragment(printer: KernelPrinter, stmt: Intrinsic) -> str:
    """One whole fragment, or a part of one that is held."""
    registers, staging, lane, *at = stmt.args
    hints = dict(stmt.hints)
    layout = dict(printer.kernel.layouts)[str(hints["fragment"])]
    assert isinstance(layout, FragmentLayout) and isinstance(staging, Region)
    width = staging.buffer.dtype.bytes
    tile = accumulator_tile(layout, LINE_BYTES // width)
    assert tile is not None
    adds = str(bool(hints.get("adds"))).lower()
    function, part = "store_tile", ""
    later = int(str(hints.get("later", 0)))
    waits = f", {later}" if later else ""
    if stmt.op == "bulk.store_held":
        function, part = "store_panel", f", {_expr(printer, at.pop(0))}"
    box = [int(extent) for extent in str(hints["box"]).split("x")]
    row_axis = len(box) - 1 - box.index(WGMMA_M)
    group = "0"
    coordinates = [_expr(printer, c) for c in reversed(at)]
    axis, own = (0, tile.columns) if tile.by_columns else (row_axis, tile.row_tiles * WGMMA_M)
    index = _expr(printer, lane)
    if tile.groups > 1:
        group = f"tc::uniform(lane / {WARPGROUP})"
        coordinates[axis] = f"({coordinates[axis]}) + {group} * {own}"
        index = f"{index} % {WARPGROUP}"
    place = f"{_region(printer, staging)} + {group} * {SLOTS * PANEL_BYTES // width}"
    return (
        f"hopper::{function}<{tile.columns}, {tile.row_tiles}, {row_axis}, {adds}{waits}>"
        f"({_region(printer, registers)}, {place}, {_map_name(printer, stmt)}, {index}, "
        f"{STORE_BARRIER} + {group}, hopper::at({', '.join(coordinates)}){part});"
    )


def _bulk_hold_fragment(printer: KernelPrinter, stmt: Intrinsic) -> str:
    src, held = stmt.args
    assert isinstance(held, Region)
    (words,) = held.static_shape or (1,)
    kind = printer.dialect.type_of(dtype_of(str(dict(stmt.hints)["dtype"])))
    return f"hopper::hold<{kind}, {words}>({_region(printer, src)}, {_region(printer, held)});"


def _finish_stores(printer: KernelPrinter, stmt: Intrinsic) -> str:
    return f"hopper::finish_stores(lane % {WARPGROUP});"


def _bulk_add(printer: KernelPrinter, stmt: Intrinsic) -> str:
    src, dst = stmt.args
    count = dict(stmt.hints)["elements"]
    return f"hopper::bulk_add<{count}>({_region(printer, dst)}, {_region(printer, src)});"


def _arrive_each(printer: KernelPrinter, stmt: Intrinsic) -> str:
    place, sharers = stmt.args
    assert isinstance(sharers, Const)
    return f"hopper::barrier_arrive_each<{int(sharers.value)}>({_region(printer, place)});"


def _take(printer: KernelPrinter, stmt: Intrinsic) -> str:
    place, total = stmt.args
    return f"hopper::take_tile({_region(printer, place)}, {TILE_COUNTER}, {_expr(printer, total)});"


def _registers(which: int) -> EmitRule:
    def rule(printer: KernelPrinter, stmt: Intrinsic) -> str:
        tile_threads = int(dict(printer.kernel.hints).get("tile_threads", 0))
        kernel = printer.kernel
        groups = tile_threads * teams_of(kernel) // WARPGROUP
        counts = register_counts(groups, kernel.cluster[0], words_declared(kernel))
        held = held_declarations(printer) if which else ""
        if counts is None:
            return f"{held}// registers stay as they were at launch"
        return f"hopper::registers_{('fewer', 'more')[which]}<{counts[which]}>(); {held}".rstrip()

    return rule


# --- wgmma ---------------------------------------------------------------------------------------


def _begin(printer: KernelPrinter, stmt: Intrinsic) -> str:
    return f"{_pins(printer, stmt.args)}hopper::wgmma_begin();"


def _wait(printer: KernelPrinter, stmt: Intrinsic) -> str:
    pending, *registers = stmt.args
    assert isinstance(pending, Const)
    pins = _pins(printer, tuple(registers))
    return f"hopper::wgmma_wait<{int(pending.value)}>();{' ' + pins.rstrip() if pins else ''}"


def _pins(printer: KernelPrinter, registers: tuple[Expr | Region, ...]) -> str:
    """Statements that keep register traffic on its side of a fence or a wait."""
    text = ""
    for region in registers:
        assert isinstance(region, Region)
        name = region.buffer.name
        if region.dtype.bytes == 4:
            text += f"hopper::pin({name}); "
        else:
            (count,) = region.buffer.static_shape or (0,)
            text += f"hopper::pin_words<{count * region.dtype.bytes // 4}>({name}); "
    return text


def _mma(printer: KernelPrinter, stmt: Intrinsic) -> str:
    instruction = instruction_of(stmt.op.removeprefix("mma."))
    kind = WGMMA_KINDS[instruction.kind]
    hints = dict(stmt.hints)
    c, *rest = stmt.args
    count = instruction.n // 2
    operands: list[str] = []
    transposes: list[str] = []
    for side in ("a", "b"):
        region = rest.pop(0)
        assert isinstance(region, Region)
        if region.buffer.scope is Scope.LOCAL:
            operands.append(f"hopper::words({printer.region(region)})")
            continue
        mn_major = bool(hints[f"{side}_mn_major"])
        transposes.append(str(int(mn_major)))
        operands.append(descriptor_text(printer, region, rest.pop(0), mn_major))
    (accumulate,) = rest
    source = "rs" if instruction.a_in_registers else "ss"
    template = f"<{', '.join(transposes)}>" if kind.has_transpose else ""
    call = f"TC_WGMMA({instruction.kind}, {instruction.n}, {source}){template}"
    per_word = kind.accumulators_per_register
    taken = f"part<{count}>" if per_word == 1 else f"part_words<{count // per_word}>"
    d = f"hopper::{taken}({_region(printer, c)})"
    return f"{call}({d}, {', '.join(operands)}, {_expr(printer, accumulate)});"


def _settle(printer: KernelPrinter, stmt: Intrinsic) -> str:
    return _pins(printer, stmt.args).rstrip()


def _call(text: str) -> EmitRule:
    """The rule of a call without arguments."""

    def rule(printer: ExpressionPrinter, call: Call) -> str:
        return text

    return rule


def emit_rules() -> Mapping[str, EmitRule]:
    """Rules by operation name."""
    rules: dict[str, EmitRule] = {
        "barrier.init": statement_rule("hopper::barrier_init"),
        "barrier.publish": _publish_barriers,
        "barrier.arrive": statement_rule("hopper::barrier_arrive"),
        "barrier.arrive_each": _arrive_each,
        "barrier.expect": statement_rule("hopper::barrier_expect"),
        "barrier.arrive_expect": statement_rule("hopper::barrier_arrive_expect"),
        "barrier.test": _barrier_test,
        "barrier.wait": statement_rule("hopper::barrier_wait"),
        "bulk.load": _bulk_load,
        LOAD_WINDOWS: _bulk_load_windows,
        "bulk.store_fragment": _bulk_store_fragment,
        "bulk.store_held": _bulk_store_fragment,
        "bulk.hold_fragment": _bulk_hold_fragment,
        "bulk.finish": _finish_stores,
        "bulk.add": _bulk_add,
        "bulk.wait_read": statement_rule("hopper::bulk_store_wait_read<0>"),
        "launch.take": _take,
        "launch.let_next": statement_rule("hopper::let_next_start"),
        "launch.wait_before": statement_rule("hopper::wait_for_earlier"),
        "memory.publish": statement_rule("hopper::publish"),
        "registers.fewer": _registers(0),
        "registers.more": _registers(1),
        "contraction.begin": _begin,
        "contraction.commit": statement_rule("hopper::wgmma_commit"),
        "contraction.settle": _settle,
        "contraction.wait": _wait,
        "cluster.rank": _call("hopper::cluster_rank()"),
        "cluster.sync": statement_rule("hopper::cluster_sync"),
        "lane.at_use": function_rule("hopper::at_use"),
        "lane.max_bits": function_rule("hopper::max_bits"),
        "launch.blocks": _call("tc::grid_x()"),
        "warp.elect": _call("hopper::elect_one()"),
        "warp.first_lane": _call("tc::lane_in_warp() == 0"),
    }
    for kind in WGMMA_KINDS.values():
        for n in legal_n(kind):
            for in_registers in (False, True):
                name = WgmmaInstruction(kind.name, n, in_registers).function_name
                rules[f"mma.{name}"] = _mma
    return rules
