"""Programs get new imports and nothing else; what is not supported is named with its lines."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecore.migrate import examine, rewrite_imports

PROGRAM = '''\
"""A program."""
import tilelang
import tilelang.language as T, os
from tilelang.autotuner import *  # search
from tilelang import (
    tools as tvm,
    language as L,
)
from tvm import tirx, relax


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True,
                                          "tl.enable_dump_ir": True})
def add(n, dtype=T.float32):
    @T.prim_func
    def main(a: T.Tensor((n,), dtype), c: T.Tensor((n,), dtype)):
        with T.Kernel(1) as bx:
            for i in T.Parallel(n):
                c[i] = a[i] + 1
            T.tcgen05_gemm(a, c)
            T.ptx_mma(a)
            T.no_such_thing(a)
            T.tcgen05_gemm(c, a)
    return main
'''


def test_only_imports_change_and_lines_stay() -> None:
    lines, new = PROGRAM.splitlines(), rewrite_imports(PROGRAM).splitlines()
    assert len(lines) == len(new)
    assert [k for k, pair in enumerate(zip(lines, new, strict=True), 1) if pair[0] != pair[1]] == [
        2, 3, 4, 5, 9
    ]  # fmt: skip
    assert new[1:4] == [
        "import tilecore.compat as tilelang",
        "import tilecore.language as T; import os",
        "from tilecore.compat.autotuner import *  # search",
    ]
    assert new[4] == "from tilecore.compat import ("


def test_what_is_not_supported_is_named_with_lines_and_reason() -> None:
    refused = {one.construct: one for one in examine(PROGRAM) if not one.supported}
    assert set(refused) == {
        "from tilelang import tools", "from tvm import relax", "pass_configs tl.enable_dump_ir",
        "T.tcgen05_gemm", "T.ptx_mma", "T.no_such_thing",
    }  # fmt: skip
    assert refused["T.tcgen05_gemm"].lines == (20, 23)
    assert "one architecture" in str(refused["T.tcgen05_gemm"].reason)
    assert "TILECORE_DUMP" in str(refused["pass_configs tl.enable_dump_ir"].reason)
    assert "not known" in str(refused["T.no_such_thing"].reason)


def test_what_is_supported_is_listed() -> None:
    supported = {one.construct for one in examine(PROGRAM) if one.supported}
    assert {"T.Kernel", "T.Parallel", "T.prim_func", "T.float32", "tilelang.jit"} <= supported
    assert "pass_configs TL_ENABLE_FAST_MATH" in supported


modules = st.sampled_from(["tilelang", "tilelang.language", "tilelang.testing", "os", "tvm.ir"])
statements = st.one_of(
    modules.map(lambda name: f"import {name}"),
    st.tuples(modules, st.sampled_from("xyT")).map(lambda pair: f"import {pair[0]} as {pair[1]}"),
    st.tuples(modules, modules).map(lambda pair: f"import {pair[0]}, {pair[1]} as é"),
    modules.map(lambda name: f"from {name} import a, b as c"),
    modules.map(lambda name: f"from {name} import (\n    a,\n    b)"),
    st.sampled_from(["'é' ; x = 1", "def f():\n    import tilelang; import os", "y = 'tilelang'"]),
)


@given(st.lists(statements, min_size=1, max_size=6).map("\n".join))
def test_any_imports_are_rewritten_and_nothing_else(text: str) -> None:
    new = rewrite_imports(text)
    assert rewrite_imports(new) == new
    for node in ast.walk(ast.parse(new)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        else:
            continue
        assert all(name.split(".")[0] in ("tilecore", "os") for name in names)
    kept = [n for n in ast.parse(text).body if not isinstance(n, ast.Import | ast.ImportFrom)]
    new_kept = [n for n in ast.parse(new).body if not isinstance(n, ast.Import | ast.ImportFrom)]
    same = [ast.dump(n) for n in kept if not isinstance(n, ast.FunctionDef)]
    assert same == [ast.dump(n) for n in new_kept if not isinstance(n, ast.FunctionDef)]


@pytest.mark.parametrize(("text", "status"), [("import tilelang\n", 0), (PROGRAM, 1), ("(", 2)])
def test_command(tmp_path: Path, text: str, status: int) -> None:
    source, target = tmp_path / "program.py", tmp_path / "new.py"
    source.write_text(text)
    command = [sys.executable, "-m", "tilecore.migrate", str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    if status == 2:
        assert "program.py" in done.stderr
        return
    assert target.read_text() == rewrite_imports(text)
    assert ("T.ptx_mma: not supported: " in done.stdout) is (status == 1)
