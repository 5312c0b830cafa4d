"""What `compile` returns: a callable kernel that can be looked into."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any, Self

from tilecore.compiler import Lowered
from tilecore.errors import LaunchError
from tilecore.forking import FreshLock
from tilecore.hooks.manager import hooks_of
from tilecore.hooks.records import Artifact, CompileOptions, KernelResources, Launcher
from tilecore.ir.program import Program
from tilecore.runtime.caller import KernelCaller
from tilecore.target import Target


class CompiledKernel(functools.partial[Any]):
    """A compiled program. Call it with tensors and scalars, in the order of its parameters.

    Tensors may be torch's, NumPy's, or anything with DLPack; work is enqueued on the current
    stream of their device. Parameters that are outputs may be left out: they are then allocated
    and returned. The binary is loaded by the first call.

    Args:
        lowered: the program down to its source.
        artifact: the binary.
        load: makes the launcher.

    Calls launch, and return None, the output, or a tuple of outputs. They raise `ArgumentError`
    when arguments do not fit the parameters, `LaunchError` when the kernel cannot be launched here.
    """

    # A partial application of nothing: Python calls it from C, without a method in between, which
    # would cost a quarter of a microsecond, and what it calls can be replaced (`_enter_at`).
    def __new__(
        cls, lowered: Lowered, artifact: Artifact | None, load: Callable[[], Launcher]
    ) -> Self:
        """See the class."""
        return super().__new__(cls, repr)  # replaced at once, by __init__

    def __init__(
        self, lowered: Lowered, artifact: Artifact | None, load: Callable[[], Launcher]
    ) -> None:
        self._lowered = lowered
        self.artifact = artifact
        self._load = load
        self._guard = FreshLock()
        self._caller: KernelCaller | None = None
        self._enter_at(self._first_call)

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        """A class's attribute is the kernel; newer versions of Python bind partials as methods."""
        return self

    def __copy__(self) -> Self:
        """A copy is another kernel of the same binary, with a launcher of its own."""
        return type(self)(self._lowered, self.artifact, self._load)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its program, which is compiled where it is unpickled, or found in a cache."""
        return _compiled_again, (self.program, self.target, self._lowered.options)

    @property
    def program(self) -> Program:
        """The program as the author wrote it."""
        return self._lowered.program

    @property
    def target(self) -> Target:
        """What it was compiled for."""
        return self._lowered.target

    @property
    def source(self) -> str:
        """The generated source text."""
        return self._lowered.source.text

    @property
    def resources(self) -> tuple[KernelResources, ...]:
        """Registers, shared memory, spills and remarks, one entry per kernel."""
        return self.artifact.resources if self.artifact is not None else ()

    def ir(self, stage: str = "scheduled") -> str:
        """The IR text after a stage: ``tile``, ``canonical``, ``scheduled``, ``lane``."""
        return self._lowered.ir(stage)

    @property
    def caller(self) -> KernelCaller:
        """The loaded kernel with its argument checks."""
        if self._caller is None:
            with self._guard:
                if self._caller is None:
                    caller = KernelCaller(self.program, self._load())
                    caller.on_entry = self._enter_at
                    self._caller = caller
        return self._caller

    def _first_call(self, *args: Any, **named: Any) -> Any:
        """Load, and launch."""
        return self.caller(*args, **named)

    def _enter_at(self, entry: Callable[..., Any]) -> None:
        """Call `entry` when the kernel is called."""
        # What `copy` and `pickle` restore a partial by: (function, arguments, named, attributes).
        self.__setstate__((entry, (), {}, self.__dict__))  # type: ignore[reportAttributeAccessIssue]

    def profile(self, *args: Any, warmup: int = 3, repeat: int = 20) -> float:
        """Median time of one call in seconds, over `repeat` calls after `warmup` calls.

        Host wall-clock around a synchronised call: for exact device times of short kernels use
        the device's own events.
        """
        hooks = hooks_of(self.target.backend)

        def once() -> float:
            start = time.perf_counter()
            self(*args)
            hooks.call("tilecore_synchronize", target=self.target)
            return time.perf_counter() - start

        for _ in range(warmup):
            once()
        return statistics.median(once() for _ in range(max(1, repeat)))

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.program.name} for {self.target}>"


def _compiled_again(program: Program, target: Target, options: CompileOptions) -> CompiledKernel:
    from tilecore.driver import compile

    if target.backend == "reference":
        return compile(program, device="reference", options=options)
    return compile(program, target.backend, arch=target.arch, device=target.device, options=options)


def missing_device(target: Target) -> Callable[[], Launcher]:
    """A loader for kernels that were compiled where no device of the target is."""

    def load() -> Launcher:
        why = hooks_of(target.backend).call("tilecore_explain_absence", target=target)
        raise LaunchError(
            f"no device for {target} is present here{f': {why}' if why else ''}",
            hint='compile with device="emulator" to run it on the CPU',
        )

    return load
