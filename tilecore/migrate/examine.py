"""What of a program is supported: every construct of the framework that it uses, with its lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tilecore.compat import MODULES
from tilecore.compat.pass_configs import find_config
from tilecore.migrate.names import bindings, imports, locate, offers


@dataclass(frozen=True, slots=True)
class Finding:
    """One construct of a program.

    Attributes:
        construct: as the vocabulary names it (``T.copy``, ``import tvm``).
        lines: where the program uses it, 1-based.
        reason: why it is not supported; None when it is.
    """

    construct: str
    lines: tuple[int, ...]
    reason: str | None = None

    @property
    def supported(self) -> bool:
        """True when the construct is there."""
        return self.reason is None


def examine(text: str) -> list[Finding]:
    """The constructs of a program, refused ones first.

    Raises:
        SyntaxError: `text` is no Python.
    """
    tree = ast.parse(text)
    places: dict[str, list[int]] = {}
    reasons: dict[str, str | None] = {}
    for construct, line, reason in _uses(tree):
        places.setdefault(construct, []).append(line)
        reasons[construct] = reasons.get(construct) or reason
    found = [
        Finding(construct, tuple(sorted(set(lines))), reasons[construct])
        for construct, lines in places.items()
    ]
    return sorted(found, key=lambda one: (one.supported, one.construct))


def _uses(tree: ast.Module) -> Iterator[tuple[str, int, str | None]]:
    names = bindings(tree)
    for node in imports(tree):
        yield from _import_uses(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node, names)
            if dotted is not None:
                found = _attribute_use(dotted)
                if found is not None:
                    yield found[0], node.lineno, found[1]
        elif isinstance(node, ast.keyword) and node.arg == "pass_configs":
            yield from _config_uses(node.value)


def _import_uses(
    node: ast.Import | ast.ImportFrom,
) -> Iterator[tuple[str, int, str | None]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            found = locate(alias.name)
            if found.reason is not None:
                yield f"import {alias.name}", node.lineno, found.reason
        return
    assert node.module is not None
    found = locate(node.module)
    for alias in node.names:
        if alias.name == "*":
            continue
        nested = MODULES.get(f"{found.path}.{alias.name}".lstrip("."))
        reason = found.reason
        if reason is None and nested is None and found.target is not None:
            reason = offers(found.target, alias.name)
        yield f"from {node.module} import {alias.name}", node.lineno, reason


def _dotted(node: ast.Attribute, names: dict[str, str]) -> str | None:
    """The full name that an attribute chain stands for, if its root is an import."""
    parts: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        parts.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name) or current.id not in names:
        return None
    return ".".join([names[current.id], *reversed(parts)])


def _attribute_use(dotted: str) -> tuple[str, str | None] | None:
    """(construct, reason) for ``framework.module.name``; None for the chain of a longer name."""
    module, _, name = dotted.rpartition(".")
    found = locate(module)
    if found.target is None:
        parent = locate(module.rpartition(".")[0]) if "." in module else None
        inside = parent is not None and parent.target is not None
        return None if inside else (_shown(dotted), found.reason)
    if f"{found.path}.{name}".lstrip(".") in MODULES and name != "jit":
        return None  # a module; ``jit`` is one too, but programs mean the decorator
    return _shown(dotted), offers(found.target, name)


def _shown(dotted: str) -> str:
    for prefix in ("tilelang.language.", "tilelang.cuda.language.", "tilelang.rocm.language."):
        if dotted.startswith(prefix):
            return "T." + dotted.removeprefix(prefix)
    return dotted


def _config_uses(value: ast.expr) -> Iterator[tuple[str, int, str | None]]:
    if not isinstance(value, ast.Dict):
        return
    for key in value.keys:
        text = key.attr if isinstance(key, ast.Attribute) else getattr(key, "value", None)
        if key is None or not isinstance(text, str):
            continue
        found = find_config(text)
        reason = "this key is not known" if found is None else None
        if found is not None and found.kind == "refused":
            reason = found.reason
        yield f"pass_configs {text}", key.lineno, reason
