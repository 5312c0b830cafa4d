"""Launch each measured kernel of `gpu.py` once, for the profiler's counters of bank conflicts.

    ncu --clock-control none --metrics $(python benchmarks/bank_conflicts.py --metrics) \
        python benchmarks/bank_conflicts.py --backend cuda_ampere
"""

from __future__ import annotations

import argparse

METRICS = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal.sum",
    "smsp__inst_executed_op_local.sum",
)


def launch(backend: str, arch: str | None) -> None:
    """Compile and launch every kernel with random inputs."""
    import torch

    import tilecore
    from tilecore.targets import choose_target
    from tilecore_kernels.attention_problem import AttentionConfig, AttentionProblem
    from tilecore_kernels.flash_attention import FLASH_ATTENTION
    from tilecore_kernels.gemm import GEMM, GemmProblem
    from tilecore_kernels.gemm_configs import GemmConfig
    from tilecore_kernels.rms_norm import RMS_NORM, NormProblem
    from tilecore_kernels.softmax import SOFTMAX, SoftmaxProblem

    target = choose_target(backend, arch)

    def run(family, problem, config, *shapes):
        kernel = tilecore.compile(family.program(problem, config), backend=backend, arch=arch)
        tensors = [torch.randn(shape, device="cuda", dtype=torch.float16) for shape in shapes]
        kernel(*tensors)
        torch.cuda.synchronize()
        print("LAUNCHED", family.name, problem, config, kernel.resources[0], flush=True)

    size = (2048, 2048)
    for config in (GemmConfig(128, 256, 64, 3, 256, 8), GemmConfig(128, 128, 32, 4, 128, 8)):
        run(GEMM, GemmProblem(2048, 2048, 2048, "float16"), config, size, size, size)
    heads = (1, 8, 2048, 128)
    for right in (None, 0):
        for config in (AttentionConfig(128, 64, 2, 128), AttentionConfig(128, 128, 2, 256)):
            problem = AttentionProblem(1, 8, 2048, 128, "float16", right=right)
            run(FLASH_ATTENTION, problem, config, heads, heads, heads, heads)
    rows = (4096, 4096)
    softmax, norm = SoftmaxProblem(*rows, "float16"), NormProblem(*rows, "float16")
    run(SOFTMAX, softmax, SOFTMAX.configs(softmax, target)[0], rows, rows)
    run(RMS_NORM, norm, RMS_NORM.configs(norm, target)[0], rows, 4096, rows)


def main() -> None:
    """Print the metrics, or launch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--metrics", action="store_true", help="print what the profiler reads")
    parser.add_argument("--backend", default="cuda_ampere")
    parser.add_argument("--arch")
    options = parser.parse_args()
    if options.metrics:
        print(",".join(METRICS))
    else:
        launch(options.backend, options.arch)


if __name__ == "__main__":
    main()
