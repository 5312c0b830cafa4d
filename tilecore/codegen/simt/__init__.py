"""C++ for lane-parallel targets: lane-level programs -> `Source`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilecore.codegen.simt.dialect import Dialect
from tilecore.codegen.simt.emitter import KernelPrinter
from tilecore.codegen.simt.spelling import spelled
from tilecore.errors import ResourceError, VerifyError
from tilecore.hooks.manager import hooks_of
from tilecore.hooks.records import CompileOptions, KernelSource, Source
from tilecore.ir.program import Kernel, Level, Program
from tilecore.ir.signature import kernel_arguments
from tilecore.target import Target

HELPERS = """\
// Two neighbouring 16-bit or 8-bit registers from two floats, by one conversion where there is one.
template <class T>
TC_DEVICE void store_pair(TC_REGISTERS(T) registers, float low, float high) {
  if constexpr (sizeof(T) == 2)
    *reinterpret_cast<uint32_t*>(&registers[0]) = tc::pack<T>(low, high);
  else
    *reinterpret_cast<uint16_t*>(&registers[0]) = uint16_t(tc::pack4<T>(low, high, 0.0f, 0.0f));
}
"""


@dataclass(frozen=True, slots=True)
class KernelExtra:
    """What a backend adds to a kernel: parameters after the program's own, and launch facts."""

    parameters: tuple[str, ...] = ()
    facts: tuple[tuple[str, object], ...] = ()


def emit_program(
    program: Program,
    target: Target,
    options: CompileOptions,
    dialect: Dialect | None = None,
    rules: Mapping[str, Any] | None = None,
    extra: Callable[[Program, Kernel], KernelExtra] | None = None,
) -> Source:
    """Print every kernel of a lane-level program.

    Args:
        program: at the lane level.
        target: what for.
        options: compile options.
        dialect: spellings; the vocabulary's own by default.
        rules: emit rules; the target's backend's by default.
        extra: further parameters and launch facts of each kernel.

    Raises:
        VerifyError: the program is at another level.
        UnsupportedError: an operation, dtype or statement without C++.
        ResourceError: more lanes a block than the target has.
    """
    if program.level is not Level.LANE:
        raise VerifyError("C++ is emitted from the lane level", got=program.level)
    dialect = dialect or Dialect()
    known: Mapping[str, Any] = (
        hooks_of(target.backend).call("tilecore_emit_rules", target=target)
        if rules is None
        else rules
    )
    texts: list[str] = []
    kernels: list[KernelSource] = []
    printable = spelled(program, dialect.namespaces)
    for kernel, printed in zip(program.kernels, printable.kernels, strict=True):
        if target.max_threads and kernel.threads > target.max_threads:
            raise ResourceError(
                f"kernel {kernel.name} has too many threads",
                expected=f"at most {target.max_threads}",
                got=kernel.threads,
                loc=kernel.loc,
            )
        printer = KernelPrinter(
            printable, printed, target, dialect, known, options.fast_math, options.line_info
        )
        added = shown = KernelExtra()
        if extra is not None:  # facts are for launchers, which know the author's names
            added, shown = extra(program, kernel), extra(printable, printed)
        texts.append(printer.text(shown.parameters))
        kernels.append(
            KernelSource(
                printed.name,
                kernel_arguments(program, kernel),
                kernel.grid,
                kernel.threads,
                int(dict(kernel.hints).get("smem_bytes", 0)),
                kernel.cluster,
                added.facts,
            )
        )
    used = HELPERS if any("store_pair(" in text for text in texts) else ""
    head = f"// {program.name}, generated for {target.backend}/{target.arch}.\n"
    return Source(
        "\n".join((head, *([used] if used else []), *texts)), dialect.language, tuple(kernels)
    )
