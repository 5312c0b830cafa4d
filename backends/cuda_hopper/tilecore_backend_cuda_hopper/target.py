"""The architecture that this backend compiles for."""

from __future__ import annotations

from dataclasses import replace

from tilecore.target import Target
from tilecore_backend_cuda_ampere.target import make_target

BACKEND = "cuda_hopper"
ARCH = "sm_90a"  # the suffix admits WGMMA and setmaxnreg, and binds the code to 9.0 devices

MULTIPROCESSORS = 132
"""Of the SXM modules (NVIDIA H100 Tensor Core GPU Architecture, table of the H100 SXM5); one block
that fills shared memory runs on each. It ranks tiles and decides nothing else: launches ask the
device."""

CLUSTER_BLOCKS = 16
"""With the opt-in of sizes that are not portable, 8 without (CUDA C++ Programming Guide, "Thread
Block Clusters", compute capability 9.0)."""

_ADDED = frozenset(
    {
        "wgmma", "bulk_copy", "transaction_barrier", "warp_specialization", "cluster",
        "overlapped_launches",  # griddepcontrol
        "window_copies",  # im2col mode of the copy engine
        "max_of_three",  # VIMNMX3, of the DPX instructions
    }
)  # fmt: skip


def describe_targets() -> tuple[Target, ...]:
    """One target: compute capability 9.0 with its own instructions, and all of Ampere's."""
    base = make_target("sm_90", BACKEND)
    return (
        replace(
            base,
            arch=ARCH,
            capabilities=base.capabilities | _ADDED,
            parallel_blocks=MULTIPROCESSORS,
            cluster_blocks=CLUSTER_BLOCKS,
        ),
    )
