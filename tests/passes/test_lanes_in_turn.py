"""Programs written per lane, cut into nests over the lanes."""

import pytest

import tilecore.language as T
from tilecore.errors import LanguageError
from tilecore.ir import stmts as S
from tilecore.ir.buffers import Scope
from tilecore.ir.lane_dependence import is_per_lane
from tilecore.ir.printer import format_program
from tilecore.ir.verifier import verify
from tilecore.ir.visit import walk_stmts
from tilecore.passes.per_lane.lane_branches import lane_branches
from tilecore.passes.per_lane.lanes_in_turn import lanes_in_turn
from tilecore.testing.ir_assert import assert_rewrites

HEAD = """
program p(x: float32[64], y: float32[64]) level tile {
  kernel p(bx in 2) threads 64 {
"""


def rewritten(body, after, rewrite=lanes_in_turn):
    assert_rewrites(rewrite, f"{HEAD}{body}\n}}\n}}", f"{HEAD}{after}\n}}\n}}")


def kernel_after(program):
    (kernel,) = lanes_in_turn(program.program).kernels
    assert not is_per_lane(kernel.body)
    return kernel


def nests(kernel):
    return [stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, S.Parallel)]


def test_a_barrier_ends_a_turn():
    rewritten(
        """
        shared s: float32[64]
        let t = block.thread()
        s[t] = x[t]
        sync_block()
        if t < 32 {
          y[t] = s[63 - t]
        }
        """,
        """
        shared s: float32[64]
        parallel (lane) in (64) {
          s[lane] = x[lane]
        }
        parallel (lane_1) in (64) {
          if lane_1 < 32 {
            y[lane_1] = s[63 - lane_1]
          }
        }
        """,
    )


def test_what_lives_across_a_cut_is_an_array_over_lanes():
    rewritten(
        """
        local own: float32[2]
        own[1] = x[block.thread()]
        sync_block()
        y[block.thread()] = own[1]
        """,
        """
        shared own_of_lane: float32[2, 64]
        parallel (lane) in (64) {
          own_of_lane[1, lane] = x[lane]
        }
        parallel (lane_1) in (64) {
          y[lane_1] = own_of_lane[1, lane_1]
        }
        """,
    )


def test_what_lives_in_one_turn_stays_a_variable():
    rewritten(
        """
        local own: float32[1]
        own[0] = x[block.thread()]
        y[block.thread()] = own[0]
        """,
        """
        parallel (lane) in (64) {
          local own: float32[]
          own[] = x[lane]
          y[lane] = own[]
        }
        """,
    )


def test_a_loop_around_a_barrier_stays_outside():
    @T.prim_func
    def program(x: T.Tensor((64,), "int32"), n: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=64):
            lane = T.get_thread_binding(0)
            s = T.alloc_shared((64,), "int32")
            rounds = T.alloc_var("int32", init=n[0])
            other = T.alloc_var("int32", init=n[0])
            for k in T.serial(rounds):
                s[lane] = x[lane] + k + other
                T.sync_threads()
                x[lane] = s[63 - lane]
                T.sync_threads()

    kernel = kernel_after(program)
    (loop,) = [stmt for stmt in kernel.body if isinstance(stmt, S.For)]
    assert len(nests(kernel)) == 3 and all(len(nest.vars) == 1 for nest in nests(kernel))
    scopes = {s.buffer.name: s.buffer.scope for s in walk_stmts(kernel.body)
              if isinstance(s, S.Allocate)}  # fmt: skip
    # What decides about the loop is kept once, what only lanes use is theirs.
    assert scopes["rounds"] is Scope.LOCAL and scopes["other_of_lane"] is Scope.SHARED
    assert loop.var.name == "k"


def test_programs_without_lanes_stay():
    @T.prim_func
    def program(x: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                x[i] = i

    assert lanes_in_turn(program.program) is program.program


@pytest.mark.parametrize("which", range(3))
def test_a_barrier_some_lanes_do_not_reach_is_an_error(which):
    @T.prim_func
    def program(x: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            lane = T.get_thread_binding(0)
            if which == 0:
                if lane < 32:
                    T.sync_threads()
            elif which == 1:
                for _ in T.serial(lane):
                    T.sync_threads()
            else:
                for _ in T.serial(4):
                    if x[lane] > 0:
                        break
                    T.sync_threads()

    with pytest.raises(LanguageError, match=r":\d+: T.sync_threads under a condition that differs"):
        verify(program.program)


def test_a_tile_statement_that_depends_on_the_lane_is_an_error():
    @T.prim_func
    def program(x: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            lane = T.get_thread_binding(0)
            for i in T.Parallel(64):
                x[i] = lane

    with pytest.raises(LanguageError, match="depends on .*differs between lanes"):
        lanes_in_turn(program.program)


def test_lanes_left_out_help_with_statements_of_the_block():
    rewritten(
        """
        shared s: float32[64]
        let t = block.thread()
        if t < 32 and bx < 1 {
          copy x[0:+64] -> s[0:+64]
          y[t] = 1.0
        } else {
          fill s[0:+64] = 2.0
        }
        """,
        """
        shared s: float32[64]
        let t = block.thread()
        let under: bool = t < 32 and bx < 1
        if bx < 1 {
          copy x[0:+64] -> s[0:+64]
          if under {
            y[t] = 1.0
          }
        }
        let other: bool = not (t < 32 and bx < 1)
        fill s[0:+64] = 2.0
        """,
        lane_branches,
    )


@pytest.mark.parametrize(("low", "runs"), [(0, True), (63, True), (64, False)])
def test_nobody_helps_where_nobody_stands(low, runs):
    @T.prim_func
    def program(x: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            if T.get_thread_binding(0) >= low:
                T.fill(x, 1)

    text = format_program(lane_branches(program.program))
    assert ("fill" in text) == runs
