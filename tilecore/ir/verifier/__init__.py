"""What is legal at each level: `verify(program)` raises with the user's line, or says nothing.

| file | rules about |
| --- | --- |
| `state.py` | names: unique, declared, in scope |
| `exprs.py` | expressions: dtypes, operations, ranks of loads |
| `regions.py` | regions, and which shapes must agree |
| `stmts.py` | statements of every level: loops, stores, atomics, declarations |
| `tiles.py` | tile statements: copy, fill, gemm, reduce, scan, parallel |
| `uniformity.py` | block-wide statements under conditions that differ between lanes |
| `private_arrays.py` | private arrays: only the iteration of a `Parallel` that wrote reads |
| `layouts.py` | layouts fit their buffers and are injective |
| `programs.py` | programs and kernels, and what each level asks for |
"""

from tilecore.ir.verifier.programs import verify

__all__ = ["verify"]
