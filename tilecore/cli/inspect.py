"""``tilecore inspect``: a program of a file, at any stage of its compilation."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from tilecore.compiler import Lowered, lower
from tilecore.driver import compile
from tilecore.hooks.manager import hooks_of
from tilecore.hooks.records import KernelResources
from tilecore.ir.program import Program


def load_program(place: str, settings: Sequence[str]) -> Program:
    """The program that ``FILE:NAME`` names.

    NAME is a prim_func, a function that returns one (called with `settings`, each
    ``"NAME=VALUE"``), or a jit function of the factory style.

    Raises:
        click.UsageError: no such file or name, or nothing that makes a program.
    """
    path, _, name = place.rpartition(":")
    if not path or not Path(path).is_file():
        raise click.UsageError(f"{place!r}: expected FILE:NAME with an existing file")
    module = _import(Path(path))
    if not hasattr(module, name):
        found = ", ".join(sorted(key for key, value in vars(module).items() if _is_program(value)))
        raise click.UsageError(f"{path} has no {name!r}; it has {found or 'no programs'}")
    made = getattr(module, name)
    if not _is_program(made):
        made = _call_factory(made, name, dict(_setting(text) for text in settings))
    elif settings:
        raise click.UsageError(f"{name} is a program and takes no --set")
    program = getattr(made, "program", made)
    if not isinstance(program, Program):
        raise click.UsageError(f"{name} is no tile program and returns none, but {program!r}")
    return program


def stage_texts(
    program: Program, stage: str, backend: str | None, arch: str | None, device: str
) -> Iterator[str]:
    """Text of one stage, or of all of them with headings.

    Raises:
        TilecoreError: the program cannot be compiled for the target, or has no such stage.
    """
    if stage == "resources":
        kernel = compile(program, backend, arch=arch, device=device)
        yield from _resource_lines(kernel.resources)
        return
    lowered = lower(program, backend, arch=arch, device=device)
    if stage == "model":
        yield from _model_lines(lowered)
        return
    if stage != "all":
        yield lowered.source.text if stage == "source" else lowered.ir(stage)
        return
    for name, text in _all_stages(lowered):
        yield f"==== {name} ({lowered.target}) ===="
        yield text


def _all_stages(lowered: Lowered) -> Iterator[tuple[str, str]]:
    for name, _ in lowered.stages:
        yield name, lowered.ir(name)
    yield f"source, {lowered.source.language}", lowered.source.text


def _model_lines(lowered: Lowered) -> Iterator[str]:
    """The backend's prediction, from the last stage that it gave."""
    target, (_, program) = lowered.target, lowered.stages[-1]
    hooks = hooks_of(target.backend)
    found = hooks.call("tilecore_model", program=program, target=target, options=lowered.options)
    if found is None:
        yield f"backend {target.backend} has no performance model"
        return
    yield from found.lines()


def _resource_lines(resources: Sequence[KernelResources]) -> Iterator[str]:
    if not resources:
        yield "this backend does not report resources"
    for used in resources:
        yield f"{used.name}:"
        for label, value in (
            ("threads", used.threads),
            ("registers", used.registers),
            ("shared memory", used.smem_bytes),
            ("stack", used.stack_bytes),
            ("spills", used.spill_bytes),
        ):
            unit = "" if label in ("threads", "registers") else " bytes"
            yield f"  {label}: {'not stated' if value is None else f'{value}{unit}'}"
        for note in used.notes:
            yield f"  note: {note}"


def _is_program(value: Any) -> bool:
    return isinstance(getattr(value, "program", value), Program)


def _import(path: Path) -> ModuleType:
    """The file as a module, with its own folder importable as for a script."""
    spec = importlib.util.spec_from_file_location(f"tilecore_inspected_{path.stem}", path)
    assert spec is not None, "a file path always has a spec"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise click.UsageError(f"--set {text!r}: expected NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value  # a bare word is a string: --set dtype=float16


def _call_factory(factory: Any, name: str, settings: dict[str, Any]) -> Any:
    # A jit function would compile at once; its plain function only makes the program.
    function = getattr(factory, "function", factory)
    if not callable(function):
        raise click.UsageError(f"{name} is neither a tile program nor a function that makes one")
    try:
        inspect.signature(function).bind(**settings)
    except TypeError as error:
        raise click.UsageError(f"{name}: {error} (give arguments by --set NAME=VALUE)") from error
    return function(**settings)
