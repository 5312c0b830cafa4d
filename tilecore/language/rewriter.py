"""The author's function rewritten so that running it builds the program.

Every statement keeps its line. Control flow becomes calls to `language.control`, assignments to
names go through `language.bindings`; all else stays as the author wrote it, and runs as Python::

    for k in T.serial(n):            loop = rt.Loop(T.serial(n), ("acc",), ("k",))
        acc = acc + A[k]     ->      for k in loop:
                                         (acc,) = loop.enter(acc)
                                         acc = rt.assign(rt.hint("acc"), "acc", ..., acc)
                                     acc, k = loop.leave(acc, k)
"""

from __future__ import annotations

import ast
from typing import Any, NoReturn, TypeVar

from tilecore.errors import Loc
from tilecore.language import scopes
from tilecore.language.locate import misuse
from tilecore.language.syntax import OPERATOR_NAMES, REFUSED

RT = "_tilecore_rt_"  # the name under which rewritten code sees `language.runtime`
_N = TypeVar("_N", bound=ast.AST)
Body = list[ast.stmt]


def load(name: str) -> ast.expr:
    """A read of a name."""
    return ast.Name(name, ast.Load())


def store(name: str) -> ast.expr:
    """A binding of a name."""
    return ast.Name(name, ast.Store())


def _call(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(load(RT), function, ast.Load()), list(args), [])


def _method(owner: str, method: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(load(owner), method, ast.Load()), list(args), [])


def _thunk(body: ast.expr) -> ast.Lambda:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, body)


def _strings(names: list[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


class Rewriter(ast.NodeTransformer):
    """Rewrites the body of one function; nested functions stay as they are."""

    def __init__(self, filename: str, function: ast.FunctionDef, free: tuple[str, ...]) -> None:
        self.filename = filename
        self.watched = scopes.watched(function)
        self.reads = self.watched | set(free)
        self.shadowed: list[set[str]] = []
        self.temporaries = 0
        self.place: ast.AST = function

    # --- helpers -------------------------------------------------------------------------------

    def at(self, node: _N, origin: ast.AST) -> _N:
        """Give `node` and what is new below it the place of `origin`."""
        if isinstance(node, ast.expr | ast.stmt):
            if hasattr(node, "lineno"):  # then so has all that is below
                return node
            ast.copy_location(node, origin)
            node.end_lineno = node.lineno  # a call's line is its end: keep the first line
            node.end_col_offset = node.col_offset
        for child in ast.iter_child_nodes(node):
            self.at(child, origin)
        return node

    def _temporary(self, what: str) -> str:
        self.temporaries += 1
        return f"{RT}{what}_{self.temporaries}"

    def _fail(self, reason: str, node: ast.AST, hint: str | None = None) -> NoReturn:
        line = getattr(node, "lineno", getattr(self.place, "lineno", 0))
        raise misuse(reason, loc=Loc(self.filename, line), hint=hint)

    def block(self, body: Body) -> Body:
        """The rewritten statements of a block."""
        result: Body = []
        for statement in body:
            self.place = statement
            new = self.visit(statement)
            result.extend(new if isinstance(new, list) else [new])
        return result or [ast.Pass()]

    def visit(self, node: ast.AST) -> Any:
        """Refuse what the language has no meaning for, and rewrite the rest."""
        word = REFUSED.get(type(node))
        if word is not None:
            self._fail(
                f"`{word}` cannot be used in a tile program",
                node,
                hint="plain Python around the program may use it: a factory, or a helper's result",
            )
        return super().visit(node)

    def _exchange(self, names: list[str], call: ast.Call, origin: ast.stmt) -> Body:
        """``(a, b) = call(a, b)``, nothing when there are no names."""
        if not names:
            return []
        call.args = [load(name) for name in names]
        target = ast.Tuple([store(name) for name in names], ast.Store())
        return [self.at(ast.Assign([target], call), origin)]

    # --- names ---------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A read of a watched name is checked."""
        if not isinstance(node.ctx, ast.Load) or node.id not in self.reads:
            return node
        if any(node.id in names for names in self.shadowed):
            return node
        return self.at(_call("use", ast.Constant(node.id), node), node)

    def _scoped(self, node: Any, names: set[str]) -> ast.expr:
        self.shadowed.append(names)
        try:
            return self.generic_visit(node)  # type: ignore[return-value]
        finally:
            self.shadowed.pop()

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        """Parameters of a lambda shadow the function's names."""
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        every += [arg for arg in (args.vararg, args.kwarg) if arg is not None]
        return self._scoped(node, {arg.arg for arg in every})

    def _comprehension(self, node: Any) -> ast.expr:
        names = {name for part in node.generators for name in scopes.target_names(part.target)}
        return self._scoped(node, names)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """A nested function is the author's own Python (T.macro rewrites it by itself)."""
        return node

    # --- assignments ---------------------------------------------------------------------------

    def _assign_name(self, name: str, value: ast.expr, origin: ast.stmt) -> ast.stmt:
        args = [_call("hint", ast.Constant(name)), ast.Constant(name), value]
        if name in self.watched:
            args.append(load(name))
        return self.at(ast.Assign([store(name)], _call("assign", *args)), origin)

    def _assign(self, target: ast.expr, value: ast.expr, origin: ast.stmt) -> Body:
        if isinstance(target, ast.Name):
            return [self._assign_name(target.id, value, origin)]
        if isinstance(target, ast.Tuple | ast.List):
            return self._assign_tuple(target, value, origin)
        if isinstance(target, ast.Subscript):
            key = self._key(target.slice)
            call = _call("setitem", self.visit(target.value), key, value)
            return [self.at(ast.Expr(call), origin)]
        return [self.at(ast.Assign([self.visit(target)], value), origin)]

    def _assign_tuple(
        self, target: ast.Tuple | ast.List, value: ast.expr, origin: ast.stmt
    ) -> Body:
        names = [ast.Constant(e.id) for e in target.elts if isinstance(e, ast.Name)]
        parts: list[ast.expr] = []
        rest: list[tuple[ast.expr, str]] = []
        for element in target.elts:
            temporary = self._temporary("part")
            starred = isinstance(element, ast.Starred)
            inner = element.value if isinstance(element, ast.Starred) else element
            rest.append((inner, temporary))
            slot = store(temporary)
            parts.append(ast.Starred(slot, ast.Store()) if starred else slot)
        whole = _call("settle_many", _call("hint", *names), value)
        result: Body = [ast.Assign([ast.Tuple(parts, ast.Store())], whole)]
        for inner, temporary in rest:
            result.extend(self._assign(inner, load(temporary), origin))
        return [self.at(statement, origin) for statement in result]

    def _key(self, node: ast.expr) -> ast.expr:
        """What stands in brackets, as an ordinary expression."""
        if isinstance(node, ast.Slice):
            none = ast.Constant(None)
            bounds = [node.lower, node.upper, node.step]
            args = [none if bound is None else self.visit(bound) for bound in bounds]
            return self.at(_call("slice", *args), node)
        if isinstance(node, ast.Tuple):
            return ast.copy_location(
                ast.Tuple([self._key(element) for element in node.elts], ast.Load()), node
            )
        return self.visit(node)

    def visit_Assign(self, node: ast.Assign) -> Body:
        """``x = e``, ``a, b = e``, ``A[i] = e``, ``x = y = e``."""
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self._assign(node.targets[0], value, node)
        temporary = self._temporary("value")
        first = ast.Assign([store(temporary)], _call("settle_many", ast.Constant(None), value))
        result: Body = [self.at(first, node)]
        for target in node.targets:
            result.extend(self._assign(target, self.at(load(temporary), node), node))
        return result

    def visit_AugAssign(self, node: ast.AugAssign) -> Body | ast.stmt:
        """``x += e`` and ``A[i] += e`` are assignments; on an attribute it is Python's own."""
        value = self.visit(node.value)
        operation = "i" + OPERATOR_NAMES[type(node.op)]
        if isinstance(node.target, ast.Subscript):
            key = self._key(node.target.slice)
            args = [ast.Constant(operation), self.visit(node.target.value), key, value]
            return self.at(ast.Expr(_call("inplace_item", *args)), node)
        if not isinstance(node.target, ast.Name):
            node.target = self.visit(node.target)
            node.value = value
            return node
        old = self.visit(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        updated = _call("inplace", ast.Constant(operation), old, value)
        return [self._assign_name(node.target.id, updated, node)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Body | ast.stmt:
        """``A: T.Tensor[...]`` declares a parameter; with a value it converts to the dtype."""
        annotation = node.annotation
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            parsed = ast.parse(annotation.value, mode="eval").body
            annotation = ast.fix_missing_locations(ast.copy_location(parsed, node))
        annotation = self.visit(annotation)
        if not isinstance(node.target, ast.Name):
            self._fail(
                "only a plain name can be annotated",
                node,
                hint="convert the value instead: T.int32(...)",
            )
        name = node.target.id
        if node.value is None:
            call = _call("declare", ast.Constant(name), annotation, load(name))
            return [self.at(ast.Assign([store(name)], call), node)]
        value = _call("annotated", annotation, self.visit(node.value))
        return [self._assign_name(name, value, node)]

    # --- control flow --------------------------------------------------------------------------

    def _assigned(self, *bodies: Body) -> list[str]:
        return sorted({name for body in bodies for name in scopes.stores(body)})

    def visit_For(self, node: ast.For) -> Body:
        """See the module's picture."""
        if node.orelse:
            self._fail(
                "`for ... else` cannot be used in a tile program",
                node,
                hint="set a T.alloc_var where the loop breaks, and test it afterwards",
            )
        targets = scopes.target_names(node.target)
        names = [name for name in self._assigned(node.body) if name not in targets]
        handle = self._temporary("loop")
        make = _call("Loop", self._iterable(node.iter), _strings(names), _strings(targets))
        body = self._exchange(names, _method(handle, "enter"), node) + self.block(node.body)
        loop = ast.For(node.target, load(handle), body, [])
        leave = _method(handle, "leave")
        after = self._exchange(names + targets, leave, node)
        if not after:
            after = [self.at(ast.Expr(leave), node)]
        start = ast.Assign([store(handle)], make)
        return [self.at(start, node), self.at(loop, node), *after]

    def _iterable(self, node: ast.expr) -> ast.expr:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "range"
            and not node.keywords
        ):
            args = [self.visit(arg) for arg in node.args]
            return self.at(_call("range_", self.visit(node.func), *args), node)
        return self.visit(node)

    def visit_While(self, node: ast.While) -> Body:
        """The condition is traced once, ahead of the body."""
        if node.orelse:
            self._fail(
                "`while ... else` cannot be used in a tile program",
                node,
                hint="set a T.alloc_var where the loop breaks, and test it afterwards",
            )
        names = self._assigned(node.body)
        handle = self._temporary("while")
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        make = _call("WhileLoop", _strings(names), ast.Constant(endless))
        start = ast.Assign([store(handle)], make)
        test = ast.BoolOp(
            ast.And(),
            [_method(handle, "again"), _method(handle, "test", self.visit(node.test))],
        )
        loop = ast.While(test, self.block(node.body), [])
        leave = _method(handle, "leave")
        after = self._exchange(names, leave, node) or [self.at(ast.Expr(leave), node)]
        prepare = self._exchange(names, _method(handle, "prepare"), node)
        return [self.at(start, node), *prepare, self.at(loop, node), *after]

    def visit_If(self, node: ast.If) -> Body:
        """Both branches are traced when the condition is a runtime value."""
        names = self._assigned(node.body, node.orelse)
        handle = self._temporary("branch")
        has_else = ast.Constant(bool(node.orelse))
        make = _call("Branch", self.visit(node.test), _strings(names), has_else)
        body = self._exchange(names, _method(handle, "enter"), node) + self.block(node.body)
        result: Body = [
            ast.Assign([store(handle)], make),
            ast.If(_method(handle, "then"), body, []),
            *(self._swap(names, handle, "swap", node)),
        ]
        if node.orelse:
            result.append(ast.If(_method(handle, "otherwise"), self.block(node.orelse), []))
        result += self._swap(names, handle, "leave", node)
        return [self.at(statement, node) for statement in result]

    def _swap(self, names: list[str], handle: str, method: str, origin: ast.stmt) -> Body:
        call = _method(handle, method)
        return self._exchange(names, call, origin) or [self.at(ast.Expr(call), origin)]

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        """Python's own only in a loop that is unrolled while tracing."""
        return self.at(ast.If(_call("break_"), [ast.Break()], []), node)

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        """As `visit_Break`."""
        return self.at(ast.If(_call("continue_"), [ast.Continue()], []), node)

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        """A function of the program returns at its end only."""
        value = ast.Constant(None) if node.value is None else self.visit(node.value)
        return self.at(ast.Return(_call("return_", value)), node)

    def visit_With(self, node: ast.With) -> ast.stmt:
        """Kernels learn the names of their axes."""
        for item in node.items:
            names = [] if item.optional_vars is None else scopes.target_names(item.optional_vars)
            as_tuple = ast.Constant(isinstance(item.optional_vars, ast.Tuple | ast.List))
            manager = _call("with_", self.visit(item.context_expr), _strings(names), as_tuple)
            item.context_expr = self.at(manager, node)
        node.body = self.block(node.body)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Checked while tracing when possible, else by the program."""
        args = [self.visit(node.test)] + ([] if node.msg is None else [self.visit(node.msg)])
        return self.at(ast.Expr(_call("assert_", *args)), node)

    # --- expressions ---------------------------------------------------------------------------

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """``a and b and c``, from the right, later operands as thunks."""
        function = "and_" if isinstance(node.op, ast.And) else "or_"
        values = [self.visit(value) for value in node.values]
        result = values[-1]
        for value in reversed(values[:-1]):
            result = _call(function, value, _thunk(result))
        return self.at(result, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """``not``; the others are overloaded."""
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self.at(_call("not_", operand), node)
        node.operand = operand
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """``a < b < c`` is both; a single comparison is overloaded."""
        operands = [self.visit(value) for value in (node.left, *node.comparators)]
        pairs: list[ast.expr] = [
            ast.Compare(left, [op], [right])
            for left, op, right in zip(operands, node.ops, operands[1:], strict=False)
        ]
        result = pairs[-1]
        for pair in reversed(pairs[:-1]):
            result = _call("both", pair, result)
        return self.at(result, node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """``a if c else b``."""
        branches = [_thunk(self.visit(node.body)), _thunk(self.visit(node.orelse))]
        return self.at(_call("ternary", self.visit(node.test), *branches), node)
