"""Discovery, chains and checked answers: a wrong plugin is named, never obeyed."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tilecore.errors import BackendError
from tilecore.hooks import manager
from tilecore.hooks.records import LayoutRequest, MatrixStore, PipelinePlan, PipelineRequest
from tilecore.hooks.specs import hookimpl
from tilecore.ir.buffers import Buffer, Scope
from tilecore.ir.dtypes import float32
from tilecore.ir.expr import Var, const
from tilecore.ir.layout import REGISTER, THREAD, FragmentLayout, FragmentMode, Layout
from tilecore.ir.program import Kernel
from tilecore.ir.stmts import Break, For, LoopKind, PipelineSpec
from tilecore.target import Target
from tilecore.targets import choose_target

TARGET = Target("under_test", "one")
TILE = Buffer("tile", (const(4), const(8)), float32, Scope.SHARED)
KERNEL = Kernel("k", (Var("bx"),), (const(1),), 1, ())
LOOP = For(Var("i"), const(0), const(4), const(1), (Break(), Break()), LoopKind.PIPELINED,
           PipelineSpec(2))  # fmt: skip


def plugin(**members: object) -> types.SimpleNamespace:
    """A plugin with these hook implementations, and targets unless given."""

    def describe() -> list[Target]:
        return [TARGET]

    members.setdefault("tilecore_describe_targets", describe)
    return types.SimpleNamespace(
        **{
            name: hookimpl(value) if name.startswith("tilecore_") and callable(value) else value
            for name, value in members.items()
        }
    )


@pytest.fixture
def hooks_for() -> Iterator[object]:
    def make(made: object) -> manager.Hooks:
        manager.register_backend("under_test", made)
        return manager.hooks_of("under_test")

    yield make
    manager.unregister_backend("under_test")
    manager.unregister_backend("base_under_test")


def ask_layout(hooks: manager.Hooks) -> Layout:
    return hooks.call(
        "tilecore_choose_layout", request=LayoutRequest(TILE, (), KERNEL), target=TARGET
    )


def test_unknown_backend_lists_the_installed_ones() -> None:
    with pytest.raises(BackendError, match=r"no backend named 'nothing'.*expected one of"):
        manager.hooks_of("nothing")


def test_core_default_answers_when_the_backend_passes(hooks_for) -> None:
    hooks = hooks_for(plugin(tilecore_choose_layout=lambda: None))
    assert ask_layout(hooks) == Layout.row_major((4, 8))


def test_backend_answers_before_its_base_and_before_core(hooks_for) -> None:
    column = Layout.strided((4, 8), (1, 4))
    wide = Layout.strided((4, 8), (16, 1))
    manager.register_backend("base_under_test", plugin(tilecore_choose_layout=lambda: column))
    hooks = hooks_for(plugin(TILECORE_BASE_BACKENDS=("base_under_test",)))
    assert hooks.chain == ("base_under_test", "under_test")
    assert ask_layout(hooks) == column
    hooks = hooks_for(
        plugin(TILECORE_BASE_BACKENDS=("base_under_test",), tilecore_choose_layout=lambda: wide)
    )
    assert ask_layout(hooks) == wide
    assert hooks.implementers("tilecore_choose_layout")[0] == "under_test"


def test_misspelt_hook_is_named(hooks_for) -> None:
    with pytest.raises(BackendError, match="under_test.*tilecore_chose_layout"):
        hooks_for(plugin(tilecore_chose_layout=lambda: None))


def test_unknown_hook_argument_is_refused(hooks_for) -> None:
    def choose(request: object, colour: object) -> None:
        return None

    with pytest.raises(BackendError, match="colour"):
        hooks_for(plugin(tilecore_choose_layout=choose))


def test_other_hook_interface_is_refused(hooks_for) -> None:
    with pytest.raises(BackendError, match="another hook interface; expected 1, got 99"):
        hooks_for(plugin(TILECORE_HOOK_API=99))


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout.strided((4, 8), (0, 1)), "two elements to one place"),
        (Layout.row_major((4, 4)), "does not cover"),
        (Layout.row_major((32,)), "does not cover"),
        ("row major", "wrong answer"),
    ],
)
def test_illegal_layout_blames_the_backend(hooks_for, layout, reason) -> None:
    hooks = hooks_for(plugin(tilecore_choose_layout=lambda: layout))
    with pytest.raises(BackendError, match=f"under_test.*{reason}"):
        ask_layout(hooks)


@pytest.mark.parametrize(
    "plan",
    [
        PipelinePlan(0, (0, 0), (0, 1)),
        PipelinePlan(2, (0,), (0, 1)),
        PipelinePlan(2, (0, 0), (1, 1)),
    ],
)
def test_illegal_plan_blames_the_backend(hooks_for, plan) -> None:
    hooks = hooks_for(plugin(tilecore_plan_pipeline=lambda: plan))
    with pytest.raises(BackendError, match=r"under_test.*pipeline plan"):
        hooks.call(
            "tilecore_plan_pipeline", request=PipelineRequest(LOOP, KERNEL, 0), target=TARGET
        )


ROWS = (FragmentMode(8, THREAD, 4),)
COLUMNS = (FragmentMode(2, REGISTER, 1), FragmentMode(4, THREAD, 1))


@pytest.mark.parametrize("answer", ["matrix_store", ("matrix_store",)])
def test_illegal_matrix_stores_blame_the_backend(hooks_for, answer) -> None:
    hooks = hooks_for(plugin(tilecore_matrix_stores=lambda: answer))
    with pytest.raises(BackendError, match="under_test.*wrong answer"):
        hooks.call("tilecore_matrix_stores", target=TARGET)


@pytest.mark.parametrize(
    ("axes", "counts"), [((ROWS, COLUMNS), (4, 2)), ((ROWS, COLUMNS[1:]), ()), ((ROWS,), (1,)),
                         ((ROWS, ROWS), (1,))]
)  # fmt: skip
def test_a_matrix_store_checks_itself(axes, counts) -> None:
    with pytest.raises(BackendError, match="a bijective layout"):
        MatrixStore("under_test.store", 16, FragmentLayout(axes), counts)


def test_matrix_stores_are_optional(hooks_for) -> None:
    assert hooks_for(plugin()).call("tilecore_matrix_stores", target=TARGET) is None
    store = MatrixStore("under_test.store", 16, FragmentLayout((ROWS, COLUMNS)), (4, 2, 1))
    hooks = hooks_for(plugin(tilecore_matrix_stores=lambda: (store,)))
    assert hooks.call("tilecore_matrix_stores", target=TARGET) == (store,)


def test_missing_answer_names_hook_and_backend(hooks_for) -> None:
    hooks = hooks_for(plugin())
    with pytest.raises(BackendError, match="'under_test' answers tilecore_compile"):
        hooks.call("tilecore_compile", source=None, target=TARGET, options=None)


def test_backend_without_targets_is_refused(hooks_for) -> None:
    def describe() -> tuple[Target, ...]:
        return ()

    hooks_for(plugin(tilecore_describe_targets=describe))
    with pytest.raises(BackendError, match="describes no targets"):
        choose_target("under_test")


def test_choose_target(hooks_for) -> None:
    hooks_for(plugin())
    assert choose_target("under_test") == TARGET
    assert choose_target("under_test", device="emulator").device == "emulator"
    with pytest.raises(BackendError, match="no such architecture; expected one of one, got two"):
        choose_target("under_test", "two")
    with pytest.raises(BackendError, match="unknown device"):
        choose_target("under_test", device="abacus")


def test_targets_of_a_base_are_asked_through_the_backend_above_it(hooks_for) -> None:
    manager.register_backend("base_under_test", plugin(tilecore_describe_targets=lambda: [TARGET]))
    above = plugin(TILECORE_BASE_BACKENDS=("base_under_test",))
    del above.tilecore_describe_targets
    hooks_for(above)
    for name in ("under_test", "base_under_test"):
        assert choose_target(name) == choose_target(name, "one") == replace(TARGET, backend=name)
    chain = manager.hooks_of(choose_target("under_test").backend).chain
    assert chain == ("base_under_test", "under_test")


def test_broken_import_is_reported_with_its_reason(monkeypatch) -> None:
    class Point:
        name, value = "broken", "broken.plugin"

        def load(self) -> object:
            raise ImportError("no module named llvm")

    monkeypatch.setattr(
        manager.importlib.metadata, "entry_points", lambda group, name=None: [Point()]
    )
    with pytest.raises(BackendError, match=r"does not import: ImportError: no module named llvm"):
        manager.hooks_of("broken")
