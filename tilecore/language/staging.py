"""Compiling the rewritten function back into a Python function, with the author's own names."""

from __future__ import annotations
import __future__

import ast
from types import CellType, CodeType, FunctionType

from tilecore.language import runtime, scopes
from tilecore.language.rewriter import RT, Body, Rewriter, load, store
from tilecore.language.source import function_tree

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


def rewrite(function: FunctionType) -> FunctionType:
    """The staged form of `function`: same parameters, globals and closure.

    The code is made once per source; a factory that is called again only binds it anew.

    Raises:
        LanguageError: the source is not available, or holds a construct without meaning here.
    """
    key = (function.__code__.co_filename, function.__code__)
    code = _codes.get(key)
    if code is None:
        code = _codes[key] = _staged_code(function)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[RT] = CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    staged = FunctionType(code, function.__globals__, function.__name__, None, closure)
    staged.__defaults__ = function.__defaults__
    staged.__kwdefaults__ = function.__kwdefaults__
    staged.__qualname__ = function.__qualname__
    return staged


_codes: dict[tuple[str, CodeType], CodeType] = {}


def _staged_code(function: FunctionType) -> CodeType:
    tree = function_tree(function)
    filename = function.__code__.co_filename
    free = function.__code__.co_freevars
    parameters = set(scopes.parameters(tree))
    rewriter = Rewriter(filename, tree, free)
    unbound = sorted((rewriter.watched | scopes.declared(tree.body)) - parameters)
    start: Body = [
        ast.Assign([store(name)], ast.Attribute(load(RT), "UNBOUND", ast.Load()))
        for name in unbound
    ]
    tree.body = [rewriter.at(node, tree) for node in start] + rewriter.block(tree.body)
    tree.decorator_list = []
    tree.returns = None
    _strip(tree.args)
    return _compile(function, tree, filename)


def _strip(args: ast.arguments) -> None:
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    every += [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    for arg in every:
        arg.annotation = None
    args.defaults = []
    args.kw_defaults = [None] * len(args.kwonlyargs)


def _compile(function: FunctionType, tree: ast.FunctionDef, filename: str) -> CodeType:
    """Compile inside a function that binds the free names, so that they stay free names.

    There it has another name: its own one is looked up where the author's function finds it.
    """
    free = [*function.__code__.co_freevars, RT]
    name, tree.name = tree.name, "_tilecore_staged_"
    binder = ast.FunctionDef(
        name="_tilecore_binder_",
        args=ast.arguments(
            posonlyargs=[],
            args=[ast.arg(name) for name in free],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        ),
        body=[tree],
        decorator_list=[],
    )
    if hasattr(binder, "type_params"):
        binder.type_params = []  # type: ignore[attr-defined]
    module = ast.fix_missing_locations(ast.Module([binder], []))
    flags = function.__code__.co_flags & _FUTURE
    compiled = compile(module, filename, "exec", flags=flags, dont_inherit=True)
    staged = _inner(_inner(compiled, "_tilecore_binder_"), tree.name)
    return staged.replace(co_name=name, co_qualname=function.__qualname__)


def _inner(code: CodeType, name: str) -> CodeType:
    return next(
        item for item in code.co_consts if isinstance(item, CodeType) and item.co_name == name
    )
