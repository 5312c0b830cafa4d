"""A compiled kernel with the methods that programs call on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilecore.compat.supply import KernelParam, TensorSupplyType, kernel_params
from tilecore.errors import UnsupportedError
from tilecore.ir.buffers import Buffer
from tilecore.ir.expr import Var
from tilecore.ir.program import Program
from tilecore.kernel import CompiledKernel
from tilecore.runtime.sizes import compile_sizes


class JITKernel:
    """What `jit` and `compile` of this package return.

    Args:
        kernel: the compiled kernel.
        config: the arguments it was made with, when a search chose them.

    Attributes:
        latency: milliseconds a call, when a search measured it.
        ref_latency: the same for the search's reference program.
    """

    def __init__(self, kernel: CompiledKernel, config: dict[str, Any] | None = None) -> None:
        self.kernel = kernel
        self.config = config
        self.latency: float | None = None
        self.ref_latency: float | None = None

    @property
    def program(self) -> Program:
        """The tile program."""
        return self.kernel.program

    @property
    def out_idx(self) -> list[int]:
        """Parameters that calls leave out."""
        return list(self.program.outputs)

    @property
    def params(self) -> list[KernelParam]:
        """All parameters, in call order."""
        return kernel_params(self.program)

    @property
    def kernel_source(self) -> str:
        """The generated source text."""
        return self.kernel.source

    @property
    def n_regs(self) -> int:
        """Registers a lane, of the kernel that uses most."""
        return max((one.registers or 0 for one in self.kernel.resources), default=0)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Launch; returns what `CompiledKernel` returns, as torch tensors.

        None may stand for a tensor that no statement of the program touches.
        """
        if any(value is None for value in args):
            args = fill_unused(self.program, args)
        return as_torch(self.kernel(*args, **named))

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The generated source text; there is no host source besides it."""
        if not kernel_only:
            self.get_host_source()
        return self.kernel.source

    def get_host_source(self) -> str:
        """Raises UnsupportedError: launches are made from Python."""
        raise UnsupportedError("kernels have no host source: launches are made from Python")

    def show_source(self, which: str = "kernel") -> None:
        """Print the generated source."""
        print(self.get_kernel_source(which == "kernel"))

    def export_sources(self, kernel_path: str | None = None, host_path: str | None = None) -> None:
        """Write the generated source to `kernel_path`."""
        if host_path is not None:
            self.get_host_source()
        if kernel_path is not None:
            Path(kernel_path).write_text(self.kernel.source, encoding="utf-8")

    def get_profiler(self, tensor_supply_type: TensorSupplyType = TensorSupplyType.Auto) -> Any:
        """A profiler that makes inputs for this kernel."""
        from tilecore.compat.profiler import Profiler

        return Profiler(self, tensor_supply_type)

    def run_once(self, func: Any = None) -> None:
        """Run with generated inputs."""
        self.get_profiler().run_once(func)

    def __repr__(self) -> str:
        return f"<JITKernel {self.program.name} for {self.kernel.target}>"


def as_torch(value: Any) -> Any:
    """Results that NumPy allocated (a kernel without tensor inputs) as torch tensors."""
    if isinstance(value, tuple | list):
        return tuple(as_torch(item) for item in value)
    if type(value).__module__.split(".")[0] != "numpy":
        return value
    import torch

    from tilecore.compat.supply import torch_dtype
    from tilecore.ir.dtypes import dtype_of

    wanted = torch_dtype(dtype_of(value.dtype))
    is_numpys = value.dtype.type.__module__ == "numpy"  # narrow floats are ml_dtypes'
    raw = value if is_numpys else value.view(f"u{value.dtype.itemsize}")
    made = torch.from_numpy(raw)
    return made if made.dtype == wanted else made.view(wanted)


def fill_unused(program: Program, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` with a tensor in place of each None whose parameter the program never touches.

    Sizes are read off the tensors that are there; a size that none of them names is 1.
    """
    import torch

    from tilecore.compat.supply import torch_dtype
    from tilecore.ir.visit import buffers_in

    used = {buffer.name for kernel in program.kernels for buffer in buffers_in(kernel.body)}
    params = [p for k, p in enumerate(program.params) if k not in program.outputs]
    params = params if len(args) == len(params) else list(program.params)
    sizes: dict[str, int] = {}
    device: Any = "cpu"
    for param, value in zip(params, args, strict=False):
        if isinstance(param, Buffer) and isinstance(value, torch.Tensor):
            device = value.device
            pairs = zip(param.shape, value.shape, strict=False)
            sizes.update({e.name: int(n) for e, n in pairs if isinstance(e, Var)})
    values = tuple(sizes.get(symbol.name, 1) for symbol in program.symbols)
    filled: list[Any] = []
    for param, value in zip(params, args, strict=False):
        if value is None and isinstance(param, Buffer) and param.name not in used:
            shape = compile_sizes(param.shape, program.symbols)(values)
            value = torch.empty(shape, dtype=torch_dtype(param.dtype), device=device)
        filled.append(value)
    return (*filled, *args[len(filled) :])
