"""A compiled kernel with the methods that programs call on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilecore.compat.supply import KernelParam, TensorSupplyType, kernel_params
from tilecore.errors import UnsupportedError
from tilecore.ir.program import Program
from tilecore.kernel import CompiledKernel


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
        """Launch; returns what `CompiledKernel` returns, as torch tensors."""
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
